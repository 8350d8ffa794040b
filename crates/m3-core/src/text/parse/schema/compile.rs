//! JSON Schema documents as graph nodes: which keywords are read and what they describe. Keywords that
//! only restrict values (`minimum`, `pattern`) are not read.

use std::collections::HashMap;

use regex::{Regex, RegexBuilder};
use serde_json::Value;

use super::reference::References;
use super::{Node, NodeId};
use crate::text::parse::types::TypeSet;

/// Turns one tool's schema document into nodes. Iterative, so that neither nesting nor chains of references can
/// exhaust the stack; each schema object becomes one node, however often it is referred to.
struct Compiler<'v, 'n> {
    references: References<'v>,
    nodes: &'n mut Vec<Node>,
    by_address: HashMap<*const Value, NodeId>,
    open: Vec<(NodeId, &'v Value)>,
    /// Patterns of property names read so far.
    patterns: usize,
}

/// Most patterns of property names in one tool; further ones are not read. Each costs time to compile.
const MAX_PATTERNS: usize = 256;
/// Most memory of one compiled pattern, in bytes; larger ones are not read.
const MAX_PATTERN_BYTES: usize = 1 << 18;

/// Adds the nodes of a schema document and returns its root.
pub(super) fn compile(nodes: &mut Vec<Node>, document: &Value) -> NodeId {
    let references = References::new(document);
    let mut compiler =
        Compiler { references, nodes, by_address: HashMap::new(), open: Vec::new(), patterns: 0 };
    let root = compiler.node(document);
    while let Some((id, schema)) = compiler.open.pop() {
        let node = compiler.read(schema);
        compiler.nodes[id] = node;
    }
    root
}

impl<'v> Compiler<'v, '_> {
    /// The node of a schema, made and queued when it is new.
    fn node(&mut self, schema: &'v Value) -> NodeId {
        if let Some(id) = self.by_address.get(&std::ptr::from_ref(schema)) {
            return *id;
        }
        let id = self.nodes.len();
        self.nodes.push(Node::default());
        self.by_address.insert(std::ptr::from_ref(schema), id);
        self.open.push((id, schema));
        id
    }

    fn read(&mut self, schema: &'v Value) -> Node {
        let mut node = Node {
            own: own_types(schema),
            nullable: schema.get("nullable") == Some(&Value::Bool(true)),
            ..Node::default()
        };
        for target in self.references.of(schema) {
            let target = self.node(target);
            node.all.push(target);
        }
        node.all.extend(self.list(schema, "allOf"));
        for keyword in ["anyOf", "oneOf"] {
            let branches = self.list(schema, keyword);
            if !branches.is_empty() {
                node.any.push(branches);
            }
        }
        self.conditions(schema, &mut node);
        node.properties =
            self.map(schema, "properties").into_iter().map(|(key, id)| (key.clone(), id)).collect();
        node.patterns = self.patterns(schema);
        node.additional = self.first_of(schema, ["additionalProperties", "unevaluatedProperties"]);
        node.items = self.first_of(schema, ["items", "additionalItems"]);
        node.items = node.items.or_else(|| self.first_of(schema, ["unevaluatedItems", "contains"]));
        node.prefix = self.list(schema, "prefixItems");
        if node.prefix.is_empty() {
            node.prefix = self.list(schema, "items");
        }
        node
    }

    /// One of `then` and `else` holds when both are there; alone, either may be beside the point.
    fn conditions(&mut self, schema: &'v Value, node: &mut Node) {
        let [condition, then, otherwise] = ["if", "then", "else"].map(|keyword| self.object(schema, keyword));
        match (condition, then, otherwise) {
            (None, ..) => {}
            (Some(condition), Some(then), Some(otherwise)) => {
                node.hints.push(condition);
                node.any.push(vec![then, otherwise]);
            }
            (Some(condition), then, otherwise) => {
                node.hints.extend([Some(condition), then, otherwise].into_iter().flatten());
            }
        }
        for keyword in ["dependentSchemas", "dependencies"] {
            node.hints.extend(self.map(schema, keyword).into_iter().map(|(_, id)| id));
        }
    }

    /// The schemas of an object of schemas; what is no object is left out.
    fn map(&mut self, schema: &'v Value, keyword: &str) -> Vec<(&'v String, NodeId)> {
        let Some(Value::Object(entries)) = schema.get(keyword) else { return Vec::new() };
        entries.iter().map(|(key, value)| (key, self.node(value))).collect()
    }

    /// Patterns this regular-expression engine cannot read (they may look around) are left out: then the schema of
    /// additional properties counts, if there is one.
    fn patterns(&mut self, schema: &'v Value) -> Vec<(Regex, NodeId)> {
        let mut patterns = Vec::new();
        for (pattern, id) in self.map(schema, "patternProperties") {
            if self.patterns == MAX_PATTERNS {
                break;
            }
            self.patterns += 1;
            let compiled = RegexBuilder::new(pattern).size_limit(MAX_PATTERN_BYTES).build();
            patterns.extend(compiled.ok().map(|compiled| (compiled, id)));
        }
        patterns
    }

    fn first_of(&mut self, schema: &'v Value, keywords: [&str; 2]) -> Option<NodeId> {
        keywords.into_iter().find_map(|keyword| self.object(schema, keyword))
    }

    fn list(&mut self, schema: &'v Value, keyword: &str) -> Vec<NodeId> {
        match schema.get(keyword) {
            Some(Value::Array(list)) => list.iter().map(|branch| self.node(branch)).collect(),
            _ => Vec::new(),
        }
    }

    fn object(&mut self, schema: &'v Value, keyword: &str) -> Option<NodeId> {
        schema.get(keyword).filter(|value| value.is_object()).map(|value| self.node(value))
    }
}

/// Types that this schema alone allows.
fn own_types(schema: &Value) -> Option<TypeSet> {
    let named = match schema.get("type") {
        Some(Value::String(name)) => TypeSet::named(name),
        Some(Value::Array(names)) => {
            names.iter().filter_map(Value::as_str).filter_map(TypeSet::named).reduce(TypeSet::union)
        }
        _ => None,
    };
    let listed = match (schema.get("const"), schema.get("enum")) {
        (Some(value), _) => Some(TypeSet::of(value)),
        (None, Some(Value::Array(values))) => values.iter().map(TypeSet::of).reduce(TypeSet::union),
        _ => None,
    };
    match (named, listed) {
        (Some(named), Some(listed)) => Some(named.intersection(listed)),
        (None, None) => implied_types(schema),
        (named, listed) => named.or(listed),
    }
}

/// A schema without `type` that describes members speaks of a container, one with limits of a number.
fn implied_types(schema: &Value) -> Option<TypeSet> {
    const OBJECT: &[&str] = &[
        "properties",
        "required",
        "patternProperties",
        "additionalProperties",
        "propertyNames",
        "dependentSchemas",
        "minProperties",
        "maxProperties",
    ];
    const ARRAY: &[&str] = &["items", "prefixItems", "uniqueItems", "contains", "minItems", "maxItems"];
    const NUMBER: &[&str] = &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];
    let has = |keywords: &[&str]| keywords.iter().any(|keyword| schema.get(keyword).is_some());
    let kinds = [(OBJECT, "object"), (ARRAY, "array"), (NUMBER, "number")];
    let implied: Vec<&str> = kinds.iter().filter(|(words, _)| has(words)).map(|(_, name)| *name).collect();
    match implied.as_slice() {
        [name] => TypeSet::named(name),
        // Limits for several types describe a value of any of them.
        _ => None,
    }
}
