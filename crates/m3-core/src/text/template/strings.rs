//! Python's string operations on traced strings; shared by methods and filters.
//! Each keeps the origin of the characters it passes on.

use super::traced::{Traced, TracedBuilder};

/// Which end `strip` works on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Both,
    Left,
    Right,
}

/// `str.isspace` for one character: Unicode white space plus the four ASCII separators.
pub(crate) fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

/// `str.strip(characters)`; without `characters`, white space.
pub(crate) fn strip(text: &Traced, characters: Option<&str>, side: Side) -> Traced {
    let strippable = |c: char| characters.map_or_else(|| is_space(c), |set| set.contains(c));
    let whole = text.as_str();
    let start =
        if side == Side::Right { 0 } else { whole.len() - whole.trim_start_matches(strippable).len() };
    let end = if side == Side::Left {
        whole.len()
    } else {
        start + whole[start..].trim_end_matches(strippable).len()
    };
    text.slice(start..end)
}

/// `str.split(separator, limit)` for a non-empty separator; `limit` counts cuts.
pub(crate) fn split(text: &Traced, separator: &str, limit: usize) -> Vec<Traced> {
    let whole = text.as_str();
    let mut pieces = Vec::new();
    let mut at = 0;
    for (found, _) in whole.match_indices(separator).take(limit) {
        pieces.push(text.slice(at..found));
        at = found + separator.len();
    }
    pieces.push(text.slice(at..whole.len()));
    pieces
}

/// `str.rsplit(separator, limit)`: the cuts nearest to the end.
pub(crate) fn split_right(text: &Traced, separator: &str, limit: usize) -> Vec<Traced> {
    let whole = text.as_str();
    let mut pieces = Vec::new();
    let mut end = whole.len();
    for (found, _) in whole.rmatch_indices(separator).take(limit) {
        pieces.push(text.slice(found + separator.len()..end));
        end = found;
    }
    pieces.push(text.slice(0..end));
    pieces.reverse();
    pieces
}

/// `str.split()`: words between white space, no empty ones; after `limit` cuts the rest stays as it is.
pub(crate) fn split_words(text: &Traced, limit: usize) -> Vec<Traced> {
    let whole = text.as_str();
    let mut words = Vec::new();
    let mut at = whole.len() - whole.trim_start_matches(is_space).len();
    while at < whole.len() {
        if words.len() == limit {
            words.push(text.slice(at..whole.len()));
            return words;
        }
        let length = whole[at..].find(is_space).unwrap_or(whole.len() - at);
        words.push(text.slice(at..at + length));
        at += length;
        at += whole[at..].len() - whole[at..].trim_start_matches(is_space).len();
    }
    words
}

/// `str.rsplit()` by white space with at most `limit` cuts, counted from the end.
pub(crate) fn split_words_right(text: &Traced, limit: usize) -> Vec<Traced> {
    let whole = text.as_str();
    let mut words = Vec::new();
    let mut end = whole.trim_end_matches(is_space).len();
    while end > 0 {
        if words.len() == limit {
            words.push(text.slice(0..end));
            break;
        }
        let start = whole[..end]
            .rfind(is_space)
            .map_or(0, |at| at + whole[at..].chars().next().map_or(1, char::len_utf8));
        words.push(text.slice(start..end));
        end = whole[..start].trim_end_matches(is_space).len();
    }
    words.reverse();
    words
}

/// `str.splitlines(keepends)`.
pub(crate) fn split_lines(text: &Traced, keep_ends: bool) -> Vec<Traced> {
    let whole = text.as_str();
    let mut lines = Vec::new();
    let mut start = 0;
    let mut characters = whole.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        let ends =
            matches!(character, '\n'..='\r' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}');
        if !ends {
            continue;
        }
        let mut next = at + character.len_utf8();
        if character == '\r' && characters.next_if(|(_, c)| *c == '\n').is_some() {
            next += 1;
        }
        lines.push(text.slice(start..if keep_ends { next } else { at }));
        start = next;
    }
    if start < whole.len() {
        lines.push(text.slice(start..whole.len()));
    }
    lines
}

