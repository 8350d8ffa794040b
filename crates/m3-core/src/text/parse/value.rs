//! One parameter's value while it is read: a stack of open elements, and what each tag or text does to it.
//! It writes nothing itself.

use super::element::{Element, ElementKind, MAX_CONTAINERS, Mode};
use super::faults::Faults;
use super::scan::{At, Expect, Found, Markup, Tags};
use super::schema::ToolSet;
use super::tag;

/// A value being read.
#[derive(Debug)]
pub(super) struct Value {
    /// Open elements, the parameter itself first. Never empty until the value is complete.
    elements: Vec<Element>,
    /// Some inner element was closed wrongly: the parameter cannot be trusted.
    broken: bool,
}

/// What comes next in a value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<'t> {
    /// This many bytes are the element's text.
    Text(usize),
    /// A tag of this many bytes.
    Tag { inner: &'t str, length: usize },
    /// Nothing can be said before more text comes.
    Wait,
}

/// What a tag did to the value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// It was taken in; the value goes on.
    Inside,
    /// It is no tag here but text of the element.
    Literal,
    /// It closed the parameter.
    Complete,
    /// It belongs to the call or the block: the value ends without its own closing tag.
    Outer,
}

impl Value {
    pub(super) fn new(key: &str, tag: &str, kind: ElementKind) -> Self {
        Self { elements: vec![Element::new(key, tag, kind)], broken: false }
    }

    /// The parameter's key.
    pub(super) fn key(&self) -> &str {
        &self.elements[0].key
    }

    /// True when some inner element was closed wrongly.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// True while the parameter's own text is read, not a child's.
    pub(super) fn at_parameter(&self) -> bool {
        self.elements.len() == 1
    }

    /// True while the parameter may still become a string or a container.
    pub(super) fn is_undecided(&self) -> bool {
        self.elements[0].mode == Mode::Undecided
    }

    /// Adds text to the innermost element.
    pub(super) fn push_text(&mut self, text: &str) {
        self.top_mut().text.push_str(text);
    }

    /// Text of the innermost element so far.
    pub(super) fn text(&self) -> &str {
        &self.top().text
    }

    /// Takes the text of the innermost element.
    pub(super) fn take_text(&mut self) -> String {
        std::mem::take(&mut self.top_mut().text)
    }

    /// JSON of the closed parameter, and its key.
    pub(super) fn into_json(mut self, faults: &mut Faults) -> (String, String) {
        let element = self.elements.swap_remove(0);
        let key = element.key.clone();
        (key, element.into_json(1, faults).text)
    }

    /// What stands at the start of `rest`, which is not empty.
    pub(super) fn next<'t>(&mut self, rest: &'t str, block: &str, expect: &Expect<'_>) -> Next<'t> {
        if self.top().mode == Mode::Undecided {
            let space = rest.len() - rest.trim_start().len();
            if space > 0 {
                return Next::Text(space);
            }
            match (Expect { tags: Tags::Any, ..*expect }).at(rest) {
                At::Partial => return Next::Wait,
                At::Full { markup: Markup::Tag(inner), length } => return Next::Tag { inner, length },
                _ => self.decide_text(),
            }
        }
        let closers: Vec<&str>;
        let tags = if self.top().mode == Mode::Literal {
            let own = self.elements.iter().map(|element| element.tag.as_str());
            closers = own.chain([tag::INVOKE, block]).collect();
            Tags::Closers(&closers)
        } else {
            Tags::Any
        };
        match (Expect { tags, ..*expect }).find(rest) {
            Found::TextTo(0) => Next::Wait,
            Found::TextTo(length) => Next::Text(length),
            Found::Markup { start: 0, end, markup: Markup::Tag(inner) } => Next::Tag { inner, length: end },
            Found::Markup { start, .. } => Next::Text(start),
        }
    }

    /// Takes in a tag found by [`Self::next`].
    pub(super) fn take_tag(
        &mut self,
        inner: &str,
        block: &str,
        tools: &ToolSet,
        faults: &mut Faults,
    ) -> Effect {
        match inner.strip_prefix('/') {
            Some(name) => self.close(name, block, tools, faults),
            None => self.open(inner, tools, faults),
        }
    }

    fn open(&mut self, inner: &str, tools: &ToolSet, faults: &mut Faults) -> Effect {
        let empty = inner.strip_suffix('/').filter(|_| !tools.names_property(&self.top().kind.view, inner));
        let (key, tag) = match tag::read_open(empty.unwrap_or(inner)) {
            _ if tools.names_property(&self.top().kind.view, inner) => (inner, inner),
            tag::OpenTag::Invoke { .. } => return Effect::Outer,
            tag::OpenTag::Element { key, tag } => (key, tag),
        };
        if self.elements.len() >= MAX_CONTAINERS {
            faults.too_deep += 1;
            self.top_mut().mode = Mode::Literal;
            return Effect::Literal;
        }
        let top = self.top_mut();
        let kind = top.kind.child(key, top.children.len(), tools);
        top.mode = Mode::Children;
        self.elements.push(Element::new(key, tag, kind));
        if empty.is_some() {
            self.close_top(faults);
        }
        Effect::Inside
    }

    fn close(&mut self, name: &str, block: &str, tools: &ToolSet, faults: &mut Faults) -> Effect {
        let open = |name| self.elements.iter().rposition(|element| element.tag == name);
        if let Some(position) = open(name).or_else(|| open(tag::read_close(name))) {
            if position + 1 < self.elements.len() {
                self.elements.truncate(position + 1);
                self.broken = true;
                faults.mismatched_tags += 1;
            }
            return self.close_top(faults);
        }
        if name == tag::INVOKE || name == block {
            return Effect::Outer;
        }
        let top = self.top();
        if top.mode == Mode::Undecided && top.kind.takes_text() {
            self.decide_text();
            return Effect::Literal;
        }
        faults.mismatched_tags += 1;
        let closed_child = top.children.iter().any(|(key, _)| key == name);
        if closed_child || (top.mode == Mode::Children && tools.names_property(&top.kind.view, name)) {
            return Effect::Inside;
        }
        self.broken = true;
        self.close_top(faults)
    }

    /// Closes the innermost element: its JSON becomes a child of the one around it.
    fn close_top(&mut self, faults: &mut Faults) -> Effect {
        if self.at_parameter() {
            return Effect::Complete;
        }
        let open = self.elements.len();
        let element = self.elements.pop().expect("more than one element is open");
        let key = element.key.clone();
        let value = element.into_json(open, faults);
        self.top_mut().children.push((key, value));
        Effect::Inside
    }

    fn decide_text(&mut self) {
        let top = self.top_mut();
        top.mode = if top.kind.takes_text() { Mode::Literal } else { Mode::Open };
    }

    fn top(&self) -> &Element {
        self.elements.last().expect("a value being read has an open element")
    }

    fn top_mut(&mut self) -> &mut Element {
        self.elements.last_mut().expect("a value being read has an open element")
    }
}
