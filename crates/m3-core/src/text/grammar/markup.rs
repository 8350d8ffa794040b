//! Tool calls in the model's own markup, as a grammar: the block, calls of declared tools, and arguments that fit the
//! tool's schema. How a text will be typed is asked of the parser ([`Reading`]); what it would read as something else
//! than meant is left out of the grammar, so that whatever the grammar allows is read back as valid arguments.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value;

use super::GrammarError;
use super::json::{items, keys, listed, long_with_pattern, number_rule, text_patterns};
use super::lark::{Lark, Member, Members, count_texts, expression, literal, one_of};
use super::schema::{Array, Case, Id, Levels, Object, Schemas, Text, allowed, sample};
use crate::text::parse::{Markers, Reading, ToolSet};

mod tags;

pub(super) use tags::TagWriter;

/// Most elements inside each other; the parser reads up to 127 containers.
const MAX_DEPTH: usize = 100;
/// Most calls of one answer.
const MAX_CALLS: usize = 64;
/// Keys that no schema names: their characters, and words that mean something else.
const KEY: &str = "[A-Za-z0-9_.\\-]{1,64}";
const TAKEN: [&str; 3] = ["item", "invoke", "tool_call"];

/// A tool that may be called.
#[derive(Debug, Clone)]
pub struct CallableTool {
    /// Its name.
    pub name: String,
    /// JSON Schema of its arguments; `None` = it takes none.
    pub parameters: Option<Value>,
    /// Arguments must fit. Off: where the schema cannot be enforced, any well-formed arguments may be given.
    pub strict: bool,
}

/// Which calls an answer may have.
#[derive(Debug, Clone)]
pub struct CallRules {
    /// What may be called.
    pub tools: Vec<CallableTool>,
    /// How the parser types arguments.
    pub typing: Arc<ToolSet>,
    /// The model's markup.
    pub markers: Markers,
    /// More than one call.
    pub parallel: bool,
}

/// The grammar of one block of calls.
pub(super) fn write_calls(rules: &CallRules) -> Result<String, GrammarError> {
    let mut lark = Lark::default();
    let tags = TagWriter::new(&rules.markers)?;
    let mut calls = Vec::new();
    let is_first = |(at, tool): &(usize, &CallableTool)| {
        // Of two tools with one name the parser knows the first.
        rules.tools[..*at].iter().all(|other| other.name != tool.name)
    };
    for (_, tool) in rules.tools.iter().enumerate().filter(is_first) {
        calls.push(call(&mut lark, &tags, rules, tool)?);
    }
    if calls.is_empty() {
        return Err(GrammarError::whole("there is no tool to call"));
    }
    lark.rule("call", &calls)?;
    let count = if rules.parallel { format!("call{{1,{MAX_CALLS}}}") } else { "call".to_owned() };
    let block = format!("{} \"\\n\" {count} {}", tags.block_open(), tags.block_close());
    lark.rule("start", &[block])?;
    Ok(lark.finish())
}

fn call(
    lark: &mut Lark,
    tags: &TagWriter,
    rules: &CallRules,
    tool: &CallableTool,
) -> Result<String, GrammarError> {
    if tool.name.contains(['"', '<', '>', '\n']) || tool.name.len() > 200 {
        let shown: String = tool.name.chars().take(80).collect();
        return Err(GrammarError::whole(format!(
            "the tool name {shown:?} cannot be written in the model's markup"
        )));
    }
    let open = tags.raw(&format!("<invoke name=\"{}\">", tool.name));
    let arguments = arguments(lark, tags, rules, tool)?;
    Ok(format!("{open} {arguments} {} \"\\n\"", tags.raw("</invoke>")))
}

fn arguments(
    lark: &mut Lark,
    tags: &TagWriter,
    rules: &CallRules,
    tool: &CallableTool,
) -> Result<String, GrammarError> {
    let Some(document) = tool.parameters.as_ref().filter(|document| !document.is_null()) else {
        return Ok("\"\"".to_owned());
    };
    let strict = arguments_of(lark, tags, rules, (tool, document));
    match strict {
        Err(_) if !tool.strict => {
            let anything = serde_json::json!({"type": "object", "additionalProperties": true});
            arguments_of(lark, tags, rules, (tool, &anything))
        }
        strict => strict.map_err(|error| error.within_tool(&tool.name)),
    }
}

