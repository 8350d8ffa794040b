//! JSON Schemas as the grammar writers need them: every schema is a list of cases of which one must hold, and a case
//! says for each JSON type what a value of it must look like. Keywords are read and combined in `read` and `meet`;
//! what cannot be expressed is an error with the place in the document, never left out. Nothing here knows text forms.

use indexmap::{IndexMap, IndexSet};
use serde_json::Value;

mod check;
mod complement;
mod conditions;
mod decimal;
mod disjoint;
mod except;
mod keywords;
mod meet;
mod number;
mod pattern;
mod read;
mod recursion;
mod sample;

pub(super) use check::allowed;
pub(super) use decimal::Decimal;
pub(super) use number::{multiples, number_pattern};
use pattern::FORMATS;
pub(super) use read::read;
pub(super) use recursion::Levels;
pub(super) use sample::sample;

/// Index of a schema in its [`Schemas`].
pub(super) type Id = usize;

/// Schemas of one document; index 0 is its root.
#[derive(Debug, Default)]
pub(super) struct Schemas {
    nodes: Vec<Vec<Case>>,
}

impl Schemas {
    /// The document's own schema.
    pub(super) const ROOT: Id = 0;

    /// The cases of a schema: one of them must hold. None: nothing fits.
    pub(super) fn cases(&self, id: Id) -> &[Case] {
        &self.nodes[id]
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }
}

/// What a value must be: of one of the types that are present, and like it says there.
#[derive(Debug, Clone, Default)]
pub(super) struct Case {
    pub(super) null: bool,
    pub(super) boolean: bool,
    pub(super) number: Option<Number>,
    pub(super) text: Option<Text>,
    pub(super) array: Option<Array>,
    pub(super) object: Option<Object>,
    /// Exactly one of these, whatever else is said.
    pub(super) values: Option<Vec<Value>>,
    /// None of these.
    pub(super) except: Vec<Except>,
}

/// A value that is ruled out, and the place that says so.
#[derive(Debug, Clone)]
pub(super) struct Except {
    pub(super) value: Value,
    pub(super) at: String,
}

/// Most values of which each may be an item of one array at most once.
pub(super) const MAX_UNIQUE: usize = 8;

/// A number's limits.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Number {
    pub(super) integer: bool,
    pub(super) min: Option<Bound>,
    pub(super) max: Option<Bound>,
    /// Whole multiples of this only.
    pub(super) multiple: Option<u32>,
}

/// One end of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) value: Decimal,
    pub(super) exclusive: bool,
}

/// A string's limits, in characters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Text {
    pub(super) min: usize,
    pub(super) max: Option<usize>,
    /// All must be found in the text: regular expressions that match a whole text.
    pub(super) patterns: Vec<String>,
}

impl Text {
    /// Its limits are too far to be counted in one expression.
    pub(super) fn is_long(&self) -> bool {
        let most = super::lark::MAX_COUNTED;
        self.min > most || self.max.is_some_and(|max| max > most)
    }
}

/// An array's items.
#[derive(Debug, Clone)]
pub(super) struct Array {
    pub(super) prefix: Vec<Id>,
    /// Items behind the prefix; `None` = there are none.
    pub(super) items: Option<Id>,
    pub(super) min: usize,
    pub(super) max: Option<usize>,
    /// No value twice; only where all items are listed values.
    pub(super) unique: bool,
}

/// An object's properties.
#[derive(Debug, Clone)]
pub(super) struct Object {
    pub(super) properties: IndexMap<String, Id>,
    pub(super) required: IndexSet<String>,
    /// Regular expression for a whole key, and the value's schema.
    pub(super) patterns: Vec<(String, Id)>,
    /// Values of keys that are named nowhere; `None` = there are none.
    pub(super) additional: Option<Id>,
    /// The schema speaks of such keys, or names none at all: so they are worth writing.
    pub(super) open: bool,
    pub(super) min: usize,
    pub(super) max: Option<usize>,
}

impl Case {
    fn is_empty(&self) -> bool {
        let typed =
            self.number.is_some() || self.text.is_some() || self.array.is_some() || self.object.is_some();
        match &self.values {
            Some(values) => values.is_empty(),
            None => !(self.null || self.boolean || typed),
        }
    }

    /// Schemas that this one refers to.
    pub(super) fn children(&self) -> impl Iterator<Item = Id> + '_ {
        let array = self.array.iter().flat_map(|array| array.prefix.iter().copied().chain(array.items));
        let object = self.object.iter().flat_map(|object| {
            let patterns = object.patterns.iter().map(|(_, id)| *id);
            object.properties.values().copied().chain(patterns).chain(object.additional)
        });
        array.chain(object)
    }
}
