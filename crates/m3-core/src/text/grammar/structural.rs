//! Structural tags: free text in which tagged parts follow a schema or grammar once they begin. Both forms that clients
//! send are read: `structures` with `triggers`, and `format` trees of sequences, choices, tags and texts.

use serde_json::{Map, Value};

use super::compile::regex_terminal;
use super::json::write_json;
use super::lark::{Lark, expression, literal};
use super::{GrammarError, schema};

/// Most parts inside each other.
const MAX_NESTING: usize = 32;
/// Most tagged parts of one text.
const MAX_TAGS: usize = 256;

/// The grammar of a structural tag.
pub(super) fn to_lark(tag: &Value) -> Result<String, GrammarError> {
    let mut writer = Writer { lark: Lark::default(), nesting: 0 };
    let map = tag.as_object().ok_or_else(|| GrammarError::at("", "a structural tag must be an object"))?;
    let start = match (map.get("format"), map.get("structures")) {
        (Some(format), _) => writer.format(format, "/format", true)?,
        (None, Some(_)) => writer.legacy(map)?,
        (None, None) => {
            return Err(GrammarError::at("", "a structural tag needs format, or structures and triggers"));
        }
    };
    writer.lark.rule("start", &[start])?;
    Ok(writer.lark.finish())
}

struct Writer {
    lark: Lark,
    nesting: usize,
}

fn text<'v>(map: &'v Map<String, Value>, name: &str, at: &str) -> Result<&'v str, GrammarError> {
    let text = map.get(name).and_then(Value::as_str);
    text.ok_or_else(|| GrammarError::at(&format!("{at}/{name}"), format!("{name} must be a string")))
}

fn list<'v>(map: &'v Map<String, Value>, name: &str, at: &str) -> Result<&'v [Value], GrammarError> {
    match map.get(name).and_then(Value::as_array) {
        Some(list) if !list.is_empty() => Ok(list),
        _ => {
            Err(GrammarError::at(&format!("{at}/{name}"), format!("{name} must be a list that is not empty")))
        }
    }
}

fn object<'v>(value: &'v Value, at: &str) -> Result<&'v Map<String, Value>, GrammarError> {
    value.as_object().ok_or_else(|| GrammarError::at(at, "an object is expected"))
}

/// Triggers of a list.
fn triggers(map: &Map<String, Value>, at: &str) -> Result<Vec<String>, GrammarError> {
    let all =
        list(map, "triggers", at)?.iter().map(|trigger| trigger.as_str().filter(|text| !text.is_empty()));
    let all: Option<Vec<_>> = all.map(|trigger| trigger.map(str::to_owned)).collect();
    all.ok_or_else(|| {
        GrammarError::at(&format!("{at}/triggers"), "triggers must be strings that are not empty")
    })
}

/// One tagged part.
struct Tag {
    begin: String,
    content: String,
    end: String,
}

impl Writer {
    /// `{"structures": [{"begin", "schema", "end"}], "triggers": […]}`.
    fn legacy(&mut self, map: &Map<String, Value>) -> Result<String, GrammarError> {
        let mut tags = Vec::new();
        for (index, structure) in list(map, "structures", "")?.iter().enumerate() {
            let at = format!("/structures/{index}");
            let structure = object(structure, &at)?;
            let schema = structure.get("schema").unwrap_or(&Value::Bool(true));
            let content = self.schema(schema, &format!("{at}/schema"))?;
            let (begin, end) = (text(structure, "begin", &at)?, text(structure, "end", &at)?);
            tags.push(Tag { begin: begin.to_owned(), content, end: literal(end) });
        }
        let triggers = triggers(map, "")?;
        self.triggered(&triggers, &tags, Repeats { at_least_one: false, stop_after_first: false }, "")
    }

