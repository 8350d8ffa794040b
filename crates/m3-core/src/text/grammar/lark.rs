//! Writing grammars in the matching engine's text form: literals, expressions, named rules and terminals, and the
//! sequences that objects are made of. It knows no schemas.

use std::collections::HashMap;
use std::fmt::Write as _;

use llguidance::derivre::{Regex, RegexAst, RegexBuilder};

use super::GrammarError;

/// Most bytes of a written grammar.
const MAX_BYTES: usize = 4 << 20;

/// A grammar in the making.
#[derive(Debug, Default)]
pub(super) struct Lark {
    text: String,
    terminals: HashMap<String, String>,
    /// Definitions that no text fits.
    void: HashMap<String, bool>,
    rules: usize,
}

/// A member of an object.
#[derive(Debug)]
pub(super) struct Member {
    /// What is written for it.
    pub(super) body: String,
    pub(super) required: bool,
}

/// What an object is written from.
#[derive(Debug)]
pub(super) struct Members {
    /// In their order.
    pub(super) named: Vec<Member>,
    /// Any number of these behind them.
    pub(super) free: Option<String>,
    pub(super) min: usize,
    pub(super) max: Option<usize>,
    /// Between two members; empty = nothing.
    pub(super) separator: String,
}

/// Most members or items where the schema sets no limit.
pub(super) const MAX_REPEATS: usize = 4096;

impl Lark {
    /// A name that no rule has yet.
    pub(super) fn fresh(&mut self, prefix: &str) -> String {
        self.rules += 1;
        format!("{prefix}_{}", self.rules)
    }

    /// Adds a rule with these alternatives, of which there must be one.
    pub(super) fn rule(&mut self, name: &str, alternatives: &[String]) -> Result<(), GrammarError> {
        debug_assert!(!alternatives.is_empty());
        writeln!(self.text, "{name}: {}", alternatives.join(" | ")).expect("writing to a String cannot fail");
        match self.text.len() > MAX_BYTES {
            true => Err(GrammarError::whole(format!("the grammar takes more than {MAX_BYTES} bytes"))),
            false => Ok(()),
        }
    }

    /// The name of a terminal with this definition.
    pub(super) fn terminal(&mut self, definition: &str) -> String {
        if let Some(name) = self.terminals.get(definition) {
            return name.clone();
        }
        let name = format!("T{}", self.terminals.len());
        writeln!(self.text, "{name}: {definition}").expect("writing to a String cannot fail");
        self.terminals.insert(definition.to_owned(), name.clone());
        name
    }

    /// The terminal of texts that match every expression of `all` and none of `none`; `None` when there is no such text.
    pub(super) fn conjunction(
        &mut self,
        all: &[String],
        none: &[String],
    ) -> Result<Option<String>, GrammarError> {
        let wanted = all.iter().map(|regex| expression(regex));
        let barred = none.iter().map(|regex| format!("~{}", expression(regex)));
        let definition = wanted.chain(barred).collect::<Vec<_>>().join(" & ");
        let void = match self.void.get(&definition) {
            Some(known) => *known,
            None => is_void(all, none)?,
        };
        self.void.insert(definition.clone(), void);
        Ok((!void).then(|| self.terminal(&definition)))
    }

    pub(super) fn finish(self) -> String {
        self.text
    }

    /// The alternatives that write members in order, each optional one or not, within their number; `None` when no
    /// number of members fits.
    pub(super) fn members(&mut self, members: &Members) -> Result<Option<String>, GrammarError> {
        let separated = usize::from(!members.separator.is_empty());
        let cap = members.min.max(members.max.unwrap_or(0)).max(separated);
        if (members.named.len() + 1).saturating_mul(cap + 1) > 100_000 || cap > MAX_REPEATS {
            return Err(GrammarError::whole("the limits on the number of properties are too large"));
        }
        let mut next = self.free_members(members, cap)?;
        for member in members.named.iter().rev() {
            next = self.one_more(members, member, &next)?;
        }
        Ok(next.swap_remove(0))
    }

