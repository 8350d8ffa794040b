//! One element of a parameter's value: what its schema says, and how the closed element becomes JSON. Leaves are
//! texts, containers have children. Which tags open and close it is the business of `value`.

use indexmap::IndexMap;

use super::faults::Faults;
use super::json;
use super::schema::{ToolSet, View};
use super::types::{self, TypeSet};

/// Most containers open at once in a call's arguments, the arguments' own object included. Readers of JSON
/// commonly stop at 128.
pub(super) const MAX_CONTAINERS: usize = 127;
/// Key under which text beside child elements is kept.
const TEXT_KEY: &str = "$text";
/// Tag of an array's items.
const ITEM: &str = "item";

/// What is known of an element before it opens.
#[derive(Debug)]
pub(super) struct ElementKind {
    pub(super) view: View,
    types: Option<TypeSet>,
    /// Untyped leaves read `true`, `false` and `null` as literals.
    literals: bool,
}

/// An open element.
#[derive(Debug)]
pub(super) struct Element {
    pub(super) key: String,
    /// Name that its closing tag must have.
    pub(super) tag: String,
    pub(super) kind: ElementKind,
    pub(super) mode: Mode,
    pub(super) text: String,
    pub(super) children: Vec<(String, Json)>,
}

/// A written value and how many containers it opens at its deepest point.
#[derive(Debug, Clone)]
pub(super) struct Json {
    pub(super) text: String,
    nesting: usize,
}

/// How the content of an element is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Only white space so far, and children are possible.
    Undecided,
    /// A string: only closing tags that fit an open element end it, everything else is its text.
    Literal,
    /// Text of a type other than string: any tag counts.
    Open,
    /// At least one child was read.
    Children,
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
    pub(super) fn takes_text(&self) -> bool {
        self.types.is_none_or(|types| types.has(TypeSet::STRING))
    }

    fn allows(&self, container: TypeSet) -> bool {
        self.types.is_none_or(|types| types.has(container))
    }

    /// Kind of a child with this key, the `index`-th of its parent.
    pub(super) fn child(&self, key: &str, index: usize, tools: &ToolSet) -> Self {
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
    pub(super) fn new(key: &str, tag: &str, kind: ElementKind) -> Self {
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
    pub(super) fn into_json(self, open: usize, faults: &mut Faults) -> Json {
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