    /// Rules for one part of a tree; `last`: nothing comes behind it, so free text may stand there.
    fn format(&mut self, format: &Value, at: &str, last: bool) -> Result<String, GrammarError> {
        self.nesting += 1;
        if self.nesting > MAX_NESTING {
            return Err(GrammarError::at(at, format!("more than {MAX_NESTING} parts inside each other")));
        }
        let map = object(format, at)?;
        let body = match text(map, "type", at)? {
            "const_string" => literal(text(map, "value", at)?),
            "json_schema" => self
                .schema(map.get("json_schema").unwrap_or(&Value::Bool(true)), &format!("{at}/json_schema"))?,
            "regex" => {
                let pattern = regex_terminal(text(map, "pattern", at)?)?;
                self.lark.terminal(&pattern)
            }
            "any_text" | "triggered_tags" if !last => {
                let reason = "free text must be the last part, stand alone in a tag, or be followed by a const_string \
                              or a tag";
                return Err(GrammarError::at(at, reason));
            }
            "any_text" => self.any_text(&[]),
            "sequence" => self.sequence(map, at, last)?,
            "or" => {
                let mut all = Vec::new();
                for (index, element) in list(map, "elements", at)?.iter().enumerate() {
                    all.push(self.format(element, &format!("{at}/elements/{index}"), last)?);
                }
                format!("({})", all.join(" | "))
            }
            "tag" => {
                let tag = self.tag(map, at)?;
                format!("({} {} {})", literal(&tag.begin), tag.content, tag.end)
            }
            "triggered_tags" => {
                let tags = self.tags(map, at)?;
                let flag = |name: &str| map.get(name) == Some(&Value::Bool(true));
                let triggers = triggers(map, at)?;
                let repeats = Repeats {
                    at_least_one: flag("at_least_one"),
                    stop_after_first: flag("stop_after_first"),
                };
                self.triggered(&triggers, &tags, repeats, at)?
            }
            "tags_with_separator" => {
                let tags = self.tags(map, at)?;
                let whole = |tag: &Tag| format!("{} {} {}", literal(&tag.begin), tag.content, tag.end);
                let one = format!("({})", tags.iter().map(whole).collect::<Vec<_>>().join(" | "));
                let separator = literal(text(map, "separator", at)?);
                let more = if map.get("stop_after_first") == Some(&Value::Bool(true)) { 0 } else { MAX_TAGS };
                let all = format!("({one} ({separator} {one}){{0,{more}}})");
                if map.get("at_least_one") == Some(&Value::Bool(true)) { all } else { format!("({all})?") }
            }
            other => {
                let known = "const_string, json_schema, regex, any_text, sequence, or, tag, triggered_tags, \
                             tags_with_separator";
                let shown: String = other.chars().take(80).collect();
                let reason = format!("the type \"{shown}\" is not supported; supported are {known}");
                return Err(GrammarError::at(&format!("{at}/type"), reason));
            }
        };
        self.nesting -= 1;
        let name = self.lark.fresh("s");
        self.lark.rule(&name, &[body])?;
        Ok(name)
    }

    fn sequence(&mut self, map: &Map<String, Value>, at: &str, last: bool) -> Result<String, GrammarError> {
        let elements = list(map, "elements", at)?;
        let mut all = Vec::new();
        let mut free_before = false;
        for (index, element) in elements.iter().enumerate() {
            let place = format!("{at}/elements/{index}");
            let is_last = index + 1 == elements.len();
            if std::mem::take(&mut free_before) {
                all.push(self.after_text(element, &place)?);
            } else if kind(element) == Some("any_text") && !is_last {
                free_before = true;
            } else {
                all.push(self.format(element, &place, last && is_last)?);
            }
        }
        Ok(format!("({})", all.join(" ")))
    }

    /// Free text up to a part's fixed beginning, and the rest of the part.
    fn after_text(&mut self, element: &Value, at: &str) -> Result<String, GrammarError> {
        let map = object(element, at)?;
        match kind(element) {
            Some("const_string") => Ok(self.up_to(&[text(map, "value", at)?.to_owned()])),
            Some("tag") => {
                let tag = self.tag(map, at)?;
                Ok(format!("{} {} {}", self.up_to(&[tag.begin]), tag.content, tag.end))
            }
            _ => Err(GrammarError::at(at, "only a const_string or a tag may stand behind any_text")),
        }
    }

    /// Free text that ends with the first of these texts in it.
    fn up_to(&mut self, ends: &[String]) -> String {
        let any = ends.iter().map(|end| regex::escape(end)).collect::<Vec<_>>().join("|");
        let first = expression(&format!("(?s:.)*({any})"));
        let later = expression(&format!("(?s:.)*({any})(?s:.)+"));
        self.lark.terminal(&format!("{first} & ~{later}"))
    }

    fn tags(&mut self, map: &Map<String, Value>, at: &str) -> Result<Vec<Tag>, GrammarError> {
        let mut tags = Vec::new();
        for (index, tag) in list(map, "tags", at)?.iter().enumerate() {
            let place = format!("{at}/tags/{index}");
            tags.push(self.tag(object(tag, &place)?, &place)?);
        }
        Ok(tags)
    }

