//! Limits of numbers as exact decimal digits, because a regular expression compares digits and a double would round.

use std::cmp::Ordering;

use serde_json::Number;

/// A finite decimal number: sign, digits before the point (no leading zeros but one) and behind it (no trailing ones).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::text::grammar) struct Decimal {
    pub(super) negative: bool,
    pub(super) whole: String,
    pub(super) fraction: String,
}

/// Most digits of a limit on either side of the point.
const MAX_DIGITS: usize = 60;

impl Decimal {
    /// Reads a JSON number; `None` when it has more than 60 digits on a side of the point.
    pub(super) fn of(number: &Number) -> Option<Self> {
        let text = number.to_string();
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.as_str()),
        };
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        if exponent.unsigned_abs() as usize > MAX_DIGITS {
            return None;
        }
        let digits = format!("{whole}{fraction}");
        let point = whole.len() as i32 + exponent;
        let (whole, fraction) = match usize::try_from(point) {
            Ok(point) if point <= digits.len() => (digits[..point].to_owned(), digits[point..].to_owned()),
            Ok(point) => (format!("{digits:0<point$}"), String::new()),
            Err(_) => (String::new(), format!("{}{digits}", "0".repeat(point.unsigned_abs() as usize))),
        };
        let whole = whole.trim_start_matches('0');
        let whole = if whole.is_empty() { "0" } else { whole }.to_owned();
        let fraction = fraction.trim_end_matches('0').to_owned();
        if whole.len() > MAX_DIGITS || fraction.len() > MAX_DIGITS {
            return None;
        }
        let zero = whole == "0" && fraction.is_empty();
        Some(Decimal { negative: negative && !zero, whole, fraction })
    }

    pub(super) fn is_whole(&self) -> bool {
        self.fraction.is_empty()
    }

    pub(super) fn negated(&self) -> Self {
        let zero = self.whole == "0" && self.fraction.is_empty();
        Decimal { negative: !self.negative && !zero, ..self.clone() }
    }

    fn magnitude(&self, other: &Self) -> Ordering {
        let whole = self.whole.len().cmp(&other.whole.len()).then_with(|| self.whole.cmp(&other.whole));
        // Without trailing zeros the digits behind the point compare like words.
        whole.then_with(|| self.fraction.cmp(&other.fraction))
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.negative, other.negative) {
            (false, false) => self.magnitude(other),
            (true, true) => other.magnitude(self),
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
        }
    }
}

impl std::fmt::Display for Decimal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.negative { "-" } else { "" };
        let point = if self.fraction.is_empty() { "" } else { "." };
        write!(out, "{sign}{}{point}{}", self.whole, self.fraction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_plain_digits_in_order() {
        let texts = ["-1e3", "-2.50", "-0.001", "0", "1e-7", "0.5", "10", "10.25", "1e20"];
        let read = |text: &str| Decimal::of(&serde_json::from_str(text).unwrap()).unwrap();
        let all: Vec<_> = texts.iter().map(|text| read(text)).collect();
        let shown: Vec<_> = all.iter().map(ToString::to_string).collect();
        let plain =
            ["-1000", "-2.5", "-0.001", "0", "0.0000001", "0.5", "10", "10.25", "100000000000000000000"];
        assert_eq!(shown, plain);
        assert!(all.is_sorted());
        assert_eq!(Decimal::of(&serde_json::from_str("1e99").unwrap()), None);
        assert_eq!(read("-0.0").to_string(), "0");
    }
}
