//! Evaluates expressions: names, literals, attributes, items, slices, operators, filters, tests and calls.

use std::rc::Rc;

use minijinja::machinery::ast::{self, BinOpKind, CallArg, CompareOpKind, Expr, UnaryOpKind};

use super::arguments::Arguments;
use super::fault::Fault;
use super::interpreter::Interpreter;
use super::value::{Dict, Value, equal};
use super::{access, filters, operators, tests_of_values};

impl<'t> Interpreter<'t> {
    pub(crate) fn eval(&mut self, expression: &'t Expr<'t>) -> Result<Value, Fault> {
        self.spend(1)?;
        match expression {
            Expr::Var(name) => Ok(self.scope.get(name.id).unwrap_or_else(|| undefined_name(name.id))),
            Expr::Const(constant) => literal(&constant.value),
            Expr::Slice(slice) => self.slice(slice),
            Expr::UnaryOp(operation) => {
                let value = self.eval(&operation.expr)?;
                match operation.op {
                    UnaryOpKind::Not => Ok(Value::Bool(!value.is_true())),
                    UnaryOpKind::Neg => operators::negate(&value),
                }
            }
            Expr::BinOp(operation) => self.binary(operation),
            Expr::Compare(chain) => self.comparison_chain(chain),
            Expr::IfExpr(choice) => {
                if self.eval(&choice.test_expr)?.is_true() {
                    return self.eval(&choice.true_expr);
                }
                match &choice.false_expr {
                    Some(other) => self.eval(other),
                    None => Ok(Value::Undefined("the inline if has no else part".into())),
                }
            }
            Expr::Filter(filter) => {
                let Some(input) = &filter.expr else {
                    return Err(Fault::new(format!("filter {:?} has no input", filter.name)));
                };
                let value = self.eval(input)?;
                let arguments = self.arguments(&filter.args)?;
                let value = filters::apply(filter.name, value, arguments)?;
                self.charge(value)
            }
            Expr::Test(test) => {
                let value = self.eval(&test.expr)?;
                let arguments = self.arguments(&test.args)?;
                tests_of_values::check(test.name, &value, arguments).map(Value::Bool)
            }
            Expr::GetAttr(attribute) => {
                let value = self.eval(&attribute.expr)?;
                access::attribute(&value, attribute.name)
            }
            Expr::GetItem(item) => {
                let value = self.eval(&item.expr)?;
                let key = self.eval(&item.subscript_expr)?;
                access::item(&value, &key)
            }
            Expr::Call(call) => self.call_expression(call, None),
            Expr::List(list) => Ok(Value::list(self.eval_all(&list.items)?)),
            Expr::Tuple(tuple) => Ok(Value::Tuple(Rc::new(self.eval_all(&tuple.items)?))),
            Expr::Map(map) => self.map_literal(map),
        }
    }

