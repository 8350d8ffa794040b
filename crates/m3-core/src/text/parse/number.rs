//! Numbers as decimal text: is this text a JSON number, is its value integral, how is it printed.
//! Nothing here goes through binary floating point (except to ask whether a double can hold the magnitude),
//! so 30-digit integers and 9.50 keep their value exactly.

/// A JSON number read from text. Its value is `digits` times ten to `exponent`, with the sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decimal<'a> {
    source: &'a str,
    negative: bool,
    /// Significant digits without leading or trailing zeros; empty for zero.
    digits: String,
    exponent: i64,
    /// Only an optional sign and digits: the text is printed as it stands.
    plain_integer: bool,
    has_exponent: bool,
}

/// Longest exponent, in digits, that is read at all; no double comes near it.
const MAX_EXPONENT_DIGITS: usize = 6;

/// Reads a JSON number (no surrounding space). `None` when the text is none: `007`, `+1`, `.5`, `5.`.
pub(super) fn read(text: &str) -> Option<Decimal<'_>> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (integer, rest) = split_digits(unsigned);
    if integer.is_empty() || (integer.len() > 1 && integer.starts_with('0')) {
        return None;
    }
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(after) => Some(split_digits(after)).filter(|(digits, _)| !digits.is_empty())?,
        None => ("", rest),
    };
    let has_exponent = !rest.is_empty();
    let power = if has_exponent { read_exponent(rest)? } else { 0 };
    let (digits, exponent) = significant(integer, fraction, power);
    Some(Decimal {
        source: text,
        negative: text.starts_with('-'),
        digits,
        exponent,
        plain_integer: fraction.is_empty() && !text.contains('.') && !has_exponent,
        has_exponent,
    })
}

/// The run of ASCII digits that `text` starts with, and what follows it.
fn split_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// Reads `e10`, `E+7`, `e-3`, to the end of the text.
fn read_exponent(text: &str) -> Option<i64> {
    let text = text.strip_prefix(['e', 'E'])?;
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (digits, rest) = split_digits(unsigned);
    let short = digits.trim_start_matches('0');
    if digits.is_empty() || !rest.is_empty() || short.len() > MAX_EXPONENT_DIGITS {
        return None;
    }
    Some(if short.is_empty() { 0 } else { sign * short.parse::<i64>().ok()? })
}

/// Digits without zeros at either end, and the power of ten of the last one.
fn significant(integer: &str, fraction: &str, power: i64) -> (String, i64) {
    let all = format!("{integer}{fraction}");
    let short = all.trim_end_matches('0');
    if short.is_empty() {
        return (String::new(), 0);
    }
    let dropped = (all.len() - short.len()) as i64;
    let exponent = power - fraction.len() as i64 + dropped;
    (short.trim_start_matches('0').to_owned(), exponent)
}

impl Decimal<'_> {
    /// True when the value has no fractional part: `3`, `3.0`, `1.5e1`.
    pub(super) fn is_integral(&self) -> bool {
        self.digits.is_empty() || self.exponent >= 0
    }

    /// The number as JSON text: integral values as integers, others without trailing zeros. `None` when the
    /// text uses a fraction or exponent and its magnitude is beyond every double (`1e400`).
    pub(super) fn print(&self) -> Option<String> {
        if self.digits.is_empty() {
            return Some("0".to_owned());
        }
        if self.plain_integer {
            return Some(self.source.to_owned());
        }
        if !self.source.parse::<f64>().is_ok_and(f64::is_finite) {
            return None;
        }
        let sign = if self.negative { "-" } else { "" };
        let unsigned = if self.is_integral() { self.print_integral() } else { self.print_fraction() };
        Some(format!("{sign}{unsigned}"))
    }

    fn print_integral(&self) -> String {
        let zeros = usize::try_from(self.exponent).expect("integral values have no negative exponent");
        format!("{}{}", self.digits, "0".repeat(zeros))
    }

    fn print_fraction(&self) -> String {
        // Index of the decimal point within `digits`; zero or less puts it before them.
        let point = self.digits.len() as i64 + self.exponent;
        if let Ok(point @ 1..) = usize::try_from(point) {
            let (whole, fraction) = self.digits.split_at(point);
            return format!("{whole}.{fraction}");
        }
        if point > -6 || !self.has_exponent {
            return format!("0.{}{}", "0".repeat(point.unsigned_abs() as usize), self.digits);
        }
        let (first, others) = self.digits.split_at(1);
        let dot = if others.is_empty() { "" } else { "." };
        format!("{first}{dot}{others}e{}", point - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(text: &str) -> Option<String> {
        read(text)?.print()
    }

    #[test]
    fn texts_that_are_no_json_numbers() {
        for text in [
            "", "-", "007", "+1", ".5", "5.", "1e", "1e+", "0x1", "1 ", "NaN", "inf", "1_0", "-01", "1.e3",
            "１",
        ] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }

    #[test]
    fn integral_values_print_as_integers() {
        for (text, expected) in [
            ("42", "42"),
            ("-7", "-7"),
            ("3.0", "3"),
            ("-3.000", "-3"),
            ("0", "0"),
            ("-0", "0"),
            ("0.00", "0"),
            ("1e3", "1000"),
            ("1.5E+1", "15"),
            ("120e-1", "12"),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
            ("123456789012345678901234567890.0", "123456789012345678901234567890"),
            ("1e22", "10000000000000000000000"),
        ] {
            assert!(read(text).unwrap().is_integral(), "{text}");
            assert_eq!(printed(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn fractions_lose_only_trailing_zeros() {
        for (text, expected) in [
            ("9.50", "9.5"),
            ("59.9", "59.9"),
            ("-0.10", "-0.1"),
            ("0.1000000000000000055511151231257827", "0.1000000000000000055511151231257827"),
            ("1.25e1", "12.5"),
            ("5e-2", "0.05"),
            ("1e-7", "1e-7"),
            ("-12.50e-10", "-1.25e-9"),
            ("0.000000001", "0.000000001"),
            ("3.7", "3.7"),
        ] {
            assert!(!read(text).unwrap().is_integral(), "{text}");
            assert_eq!(printed(text).as_deref(), Some(expected), "{text}");
            let (was, is): (f64, f64) = (text.parse().unwrap(), expected.parse().unwrap());
            assert_eq!(was, is, "{text}");
        }
    }

    #[test]
    fn magnitudes_beyond_a_double_are_refused_unless_written_out() {
        assert_eq!(printed("1e400"), None);
        assert_eq!(printed("-1.5e309"), None);
        assert_eq!(printed("1e99999999999"), None);
        assert_eq!(printed("1e308").unwrap().len(), 309);
        let long = "9".repeat(400);
        assert_eq!(printed(&long).as_deref(), Some(long.as_str()));
    }
}
