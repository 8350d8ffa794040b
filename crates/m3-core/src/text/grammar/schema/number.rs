//! Numbers within limits as a regular expression over their digits. Lengths are bounded, so that no number can go on
//! for ever; where there are limits, exponents are left out.

use super::{Bound, Decimal, Number};

/// Most digits before the point and behind it.
const WHOLE: usize = 15;
const FRACTION: usize = 10;

/// Regular expressions that a number's text must match, all of them.
pub(in crate::text::grammar) fn number_pattern(number: &Number) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(bound) = &number.min {
        all.push(at_least(&bound.value, bound.exclusive, number.integer));
    }
    if let Some(bound) = &number.max {
        all.push(at_most(&bound.value, bound.exclusive, number.integer));
    }
    if all.is_empty() {
        let digits = format!("-?(0|[1-9][0-9]{{0,{}}})", WHOLE - 1);
        all.push(match number.integer {
            true => digits,
            false => format!("{digits}(\\.[0-9]{{1,{FRACTION}}})?([eE][+-]?[0-9]{{1,2}})?"),
        });
    }
    all
}

/// True when no number fits between the limits.
pub(super) fn is_void(number: &Number) -> bool {
    if number.multiple.is_some() && multiples(number).is_none() {
        return true;
    }
    let (Some(min), Some(max)) = (&number.min, &number.max) else { return false };
    if min.value > max.value || (min.value == max.value && (min.exclusive || max.exclusive)) {
        return true;
    }
    number.integer && {
        let (low, high) = (ceiling(min), floor(max));
        low > high
    }
}

/// The smallest and the largest whole number between the limits that is a multiple; `None` = there is no such number, or
/// it has more digits than are handled. Where there is no limit, it is a million million from the other one or from 0.
pub(in crate::text::grammar) fn multiples(number: &Number) -> Option<(i64, i64)> {
    const FAR: i64 = 1_000_000_000_000;
    let of = i64::from(number.multiple.unwrap_or(1));
    let whole =
        |decimal: Decimal| decimal.to_string().parse::<i64>().ok().filter(|whole| whole.abs() <= 1000 * FAR);
    let low = match &number.min {
        Some(bound) => Some(whole(ceiling(bound))?),
        None => None,
    };
    let high = match &number.max {
        Some(bound) => Some(whole(floor(bound))?),
        None => None,
    };
    let (low, high) = match (low, high) {
        (Some(low), Some(high)) => (low, high),
        (Some(low), None) => (low, low.max(0) + FAR),
        (None, Some(high)) => (high.min(0) - FAR, high),
        (None, None) => (-FAR, FAR),
    };
    let (first, last) = (low + (-low).rem_euclid(of), high - high.rem_euclid(of));
    (first <= last).then_some((first, last))
}

/// The smallest integer within a lower limit.
fn ceiling(bound: &Bound) -> Decimal {
    let up = !bound.value.negative && (!bound.value.is_whole() || bound.exclusive);
    let down = bound.value.negative && bound.value.is_whole() && bound.exclusive;
    let whole = match (up, down) {
        (true, _) => increment(&bound.value.whole),
        (_, true) => decrement(&bound.value.whole),
        _ => bound.value.whole.clone(),
    };
    let negative = bound.value.negative && whole != "0";
    Decimal { negative, whole, fraction: String::new() }
}

fn floor(bound: &Bound) -> Decimal {
    ceiling(&Bound { value: bound.value.negated(), exclusive: bound.exclusive }).negated()
}

fn increment(digits: &str) -> String {
    let kept = digits.trim_end_matches('9');
    let zeros = "0".repeat(digits.len() - kept.len());
    match kept.char_indices().next_back() {
        None => format!("1{zeros}"),
        Some((at, digit)) => format!("{}{}{zeros}", &kept[..at], char::from(digit as u8 + 1)),
    }
}

/// One less; the digits are not those of 0.
fn decrement(digits: &str) -> String {
    let kept = digits.trim_end_matches('0');
    let nines = "9".repeat(digits.len() - kept.len());
    let (head, last) = kept.split_at(kept.len() - 1);
    let all = format!("{head}{}{nines}", char::from(last.as_bytes()[0] - 1));
    let short = all.trim_start_matches('0');
    if short.is_empty() { "0".to_owned() } else { short.to_owned() }
}

