//! How often a schema may contain itself. A grammar could go on for ever; so every way back into a recursive schema
//! costs a level, and what cannot be completed with the levels left is not written.

use std::collections::HashMap;

use super::{Array, Case, Id, Object, Schemas};

/// Most times that a value of a recursive schema contains another one.
const MAX_LEVEL: usize = 6;

/// Levels of a document's schemas.
pub(in crate::text::grammar) struct Levels {
    /// Group of schemas that contain each other; `None` = the schema never contains itself.
    group: Vec<Option<usize>>,
    possible: HashMap<(Id, usize), bool>,
}

impl Levels {
    pub(in crate::text::grammar) fn of(schemas: &Schemas) -> Self {
        Levels { group: groups(schemas), possible: HashMap::new() }
    }

    /// Level of the root.
    pub(in crate::text::grammar) fn start(&self, id: Id) -> usize {
        if self.group[id].is_some() { MAX_LEVEL } else { 0 }
    }

    /// Level of `child` inside `parent`; `None` = one too deep.
    pub(in crate::text::grammar) fn inside(&self, parent: Id, level: usize, child: Id) -> Option<usize> {
        match (self.group[parent], self.group[child]) {
            (Some(one), Some(other)) if one == other => level.checked_sub(1),
            (_, Some(_)) => Some(MAX_LEVEL),
            (_, None) => Some(0),
        }
    }

    /// Whether any value fits the child with the levels that are left for it; its level then.
    pub(in crate::text::grammar) fn child(
        &mut self,
        schemas: &Schemas,
        parent: Id,
        level: usize,
        child: Id,
    ) -> Option<usize> {
        let level = self.inside(parent, level, child)?;
        self.is_possible(schemas, child, level).then_some(level)
    }

    /// Whether any value fits.
    pub(in crate::text::grammar) fn is_possible(&mut self, schemas: &Schemas, id: Id, level: usize) -> bool {
        if let Some(known) = self.possible.get(&(id, level)) {
            return *known;
        }
        let possible = schemas.cases(id).iter().any(|case| self.case_is_possible(schemas, id, level, case));
        self.possible.insert((id, level), possible);
        possible
    }

    fn case_is_possible(&mut self, schemas: &Schemas, id: Id, level: usize, case: &Case) -> bool {
        if let Some(values) = &case.values {
            return !values.is_empty();
        }
        if case.null || case.boolean || case.number.is_some() || case.text.is_some() {
            return true;
        }
        let array = |levels: &mut Self, array: &Array| {
            let needed = (0..array.min).map(|index| array.prefix.get(index).copied().or(array.items));
            // Behind the prefix all are alike.
            needed
                .take(array.prefix.len() + 1)
                .all(|item| item.is_some_and(|item| levels.child(schemas, id, level, item).is_some()))
        };
        let object = |levels: &mut Self, object: &Object| {
            object.required.iter().all(|key| {
                let value = object.properties.get(key);
                value.is_some_and(|value| levels.child(schemas, id, level, *value).is_some())
            })
        };
        case.array.as_ref().is_some_and(|inner| array(self, inner))
            || case.object.as_ref().is_some_and(|inner| object(self, inner))
    }
}

/// Strongly connected schemas, by Tarjan's algorithm without recursion.
fn groups(schemas: &Schemas) -> Vec<Option<usize>> {
    let children: Vec<Vec<Id>> =
        (0..schemas.len()).map(|id| schemas.cases(id).iter().flat_map(Case::children).collect()).collect();
    let mut state = Tarjan {
        order: vec![usize::MAX; children.len()],
        low: vec![0; children.len()],
        stack: Vec::new(),
        on_stack: vec![false; children.len()],
        group: vec![None; children.len()],
        next: 0,
    };
    for id in 0..children.len() {
        if state.order[id] == usize::MAX {
            state.visit(id, &children);
        }
    }
    state.group
}

struct Tarjan {
    order: Vec<usize>,
    low: Vec<usize>,
    stack: Vec<Id>,
    on_stack: Vec<bool>,
    group: Vec<Option<usize>>,
    next: usize,
}

impl Tarjan {
    fn visit(&mut self, root: Id, children: &[Vec<Id>]) {
        let mut open = vec![(root, 0)];
        while let Some((id, at)) = open.pop() {
            if at == 0 {
                (self.order[id], self.low[id]) = (self.next, self.next);
                self.next += 1;
                self.stack.push(id);
                self.on_stack[id] = true;
            }
            if let Some(child) = children[id].get(at).copied() {
                open.push((id, at + 1));
                if self.order[child] == usize::MAX {
                    open.push((child, 0));
                } else if self.on_stack[child] {
                    self.low[id] = self.low[id].min(self.order[child]);
                }
                continue;
            }
            if let Some((parent, _)) = open.last() {
                self.low[*parent] = self.low[*parent].min(self.low[id]);
            }
            if self.low[id] == self.order[id] {
                self.close(id, children);
            }
        }
    }

    fn close(&mut self, id: Id, children: &[Vec<Id>]) {
        let from =
            self.stack.iter().rposition(|member| *member == id).expect("a visited schema is on the stack");
        let members = self.stack.split_off(from);
        let recursive = members.len() > 1 || children[id].contains(&id);
        for member in members {
            self.on_stack[member] = false;
            self.group[member] = recursive.then_some(id);
        }
    }
}
