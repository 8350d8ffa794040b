//! JSON text that fits a schema, as a grammar. Properties are written in the schema's order; white space is at most one
//! blank, or one line break with its indentation, in each place.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::GrammarError;
use super::lark::{Lark, MAX_COUNTED, MAX_REPEATS, Member, Members, expression, literal, one_of, repeated};
use super::schema::{
    Array, Case, Id, Levels, MAX_UNIQUE, Number, Object, Schemas, Text, multiples, number_pattern,
};

/// Characters of a string that need no escape.
const PLAIN: &str = "[^\"\\\\\\x00-\\x1f\\x7f]";
/// One character of a string as JSON writes it.
const CHARACTER: &str = "([^\"\\\\\\x00-\\x1f\\x7f]|\\\\[\"\\\\/bfnrt])";
/// Longest key that no schema names, in characters.
const MAX_KEY: usize = 64;

/// Writes one document's values.
pub(super) struct JsonWriter<'s> {
    schemas: &'s Schemas,
    levels: Levels,
    lark: Lark,
    rules: HashMap<(Id, usize), String>,
    space: String,
}

/// The rules for a value of the document; the rule to start from has this name.
pub(super) fn write_json(schemas: &Schemas, lark: Lark) -> Result<(Lark, String), GrammarError> {
    let mut writer = JsonWriter {
        schemas,
        levels: Levels::of(schemas),
        lark,
        rules: HashMap::new(),
        space: String::new(),
    };
    writer.space = format!("{}?", writer.lark.terminal(&expression(" |\\n[ \\t]{0,32}")));
    let level = writer.levels.start(Schemas::ROOT);
    if !writer.levels.is_possible(schemas, Schemas::ROOT, level) {
        return Err(GrammarError::at("", "no value fits the schema"));
    }
    let start = writer.value(Schemas::ROOT, level)?;
    Ok((writer.lark, start))
}

