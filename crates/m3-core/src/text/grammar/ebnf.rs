//! Grammars in EBNF (`root ::= "a" | [b-z]+`), the form of GBNF and XGrammar, rewritten for the matching engine. Rules
//! that do not contain themselves become one expression each, so that they match letter by letter as EBNF means it.

use std::collections::{BTreeMap, HashSet};

use super::GrammarError;
use super::lark::{expression, literal};

/// Most rules inside each other while reading.
const MAX_NESTING: usize = 64;
/// Most times that a counted repetition may repeat.
const MAX_COUNT: usize = 10_000;

#[derive(Debug, Clone)]
enum Expr {
    Literal(String),
    /// A class as a regular expression.
    Class(String),
    Rule(String),
    Sequence(Vec<Expr>),
    Either(Vec<Expr>),
    Repeat(Box<Expr>, usize, Option<usize>),
}

/// The same grammar in Lark's form.
pub(super) fn to_lark(text: &str) -> Result<String, GrammarError> {
    let rules = Reader { text, at: 0, nesting: 0 }.rules()?;
    if !rules.contains_key("root") {
        return Err(GrammarError::whole("the grammar has no rule named root"));
    }
    let writer = Writer::new(&rules)?;
    let mut out = String::new();
    for (name, expr) in &rules {
        let id = &writer.ids[name];
        let kind = if writer.is_recursive(name) { 'r' } else { 'R' };
        out.push_str(&format!("{kind}{id}: {}\n", writer.write(expr)));
    }
    Ok(format!("start: {}\n{out}", writer.reference("root")))
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    nesting: usize,
}

impl Reader<'_> {
    fn fail<T>(&self, what: &str) -> Result<T, GrammarError> {
        let line = self.text[..self.at].lines().count().max(1);
        Err(GrammarError::whole(format!("line {line} of the grammar: {what}")))
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let character = self.peek()?;
        self.at += character.len_utf8();
        Some(character)
    }

    fn take(&mut self, text: &str) -> bool {
        let taken = self.rest().starts_with(text);
        self.at += if taken { text.len() } else { 0 };
        taken
    }

    /// White space and comments; where a rule may end, the next line's rule name ends it.
    fn space(&mut self) {
        loop {
            let rest = self.rest();
            let comment = rest.starts_with('#');
            let length = match comment {
                true => rest.find('\n').unwrap_or(rest.len()),
                false => rest.len() - rest.trim_start().len(),
            };
            if length == 0 {
                return;
            }
            self.at += length;
        }
    }

    fn name(&mut self) -> Option<String> {
        let part = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
        let length = self.rest().find(|character| !part(character)).unwrap_or(self.rest().len());
        let name = self.rest()[..length].to_owned();
        self.at += length;
        (!name.is_empty()).then_some(name)
    }

    /// True when a rule begins here.
    fn at_rule(&self) -> bool {
        let mut ahead = Reader { text: self.text, at: self.at, nesting: 0 };
        ahead.name().is_some() && {
            ahead.space();
            ahead.rest().starts_with("::=")
        }
    }

    fn rules(mut self) -> Result<BTreeMap<String, Expr>, GrammarError> {
        let mut rules = BTreeMap::new();
        self.space();
        while self.at < self.text.len() {
            let Some(name) = self.name() else { return self.fail("a rule's name is expected") };
            self.space();
            if !self.take("::=") {
                return self.fail("::= is expected after a rule's name");
            }
            let expr = self.either()?;
            if rules.insert(name.clone(), expr).is_some() {
                return self.fail(&format!("the rule {name} is there twice"));
            }
            self.space();
        }
        Ok(rules)
    }

    fn either(&mut self) -> Result<Expr, GrammarError> {
        self.nesting += 1;
        if self.nesting > MAX_NESTING {
            return self.fail(&format!("more than {MAX_NESTING} groups inside each other"));
        }
        let mut all = vec![self.sequence()?];
        self.space();
        while self.take("|") {
            all.push(self.sequence()?);
            self.space();
        }
        self.nesting -= 1;
        Ok(if all.len() == 1 { all.swap_remove(0) } else { Expr::Either(all) })
    }

    fn sequence(&mut self) -> Result<Expr, GrammarError> {
        let mut all = Vec::new();
        loop {
            self.space();
            match self.peek() {
                None | Some('|' | ')') => return Ok(Expr::Sequence(all)),
                Some(_) if self.at_rule() => return Ok(Expr::Sequence(all)),
                Some(_) => {
                    let item = self.item()?;
                    all.push(self.repeated(item)?);
                }
            }
        }
    }

    fn item(&mut self) -> Result<Expr, GrammarError> {
        match self.peek() {
            Some('"') => self.literal(),
            Some('[') => self.class(),
            Some('.') => {
                self.next();
                Ok(Expr::Class("(?s:.)".to_owned()))
            }
            Some('(') => {
                self.next();
                let inner = self.either()?;
                self.space();
                if self.take(")") { Ok(inner) } else { self.fail("a group is not closed") }
            }
            _ => match self.name() {
                Some(name) => Ok(Expr::Rule(name)),
                None => self.fail("a literal, class, group or rule name is expected"),
            },
        }
    }

    fn repeated(&mut self, item: Expr) -> Result<Expr, GrammarError> {
        let mut item = item;
        loop {
            let (min, max) = match self.peek() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => {
                    let counts = self.counts()?;
                    item = Expr::Repeat(Box::new(item), counts.0, counts.1);
                    continue;
                }
                _ => return Ok(item),
            };
            self.next();
            item = Expr::Repeat(Box::new(item), min, max);
        }
    }

    fn counts(&mut self) -> Result<(usize, Option<usize>), GrammarError> {
        let Some(end) = self.rest().find('}') else { return self.fail("a repetition is not closed") };
        let inner = self.rest()[1..end].trim().to_owned();
        self.at += end + 1;
        let number = |text: &str| text.trim().parse::<usize>().ok().filter(|count| *count <= MAX_COUNT);
        let counts = match inner.split_once(',') {
            None => number(&inner).map(|count| (count, Some(count))),
            Some((min, "")) => number(min).map(|min| (min, None)),
            Some((min, max)) => number(min).zip(number(max)).map(|(min, max)| (min, Some(max))),
        };
        match counts.filter(|(min, max)| max.is_none_or(|max| max >= *min)) {
            Some(counts) => Ok(counts),
            None => self.fail(&format!("{{{inner}}} is no repetition of at most {MAX_COUNT} times")),
        }
    }

    fn literal(&mut self) -> Result<Expr, GrammarError> {
        self.next();
        let mut text = String::new();
        loop {
            match self.next() {
                None | Some('\n') => return self.fail("a literal is not closed"),
                Some('"') => return Ok(Expr::Literal(text)),
                Some('\\') => text.push(self.escape()?),
                Some(other) => text.push(other),
            }
        }
    }

    fn escape(&mut self) -> Result<char, GrammarError> {
        let digits = match self.next() {
            Some('n') => return Ok('\n'),
            Some('r') => return Ok('\r'),
            Some('t') => return Ok('\t'),
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            Some(other) if !other.is_alphanumeric() => return Ok(other),
            _ => return self.fail("the escape is not known"),
        };
        let code = self.rest().get(..digits).and_then(|digits| u32::from_str_radix(digits, 16).ok());
        match code.and_then(char::from_u32) {
            Some(character) => {
                self.at += digits;
                Ok(character)
            }
            None => self.fail("the escape is no character"),
        }
    }

    fn class(&mut self) -> Result<Expr, GrammarError> {
        self.next();
        let mut out = String::from("[");
        if self.take("^") {
            out.push('^');
        }
        loop {
            let character = match self.next() {
                None | Some('\n') => return self.fail("a class is not closed"),
                Some(']') if out.len() > 1 => break,
                Some('-') => {
                    // Between two characters it is a range, at an end it is itself.
                    let range = !out.ends_with(['[', '^']) && self.peek() != Some(']');
                    out.push_str(if range { "-" } else { "\\-" });
                    continue;
                }
                Some('\\') if matches!(self.peek(), Some('d' | 'w' | 's' | 'D' | 'W' | 'S')) => {
                    out.extend(['\\', self.next().unwrap_or('d')]);
                    continue;
                }
                Some('\\') => self.escape()?,
                Some(other) => other,
            };
            out.push_str(&format!("\\x{{{:x}}}", character as u32));
        }
        out.push(']');
        match regex::Regex::new(&out) {
            Ok(_) => Ok(Expr::Class(out)),
            Err(_) => self.fail("the class is not valid"),
        }
    }
}

