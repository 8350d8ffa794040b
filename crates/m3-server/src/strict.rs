//! JSON in which no object has a key twice. Which of two values a client meant cannot be known, and the usual reading
//! drops one without a word.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::error::cut;

/// A JSON value read that way.
#[derive(Debug)]
pub struct Strict(pub Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Strict)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, on: bool) -> Result<Value, E> {
        Ok(Value::Bool(on))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        Number::from_f64(number).map(Value::Number).ok_or_else(|| E::custom("a number is not finite"))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Strict(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = object.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("the key \"{}\" stands twice", cut(&key, 100))));
            }
            let Strict(value) = object.next_value()?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_usual() {
        for text in [
            "null",
            "true",
            "-3",
            "18446744073709551615",
            "1.5",
            "1e300",
            "-0.0",
            "\"a\\u00e9\\n\"",
            "[1,[],{}]",
            "{\"b\":{\"a\":1},\"a\":[{\"a\":2}]}",
        ] {
            let Strict(value) = serde_json::from_str(text).unwrap();
            assert_eq!(value, serde_json::from_str::<Value>(text).unwrap(), "{text}");
            assert_eq!(value.to_string(), serde_json::from_str::<Value>(text).unwrap().to_string());
        }
    }

    #[test]
    fn a_key_that_stands_twice_is_refused_at_any_depth() {
        for text in ["{\"a\":1,\"a\":1}", "[{\"x\":{\"a\":1,\"b\":2,\"a\":3}}]"] {
            let error = serde_json::from_str::<Strict>(text).unwrap_err().to_string();
            assert!(error.contains("\"a\" stands twice"), "{error}");
        }
    }
}
