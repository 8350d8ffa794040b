//! Statements that bind names: `for`, `with`, and the targets of `set`.

use std::cell::RefCell;
use std::rc::Rc;

use minijinja::machinery::ast::{self, Expr};

use super::fault::Fault;
use super::interpreter::{Flow, Interpreter};
use super::scope::Scope;
use super::value::{LoopState, Value};

/// Steps of one turn of a loop besides its body: it opens a scope.
const ITERATION_COST: usize = 8;

impl<'t> Interpreter<'t> {
    pub(crate) fn with_block(&mut self, with: &'t ast::WithBlock<'t>) -> Result<Flow, Fault> {
        let inner = Scope::inside(&self.scope);
        let mut values = Vec::new();
        for (target, expression) in &with.assignments {
            values.push((target, self.eval(expression)?));
        }
        let outer = std::mem::replace(&mut self.scope, inner);
        let result = values
            .into_iter()
            .try_for_each(|(target, value)| self.assign(target, value))
            .and_then(|()| self.body(&with.body));
        self.scope = outer;
        result
    }

    pub(crate) fn for_loop(&mut self, each: &'t ast::ForLoop<'t>) -> Result<(), Fault> {
        if each.recursive {
            return Err(Fault::new("recursive loops are not supported"));
        }
        let mut items = self.eval(&each.iter)?.iterate()?;
        let outer = self.scope.clone();
        if let Some(condition) = &each.filter_expr {
            let mut kept = Vec::new();
            for item in items.iter() {
                self.scope = Scope::inside(&outer);
                let keep = self.assign(&each.target, item.clone()).and_then(|()| self.eval(condition));
                self.scope = outer.clone();
                if keep?.is_true() {
                    kept.push(item.clone());
                }
            }
            items = Rc::new(kept);
        }
        if items.is_empty() {
            self.scope = Scope::inside(&outer);
            let result = self.body(&each.else_body);
            self.scope = outer;
            return result.map(|_| ());
        }
        let result = self.iterations(each, &items, &outer);
        self.scope = outer;
        result
    }

    fn iterations(
        &mut self,
        each: &'t ast::ForLoop<'t>,
        items: &[Value],
        outer: &Rc<Scope>,
    ) -> Result<(), Fault> {
        let changed = Rc::new(RefCell::new(None));
        let missing = |which: &str| Value::Undefined(format!("there is no {which} item").into());
        for (index0, item) in items.iter().enumerate() {
            self.spend(ITERATION_COST)?;
            self.scope = Scope::inside(outer);
            self.scope.set(
                "loop",
                Value::Loop(Rc::new(LoopState {
                    index0,
                    length: items.len(),
                    previous: if index0 == 0 { missing("previous") } else { items[index0 - 1].clone() },
                    next: items.get(index0 + 1).cloned().unwrap_or_else(|| missing("next")),
                    changed: changed.clone(),
                })),
            );
            self.assign(&each.target, item.clone())?;
            if self.body(&each.body)? == Flow::Break {
                break;
            }
        }
        Ok(())
    }

    /// `set` to a name, a tuple of names or an attribute of a namespace.
    pub(crate) fn assign(&mut self, target: &'t Expr<'t>, value: Value) -> Result<(), Fault> {
        match target {
            Expr::Var(name) => self.scope.set(name.id, value),
            Expr::GetAttr(attribute) => match self.eval(&attribute.expr)? {
                Value::Namespace(fields) => fields.borrow_mut().insert(Value::user(attribute.name), value),
                _ => return Err(Fault::new("cannot assign attribute on non-namespace object")),
            },
            Expr::List(ast_list) => self.unpack(&ast_list.items, &value)?,
            Expr::Tuple(tuple) => self.unpack(&tuple.items, &value)?,
            other => return Err(Fault::new(format!("cannot assign to a {}", other.description()))),
        }
        Ok(())
    }

    fn unpack(&mut self, targets: &'t [Expr<'t>], value: &Value) -> Result<(), Fault> {
        let items = value.iterate()?;
        if items.len() != targets.len() {
            let (want, got) = (targets.len(), items.len());
            return Err(Fault::new(format!("cannot unpack {got} values into {want} names")));
        }
        targets.iter().zip(items.iter()).try_for_each(|(target, item)| self.assign(target, item.clone()))
    }
}
