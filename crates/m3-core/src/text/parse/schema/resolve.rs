//! Types of every schema with its references taken into account, as the least fixed point of the keywords'
//! meanings: so a reference back to a schema adds nothing to it, and pure cycles stay without types.

use serde_json::Value;

use super::{Node, NodeId};
use crate::text::parse::types::TypeSet;

/// Passes over all schemas. Targets of references mostly have higher numbers and each pass goes downwards, so two
/// or three suffice; schemas tangled beyond this bound keep the types found so far.
const MAX_PASSES: usize = 64;

/// Fills in `types` of all nodes.
pub(super) fn resolve_types(nodes: &mut [Node]) {
    for node in nodes.iter_mut() {
        node.types = Some(TypeSet::default());
    }
    for _ in 0..MAX_PASSES {
        let mut changed = false;
        for id in (0..nodes.len()).rev() {
            let types = combined(nodes, id);
            changed |= types != nodes[id].types;
            nodes[id].types = types;
        }
        if !changed {
            break;
        }
    }
}

/// Own types, cut by every schema in `all`, cut by the union of each list in `any`.
fn combined(nodes: &[Node], id: NodeId) -> Option<TypeSet> {
    let node = &nodes[id];
    let mut types = node.own;
    for inner in &node.all {
        types = intersect(types, nodes[*inner].types);
    }
    for branches in &node.any {
        let union = |left: Option<TypeSet>, right| left.zip(right).map(|(left, right)| left.union(right));
        let any = branches.iter().map(|branch| nodes[*branch].types).fold(Some(TypeSet::default()), union);
        types = intersect(types, any);
    }
    let null = TypeSet::of(&Value::Null);
    types.map(|types| if node.nullable && !types.is_empty() { types.union(null) } else { types })
}

/// `None` is no restriction.
fn intersect(left: Option<TypeSet>, right: Option<TypeSet>) -> Option<TypeSet> {
    match (left, right) {
        (Some(left), Some(right)) => Some(left.intersection(right)),
        (left, right) => left.or(right),
    }
}