struct Writer {
    ids: BTreeMap<String, usize>,
    recursive: HashSet<String>,
}

impl Writer {
    fn new(rules: &BTreeMap<String, Expr>) -> Result<Self, GrammarError> {
        let mut edges = BTreeMap::new();
        for (name, expr) in rules {
            let mut used = HashSet::new();
            uses(expr, &mut used);
            if let Some(missing) = used.iter().find(|used| !rules.contains_key(**used)) {
                return Err(GrammarError::whole(format!("the grammar has no rule named {missing}")));
            }
            edges.insert(name.as_str(), used);
        }
        // A rule is recursive when it reaches itself, or anything that does.
        let mut plain: HashSet<&str> = HashSet::new();
        loop {
            let more: Vec<&str> = edges
                .iter()
                .filter(|(name, used)| {
                    !plain.contains(**name) && used.iter().all(|used| plain.contains(used))
                })
                .map(|(name, _)| *name)
                .collect();
            if more.is_empty() {
                break;
            }
            plain.extend(more);
        }
        let recursive = rules.keys().filter(|name| !plain.contains(name.as_str())).cloned().collect();
        let ids = rules.keys().enumerate().map(|(id, name)| (name.clone(), id)).collect();
        Ok(Writer { ids, recursive })
    }

    fn is_recursive(&self, name: &str) -> bool {
        self.recursive.contains(name)
    }

    fn reference(&self, name: &str) -> String {
        let id = self.ids.get(name).copied().unwrap_or_default();
        if self.is_recursive(name) { format!("r{id}") } else { format!("R{id}") }
    }

    fn write(&self, expr: &Expr) -> String {
        let all = |list: &[Expr], between: &str| {
            list.iter().map(|inner| self.write(inner)).collect::<Vec<_>>().join(between)
        };
        match expr {
            Expr::Literal(text) => literal(text),
            Expr::Class(class) => expression(class),
            Expr::Rule(name) => self.reference(name),
            Expr::Sequence(list) if list.is_empty() => "\"\"".to_owned(),
            Expr::Sequence(list) => all(list, " "),
            Expr::Either(list) => format!("({})", all(list, " | ")),
            Expr::Repeat(inner, min, max) => {
                let max = max.map(|max| max.to_string()).unwrap_or_default();
                format!("({}){{{min},{max}}}", self.write(inner))
            }
        }
    }
}

fn uses<'e>(expr: &'e Expr, names: &mut HashSet<&'e str>) {
    match expr {
        Expr::Literal(_) | Expr::Class(_) => {}
        Expr::Rule(name) => {
            names.insert(name);
        }
        Expr::Sequence(list) | Expr::Either(list) => list.iter().for_each(|inner| uses(inner, names)),
        Expr::Repeat(inner, ..) => uses(inner, names),
    }
}
