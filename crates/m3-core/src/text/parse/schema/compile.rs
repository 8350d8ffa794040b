//! JSON Schema documents as graph nodes: which keywords are read, and where a local `$ref` points. Keywords that
//! only restrict values (`minimum`, `pattern`) are not read.

use std::collections::HashMap;

use serde_json::Value;

use super::{Node, NodeId};
use crate::text::parse::types::TypeSet;

/// Turns one tool's schema document into nodes. Iterative, so that neither nesting nor chains of references can
/// exhaust the stack; each schema object becomes one node, however often it is referred to.
struct Compiler<'v, 'n> {
    document: &'v Value,
    nodes: &'n mut Vec<Node>,
    by_address: HashMap<*const Value, NodeId>,
    open: Vec<(NodeId, &'v Value)>,
}

/// Adds the nodes of a schema document and returns its root.
pub(super) fn compile(nodes: &mut Vec<Node>, document: &Value) -> NodeId {
    let mut compiler = Compiler { document, nodes, by_address: HashMap::new(), open: Vec::new() };
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
        if let Some(target) = self.reference(schema) {
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
        if let Some(Value::Object(properties)) = schema.get("properties") {
            node.properties = properties.iter().map(|(key, value)| (key.clone(), self.node(value))).collect();
        }
        node.additional = self.object(schema, "additionalProperties");
        node.items = self.object(schema, "items").or_else(|| self.object(schema, "additionalItems"));
        node.prefix = self.list(schema, "prefixItems");
        if node.prefix.is_empty() {
            node.prefix = self.list(schema, "items");
        }
        node
    }

    /// Target of a local `$ref`, which as a URI may carry percent escapes; others are unknown.
    fn reference(&self, schema: &'v Value) -> Option<&'v Value> {
        let pointer = schema.get("$ref")?.as_str()?.strip_prefix('#')?;
        self.document.pointer(pointer).or_else(|| self.document.pointer(&without_escapes(pointer)?))
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

/// `text` with every `%` and two hexadecimal digits replaced by their byte. `None` when that is not UTF-8 or a
/// `%` stands alone.
fn without_escapes(text: &str) -> Option<String> {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        let digits = piece.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(&piece.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
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

/// A schema without `type` that describes members speaks of a container.
fn implied_types(schema: &Value) -> Option<TypeSet> {
    let has = |keywords: [&str; 3]| keywords.iter().any(|keyword| schema.get(keyword).is_some());
    if has(["properties", "required", "patternProperties"]) {
        TypeSet::named("object")
    } else if has(["items", "prefixItems", "uniqueItems"]) {
        TypeSet::named("array")
    } else {
        None
    }
}