    /// Names of the rules for the rest after all named members, by the number of members so far.
    fn free_members(&mut self, members: &Members, cap: usize) -> Result<Vec<Option<String>>, GrammarError> {
        let mut names: Vec<Option<String>> = vec![None; cap + 1];
        for count in (0..=cap).rev() {
            let mut all = Vec::new();
            if count >= members.min {
                all.push("\"\"".to_owned());
            }
            let one = members.free.as_ref().map(|free| joined(&members.separator, count, free));
            match one {
                Some(one) if count < cap => {
                    all.extend(names[count + 1].as_ref().map(|rest| format!("{one} {rest}")));
                }
                Some(one) if members.max.is_none() => all = vec![format!("({one}){{0,{MAX_REPEATS}}}")],
                _ => {}
            }
            if !all.is_empty() {
                let name = self.fresh("o");
                self.rule(&name, &all)?;
                names[count] = Some(name);
            }
        }
        Ok(names)
    }

    /// The rule for items of which each is written at most once, in any order; `None` when their number cannot fit.
    pub(super) fn unique_items(
        &mut self,
        bodies: &[String],
        min: usize,
        max: Option<usize>,
        separator: &str,
    ) -> Result<Option<String>, GrammarError> {
        // One rule for every set of items that are used up.
        let mut names: Vec<Option<String>> = vec![None; 1 << bodies.len()];
        for used in (0..names.len()).rev() {
            let count = used.count_ones() as usize;
            let mut all = Vec::new();
            if count >= min {
                all.push("\"\"".to_owned());
            }
            let left = bodies.iter().enumerate().filter(|(index, _)| used & (1 << index) == 0);
            for (index, body) in left.filter(|_| max.is_none_or(|max| count < max)) {
                if let Some(rest) = &names[used | (1 << index)] {
                    all.push(format!("{} {rest}", joined(separator, count, body)));
                }
            }
            if !all.is_empty() {
                let name = self.fresh("u");
                self.rule(&name, &all)?;
                names[used] = Some(name);
            }
        }
        Ok(names.swap_remove(0))
    }

    fn one_more(
        &mut self,
        members: &Members,
        member: &Member,
        next: &[Option<String>],
    ) -> Result<Vec<Option<String>>, GrammarError> {
        let cap = next.len() - 1;
        let mut names = vec![None; next.len()];
        for count in 0..=cap {
            let mut all = Vec::new();
            if members.max.is_none_or(|max| count < max)
                && let Some(rest) = &next[(count + 1).min(cap)]
            {
                all.push(format!("{} {rest}", joined(&members.separator, count, &member.body)));
            }
            if !member.required {
                all.extend(next[count].clone());
            }
            if !all.is_empty() {
                let name = self.fresh("o");
                self.rule(&name, &all)?;
                names[count] = Some(name);
            }
        }
        Ok(names)
    }
}

/// Work to find out whether any text fits, in the engine's units.
const VOID_FUEL: u64 = 2_000_000;

/// Steps that are taken to count texts.
const COUNT_STEPS: usize = 200_000;

/// How many texts match every expression of `all` and none of `none`, up to `most`.
pub(super) fn count_texts(all: &[String], none: &[String], most: usize) -> Result<usize, GrammarError> {
    let mut regex = meeting(all, none)?;
    let (mut count, mut steps, mut open) = (0, 0, vec![regex.initial_state()]);
    while let Some(state) = open.pop().filter(|_| count < most) {
        count += usize::from(regex.is_accepting(state));
        steps += 256;
        if steps > COUNT_STEPS {
            return Err(GrammarError::whole(
                "there are too many ways to look for as many different keys as it wants",
            ));
        }
        open.extend((0..=u8::MAX).map(|byte| regex.transition(state, byte)).filter(|next| !next.is_dead()));
    }
    Ok(count.min(most))
}

