//! A short text that a regular expression matches: how the parser will read the keys that a pattern describes is asked
//! with one of them.

use regex_syntax::hir::{Class, Hir, HirKind};

/// One text out of those that `pattern` matches as a whole; `None` when the expression is not valid.
pub(in crate::text::grammar) fn sample(pattern: &str) -> Option<String> {
    let hir = regex_syntax::parse(pattern).ok()?;
    let mut out = Vec::new();
    write(&hir, &mut out)?;
    String::from_utf8(out).ok()
}

fn write(hir: &Hir, out: &mut Vec<u8>) -> Option<()> {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => out.extend_from_slice(&literal.0),
        HirKind::Class(Class::Unicode(class)) => {
            let ranges = class.ranges();
            let plain =
                |wanted: char| ranges.iter().any(|range| (range.start()..=range.end()).contains(&wanted));
            let known = "aA0_-.".chars().find(|wanted| plain(*wanted));
            let character = known.or_else(|| ranges.first().map(|range| range.start()))?;
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        }
        HirKind::Class(Class::Bytes(class)) => out.push(class.ranges().first()?.start()),
        HirKind::Repetition(repetition) => {
            for _ in 0..repetition.min {
                write(&repetition.sub, out)?;
            }
        }
        HirKind::Capture(capture) => write(&capture.sub, out)?,
        HirKind::Concat(parts) => parts.iter().try_for_each(|part| write(part, out))?,
        HirKind::Alternation(branches) => write(branches.first()?, out)?,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_match_their_pattern() {
        for pattern in ["(?s:.)*foo(?s:.)*", "[0-9]{2}(-[a-z])?x", "a|b", "(x|y)+", "\\x{e9}", "[^a-z]"] {
            let whole = regex::Regex::new(&format!("^(?:{pattern})$")).unwrap();
            assert!(whole.is_match(&sample(pattern).unwrap()), "{pattern}");
        }
    }
}