    fn tag(&mut self, map: &Map<String, Value>, at: &str) -> Result<Tag, GrammarError> {
        let ends: Vec<String> = match map.get("end") {
            Some(Value::String(end)) => vec![end.clone()],
            Some(Value::Array(ends)) if !ends.is_empty() => {
                ends.iter().map(|end| end.as_str().unwrap_or_default().to_owned()).collect()
            }
            _ => {
                return Err(GrammarError::at(
                    &format!("{at}/end"),
                    "end must be a string or a list of strings",
                ));
            }
        };
        let content = map.get("content").ok_or_else(|| GrammarError::at(at, "content is missing"))?;
        let begin = text(map, "begin", at)?.to_owned();
        if kind(content) == Some("any_text") && ends.iter().all(|end| !end.is_empty()) {
            return Ok(Tag { begin, content: String::new(), end: self.up_to(&ends) });
        }
        let content = self.format(content, &format!("{at}/content"), false)?;
        let end = ends.iter().map(|end| literal(end)).collect::<Vec<_>>().join(" | ");
        Ok(Tag { begin, content, end: format!("({end})") })
    }

    fn schema(&mut self, document: &Value, at: &str) -> Result<String, GrammarError> {
        let place = |error: GrammarError| GrammarError {
            pointer: Some(format!("{at}{}", error.pointer.clone().unwrap_or_default())),
            ..error
        };
        let schemas = schema::read(document).map_err(place)?;
        let (lark, start) = write_json(&schemas, std::mem::take(&mut self.lark)).map_err(place)?;
        self.lark = lark;
        Ok(start)
    }

    /// Text without any of these in it; may be empty.
    fn any_text(&mut self, without: &[String]) -> String {
        let mut parts = vec!["/(?s:.)+/".to_owned()];
        let texts: Vec<String> =
            without.iter().filter(|text| !text.is_empty()).map(|text| regex::escape(text)).collect();
        if !texts.is_empty() {
            parts.push(format!("~{}", expression(&format!("(?s:.)*({})(?s:.)*", texts.join("|")))));
        }
        format!("({})?", self.lark.terminal(&parts.join(" & ")))
    }

    /// Free text; where a trigger stands, one of the tags that begin with it goes on.
    fn triggered(
        &mut self,
        triggers: &[String],
        tags: &[Tag],
        repeats: Repeats,
        at: &str,
    ) -> Result<String, GrammarError> {
        let place = format!("{at}/triggers");
        if let Some(tag) =
            tags.iter().find(|tag| !triggers.iter().any(|trigger| tag.begin.starts_with(trigger)))
        {
            let reason = format!("the tag that begins with \"{}\" has no trigger", tag.begin);
            return Err(GrammarError::at(&place, reason));
        }
        let mut all = Vec::new();
        for trigger in triggers {
            let rest = |tag: &Tag| {
                let rest = tag.begin.strip_prefix(trigger.as_str())?;
                Some(format!("{} {} {}", literal(rest), tag.content, tag.end))
            };
            let rests: Vec<String> = tags.iter().filter_map(rest).collect();
            if rests.is_empty() {
                return Err(GrammarError::at(
                    &place,
                    format!("no tag begins with the trigger \"{trigger}\""),
                ));
            }
            let any = triggers.iter().map(|other| regex::escape(other)).collect::<Vec<_>>().join("|");
            let until = self.lark.terminal(&format!(
                "{} & ~{}",
                expression(&format!("(?s:.)*{}", regex::escape(trigger))),
                expression(&format!("(?s:.)*({any})(?s:.)+"))
            ));
            all.push(format!("{until} ({})", rests.join(" | ")));
        }
        let name = self.lark.fresh("t");
        self.lark.rule(&name, &all)?;
        let least = usize::from(repeats.at_least_one);
        let most = if repeats.stop_after_first { 1 } else { MAX_TAGS };
        let tail = match repeats.stop_after_first && repeats.at_least_one {
            true => String::new(),
            false => self.any_text(triggers),
        };
        Ok(format!("({name}{{{least},{most}}} {tail})"))
    }
}

/// How often tags may come.
struct Repeats {
    at_least_one: bool,
    stop_after_first: bool,
}

fn kind(format: &Value) -> Option<&str> {
    format.get("type").and_then(Value::as_str)
}