impl JsonWriter<'_> {
    /// The rule of a schema of which a value is possible.
    fn value(&mut self, id: Id, level: usize) -> Result<String, GrammarError> {
        if let Some(name) = self.rules.get(&(id, level)) {
            return Ok(name.clone());
        }
        let name = self.lark.fresh("v");
        self.rules.insert((id, level), name.clone());
        let mut all = Vec::new();
        let schemas = self.schemas;
        for case in schemas.cases(id) {
            all.extend(self.case(id, level, case)?);
        }
        all.dedup();
        if all.is_empty() {
            return Err(GrammarError::whole("the limits on properties or items leave no value to write"));
        }
        self.lark.rule(&name, &all)?;
        Ok(name)
    }

    fn case(&mut self, id: Id, level: usize, case: &Case) -> Result<Vec<String>, GrammarError> {
        if let Some(values) = &case.values {
            let texts = values.iter().map(Value::to_string);
            return Ok(if values.is_empty() { Vec::new() } else { vec![self.lark.terminal(&one_of(texts))] });
        }
        let mut all = Vec::new();
        if case.null {
            all.push("\"null\"".to_owned());
        }
        if case.boolean {
            all.push(self.lark.terminal("\"true\" | \"false\""));
        }
        if let Some(number) = &case.number {
            all.extend(number_rule(&mut self.lark, number)?);
        }
        if let Some(text) = &case.text {
            all.extend(self.text(text)?);
        }
        if let Some(array) = &case.array {
            all.extend(self.array(id, level, array)?);
        }
        if let Some(object) = &case.object {
            all.extend(self.object(id, level, object)?);
        }
        Ok(all)
    }

    fn text(&mut self, text: &Text) -> Result<Option<String>, GrammarError> {
        if text.is_long() {
            if !text.patterns.is_empty() {
                return Err(long_with_pattern(text));
            }
            let body = self.lark.long_text(CHARACTER, text.min, text.max);
            return Ok(Some(format!("\"\\\"\" {body} \"\\\"\"")));
        }
        if text.patterns.is_empty() {
            let count = match text.max {
                Some(max) => format!("{{{},{max}}}", text.min),
                None if text.min > 0 => format!("{{{},}}", text.min),
                None => "*".to_owned(),
            };
            return Ok(Some(self.lark.terminal(&expression(&format!("\"{CHARACTER}{count}\"")))));
        }
        if self.lark.conjunction(&text_patterns(text), &[])?.is_none() {
            return Ok(None);
        }
        // Expressions speak of the text, not of its escapes: the engine's own schemas translate between them.
        let whole = |pattern: &String| json!({"type": "string", "pattern": format!("^({pattern})$")});
        let mut schema = json!({"allOf": text.patterns.iter().map(whole).collect::<Vec<_>>()});
        let mut limits = json!({"type": "string", "minLength": text.min});
        if let Some(max) = text.max {
            limits["maxLength"] = max.into();
        }
        schema["allOf"].as_array_mut().expect("made above").push(limits);
        Ok(Some(format!("%json {schema}")))
    }

    fn array(&mut self, id: Id, level: usize, array: &Array) -> Result<Option<String>, GrammarError> {
        let comma = format!("\",\" {}", self.space);
        let brackets = |items: String, space: &str| format!("\"[\" {space} {items} {space} \"]\"");
        if array.unique {
            let bodies: Vec<String> =
                listed(self.schemas, array)?.iter().map(|value| literal(&value.to_string())).collect();
            let items = self.lark.unique_items(&bodies, array.min, array.max, &comma)?;
            return Ok(items.map(|items| brackets(items, &self.space)));
        }
        let item = |writer: &mut Self, child: Id| -> Result<Option<String>, GrammarError> {
            match writer.levels.child(writer.schemas, id, level, child) {
                Some(level) => writer.value(child, level).map(Some),
                None => Ok(None),
            }
        };
        let mut bodies = Vec::new();
        for child in &array.prefix {
            bodies.push(item(self, *child)?);
        }
        let tail = match array.items {
            Some(child) => item(self, child)?,
            None => None,
        };
        let items = items(&mut self.lark, array, &bodies, tail.as_deref(), &comma)?;
        Ok(items.map(|items| brackets(items, &self.space)))
    }

    fn object(&mut self, id: Id, level: usize, object: &Object) -> Result<Option<String>, GrammarError> {
        let space = self.space.clone();
        let mut named = Vec::new();
        for (key, child) in &object.properties {
            let required = object.required.contains(key);
            let Some(level) = self.levels.child(self.schemas, id, level, *child) else {
                if required {
                    return Ok(None);
                }
                continue;
            };
            let value = self.value(*child, level)?;
            let key = literal(&format!("{}:", Value::from(key.as_str())));
            named.push(Member { body: format!("{key} {space} {value}"), required });
        }
        let free = self.free(id, level, object)?;
        if free.is_some() && object.min > named.len() + 1 {
            let reason = "minProperties above the number of named properties cannot be kept, because a key could be \
                          written twice";
            return Err(GrammarError::whole(reason));
        }
        let separator = format!("\",\" {space}");
        let members = Members { named, free, min: object.min, max: object.max, separator };
        let body = self.lark.members(&members)?;
        Ok(body.map(|body| format!("\"{{\" {space} {body} {space} \"}}\"")))
    }

    /// Members with keys that the schema does not name.
    fn free(&mut self, id: Id, level: usize, object: &Object) -> Result<Option<String>, GrammarError> {
        let quoted = |pattern: &str| format!("\"({pattern})\"");
        let mut bodies = Vec::new();
        for (at, wanted) in keys(object).into_iter().enumerate() {
            let Some(level) = self.levels.child(self.schemas, id, level, wanted.value) else { continue };
            let value = self.value(wanted.value, level)?;
            let mut all = vec![quoted(&format!("{PLAIN}{{0,{MAX_KEY}}}"))];
            all.extend(wanted.pattern.map(quoted));
            let others = object.patterns.iter().enumerate().filter(|(other, _)| *other != at);
            let mut none: Vec<String> = others.map(|(_, (pattern, _))| quoted(pattern)).collect();
            let named: Vec<String> = object.properties.keys().map(|key| regex::escape(key)).collect();
            if !named.is_empty() {
                none.push(quoted(&named.join("|")));
            }
            if let Some(key) = self.lark.conjunction(&all, &none)? {
                bodies.push(format!("{key} \":\" {} {value}", self.space));
            }
        }
        Ok((!bodies.is_empty()).then(|| format!("({})", bodies.join(" | "))))
    }
}

/// The values of an array in which none may stand twice.
pub(super) fn listed(schemas: &Schemas, array: &Array) -> Result<Vec<Value>, GrammarError> {
    let mut all: Vec<Value> = Vec::new();
    for case in array.items.into_iter().flat_map(|id| schemas.cases(id)) {
        let values = case.values.as_ref().filter(|_| array.prefix.is_empty());
        let values = values.ok_or_else(|| {
            GrammarError::whole(
                "uniqueItems cannot be combined with prefixItems, contains or items without an enum",
            )
        })?;
        all.extend(values.iter().filter(|value| !all.contains(value)).cloned().collect::<Vec<_>>());
    }
    match all.len() > MAX_UNIQUE {
        true => Err(GrammarError::whole(format!("uniqueItems is supported for up to {MAX_UNIQUE} values"))),
        false => Ok(all),
    }
}