/// `str.replace(old, new, limit)`; an empty `old` matches before every character and at the end.
pub(crate) fn replace(text: &Traced, old: &str, new: &Traced, limit: usize) -> Traced {
    let whole = text.as_str();
    let mut out = TracedBuilder::default();
    let mut at = 0;
    for (found, _) in whole.match_indices(old).take(limit) {
        out.push_slice(text, at..found);
        out.push(new);
        at = found + old.len();
    }
    out.push_slice(text, at..whole.len());
    out.finish()
}

/// `str.capitalize()`.
pub(crate) fn capitalize(text: &Traced) -> Traced {
    let mut first = true;
    text.map_chars(|character, out| {
        if std::mem::replace(&mut first, false) {
            out.extend(character.to_uppercase());
        } else {
            out.extend(character.to_lowercase());
        }
    })
}

/// Upper case where `starts(previous, character)` says a word begins, lower case elsewhere.
pub(crate) fn title(text: &Traced, starts: impl Fn(Option<char>) -> bool) -> Traced {
    let mut previous = None;
    text.map_chars(|character, out| {
        if starts(previous) {
            out.extend(character.to_uppercase());
        } else {
            out.extend(character.to_lowercase());
        }
        previous = Some(character);
    })
}

pub(crate) fn upper(text: &Traced) -> Traced {
    text.map_chars(|character, out| out.extend(character.to_uppercase()))
}

pub(crate) fn lower(text: &Traced) -> Traced {
    text.map_chars(|character, out| out.extend(character.to_lowercase()))
}

/// `fill` repeated on the sides until `text` has `width` characters; the margins count as the user's.
pub(crate) fn pad(text: &Traced, (left, right): (usize, usize), fill: char) -> Traced {
    let mut out = TracedBuilder::default();
    out.push_user(&fill.to_string().repeat(left));
    out.push(text);
    out.push_user(&fill.to_string().repeat(right));
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(pieces: &[Traced]) -> Vec<&str> {
        pieces.iter().map(Traced::as_str).collect()
    }

    #[test]
    fn splitting_like_python() {
        let text = Traced::user(" a  b c ");
        assert_eq!(plain(&split_words(&text, usize::MAX)), ["a", "b", "c"]);
        assert_eq!(plain(&split_words(&text, 1)), ["a", "b c "]);
        assert_eq!(plain(&split_words_right(&text, 1)), [" a  b", "c"]);
        assert_eq!(plain(&split(&text, " ", usize::MAX)), ["", "a", "", "b", "c", ""]);
        assert_eq!(plain(&split(&text, " ", 2)), ["", "a", " b c "]);
        assert_eq!(plain(&split_right(&text, " ", 2)), [" a  b", "c", ""]);
        assert_eq!(plain(&split_words(&Traced::user("  "), usize::MAX)), Vec::<&str>::new());
        assert_eq!(plain(&split(&Traced::user(""), "x", usize::MAX)), [""]);
    }

    #[test]
    fn lines_and_strips() {
        let text = Traced::user("a\r\nb\n\nc\u{2028}d\n");
        assert_eq!(plain(&split_lines(&text, false)), ["a", "b", "", "c", "d"]);
        assert_eq!(plain(&split_lines(&text, true)), ["a\r\n", "b\n", "\n", "c\u{2028}", "d\n"]);
        assert_eq!(strip(&Traced::user("\u{1c}\u{a0} x \n"), None, Side::Both).as_str(), "x");
        assert_eq!(strip(&Traced::user("xxaxx"), Some("x"), Side::Left).as_str(), "axx");
        assert_eq!(strip(&Traced::user("xxx"), Some("x"), Side::Both).as_str(), "");
    }

    #[test]
    fn replacing_keeps_both_origins() {
        let out = replace(&Traced::user("a-b-c"), "-", &Traced::template("<>"), 1);
        assert_eq!(out.as_str(), "a<>b-c");
        assert_eq!(format!("{:?}", out.template_ranges()), "[1..3]");
        assert_eq!(replace(&Traced::user("ab"), "", &Traced::user("."), usize::MAX).as_str(), ".a.b.");
    }
}
