//! The request's tools as a graph of schemas that answers three questions: which types may this value have, what
//! is the schema of this property, what is the schema of this item. It types arguments; it does not validate.
//! `$ref`s are edges of the graph, so recursive schemas end by themselves.

use std::collections::HashMap;

use regex::Regex;
use serde_json::Value;

use super::types::TypeSet;

mod compile;
mod reference;
mod resolve;

/// Why a request's tools cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseSetupError {
    /// `tools` is no list.
    #[error("tools must be a list, got {0}")]
    NotAList(&'static str),
    /// An entry is no function declaration.
    #[error("tools[{index}] must be an object with a function, got {got}")]
    NotAFunction {
        /// Position in the list.
        index: usize,
        /// What stands there.
        got: &'static str,
    },
    /// A function without a usable name.
    #[error("tools[{0}]: function.name must be a non-empty string")]
    NoName(usize),
    /// Parameters that are no schema.
    #[error("tools[{index}] ({name:?}): parameters must be an object, got {got}")]
    BadParameters {
        /// Position in the list.
        index: usize,
        /// The function's name.
        name: String,
        /// What stands there.
        got: &'static str,
    },
}

/// Index of a schema in its [`ToolSet`].
pub(super) type NodeId = usize;

/// The tools a request declares, by name.
#[derive(Debug, Clone, Default)]
pub struct ToolSet {
    nodes: Vec<Node>,
    tools: HashMap<String, Option<NodeId>>,
}

/// One schema. Only what typing needs.
#[derive(Debug, Clone, Default)]
struct Node {
    /// From `type`, `enum` and `const` of this schema alone; `None` when they say nothing.
    own: Option<TypeSet>,
    nullable: bool,
    /// With everything it refers to taken into account.
    types: Option<TypeSet>,
    /// All hold: `$ref` and `allOf`.
    all: Vec<NodeId>,
    /// At least one holds, per keyword: `anyOf`, `oneOf`.
    any: Vec<Vec<NodeId>>,
    /// May hold, depending on the value: `if`, a lone `then` or `else`, `dependentSchemas`. They know members and
    /// restrict no types.
    hints: Vec<NodeId>,
    properties: HashMap<String, NodeId>,
    /// Schemas of the properties whose names match.
    patterns: Vec<(Regex, NodeId)>,
    additional: Option<NodeId>,
    items: Option<NodeId>,
    prefix: Vec<NodeId>,
}

/// The schemas a value may have to fit; empty when nothing is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct View(Vec<NodeId>);

impl View {
    /// True when no schema speaks of the value.
    pub(super) fn is_unknown(&self) -> bool {
        self.0.is_empty()
    }
}

impl ToolSet {
    /// Reads the `tools` of a request: a list of `{"type": "function", "function": {"name", "parameters"}}`; the
    /// inner object may also stand alone. Null means no tools. Of two tools with one name the first counts.
    ///
    /// # Errors
    /// When the list or an entry has another shape. The schemas themselves are read leniently: what typing does
    /// not understand leaves a value untyped.
    pub fn from_json(tools: &Value) -> Result<Self, ParseSetupError> {
        let list = match tools {
            Value::Null => return Ok(Self::default()),
            Value::Array(list) => list,
            other => return Err(ParseSetupError::NotAList(kind(other))),
        };
        let mut set = Self::default();
        for (index, entry) in list.iter().enumerate() {
            let function = entry.get("function").unwrap_or(entry);
            if !function.is_object() {
                return Err(ParseSetupError::NotAFunction { index, got: kind(function) });
            }
            let name = function.get("name").and_then(Value::as_str).unwrap_or_default();
            if name.is_empty() {
                return Err(ParseSetupError::NoName(index));
            }
            let root = match function.get("parameters") {
                None | Some(Value::Null) => None,
                Some(schema @ Value::Object(_)) => Some(compile::compile(&mut set.nodes, schema)),
                Some(other) => {
                    let name = name.to_owned();
                    return Err(ParseSetupError::BadParameters { index, name, got: kind(other) });
                }
            };
            set.tools.entry(name.to_owned()).or_insert(root);
        }
        resolve::resolve_types(&mut set.nodes);
        Ok(set)
    }

    /// True when no tool is declared.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// True when a tool with this name is declared.
    pub fn declares(&self, name: &str) -> bool {
        self.tools.contains_key(name)
    }

    /// Schema of a tool's parameters; unknown for undeclared tools and tools without parameters.
    pub(super) fn parameters(&self, name: &str) -> View {
        View(self.tools.get(name).copied().flatten().into_iter().collect())
    }

    /// Types a value may have; `None` when no schema restricts it.
    pub(super) fn types(&self, view: &View) -> Option<TypeSet> {
        let known = view.0.iter().filter_map(|id| self.nodes[*id].types);
        known.reduce(TypeSet::union).filter(|types| !types.is_empty())
    }

    /// Schema of an object's property.
    pub(super) fn property(&self, view: &View, key: &str) -> View {
        let reached = self.reach(view);
        let mut named: Vec<_> =
            reached.iter().filter_map(|id| self.nodes[*id].properties.get(key).copied()).collect();
        let patterns = reached.iter().flat_map(|id| &self.nodes[*id].patterns);
        named.extend(patterns.filter(|(pattern, _)| pattern.is_match(key)).map(|(_, schema)| *schema));
        if !named.is_empty() {
            return View(named);
        }
        View(reached.iter().filter_map(|id| self.nodes[*id].additional).collect())
    }

    /// True when some schema names a property or a schema for additional ones.
    pub(super) fn describes_properties(&self, view: &View) -> bool {
        let describes = |node: &Node| {
            !node.properties.is_empty() || !node.patterns.is_empty() || node.additional.is_some()
        };
        self.reach(view).into_iter().any(|id| describes(&self.nodes[id]))
    }

    /// True when the property is named by a schema.
    pub(super) fn names_property(&self, view: &View, key: &str) -> bool {
        self.reach(view).into_iter().any(|id| self.nodes[id].properties.contains_key(key))
    }

    /// Schema of an array's item.
    pub(super) fn item(&self, view: &View, index: usize) -> View {
        let of = |id: NodeId| {
            let node = &self.nodes[id];
            node.prefix.get(index).copied().or(node.items)
        };
        View(self.reach(view).into_iter().filter_map(of).collect())
    }

    /// The schemas of the view and all that they refer to, each once.
    fn reach(&self, view: &View) -> Vec<NodeId> {
        let mut seen: Vec<NodeId> = Vec::new();
        let mut open: Vec<NodeId> = view.0.iter().rev().copied().collect();
        let mut visited = std::collections::HashSet::new();
        while let Some(id) = open.pop() {
            if !visited.insert(id) {
                continue;
            }
            seen.push(id);
            let node = &self.nodes[id];
            let inner = node.all.iter().chain(node.any.iter().flatten()).chain(&node.hints);
            open.extend(inner.copied().collect::<Vec<_>>().into_iter().rev());
        }
        seen
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests;
