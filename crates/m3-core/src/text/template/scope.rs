//! Names in a template: a chain of scopes, as Jinja nests them.
//! `for`, `with`, `filter` and macro bodies open one, `if` does not; `set` writes the innermost.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::value::Value;

/// One level of names; look-up goes outwards.
#[derive(Default)]
pub(crate) struct Scope {
    names: RefCell<HashMap<String, Value>>,
    outer: Option<Rc<Scope>>,
}

impl Scope {
    /// The outermost scope with what the request passes.
    pub(crate) fn root(names: HashMap<String, Value>) -> Rc<Self> {
        Rc::new(Self { names: RefCell::new(names), outer: None })
    }

    pub(crate) fn inside(outer: &Rc<Scope>) -> Rc<Self> {
        Rc::new(Self { names: RefCell::default(), outer: Some(outer.clone()) })
    }

    pub(crate) fn set(&self, name: &str, value: Value) {
        self.names.borrow_mut().insert(name.to_owned(), value);
    }

    pub(crate) fn get(&self, name: &str) -> Option<Value> {
        let mut scope = self;
        loop {
            if let Some(value) = scope.names.borrow().get(name) {
                return Some(value.clone());
            }
            scope = scope.outer.as_deref()?;
        }
    }
}