/// Both together would need a state for each character.
pub(super) fn long_with_pattern(text: &Text) -> GrammarError {
    let length = text.max.unwrap_or(text.min);
    let reason = format!(
        "a length of {length} beside a pattern, format or other types is not supported; up to {MAX_COUNTED} is"
    );
    GrammarError::whole(reason)
}

/// What a text must match, its limits included.
pub(super) fn text_patterns(text: &Text) -> Vec<String> {
    let mut all: Vec<String> = text.patterns.iter().map(|pattern| format!("({pattern})")).collect();
    if text.min > 1 || text.max.is_some() {
        let max = text.max.map(|max| max.to_string()).unwrap_or_default();
        all.push(format!("(?s:.){{{},{max}}}", text.min));
    }
    all
}

/// One kind of keys that are not named.
pub(super) struct FreeKeys<'o> {
    /// `None` = all that no pattern fits.
    pub(super) pattern: Option<&'o str>,
    pub(super) value: Id,
}

/// The kinds of keys worth writing beside the named ones: those of patterns first, in their order.
pub(super) fn keys(object: &Object) -> Vec<FreeKeys<'_>> {
    let mut all: Vec<FreeKeys<'_>> = object
        .patterns
        .iter()
        .map(|(pattern, value)| FreeKeys { pattern: Some(pattern.as_str()), value: *value })
        .collect();
    // Where there are patterns, keys that fit none are of no interest unless the schema speaks of them.
    if let Some(value) = object.additional.filter(|_| object.open) {
        all.push(FreeKeys { pattern: None, value });
    }
    all
}

/// A number's terminal, or the engine's own rule where it must be a multiple.
pub(super) fn number_rule(lark: &mut Lark, number: &Number) -> Result<Option<String>, GrammarError> {
    let Some(multiple) = number.multiple else {
        return lark.conjunction(&number_pattern(number), &[]);
    };
    let Some((first, last)) = multiples(number) else { return Ok(None) };
    let schema = json!({"type": "integer", "multipleOf": multiple, "minimum": first, "maximum": last});
    Ok(Some(format!("%json {schema}")))
}

/// The items of an array: `bodies` for its prefix and `tail` for the others, `None` where nothing can be written.
pub(super) fn items(
    lark: &mut Lark,
    array: &Array,
    bodies: &[Option<String>],
    tail: Option<&str>,
    separator: &str,
) -> Result<Option<String>, GrammarError> {
    let prefix = bodies.len();
    let most = array.max.unwrap_or(MAX_REPEATS.max(array.min));
    if most > 1 << 20 || array.min > MAX_REPEATS {
        let reason = format!("minItems is {}; at most {MAX_REPEATS} can be asked for", array.min);
        return Err(GrammarError::whole(reason));
    }
    let most = most.min(MAX_REPEATS);
    // The rest behind the prefix, when all of it was written.
    let mut next = rest(array, prefix, most, tail, separator);
    for (index, body) in bodies.iter().enumerate().rev() {
        let mut all = Vec::new();
        if index >= array.min {
            all.push("\"\"".to_owned());
        }
        if let (Some(body), Some(rest), true) = (body, &next, index < most) {
            let body =
                if index == 0 || separator.is_empty() { body.clone() } else { format!("{separator} {body}") };
            all.push(format!("{body} {rest}"));
        }
        next = match all.is_empty() {
            true => None,
            false => {
                let name = lark.fresh("a");
                lark.rule(&name, &all)?;
                Some(name)
            }
        };
    }
    Ok(next)
}

fn rest(array: &Array, prefix: usize, most: usize, tail: Option<&str>, separator: &str) -> Option<String> {
    let (least, most) = (array.min.saturating_sub(prefix), most.saturating_sub(prefix));
    let Some(tail) = tail.filter(|_| most > 0) else {
        return (least == 0).then(|| "\"\"".to_owned());
    };
    if separator.is_empty() {
        return Some(repeated(tail, least, most));
    }
    if prefix > 0 {
        return Some(repeated(&format!("{separator} {tail}"), least, most));
    }
    let more = repeated(&format!("{separator} {tail}"), least.saturating_sub(1), most - 1);
    let several = format!("{tail} {more}");
    Some(if least == 0 { format!("(\"\" | {several})") } else { format!("({several})") })
}