fn is_void(all: &[String], none: &[String]) -> Result<bool, GrammarError> {
    Ok(meeting(all, none)?.always_empty())
}

fn meeting(all: &[String], none: &[String]) -> Result<Regex, GrammarError> {
    let regex = |text: &String| RegexAst::Regex(text.clone());
    let barred = none.iter().map(|text| RegexAst::Not(Box::new(regex(text))));
    let ast = RegexAst::And(all.iter().map(regex).chain(barred).collect());
    let mut builder = RegexBuilder::new();
    let made = builder.mk(&ast).and_then(|made| builder.into_regex_limited(made, VOID_FUEL));
    let first =
        |error: String| error.lines().next().unwrap_or_default().chars().take(200).collect::<String>();
    made.map_err(|error| {
        GrammarError::whole(format!("a pattern cannot be used: {}", first(error.to_string())))
    })
}

/// Longest text that is counted character by character in one expression, which takes a state for each.
pub(super) const MAX_COUNTED: usize = 1024;
/// Characters of a piece of a longer text.
const PIECE: usize = 256;

impl Lark {
    /// Texts of `min` to `max` characters in pieces, so that long ones need no more states than one piece. `character` is
    /// an expression for one of them.
    pub(super) fn long_text(&mut self, character: &str, min: usize, max: Option<usize>) -> String {
        let piece = self.terminal(&expression(&format!("({character}){{{PIECE}}}")));
        let (low, least) = (min / PIECE, min % PIECE);
        let mut rest = |least: usize, most: usize| match (least, most) {
            (_, 0) => "\"\"".to_owned(),
            (0, most) => format!("({})?", self.terminal(&expression(&format!("({character}){{1,{most}}}")))),
            (least, most) => self.terminal(&expression(&format!("({character}){{{least},{most}}}"))),
        };
        let Some(max) = max else {
            let (first, more) = (rest(least, PIECE - 1), rest(0, PIECE - 1));
            return format!("({} {first} | {piece}{{{},}} {more})", repeated(&piece, low, low), low + 1);
        };
        let (high, most) = (max / PIECE, max % PIECE);
        if low == high {
            return format!("({} {})", repeated(&piece, low, low), rest(least, most));
        }
        let (first, last) = (rest(least, PIECE - 1), rest(0, most));
        let mut all = vec![
            format!("{} {first}", repeated(&piece, low, low)),
            format!("{} {last}", repeated(&piece, high, high)),
        ];
        if high - low > 1 {
            let more = rest(0, PIECE - 1);
            all.push(format!("{} {more}", repeated(&piece, low + 1, high - 1)));
        }
        format!("({})", all.join(" | "))
    }
}

/// `body` so many times.
pub(super) fn repeated(body: &str, min: usize, max: usize) -> String {
    if max == 0 { "\"\"".to_owned() } else { format!("({body}){{{min},{max}}}") }
}

fn joined(separator: &str, count: usize, body: &str) -> String {
    if count == 0 || separator.is_empty() { body.to_owned() } else { format!("{separator} {body}") }
}

/// A literal.
pub(super) fn literal(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control if (control as u32) < 0x20 || control == '\u{7f}' => {
                write!(out, "\\u{:04x}", control as u32).expect("writing to a String cannot fail");
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

/// A regular expression, which must not be empty.
pub(super) fn expression(regex: &str) -> String {
    let mut out = String::from("/");
    let mut escaped = false;
    for character in regex.chars() {
        match character {
            '/' if !escaped => out.push_str("\\/"),
            '\n' => out.push_str(if escaped { "n" } else { "\\n" }),
            other => out.push(other),
        }
        escaped = character == '\\' && !escaped;
    }
    out.push('/');
    out
}

/// One of these literals, which must not be empty, as a terminal's definition.
pub(super) fn one_of(texts: impl IntoIterator<Item = String>) -> String {
    texts.into_iter().map(|text| literal(&text)).collect::<Vec<_>>().join(" | ")
}
