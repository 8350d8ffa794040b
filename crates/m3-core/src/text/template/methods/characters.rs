//! String methods that look at or change one character at a time: case and the `is...` questions.

use std::sync::OnceLock;

use regex::Regex;

use crate::text::template::fault::Fault;
use crate::text::template::print::is_printable;
use crate::text::template::strings;
use crate::text::template::traced::Traced;

/// The methods that only change the case of characters; `None` for any other name.
pub(super) fn cased(text: &Traced, name: &str) -> Option<Traced> {
    Some(match name {
        "upper" => strings::upper(text),
        "lower" | "casefold" => strings::lower(text),
        "capitalize" => strings::capitalize(text),
        "title" => {
            strings::title(text, |previous| !previous.is_some_and(|c| c.is_lowercase() || c.is_uppercase()))
        }
        "swapcase" => text.map_chars(|character, out| {
            if character.is_lowercase() {
                out.extend(character.to_uppercase());
            } else {
                out.extend(character.to_lowercase());
            }
        }),
        _ => return None,
    })
}

/// The `is...` methods.
pub(super) fn asked(text: &str, name: &str) -> Result<bool, Fault> {
    let every = |accept: fn(char) -> bool| !text.is_empty() && text.chars().all(accept);
    Ok(match name {
        "isspace" => every(strings::is_space),
        "isalpha" => every(char::is_alphabetic),
        "isalnum" => every(char::is_alphanumeric),
        "isdecimal" => every(is_decimal),
        "isdigit" => every(|c| is_decimal(c) || is_other_digit(c)),
        "isnumeric" => every(char::is_numeric),
        "isascii" => text.is_ascii(),
        "isprintable" => text.chars().all(is_printable),
        "islower" => text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase),
        "isupper" => text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase),
        _ => return Err(Fault::new(format!("str.{name}() is not supported in a chat template"))),
    })
}

/// Unicode's decimal digits, with which numbers are written.
fn is_decimal(character: char) -> bool {
    static DECIMAL: OnceLock<Regex> = OnceLock::new();
    let decimal = DECIMAL.get_or_init(|| Regex::new(r"^\p{Nd}$").expect("a constant pattern that compiles"));
    character.is_ascii_digit()
        || (!character.is_ascii() && decimal.is_match(character.encode_utf8(&mut [0; 4])))
}

/// Unicode's digits in special forms: raised, lowered, circled, in brackets, with a full stop.
fn is_other_digit(character: char) -> bool {
    matches!(
        u32::from(character),
        0xb2 | 0xb3
            | 0xb9
            | 0x1369..=0x1371
            | 0x19da
            | 0x2070
            | 0x2074..=0x2079
            | 0x2080..=0x2089
            | 0x2460..=0x2468
            | 0x2474..=0x247c
            | 0x2488..=0x2490
            | 0x24ea
            | 0x24f5..=0x24fd
            | 0x24ff
            | 0x2776..=0x277e
            | 0x2780..=0x2788
            | 0x278a..=0x2792
            | 0x1_0a40..=0x1_0a43
            | 0x1_0e60..=0x1_0e68
            | 0x1_1052..=0x1_105a
            | 0x1_f100..=0x1_f10a
    )
}
