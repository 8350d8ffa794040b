//! Finding markers and tags in decoded text. Everything here is a pure function of the text from a position on
//! and of what the state expects, so the answer cannot depend on how the text was cut; a text that may still
//! become a marker is reported as partial. What a marker means is the callers' business.

use super::options::Markers;
use super::tag::{self, OpenTag};

/// Most white space, in bytes, between the namespace marker and its tag; more makes them text.
const MAX_TAG_SPACE: usize = 64;
/// Longest tag, in bytes between the angle brackets; longer ones are text. With [`MAX_TAG_SPACE`] this bounds
/// what is ever held back, and so the cost of looking at it again when a piece arrives.
const MAX_TAG: usize = 256;

/// Which tags are valid after the namespace marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tags<'a> {
    /// None: the namespace marker is text.
    None,
    /// What content may hold of tool markup: the block with this name, a call whose block was not opened, and closing
    /// tags of any name, which close nothing there.
    Content(&'a str),
    /// Closing tags of these names.
    Closers(&'a [&'a str]),
    /// Any tag.
    Any,
}

/// What the present state recognises; everything else is text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expect<'a> {
    pub(super) markers: &'a Markers,
    pub(super) think_open: bool,
    pub(super) think_close: bool,
    pub(super) tags: Tags<'a>,
    /// No more text will come: what is not complete now is text.
    pub(super) last: bool,
}

/// A complete piece of markup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Markup<'t> {
    ThinkOpen,
    ThinkClose,
    /// What stands between the angle brackets: `location`, `/location`, `invoke name="f"`.
    Tag(&'t str),
    /// Tool markup in content that stands for nothing: cut by the end of the output, or a marker before a marker.
    Stray,
}

/// What stands at one position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At<'t> {
    Text,
    /// The rest of the text may be the beginning of valid markup.
    Partial,
    Full {
        markup: Markup<'t>,
        length: usize,
    },
}

/// The first place where something other than text stands or may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found<'t> {
    /// Text up to here, then possibly markup; equal to the text's length when all of it is text.
    TextTo(usize),
    /// Markup from `start` to `end`; text before it.
    Markup { start: usize, end: usize, markup: Markup<'t> },
}

impl<'a> Expect<'a> {
    /// Expecting tags only.
    pub(super) fn tags(markers: &'a Markers, tags: Tags<'a>, last: bool) -> Self {
        Self { markers, think_open: false, think_close: false, tags, last }
    }

