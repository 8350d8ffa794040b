//! Calls: macros with their arguments and `caller`, global functions, bound methods.

use minijinja::machinery::ast::{self, Expr};

use super::arguments::Arguments;
use super::fault::Fault;
use super::interpreter::Interpreter;
use super::methods;
use super::scope::Scope;
use super::value::Value;

impl<'t> Interpreter<'t> {
    /// `callee(...)`; `caller` is the body of a `{% call %}` block.
    pub(crate) fn call_expression(
        &mut self,
        call: &'t ast::Call<'t>,
        caller: Option<Value>,
    ) -> Result<Value, Fault> {
        let callee = self.eval(&call.expr)?;
        let arguments = self.arguments(&call.args)?;
        match callee {
            Value::Macro(index) => self.call_macro(index, arguments, caller),
            Value::Function(function) => function.call(arguments),
            Value::Method(method) => methods::call(&method.0, &method.1, arguments),
            Value::Undefined(what) => Err(Fault::new(what.to_string())),
            other => Err(Fault::new(format!("'{}' object is not callable", other.type_name()))),
        }
    }

    fn call_macro(
        &mut self,
        index: usize,
        mut arguments: Arguments,
        caller: Option<Value>,
    ) -> Result<Value, Fault> {
        let definition = self.macros[index].clone();
        let declaration = definition.declaration;
        let scope = Scope::inside(&definition.scope);
        if let Some(caller) = caller {
            scope.set("caller", caller);
        }
        let outer = std::mem::replace(&mut self.scope, scope.clone());
        let bound = self.bind_parameters(declaration, &mut arguments);
        self.scope = outer;
        bound?;
        arguments.finish(declaration.name)?;
        self.capture_call(scope, &declaration.body).map(Value::Text)
    }

    /// Sets every parameter in the current scope, which is the macro's own.
    fn bind_parameters(
        &mut self,
        declaration: &'t ast::Macro<'t>,
        arguments: &mut Arguments,
    ) -> Result<(), Fault> {
        let without_default = declaration.args.len() - declaration.defaults.len();
        for (position, parameter) in declaration.args.iter().enumerate() {
            let Expr::Var(name) = parameter else {
                return Err(Fault::new(format!("macro {:?} has a parameter without name", declaration.name)));
            };
            let value = match arguments.take(name.id) {
                Some(value) => value,
                None if position >= without_default => {
                    self.eval(&declaration.defaults[position - without_default])?
                }
                None => Value::Undefined(format!("parameter '{}' was not provided", name.id).into()),
            };
            self.scope.set(name.id, value);
        }
        Ok(())
    }
}