fn arguments_of(
    lark: &mut Lark,
    tags: &TagWriter,
    rules: &CallRules,
    (tool, document): (&CallableTool, &Value),
) -> Result<String, GrammarError> {
    let schemas = super::schema::read(document)?;
    let names = (0..schemas.len()).flat_map(|id| schemas.cases(id)).filter_map(|case| case.object.as_ref());
    let names = names.flat_map(|object| object.properties.keys().cloned()).collect();
    let mut writer = ArgumentWriter {
        schemas: &schemas,
        levels: Levels::of(&schemas),
        lark,
        tags,
        rules: HashMap::new(),
        names,
        depth: 0,
    };
    let words = ["additionalProperties", "$ref", "allOf", "anyOf", "oneOf", "patternProperties"];
    let explicit = words.iter().any(|word| document.get(word).is_some());
    let root = Root { tool: &tool.name, typing: &rules.typing };
    writer.root(&root, explicit)
}

struct Root<'a> {
    tool: &'a str,
    typing: &'a Arc<ToolSet>,
}

/// Where a value stands: what it must be and how it will be read.
struct Place<'r> {
    id: Id,
    level: usize,
    reading: &'r Reading,
}

struct ArgumentWriter<'a> {
    schemas: &'a Schemas,
    levels: Levels,
    lark: &'a mut Lark,
    tags: &'a TagWriter,
    /// `None` = nothing can be written there.
    rules: HashMap<(Id, usize, String), Option<String>>,
    /// Every key that the document names, sorted.
    names: BTreeSet<String>,
    depth: usize,
}