    /// What stands at the start of `text`.
    pub(super) fn at<'t>(&self, text: &'t str) -> At<'t> {
        let mut result = At::Text;
        let plain = [
            (self.think_open, &self.markers.think_open.text, Markup::ThinkOpen),
            (self.think_close, &self.markers.think_close.text, Markup::ThinkClose),
        ];
        for (_, literal, markup) in plain.into_iter().filter(|(valid, ..)| *valid) {
            match match_literal(text, literal) {
                At::Full { length, .. } => return At::Full { markup, length },
                At::Partial => result = At::Partial,
                At::Text => {}
            }
        }
        match self.tag_at(text) {
            At::Text => {}
            found => result = found,
        }
        if self.last && result == At::Partial { At::Text } else { result }
    }

    /// The first markup in `text`, or where it may begin.
    pub(super) fn find<'t>(&self, text: &'t str) -> Found<'t> {
        let first_bytes = [
            first_byte(&self.markers.namespace.text),
            first_byte(&self.markers.think_open.text),
            first_byte(&self.markers.think_close.text),
        ];
        for (start, byte) in text.bytes().enumerate() {
            if !first_bytes.contains(&Some(byte)) {
                continue;
            }
            match self.at(&text[start..]) {
                At::Text => {}
                At::Partial => return Found::TextTo(start),
                At::Full { markup, length } => return Found::Markup { start, end: start + length, markup },
            }
        }
        Found::TextTo(text.len())
    }

    fn tag_at<'t>(&self, text: &'t str) -> At<'t> {
        if self.tags == Tags::None {
            return At::Text;
        }
        let namespace = &self.markers.namespace.text;
        match match_literal(text, namespace) {
            At::Full { .. } => {}
            other => return other,
        }
        match self.tag_behind(text) {
            At::Partial if self.last && matches!(self.tags, Tags::Content(_)) => {
                At::Full { markup: Markup::Stray, length: text.len() }
            }
            found => found,
        }
    }

    /// `text` starts with the namespace marker.
    fn tag_behind<'t>(&self, text: &'t str) -> At<'t> {
        let namespace = &self.markers.namespace.text;
        let after = &text[namespace.len()..];
        let tag = after.trim_ascii_start();
        let space = after.len() - tag.len();
        if space > MAX_TAG_SPACE {
            return At::Text;
        }
        if tag.is_empty() {
            return At::Partial;
        }
        if matches!(self.tags, Tags::Content(_)) {
            match match_literal(tag, namespace) {
                At::Text => {}
                At::Partial => return At::Partial,
                At::Full { .. } => {
                    return At::Full { markup: Markup::Stray, length: namespace.len() + space };
                }
            }
        }
        let Some(inner) = tag.strip_prefix('<') else { return At::Text };
        self.inner_at(inner, namespace.len() + space + 1)
    }

    /// `inner` starts behind the angle bracket, which ends `offset` bytes behind the namespace marker's start.
    fn inner_at<'t>(&self, inner: &'t str, offset: usize) -> At<'t> {
        let limit = inner.len().min(MAX_TAG + 1);
        let stop = inner.as_bytes()[..limit].iter().position(|byte| matches!(byte, b'<' | b'>'));
        match stop {
            Some(end) if inner.as_bytes()[end] == b'>' => {
                let name = &inner[..end];
                if !self.tags.accept(name) {
                    return At::Text;
                }
                At::Full { markup: Markup::Tag(name), length: offset + end + 1 }
            }
            None if inner.len() <= MAX_TAG && self.tags.may_become(inner) => At::Partial,
            _ => At::Text,
        }
    }
}

impl Tags<'_> {
    fn accept(&self, inner: &str) -> bool {
        match self {
            Self::None => false,
            Self::Content(block) => {
                let called = matches!(tag::read_open(inner), OpenTag::Invoke { name: Some(_) });
                inner == *block || called || may_close(inner) && inner.len() > 1
            }
            Self::Closers(names) => inner.strip_prefix('/').is_some_and(|name| names.contains(&name)),
            Self::Any => !matches!(inner.trim(), "" | "/"),
        }
    }

    fn may_become(&self, inner: &str) -> bool {
        match self {
            Self::None => false,
            Self::Content(block) => {
                let attributes = inner.strip_prefix(tag::INVOKE).unwrap_or_default();
                block.starts_with(inner)
                    || may_close(inner)
                    || tag::INVOKE.starts_with(inner)
                    || attributes.starts_with(|letter: char| letter.is_ascii_whitespace())
            }
            Self::Closers(names) => match inner.strip_prefix('/') {
                Some(begun) => names.iter().any(|name| name.starts_with(begun)),
                None => inner.is_empty(),
            },
            Self::Any => true,
        }
    }
}

/// A closing tag's inner text, or its beginning.
fn may_close(inner: &str) -> bool {
    inner.strip_prefix('/').is_some_and(|name| !name.contains(|letter: char| letter.is_ascii_whitespace()))
}

fn first_byte(text: &str) -> Option<u8> {
    text.bytes().next()
}

