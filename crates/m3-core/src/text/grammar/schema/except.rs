//! Values that a case must not be. They come off where the case lists its values or has only words; what is left at the
//! end would need a text or number that is anything but one value, which no grammar here can say.

use std::collections::HashSet;

use serde_json::Value;

use super::read::{Reader, error};
use super::{Case, Schemas};
use crate::text::grammar::GrammarError;

impl Case {
    /// Takes what is ruled out off the values, null and the booleans.
    pub(super) fn settle_except(&mut self) {
        let barred = |value: &Value| self.except.iter().any(|except| equal(&except.value, value));
        if let Some(values) = &self.values {
            let left = values.iter().filter(|value| !barred(value)).cloned().collect();
            self.values = Some(left);
            self.except.clear();
            return;
        }
        self.null &= !barred(&Value::Null);
        if barred(&Value::Bool(true)) && barred(&Value::Bool(false)) {
            self.boolean = false;
        }
        let (null, boolean) = (self.null, self.boolean);
        self.except.retain(|except| match &except.value {
            Value::Null => null,
            Value::Bool(_) => boolean,
            _ => true,
        });
    }
}

/// Equal as JSON Schema has it: `3` is `3.0`.
pub(super) fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || one.as_f64().zip(other.as_f64()).is_some_and(|(one, other)| one == other)
        }
        _ => one == other,
    }
}

impl Reader<'_> {
    /// Refuses a document in which a value would have to be anything but one.
    pub(super) fn check_except(&mut self) -> Result<(), GrammarError> {
        let mut seen = HashSet::new();
        let mut next = vec![Schemas::ROOT];
        while let Some(id) = next.pop() {
            if !seen.insert(id) {
                continue;
            }
            for case in self.cases(id)? {
                let free = Case { except: Vec::new(), ..case.clone() };
                for except in &case.except {
                    if self.fits(&free, &except.value, 0)? {
                        let reason = "a value that must not be this one is supported only where an enum lists the \
                                      values";
                        return Err(error(&except.at, reason));
                    }
                }
                next.extend(case.children().filter(|_| case.values.is_none()));
            }
        }
        Ok(())
    }
}