impl ArgumentWriter<'_> {
    /// The arguments' own object, whose members stand in the call itself.
    fn root(&mut self, root: &Root<'_>, explicit: bool) -> Result<String, GrammarError> {
        let level = self.levels.start(Schemas::ROOT);
        let mut all = Vec::new();
        let schemas = self.schemas;
        for case in schemas.cases(Schemas::ROOT).iter().filter(|case| case.values.is_none()) {
            let Some(object) = &case.object else { continue };
            let mut object = object.clone();
            object.open &= explicit;
            let read = |key: &str| Reading::parameter(root.typing, root.tool, key);
            let members = self.members((Schemas::ROOT, level), &object, &read, &[])?;
            all.extend(match members {
                Some(members) => self.lark.members(&members)?,
                None => None,
            });
        }
        if all.is_empty() {
            return Err(GrammarError::at("", "no arguments that the schema allows can be written"));
        }
        let name = self.lark.fresh("args");
        self.lark.rule(&name, &all)?;
        Ok(name)
    }

    /// The rule for what stands between an element's tags.
    fn content(&mut self, place: &Place<'_>) -> Result<Option<String>, GrammarError> {
        let key = (place.id, place.level, place.reading.mark());
        if let Some(known) = self.rules.get(&key) {
            return Ok(known.clone());
        }
        if self.depth >= MAX_DEPTH {
            return Err(GrammarError::whole(format!("the schema nests deeper than {MAX_DEPTH} values")));
        }
        self.depth += 1;
        let schemas = self.schemas;
        let mut all: Vec<String> = Vec::new();
        for case in schemas.cases(place.id) {
            for alternative in self.case(place, case)? {
                if !all.contains(&alternative) {
                    all.push(alternative);
                }
            }
        }
        self.depth -= 1;
        let rule = match all.is_empty() {
            true => None,
            false => {
                let name = self.lark.fresh("e");
                self.lark.rule(&name, &all)?;
                Some(name)
            }
        };
        self.rules.insert(key, rule.clone());
        Ok(rule)
    }

    fn case(&mut self, place: &Place<'_>, case: &Case) -> Result<Vec<String>, GrammarError> {
        if let Some(values) = &case.values {
            return Ok(self.values(values, place.reading));
        }
        let reading = place.reading;
        let mut all = Vec::new();
        if case.null && reading.leaf("null") == Value::Null {
            all.push("\"null\"".to_owned());
        }
        if case.boolean && reading.leaf("true") == Value::Bool(true) {
            all.push(self.lark.terminal("\"true\" | \"false\""));
        }
        if let Some(number) = &case.number
            && reading.leaf("7").is_number()
        {
            let mut number = number.clone();
            number.integer |= !reading.leaf("0.5").is_number();
            all.extend(number_rule(self.lark, &number)?);
        }
        if let Some(text) = &case.text {
            all.extend(self.text(text, reading)?);
        }
        if let Some(array) = &case.array {
            all.extend(self.array(place, array)?);
        }
        if let Some(object) = &case.object {
            all.extend(self.object(place, object)?);
        }
        Ok(all)
    }

    /// Listed values, as far as the parser reads them back.
    fn values(&mut self, values: &[Value], reading: &Reading) -> Vec<String> {
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let mut texts: Vec<String> = values
            .iter()
            .map(|value| (value, text(value)))
            .filter(|(value, text)| same(&reading.leaf(text), value) && !self.tags.is_in(text))
            .map(|(_, text)| text)
            .collect();
        let empty = texts.iter().position(String::is_empty).map(|at| texts.remove(at));
        let mut all: Vec<String> = empty.map(|_| "\"\"".to_owned()).into_iter().collect();
        if !texts.is_empty() {
            all.push(self.lark.terminal(&one_of(texts)));
        }
        all
    }

    fn text(&mut self, text: &Text, reading: &Reading) -> Result<Vec<String>, GrammarError> {
        let is_text = |text: &str| reading.leaf(text) == text;
        let mut all = Vec::new();
        if allowed(text, "") && is_text("") {
            all.push("\"\"".to_owned());
        }
        let mut barred = Vec::new();
        for (probes, taken) in [
            (["null", "NULL"], "\\s*(?i:null)\\s*"),
            (["true", "False"], "\\s*(?i:true|false)\\s*"),
            (["7", "0.5"], "\\s*-?[0-9]+(\\.[0-9]+)?([eE][+-]?[0-9]+)?\\s*"),
            (["{}", "[]"], "\\s*[\\[{](?s:.)*"),
            (["", " "], "\\s*"),
        ] {
            if !probes.into_iter().all(is_text) {
                barred.push(taken.to_owned());
            }
        }
        // The marker's spelling is barred where the tokens are chosen. Without it the expression is a plain
        // repetition, whose masks are prepared.
        let plain = barred.is_empty() && text.patterns.is_empty();
        let least = text.min.max(1);
        if text.is_long() {
            if !plain {
                return Err(long_with_pattern(text));
            }
            all.push(self.lark.long_text("(?s:.)", least, text.max));
        } else if plain {
            if text.max.is_none_or(|most| most >= least) {
                let most = text.max.map(|max| max.to_string()).unwrap_or_default();
                all.push(self.lark.terminal(&expression(&format!("(?s:.){{{least},{most}}}"))));
            }
        } else if text.max != Some(0) {
            barred.push(self.tags.marked_text());
            let mut wanted = vec!["(?s:.)+".to_owned()];
            wanted.extend(text_patterns(text));
            all.extend(self.lark.conjunction(&wanted, &barred)?);
        }
        Ok(all)
    }

    fn array(&mut self, place: &Place<'_>, array: &Array) -> Result<Vec<String>, GrammarError> {
        let reading = place.reading;
        let readable = reading.leaf("[]").is_array();
        if !readable && !reading.is_untyped() {
            return Ok(Vec::new());
        }
        let mut all = Vec::new();
        if array.min == 0 {
            let texts =
                ["", "[]"].into_iter().filter(|text| same(&reading.leaf(text), &Value::Array(Vec::new())));
            all.extend(texts.take(1).map(literal));
        }
        // The parser types the items one by one as long as some schema names them by their place.
        let far = reading.child("item", 1 << 20).mark();
        let by_place = (0..256).rev().find(|index| reading.child("item", *index).mark() != far);
        let by_place = by_place.map_or(0, |index| index + 1).max(array.prefix.len());
        let mut shape = array.clone();
        shape.min = array.min.max(1);
        if array.unique {
            all.extend(self.unique(&shape, &reading.child("item", 1 << 20))?.filter(|_| by_place == 0));
            return Ok(all);
        }
        while let Some(items) = array.items.filter(|_| shape.prefix.len() < by_place) {
            shape.prefix.push(items);
        }
        let mut bodies = Vec::new();
        for (index, child) in shape.prefix.iter().enumerate() {
            bodies.push(self.item(place, *child, index)?);
        }
        let tail = match shape.items {
            Some(child) => self.item(place, child, by_place)?,
            None => None,
        };
        all.extend(items(self.lark, &shape, &bodies, tail.as_deref(), "")?);
        Ok(all)
    }

    /// Items of which none stands twice.
    fn unique(&mut self, array: &Array, reading: &Reading) -> Result<Option<String>, GrammarError> {
        let mut bodies = Vec::new();
        for value in listed(self.schemas, array)? {
            let content = self.values(&[value], reading);
            bodies.extend(content.iter().map(|content| self.tags.element("item", content)));
        }
        self.lark.unique_items(&bodies, array.min, array.max, "")
    }

    fn item(&mut self, place: &Place<'_>, child: Id, index: usize) -> Result<Option<String>, GrammarError> {
        let Some(level) = self.levels.child(self.schemas, place.id, place.level, child) else {
            return Ok(None);
        };
        let reading = place.reading.child("item", index);
        let content = self.content(&Place { id: child, level, reading: &reading })?;
        Ok(content.map(|content| self.tags.element("item", &content)))
    }

    fn object(&mut self, place: &Place<'_>, object: &Object) -> Result<Vec<String>, GrammarError> {
        let reading = place.reading;
        let mut all = Vec::new();
        if !reading.leaf("{}").is_object() && !reading.is_untyped() {
            return Ok(all);
        }
        if object.required.is_empty() && object.min == 0 {
            let empty = Value::Object(Default::default());
            let texts = ["", "{}"].into_iter().filter(|text| same(&reading.leaf(text), &empty));
            all.extend(texts.take(1).map(literal));
        }
        // Where it could also be an array, children called `item` would make it one.
        let ambiguous = reading.is_untyped() || reading.leaf("[]").is_array();
        let barred: &[&str] = if ambiguous { &["item"] } else { &[] };
        let read = |key: &str| reading.child(key, 0);
        if let Some(mut members) = self.members((place.id, place.level), object, &read, barred)? {
            members.min = members.min.max(1);
            all.extend(self.lark.members(&members)?);
        }
        Ok(all)
    }

    /// What an object is written from; `None` when a required member cannot be written.
    fn members(
        &mut self,
        (id, level): (Id, usize),
        object: &Object,
        read: &dyn Fn(&str) -> Reading,
        barred: &[&str],
    ) -> Result<Option<Members>, GrammarError> {
        let mut named = Vec::new();
        for (key, child) in &object.properties {
            let required = object.required.contains(key);
            let content = match self.levels.child(self.schemas, id, level, *child) {
                Some(level) if tags::is_writable(key) && !barred.contains(&key.as_str()) => {
                    self.content(&Place { id: *child, level, reading: &read(key) })?
                }
                _ => None,
            };
            match content {
                Some(content) => named.push(Member { body: self.tags.element(key, &content), required }),
                None if required => return Ok(None),
                None => {}
            }
        }
        let wanted = object.min.saturating_sub(named.len());
        let (free, found) = self.free(&Within { id, level, object, read }, wanted)?;
        if found < wanted {
            return Ok(None);
        }
        Ok(Some(Members { named, free, min: object.min, max: object.max, separator: String::new() }))
    }

    /// Members with keys that the schema does not name, and how many such keys there are, up to `most`: none may stand
    /// twice.
    fn free(&mut self, within: &Within<'_>, most: usize) -> Result<(Option<String>, usize), GrammarError> {
        let Within { id, level, object, read } = *within;
        let (mut bodies, mut found) = (Vec::new(), 0);
        for (at, wanted) in keys(object).into_iter().enumerate() {
            let Some(level) = self.levels.child(self.schemas, id, level, wanted.value) else { continue };
            let key = wanted.pattern.and_then(sample).unwrap_or_else(|| "a-key-of-no-schema".to_owned());
            let reading = read(&key);
            let Some(content) = self.content(&Place { id: wanted.value, level, reading: &reading })? else {
                continue;
            };
            // Keys that the parser would read by another schema are left out.
            let mark = reading.mark();
            let mut taken: BTreeSet<&str> = TAKEN.into_iter().collect();
            let named = |name: &&String| object.properties.contains_key(*name) || read(name).mark() != mark;
            taken.extend(self.names.iter().filter(named).map(String::as_str));
            let tag = |pattern: &str| format!("<({pattern})>");
            let mut all = vec![tag(KEY)];
            all.extend(wanted.pattern.map(tag));
            let others = object.patterns.iter().enumerate().filter(|(other, _)| *other != at);
            let mut none: Vec<String> = others.map(|(_, (pattern, _))| tag(pattern)).collect();
            none.push(tag(&taken.into_iter().map(regex::escape).collect::<Vec<_>>().join("|")));
            let Some(open) = self.lark.conjunction(&all, &none)? else { continue };
            if found < most {
                found += count_texts(&all, &none, most - found)?;
            }
            let close = self.lark.terminal(&format!("/<\\/{KEY}>/"));
            bodies.push(self.tags.free_element(&open, &content, &close));
        }
        Ok(((!bodies.is_empty()).then(|| format!("({})", bodies.join(" | "))), found))
    }
}

/// An object whose members are written.
struct Within<'r> {
    id: Id,
    level: usize,
    object: &'r Object,
    read: &'r dyn Fn(&str) -> Reading,
}

/// Equal, whether a whole number is written `3` or `3.0`.
fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            left == right || left.as_f64().zip(right.as_f64()).is_some_and(|(left, right)| left == right)
        }
        _ => left == right,
    }
}
