//! Numbers as people type them: `8192`, `8k`, `8K`, `1M`, `4G`, `25.6k`.

/// A count: `k`, `m`, `g` are powers of 1000 (fractions allowed), `K`, `M`, `G`, `T` powers of 1024. `None` when it
/// is not a whole number or does not fit.
pub fn parse_count(text: &str) -> Option<u64> {
    let text = text.trim();
    if let Ok(plain) = text.parse::<u64>() {
        return Some(plain);
    }
    let suffix = text.chars().last()?;
    let number = &text[..text.len() - suffix.len_utf8()];
    let binary = match suffix {
        'K' => 1u64 << 10,
        'M' => 1 << 20,
        'G' => 1 << 30,
        'T' => 1 << 40,
        _ => return parse_decimal(number, suffix),
    };
    number.parse::<u64>().ok()?.checked_mul(binary)
}

fn parse_decimal(number: &str, suffix: char) -> Option<u64> {
    let unit = match suffix {
        'k' => 1e3,
        'm' => 1e6,
        'g' => 1e9,
        't' => 1e12,
        _ => return None,
    };
    let value = number.parse::<f64>().ok()? * unit;
    let whole = (0.0..=9e15).contains(&value) && (value - value.round()).abs() < 1e-6;
    whole.then_some(value.round() as u64)
}

/// Bytes: as [`parse_count`], with an optional trailing `B` or `iB` (`4GiB` = `4G`).
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let text = text.strip_suffix("iB").or_else(|| text.strip_suffix('B')).unwrap_or(text);
    parse_count(text)
}