fn at_least(value: &Decimal, exclusive: bool, integer: bool) -> String {
    if integer {
        let low = ceiling(&Bound { value: value.clone(), exclusive });
        let whole = any_whole(&low.whole);
        return match low.negative {
            false => either(vec![greater(&low.whole), Some(low.whole.clone())]),
            true => either(vec![
                Some(whole),
                less(&low.whole).map(|less| format!("-({less})")),
                Some(format!("-{}", low.whole)),
            ]),
        };
    }
    match value.negative {
        false => magnitude_from(value, exclusive),
        true => {
            let below = magnitude_to(&value.negated(), exclusive);
            either(vec![
                Some(format!("({}){}", any_whole(&value.whole), any_fraction(value))),
                Some(format!("-({below})")),
            ])
        }
    }
}

fn at_most(value: &Decimal, exclusive: bool, integer: bool) -> String {
    if integer {
        let high = floor(&Bound { value: value.clone(), exclusive });
        let mirrored = high.negated();
        return match (high.negative, high.whole.as_str()) {
            (true, _) => {
                let far = either(vec![greater(&mirrored.whole), Some(mirrored.whole.clone())]);
                format!("-({far})")
            }
            (false, whole) => {
                either(vec![Some(format!("-({})", any_whole(whole))), less(whole), Some(whole.to_owned())])
            }
        };
    }
    match value.negative {
        true => format!("-({})", magnitude_from(&value.negated(), exclusive)),
        false => {
            let zero = value.whole == "0" && value.fraction.is_empty();
            let negative = match zero && exclusive {
                // Minus nothing is nothing, and not below it.
                true => format!("-({})", magnitude_from(value, true)),
                false => format!("-({}){}", any_whole(&value.whole), any_fraction(value)),
            };
            let below = (!(zero && exclusive)).then(|| magnitude_to(value, exclusive));
            either(vec![Some(negative), below])
        }
    }
}

/// Unsigned numbers not below `value`.
fn magnitude_from(value: &Decimal, exclusive: bool) -> String {
    let (whole, digits) = (&value.whole, &value.fraction);
    let free = room(value);
    let mut tails: Vec<String> = digits
        .char_indices()
        .filter(|(_, digit)| *digit < '9')
        .map(|(at, digit)| {
            format!("\\.{}[{}-9][0-9]{{0,{free}}}", &digits[..at], char::from(digit as u8 + 1))
        })
        .collect();
    match (digits.is_empty(), exclusive) {
        (true, false) => tails.push(any_fraction(value)),
        (false, false) => tails.push(format!("\\.{digits}[0-9]{{0,{free}}}")),
        (_, true) => tails.push(format!("\\.{digits}0{{0,{free}}}[1-9][0-9]{{0,{free}}}")),
    }
    either(vec![
        greater(whole).map(|more| format!("({more}){}", any_fraction(value))),
        Some(format!("{whole}({})", tails.join("|"))),
    ])
}

/// Unsigned numbers not above `value`.
fn magnitude_to(value: &Decimal, exclusive: bool) -> String {
    let (whole, digits) = (&value.whole, &value.fraction);
    let free = room(value);
    let mut tails: Vec<String> = Vec::new();
    for (at, digit) in digits.char_indices() {
        let head = &digits[..at];
        if at > 0 {
            tails.push(format!("\\.{head}"));
        }
        if digit > '0' {
            tails.push(format!("\\.{head}[0-{}][0-9]{{0,{free}}}", char::from(digit as u8 - 1)));
        }
    }
    match (digits.is_empty(), exclusive) {
        (true, false) => tails.push(format!("(\\.0{{1,{FRACTION}}})?")),
        (true, true) => {}
        (false, _) => {
            tails.push(String::new());
            if !exclusive {
                tails.push(format!("\\.{digits}0{{0,{free}}}"));
            }
        }
    }
    let equal = (!tails.is_empty()).then(|| format!("{whole}({})", tails.join("|")));
    either(vec![less(whole).map(|less| format!("({less}){}", any_fraction(value))), equal])
}

/// Whole numbers above these digits, one digit longer at most unless there is more room.
fn greater(digits: &str) -> Option<String> {
    let length = digits.len();
    let mut all = vec![format!("[1-9][0-9]{{{length},{}}}", length.max(WHOLE - 1))];
    for (at, digit) in digits.char_indices().filter(|(_, digit)| *digit < '9') {
        let rest = length - at - 1;
        all.push(format!("{}[{}-9][0-9]{{{rest}}}", &digits[..at], char::from(digit as u8 + 1)));
    }
    Some(all.join("|"))
}