    fn eval_all(&mut self, expressions: &'t [Expr<'t>]) -> Result<Vec<Value>, Fault> {
        expressions.iter().map(|expression| self.eval(expression)).collect()
    }

    fn map_literal(&mut self, map: &'t ast::Map<'t>) -> Result<Value, Fault> {
        let mut dict = Dict::default();
        for (key, value) in map.keys.iter().zip(&map.values) {
            let (key, value) = (self.eval(key)?, self.eval(value)?);
            dict.insert(key, value);
        }
        Ok(Value::Map(Rc::new(dict)))
    }

    fn slice(&mut self, slice: &'t ast::Slice<'t>) -> Result<Value, Fault> {
        let value = self.eval(&slice.expr)?;
        let mut bound = |part: &'t Option<Expr<'t>>| match part {
            Some(expression) => match self.eval(expression)? {
                Value::None => Ok(None),
                number => number.as_int().map(Some).ok_or_else(|| {
                    Fault::new(format!("slice indices must be integers or None, not {}", number.type_name()))
                }),
            },
            None => Ok(None),
        };
        let bounds = access::SliceBounds {
            start: bound(&slice.start)?,
            stop: bound(&slice.stop)?,
            step: bound(&slice.step)?,
        };
        access::slice(&value, &bounds)
    }

    fn binary(&mut self, operation: &'t ast::BinOp<'t>) -> Result<Value, Fault> {
        let left = self.eval(&operation.left)?;
        match operation.op {
            BinOpKind::ScAnd if !left.is_true() => return Ok(left),
            BinOpKind::ScOr if left.is_true() => return Ok(left),
            BinOpKind::ScAnd | BinOpKind::ScOr => return self.eval(&operation.right),
            _ => {}
        }
        let right = self.eval(&operation.right)?;
        let compared = match operation.op {
            BinOpKind::Eq => Some(CompareOpKind::Eq),
            BinOpKind::Ne => Some(CompareOpKind::Ne),
            BinOpKind::Lt => Some(CompareOpKind::Lt),
            BinOpKind::Lte => Some(CompareOpKind::Lte),
            BinOpKind::Gt => Some(CompareOpKind::Gt),
            BinOpKind::Gte => Some(CompareOpKind::Gte),
            BinOpKind::In => Some(CompareOpKind::In),
            _ => None,
        };
        if let Some(operator) = compared {
            return operators::compare(operator, &left, &right).map(Value::Bool);
        }
        let value = operators::arithmetic(operation.op, &left, &right)?;
        self.charge(value)
    }

    fn comparison_chain(&mut self, chain: &'t ast::Compare<'t>) -> Result<Value, Fault> {
        let mut left = self.eval(&chain.expr)?;
        for step in &chain.ops {
            let right = self.eval(&step.expr)?;
            if !operators::compare(step.op, &left, &right)? {
                return Ok(Value::Bool(false));
            }
            left = right;
        }
        Ok(Value::Bool(true))
    }

    pub(crate) fn arguments(&mut self, arguments: &'t [CallArg<'t>]) -> Result<Arguments, Fault> {
        let mut collected = Arguments::default();
        for argument in arguments {
            match argument {
                CallArg::Pos(expression) => collected.positional.push(self.eval(expression)?),
                CallArg::Kwarg(name, expression) => {
                    collected.named.push(((*name).to_owned(), self.eval(expression)?));
                }
                CallArg::PosSplat(expression) => {
                    collected.positional.extend(self.eval(expression)?.iterate()?.iter().cloned());
                }
                CallArg::KwargSplat(expression) => match self.eval(expression)? {
                    Value::Map(map) => collected.add_named(&map)?,
                    other => {
                        return Err(Fault::new(format!("** needs a dict, not {}", other.type_name())));
                    }
                },
            }
        }
        Ok(collected)
    }

    /// A `{% filter %}` block or `{% set x | filter %}`: the innermost filter of the chain gets `input`.
    pub(crate) fn filter_block(&mut self, filter: &'t Expr<'t>, input: Value) -> Result<Value, Fault> {
        let Expr::Filter(filter) = filter else {
            return Err(Fault::new("a filter block needs a filter"));
        };
        let value = match &filter.expr {
            Some(inner) => self.filter_block(inner, input)?,
            None => input,
        };
        let arguments = self.arguments(&filter.args)?;
        let value = filters::apply(filter.name, value, arguments)?;
        self.charge(value)
    }

    /// Long strings cost in proportion, so that doubling in a loop cannot fill the memory.
    fn charge(&mut self, value: Value) -> Result<Value, Fault> {
        if let Value::Text(text) = &value {
            self.spend(text.as_str().len() / 64)?;
        }
        Ok(value)
    }
}

pub(crate) fn undefined_name(name: &str) -> Value {
    Value::Undefined(format!("'{name}' is undefined").into())
}

/// A constant of the template: its strings are the template's own text.
fn literal(constant: &minijinja::Value) -> Result<Value, Fault> {
    use minijinja::value::ValueKind;
    if let Some(text) = constant.as_str() {
        return Ok(Value::Text(super::traced::Traced::template(text)));
    }
    match constant.kind() {
        ValueKind::Undefined | ValueKind::None => Ok(Value::None),
        ValueKind::Bool => Ok(Value::Bool(constant.is_true())),
        ValueKind::Number if constant.is_integer() => i128::try_from(constant.clone())
            .map(Value::Int)
            .map_err(|_| Fault::new(format!("integer {constant} is over 127 bits"))),
        ValueKind::Number => f64::try_from(constant.clone())
            .map(Value::Float)
            .map_err(|_| Fault::new(format!("number {constant} is not a float"))),
        kind => Err(Fault::new(format!("a constant of kind {kind} is not supported"))),
    }
}

/// Whether `needle` equals an item of `items`.
pub(crate) fn contains(items: &[Value], needle: &Value) -> bool {
    items.iter().any(|item| equal(item, needle))
}
