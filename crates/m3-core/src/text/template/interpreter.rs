//! Runs the statements of a parsed template. minijinja parses; evaluation is ours because only then does every
//! character keep its origin through macros, `set`, `~` and string methods. Expressions are in `expression`.

use std::collections::HashMap;
use std::rc::Rc;

use minijinja::machinery::ast::{self, Stmt};

use super::fault::Fault;
use super::functions::Function;
use super::print;
use super::scope::Scope;
use super::traced::{Traced, TracedBuilder};
use super::value::Value;

/// Statements and expressions one render may evaluate; a conversation of 100,000 messages needs about half.
const FUEL: u64 = 20_000_000;
/// Macro calls (and the `caller()` bodies in them) that may be open at once: request data nests to 128.
const MAX_CALL_DEPTH: usize = 200;

/// The state of one render.
pub(crate) struct Interpreter<'t> {
    pub(crate) scope: Rc<Scope>,
    pub(crate) out: TracedBuilder,
    pub(crate) macros: Vec<MacroDefinition<'t>>,
    fuel: u64,
    call_depth: usize,
}

/// A macro with the scope it was written in.
#[derive(Clone)]
pub(crate) struct MacroDefinition<'t> {
    pub(crate) declaration: &'t ast::Macro<'t>,
    pub(crate) scope: Rc<Scope>,
}

/// What the statement just run asks of the loop around it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    Next,
    Break,
    Continue,
}

impl<'t> Interpreter<'t> {
    /// `names` are the request's variables; the global functions are added here unless shadowed.
    pub(crate) fn new(mut names: HashMap<String, Value>) -> Self {
        for (name, function) in Function::ALL {
            names.entry((*name).to_owned()).or_insert(Value::Function(*function));
        }
        Self {
            scope: Scope::inside(&Scope::root(names)),
            out: TracedBuilder::default(),
            macros: Vec::new(),
            fuel: FUEL,
            call_depth: 0,
        }
    }

    pub(crate) fn run(mut self, template: &'t Stmt<'t>) -> Result<Traced, Fault> {
        let Stmt::Template(template) = template else {
            return Err(Fault::new("the parser did not return a template"));
        };
        self.body(&template.children)?;
        Ok(self.out.finish())
    }

    /// Takes `amount` from what this render may still do.
    pub(crate) fn spend(&mut self, amount: usize) -> Result<(), Fault> {
        match self.fuel.checked_sub(amount as u64) {
            Some(left) => {
                self.fuel = left;
                Ok(())
            }
            None => Err(Fault::new(format!("the render needs more than {FUEL} steps"))),
        }
    }

    pub(crate) fn body(&mut self, statements: &'t [Stmt<'t>]) -> Result<Flow, Fault> {
        for statement in statements {
            self.spend(1)?;
            let flow = self.statement(statement).map_err(|fault| fault.at(line(statement)))?;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    /// Runs `statements` in a scope of their own and returns what they write.
    pub(crate) fn capture(&mut self, scope: Rc<Scope>, statements: &'t [Stmt<'t>]) -> Result<Traced, Fault> {
        let outer_scope = std::mem::replace(&mut self.scope, scope);
        let outer_out = std::mem::take(&mut self.out);
        let result = self.body(statements);
        self.scope = outer_scope;
        let written = std::mem::replace(&mut self.out, outer_out);
        result?;
        Ok(written.finish())
    }

    /// Like [`Self::capture`], but counted against the limit on nested calls.
    pub(crate) fn capture_call(&mut self, scope: Rc<Scope>, body: &'t [Stmt<'t>]) -> Result<Traced, Fault> {
        if self.call_depth == MAX_CALL_DEPTH {
            return Err(Fault::new(format!("macros are nested more than {MAX_CALL_DEPTH} deep")));
        }
        self.call_depth += 1;
        let written = self.capture(scope, body);
        self.call_depth -= 1;
        written
    }

    fn statement(&mut self, statement: &'t Stmt<'t>) -> Result<Flow, Fault> {
        match statement {
            Stmt::Template(template) => return self.body(&template.children),
            Stmt::EmitRaw(raw) => self.out.push_template(raw.raw),
            Stmt::EmitExpr(emit) => {
                let value = self.eval(&emit.expr)?;
                print::write(&value, &mut self.out)?;
            }
            Stmt::IfCond(branch) => {
                let taken = self.eval(&branch.expr)?.is_true();
                return self.body(if taken { &branch.true_body } else { &branch.false_body });
            }
            Stmt::ForLoop(each) => self.for_loop(each)?,
            Stmt::Set(set) => {
                let value = self.eval(&set.expr)?;
                self.assign(&set.target, value)?;
            }
            Stmt::SetBlock(set) => {
                let mut value = Value::Text(self.capture(Scope::inside(&self.scope), &set.body)?);
                if let Some(filter) = &set.filter {
                    value = self.filter_block(filter, value)?;
                }
                self.assign(&set.target, value)?;
            }
            Stmt::WithBlock(with) => return self.with_block(with),
            Stmt::FilterBlock(block) => {
                let written = self.capture(Scope::inside(&self.scope), &block.body)?;
                let value = self.filter_block(&block.filter, Value::Text(written))?;
                print::write(&value, &mut self.out)?;
            }
            Stmt::AutoEscape(block) => return self.body(&block.body),
            Stmt::Macro(declaration) => {
                let value = self.define_macro(declaration);
                self.scope.set(declaration.name, value);
            }
            Stmt::CallBlock(block) => {
                let caller = self.define_macro(&block.macro_decl);
                let value = self.call_expression(&block.call, Some(caller))?;
                print::write(&value, &mut self.out)?;
            }
            Stmt::Do(call) => {
                self.call_expression(&call.call, None)?;
            }
            Stmt::Continue(_) => return Ok(Flow::Continue),
            Stmt::Break(_) => return Ok(Flow::Break),
            Stmt::Block(block) => {
                // Without inheritance a block is its body in a scope of its own.
                let written = self.capture(Scope::inside(&self.scope), &block.body)?;
                self.out.push(&written);
            }
            Stmt::Import(_) | Stmt::FromImport(_) | Stmt::Extends(_) | Stmt::Include(_) => {
                return Err(Fault::new("a chat template cannot use import, extends or include"));
            }
        }
        Ok(Flow::Next)
    }

    fn define_macro(&mut self, declaration: &'t ast::Macro<'t>) -> Value {
        self.macros.push(MacroDefinition { declaration, scope: self.scope.clone() });
        Value::Macro(self.macros.len() - 1)
    }
}

fn line(statement: &Stmt<'_>) -> usize {
    let span = match statement {
        Stmt::EmitExpr(s) => s.span(),
        Stmt::EmitRaw(s) => s.span(),
        Stmt::ForLoop(s) => s.span(),
        Stmt::IfCond(s) => s.span(),
        Stmt::WithBlock(s) => s.span(),
        Stmt::Set(s) => s.span(),
        Stmt::SetBlock(s) => s.span(),
        Stmt::FilterBlock(s) => s.span(),
        Stmt::Macro(s) => s.span(),
        Stmt::CallBlock(s) => s.span(),
        Stmt::Do(s) => s.span(),
        Stmt::Include(s) => s.span(),
        Stmt::Import(s) => s.span(),
        Stmt::FromImport(s) => s.span(),
        Stmt::Extends(s) => s.span(),
        Stmt::Block(s) => s.span(),
        Stmt::Template(s) => s.span(),
        Stmt::AutoEscape(s) => s.span(),
        Stmt::Continue(s) => s.span(),
        Stmt::Break(s) => s.span(),
    };
    usize::from(span.start_line)
}