/// Whole numbers below these digits; `None` below 0.
fn less(digits: &str) -> Option<String> {
    let length = digits.len();
    let mut all = Vec::new();
    if length > 1 {
        all.push(format!("0|[1-9][0-9]{{0,{}}}", length - 2));
    }
    for (at, digit) in digits.char_indices() {
        let lowest = if at == 0 && length > 1 { '1' } else { '0' };
        if digit > lowest {
            let rest = length - at - 1;
            all.push(format!("{}[{lowest}-{}][0-9]{{{rest}}}", &digits[..at], char::from(digit as u8 - 1)));
        }
    }
    (!all.is_empty()).then(|| all.join("|"))
}

fn any_whole(beside: &str) -> String {
    format!("0|[1-9][0-9]{{0,{}}}", beside.len().max(WHOLE - 1))
}

fn any_fraction(beside: &Decimal) -> String {
    format!("(\\.[0-9]{{1,{}}})?", room(beside).max(1))
}

/// Digits behind the point for which a double still tells neighbours apart.
fn room(beside: &Decimal) -> usize {
    WHOLE.saturating_sub(beside.whole.len() + beside.fraction.len()).clamp(0, FRACTION)
}

fn either(all: Vec<Option<String>>) -> String {
    let all: Vec<String> = all.into_iter().flatten().collect();
    format!("({})", all.join("|"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bound(text: &str, exclusive: bool) -> Bound {
        Bound { value: Decimal::of(&serde_json::from_str(text).unwrap()).unwrap(), exclusive }
    }

    fn fits(number: &Number, text: &str) -> bool {
        let all = number_pattern(number);
        all.iter().all(|pattern| regex::Regex::new(&format!("^({pattern})$")).unwrap().is_match(text))
    }

    proptest! {
        #[test]
        fn patterns_agree_with_arithmetic(
            low in -1200i64..1200, width in 0i64..1500, probe in -3000i64..3000, scale in 0u32..3,
            exclusive in any::<(bool, bool)>(), integer in any::<bool>(),
        ) {
            let text = |value: i64| {
                let divisor = 10i64.pow(scale);
                let sign = if value < 0 { "-" } else { "" };
                let (whole, rest) = (value.abs() / divisor, value.abs() % divisor);
                match scale {
                    0 => format!("{sign}{whole}"),
                    _ => format!("{sign}{whole}.{rest:0>width$}", width = scale as usize),
                }
            };
            let high = low + width;
            let number = Number {
                integer,
                min: Some(bound(&text(low), exclusive.0)),
                max: Some(bound(&text(high), exclusive.1)),
                multiple: None,
            };
            let above = if exclusive.0 { probe > low } else { probe >= low };
            let below = if exclusive.1 { probe < high } else { probe <= high };
            let divisor = 10i64.pow(scale);
            if integer {
                if probe % divisor == 0 {
                    let written = (probe / divisor).to_string();
                    prop_assert_eq!(fits(&number, &written), above && below, "{} {:?}", written, number);
                }
            } else if !is_void(&number) {
                prop_assert_eq!(fits(&number, &text(probe)), above && below, "{} {:?}", text(probe), number);
            }
        }
    }

    #[test]
    fn free_numbers_are_bounded() {
        let (any, integer) = (Number::default(), Number { integer: true, ..Number::default() });
        for text in ["0", "-7", "3.25", "1e5", "123456789012345"] {
            assert!(fits(&any, text), "{text}");
        }
        for text in ["007", "1e999", "1234567890123456", "0.12345678901", ".5", "+1"] {
            assert!(!fits(&any, text), "{text}");
        }
        assert!(fits(&integer, "42") && !fits(&integer, "4.2"));
    }

    #[test]
    fn multiples_lie_between_the_limits() {
        let range = |min: &str, max: &str, of| Number {
            integer: true,
            min: Some(bound(min, false)),
            max: Some(bound(max, true)),
            multiple: Some(of),
        };
        assert_eq!(multiples(&range("-7", "8", 4)), Some((-4, 4)));
        assert_eq!(multiples(&range("0.25", "8.5", 4)), Some((4, 8)));
        assert_eq!(multiples(&range("1", "4", 4)), None);
        assert!(is_void(&range("0.25", "1", 2)) && !is_void(&range("0", "1", 2)));
    }

    #[test]
    fn empty_ranges_are_known() {
        let range = |min, max, integer| Number { integer, min: Some(min), max: Some(max), multiple: None };
        assert!(is_void(&range(bound("3", false), bound("2", false), false)));
        assert!(is_void(&range(bound("3", true), bound("3", false), false)));
        assert!(is_void(&range(bound("0.1", false), bound("0.9", false), true)));
        assert!(is_void(&range(bound("-1", true), bound("0", true), true)));
        assert!(!is_void(&range(bound("-1", false), bound("-1", false), true)));
    }
}
