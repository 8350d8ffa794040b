//! Reading what stands between a tag's angle brackets: calls with a name in any quoting, parameters, and
//! parameters that carry their key in a `name` attribute as an older format did.

/// An opening tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OpenTag<'t> {
    /// `invoke`, with its name if it can be read.
    Invoke { name: Option<&'t str> },
    /// An element: the key it stands for and the name its closing tag must have.
    Element { key: &'t str, tag: &'t str },
}

/// The tag of one call.
pub(super) const INVOKE: &str = "invoke";

/// Reads an opening tag. `invoke` without attributes is an element like any other (a parameter may be called
/// so), which callers that expect a call treat as a call without a name. Attributes other than `name` are no
/// part of an element's key.
pub(super) fn read_open(inner: &str) -> OpenTag<'_> {
    let Some((word, attributes)) = inner.split_once(|character: char| character.is_ascii_whitespace()) else {
        return OpenTag::Element { key: inner, tag: inner };
    };
    match (word, name_attribute(attributes)) {
        (INVOKE, name) => OpenTag::Invoke { name },
        ("", _) => OpenTag::Element { key: inner, tag: inner },
        (word, Some(key)) => OpenTag::Element { key, tag: word },
        (word, None) if has_attribute(attributes) => OpenTag::Element { key: word, tag: word },
        (_, None) => OpenTag::Element { key: inner, tag: inner },
    }
}

/// Name in a closing tag, without attributes that a model may have repeated there. `inner` starts behind the slash.
pub(super) fn read_close(inner: &str) -> &str {
    match inner.split_once(|character: char| character.is_ascii_whitespace()) {
        Some((word, attributes)) if !word.is_empty() && has_attribute(attributes) => word,
        _ => inner,
    }
}

/// True when the text starts with `word=`; a key of several words has no such thing in it.
fn has_attribute(text: &str) -> bool {
    let part_of_word = |character: char| character.is_alphanumeric() || "-_:.".contains(character);
    let text = text.trim_start();
    let rest = text.trim_start_matches(part_of_word);
    rest.len() < text.len() && rest.trim_start().starts_with('=')
}

/// Value of `name=…` at the start of the attributes: in double quotes, single quotes or none.
fn name_attribute(attributes: &str) -> Option<&str> {
    let value = attributes.trim_start().strip_prefix("name")?.trim_start().strip_prefix('=')?.trim();
    let name = match value.chars().next()? {
        quote @ ('"' | '\'') => value[1..].split(quote).next()?,
        _ => value.split_ascii_whitespace().next()?,
    };
    Some(name.trim()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_names_in_every_quoting() {
        for inner in [
            "invoke name=\"f-1.x\"",
            "invoke name='f-1.x'",
            "invoke name=f-1.x",
            "invoke  name = \"f-1.x\" id=3",
        ] {
            assert_eq!(read_open(inner), OpenTag::Invoke { name: Some("f-1.x") }, "{inner}");
        }
        for inner in ["invoke ", "invoke name=", "invoke name=\"\"", "invoke title=\"f\""] {
            assert_eq!(read_open(inner), OpenTag::Invoke { name: None }, "{inner}");
        }
    }

    #[test]
    fn element_keys() {
        for inner in ["location", "-A", "invoke", "first name", "a.b", "invoker"] {
            assert_eq!(read_open(inner), OpenTag::Element { key: inner, tag: inner });
        }
        assert_eq!(read_open("parameter name=\"k\""), OpenTag::Element { key: "k", tag: "parameter" });
        for inner in ["k type=\"int\"", "k\ttype = int", "k xml:lang='en' name=\"q\"", "k name=\"\""] {
            assert_eq!(read_open(inner), OpenTag::Element { key: "k", tag: "k" }, "{inner}");
            assert_eq!(read_close(inner), "k", "{inner}");
        }
        for inner in ["k", "first name", "a = b", " k=1", ""] {
            assert_eq!(read_close(inner), inner);
        }
    }
}