/// `Full` with a placeholder markup when `text` starts with `literal`, which must not be empty.
fn match_literal<'t>(text: &'t str, literal: &str) -> At<'t> {
    if literal.is_empty() {
        At::Text
    } else if text.starts_with(literal) {
        At::Full { markup: Markup::Tag(""), length: literal.len() }
    } else if literal.starts_with(text) {
        At::Partial
    } else {
        At::Text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NS: &str = "]<]minimax[>[";

    fn expect<'a>(markers: &'a Markers, tags: Tags<'a>) -> Expect<'a> {
        Expect { markers, think_open: true, think_close: false, tags, last: false }
    }

    #[test]
    fn holds_exactly_the_longest_possible_marker_prefix() {
        let markers = Markers::default();
        let expect = expect(&markers, Tags::Content("tool_call"));
        for (text, safe) in [
            ("a < b", 5),
            ("a <", 2),
            ("a <mm:thin", 2),
            ("a <mm:thing", 11),
            ("a </mm:think", 12),
            ("x ]<]", 2),
            ("x ]<] ", 6),
            ("]]", 1),
            (concat!("]<]minimax[>[", " \n<tool"), 0),
            (concat!("]<]minimax[>[", " \n<tolo"), 20),
        ] {
            assert_eq!(expect.find(text), Found::TextTo(safe), "{text:?}");
        }
    }

    #[test]
    fn finds_markers_and_tags() {
        let markers = Markers::default();
        let text = format!("ab{NS}\n <tool_call>c");
        let found = expect(&markers, Tags::Content("tool_call")).find(&text);
        assert_eq!(found, Found::Markup { start: 2, end: text.len() - 1, markup: Markup::Tag("tool_call") });
        let found = expect(&markers, Tags::Any).find("汉<mm:think>");
        assert_eq!(found, Found::Markup { start: 3, end: 13, markup: Markup::ThinkOpen });
        let text = format!("{NS}{NS}</a>");
        let found = expect(&markers, Tags::Closers(&["ab", "a"])).find(&text);
        assert_eq!(found, Found::Markup { start: 13, end: 30, markup: Markup::Tag("/a") });
    }

    #[test]
    fn tags_that_are_text() {
        let markers = Markers::default();
        let expect = expect(&markers, Tags::Any);
        let space = " ".repeat(MAX_TAG_SPACE + 1);
        let long = "x".repeat(MAX_TAG + 1);
        for tail in ["<>", "</>", "< >", "<a<b>", "a", "x<a>", &format!("{space}<a>"), &format!("<{long}")] {
            let text = format!("{NS}{tail}");
            assert_eq!(expect.at(&text), At::Text, "{text}");
        }
        let fits = "y".repeat(MAX_TAG);
        assert!(matches!(expect.at(&format!("{NS}<{fits}>")), At::Full { .. }));
        assert_eq!(expect.at(&format!("{NS}<{fits}")), At::Partial);
    }

    #[test]
    fn content_knows_calls_without_their_block_and_closers_that_close_nothing() {
        let markers = Markers::default();
        let expect = Expect::tags(&markers, Tags::Content("tool_call"), false);
        for tail in [
            "<tool_call>",
            "</tool_call>",
            "</invoke>",
            "</days>",
            " </b>",
            "<invoke name=\"f\">",
            " <invoke name=f>",
        ] {
            assert!(matches!(expect.at(&format!("{NS}{tail}")), At::Full { .. }), "{tail}");
        }
        for tail in ["", "<", "</", "<to", "</inv", "</da", "<invoke", "<invoke na"] {
            let text = format!("{NS}{tail}");
            assert_eq!(expect.at(&text), At::Partial, "{tail}");
            let cut = Expect { last: true, ..expect }.at(&text);
            assert_eq!(cut, At::Full { markup: Markup::Stray, length: text.len() }, "{tail}");
        }
        for tail in ["x", "<b", "<b>", "</>", "<invoke>", "<invoker", "<invoke title=\"f\">", "</invoke x"] {
            assert_eq!(expect.at(&format!("{NS}{tail}")), At::Text, "{tail}");
        }
        assert_eq!(Expect { last: true, ..expect }.at("]<]mini"), At::Text);
    }

    #[test]
    fn closers_hold_only_names_they_know() {
        let markers = Markers::default();
        let expect = Expect::tags(&markers, Tags::Closers(&["location"]), false);
        for (tail, partial) in
            [("", true), ("<", true), ("</", true), ("</loc", true), ("</lox", false), ("<l", false)]
        {
            let text = format!("{NS}{tail}");
            assert_eq!(expect.at(&text) == At::Partial, partial, "{text}");
        }
        let ended = Expect { last: true, ..expect };
        assert_eq!(ended.at("]<]mini"), At::Text);
    }
}
