//! One parameter's value while it is read: a stack of open elements, each a leaf of text or a container of
//! children, and the rules that turn a closed element into JSON by its schema. It writes nothing itself.

use indexmap::IndexMap;

use super::faults::Faults;
use super::scan::{At, Expect, Found, Markup, Tags};
use super::schema::{ToolSet, View};
use super::types::{self, TypeSet};
use super::{json, tag};

/// Most containers open at once in a call's arguments, the arguments' own object included. Readers of JSON
/// commonly stop at 128.
pub(super) const MAX_CONTAINERS: usize = 127;
/// Key under which text beside child elements is kept.
const TEXT_KEY: &str = "$text";
/// Tag of an array's items.
const ITEM: &str = "item";

/// A value being read.
#[derive(Debug)]
pub(super) struct Value {
    /// Open elements, the parameter itself first. Never empty until the value is complete.
    elements: Vec<Element>,
    /// Some inner element was closed wrongly: the parameter cannot be trusted.
    broken: bool,
}

/// What is known of an element before it opens.
#[derive(Debug)]
pub(super) struct ElementKind {
    view: View,
    types: Option<TypeSet>,
    /// Untyped leaves read `true`, `false` and `null` as literals.
    literals: bool,
}

#[derive(Debug)]
struct Element {
    key: String,
    tag: String,
    kind: ElementKind,
    mode: Mode,
    text: String,
    children: Vec<(String, Json)>,
}

/// A written value and how many containers it opens at its deepest point.
#[derive(Debug, Clone)]
struct Json {
    text: String,
    nesting: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Only white space so far, and children are possible.
    Undecided,
    /// A string: only closing tags that fit an open element end it, everything else is its text.
    Literal,
    /// Text of a type other than string: any tag counts.
    Open,
    /// At least one child was read.
    Children,
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

/// How a parameter's value can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivery {
    /// A string, as its text comes.
    Stream,
    /// A string, as its text comes, once it cannot be a container.
    StreamText,
    /// A string, once it cannot be null.
    StreamUnlessNull,
    /// When complete.
    Whole,
}

impl ElementKind {
    /// A parameter of a tool.
    pub(super) fn parameter(view: View, tools: &ToolSet) -> Self {
        let types = tools.types(&view);
        Self { view, types, literals: false }
    }

    pub(super) fn delivery(&self) -> Delivery {
        let Some(types) = self.types else { return Delivery::StreamText };
        let null_or_string = TypeSet::STRING.union(TypeSet::NULL);
        match types {
            TypeSet::STRING => Delivery::Stream,
            types if types == null_or_string => Delivery::StreamUnlessNull,
            _ => Delivery::Whole,
        }
    }

    /// JSON of a leaf; `open` containers surround it.
    pub(super) fn leaf(&self, text: &str, open: usize, faults: &mut Faults) -> String {
        match self.types {
            Some(types) => {
                let (value, fits) = types::leaf(text, types, MAX_CONTAINERS.saturating_sub(open));
                faults.untypable_values += u32::from(!fits);
                value
            }
            None if self.literals => types::untyped_leaf(text),
            None => json::quoted(text),
        }
    }

    fn first_mode(&self) -> Mode {
        match self.types {
            Some(types) if self.takes_text() && !types.has(TypeSet::OBJECT) && !types.has(TypeSet::ARRAY) => {
                Mode::Literal
            }
            _ => Mode::Undecided,
        }
    }

    /// True when any text is a valid value.
    fn takes_text(&self) -> bool {
        self.types.is_none_or(|types| types.has(TypeSet::STRING))
    }

    fn allows(&self, container: TypeSet) -> bool {
        self.types.is_none_or(|types| types.has(container))
    }

    /// Kind of a child with this key, the `index`-th of its parent.
    fn child(&self, key: &str, index: usize, tools: &ToolSet) -> Self {
        let array = self.types.is_some_and(|types| types.has(TypeSet::ARRAY));
        let only_array = array && !self.allows(TypeSet::OBJECT);
        let mut view = View::default();
        if only_array || (array && key == ITEM) {
            view = tools.item(&self.view, index);
        }
        if view.is_unknown() && !only_array {
            view = tools.property(&self.view, key);
        }
        let free_form = !only_array && !self.view.is_unknown() && !tools.describes_properties(&self.view);
        let types = tools.types(&view);
        Self { view, types, literals: self.literals || free_form }
    }
}

impl Element {
    fn new(key: &str, tag: &str, kind: ElementKind) -> Self {
        let mode = kind.first_mode();
        Self {
            key: key.to_owned(),
            tag: tag.to_owned(),
            kind,
            mode,
            text: String::new(),
            children: Vec::new(),
        }
    }

    /// JSON of the closed element; `open` containers surround it.
    fn into_json(self, open: usize, faults: &mut Faults) -> Json {
        if self.children.is_empty() {
            let text = self.kind.leaf(&self.text, open, faults);
            let nesting = json::nesting(&text);
            return Json { text, nesting };
        }
        let stray = !self.text.trim().is_empty();
        faults.stray_text += u32::from(stray);
        if self.is_array() {
            return list(self.children.iter().map(|(_, value)| value));
        }
        let mut entries: IndexMap<String, Vec<Json>> = IndexMap::new();
        for (key, value) in self.children {
            entries.entry(key).or_default().push(value);
        }
        if stray {
            let text = Json { text: json::quoted(&self.text), nesting: 0 };
            entries.entry(TEXT_KEY.to_owned()).or_default().push(text);
        }
        let entries: Vec<_> =
            entries.into_iter().map(|(key, values)| (key, join_repeats(values, open + 1, faults))).collect();
        let nesting = 1 + entries.iter().map(|(_, value)| value.nesting).max().unwrap_or(0);
        let text = json::object(entries.iter().map(|(key, value)| (key.as_str(), value.text.as_str())));
        Json { text, nesting }
    }

    /// An array by schema; without a decisive schema, when all children are items.
    fn is_array(&self) -> bool {
        let all_items = || self.children.iter().all(|(key, _)| key == ITEM);
        match self.kind.types {
            None => all_items(),
            Some(types) if !types.has(TypeSet::ARRAY) => false,
            Some(types) => !types.has(TypeSet::OBJECT) || all_items(),
        }
    }
}

/// An array of written values.
fn list<'a>(values: impl Iterator<Item = &'a Json> + Clone) -> Json {
    let nesting = 1 + values.clone().map(|value| value.nesting).max().unwrap_or(0);
    Json { text: json::array(values.map(|value| value.text.as_str())), nesting }
}

/// The value of a key: one as it is, several as an array. Where the array would nest too deep the first counts.
fn join_repeats(mut values: Vec<Json>, open: usize, faults: &mut Faults) -> Json {
    if values.len() > 1 {
        let joined = list(values.iter());
        if open + joined.nesting <= MAX_CONTAINERS {
            return joined;
        }
        faults.too_deep += 1;
    }
    values.swap_remove(0)
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
            tag::OpenTag::Invoke { name: Some(_) } => return Effect::Outer,
            tag::OpenTag::Invoke { name: None } => (inner, inner),
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
        if let Some(position) = self.elements.iter().rposition(|element| element.tag == name) {
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
