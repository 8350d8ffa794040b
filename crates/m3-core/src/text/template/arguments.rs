//! Arguments of a call inside a template, positional and named, taken one by one by the callee.

use super::fault::Fault;
use super::value::{Dict, Value};

/// What a call passes. Callees take what they know and then [`Arguments::finish`] refuses the rest.
#[derive(Clone, Default)]
pub(crate) struct Arguments {
    pub(crate) positional: Vec<Value>,
    pub(crate) named: Vec<(String, Value)>,
}

impl Arguments {
    /// The next positional argument, else the one called `name`.
    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        if !self.positional.is_empty() {
            return Some(self.positional.remove(0));
        }
        self.take_named(name)
    }

    pub(crate) fn take_named(&mut self, name: &str) -> Option<Value> {
        let at = self.named.iter().position(|(candidate, _)| candidate == name)?;
        Some(self.named.remove(at).1)
    }

    /// Like [`Self::take`], for an argument that must be there.
    pub(crate) fn need(&mut self, callee: &str, name: &str) -> Result<Value, Fault> {
        self.take(name).ok_or_else(|| Fault::new(format!("{callee}() is missing the argument '{name}'")))
    }

    /// An optional string; `None` and absence are the same.
    pub(crate) fn take_text(
        &mut self,
        callee: &str,
        name: &str,
    ) -> Result<Option<super::traced::Traced>, Fault> {
        match self.take(name) {
            None | Some(Value::None) => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(other) => Err(Fault::new(format!(
                "{callee}() argument '{name}' must be str, not {}",
                other.type_name()
            ))),
        }
    }

    /// A string that must be there.
    pub(crate) fn need_text(&mut self, callee: &str, name: &str) -> Result<super::traced::Traced, Fault> {
        self.take_text(callee, name)?
            .ok_or_else(|| Fault::new(format!("{callee}() needs a str as argument '{name}'")))
    }

    /// An optional integer.
    pub(crate) fn take_int(&mut self, callee: &str, name: &str) -> Result<Option<i128>, Fault> {
        match self.take(name) {
            None | Some(Value::None) => Ok(None),
            Some(value) => value.as_int().map(Some).ok_or_else(|| {
                Fault::new(format!("{callee}() argument '{name}' must be int, not {}", value.type_name()))
            }),
        }
    }

    pub(crate) fn add_named(&mut self, map: &Dict) -> Result<(), Fault> {
        for (key, value) in &map.0 {
            let name = key.as_text().ok_or_else(|| Fault::new("keywords must be strings"))?;
            self.named.push((name.as_str().to_owned(), value.clone()));
        }
        Ok(())
    }

    /// Refuses what nobody took.
    pub(crate) fn finish(self, callee: &str) -> Result<(), Fault> {
        if !self.positional.is_empty() {
            return Err(Fault::new(format!("{callee}() got too many positional arguments")));
        }
        match self.named.first() {
            Some((name, _)) => {
                Err(Fault::new(format!("{callee}() got an unexpected keyword argument '{name}'")))
            }
            None => Ok(()),
        }
    }
}
