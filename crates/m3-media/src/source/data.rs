//! Data URIs in the spellings that clients use: any letter case, with or without padding, with line breaks, in both
//! base64 alphabets, percent-encoded. The declared type is not believed and not kept.

use crate::error::{Error, Result};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;

const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);

/// The bytes of a data URI, given what follows `data:`.
pub(super) fn parse(rest: &str) -> Result<Bytes> {
    let Some(comma) = first_comma(rest) else {
        return Err(Error::Source(
            "a data URI needs a comma before its bytes: data:<type>;base64,<bytes>".into(),
        ));
    };
    let (head, payload) = (&rest[..comma], &rest.as_bytes()[comma + 1..]);
    let is_base64 = head.rsplit_once(';').is_some_and(|(_, last)| last.trim().eq_ignore_ascii_case("base64"));
    if is_base64 { base64(payload) } else { Ok(percent_decoded(payload).into()) }
}

/// The comma that ends the head; one inside a quoted parameter does not.
fn first_comma(text: &str) -> Option<usize> {
    let mut quoted = false;
    text.bytes().position(|byte| {
        quoted ^= byte == b'"';
        byte == b',' && !quoted
    })
}

/// Base64 in either alphabet; white space is skipped, percent-encoding undone, padding optional.
pub(super) fn base64(payload: &[u8]) -> Result<Bytes> {
    let mut text = if payload.contains(&b'%') { percent_decoded(payload) } else { payload.to_vec() };
    text.retain(|byte| !byte.is_ascii_whitespace());
    for byte in &mut text {
        match byte {
            b'-' => *byte = b'+',
            b'_' => *byte = b'/',
            _ => {}
        }
    }
    let end = text.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    if text.len() - end > 2 {
        return Err(Error::Source(format!("base64 ends in {} padding signs, more than 2", text.len() - end)));
    }
    text.truncate(end);
    LENIENT.decode(&text).map(Bytes::from).map_err(|error| {
        use base64::DecodeError::{InvalidByte, InvalidLastSymbol, InvalidLength};
        Error::Source(match error {
            InvalidByte(at, byte) | InvalidLastSymbol { offset: at, symbol: byte, .. } => {
                format!("base64 has the byte 0x{byte:02x} at {at}, which is not in its alphabet")
            }
            InvalidLength(length) => format!("base64 of {length} characters is cut off"),
            _ => "base64 is wrongly padded".into(),
        })
    })
}

/// `%XX` undone; a percent sign without two digits stays.
pub(super) fn percent_decoded(text: &[u8]) -> Vec<u8> {
    let digit = |at: usize| text.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                at += 3;
            }
            _ => {
                bytes.push(byte);
                at += 1;
            }
        }
    }
    bytes
}
