//! `strftime_now`: the current date and time in UTC, formatted as C's `strftime` in the plain locale.

use std::time::{SystemTime, UNIX_EPOCH};

use super::fault::Fault;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// The current time by `pattern`.
pub(crate) fn now(pattern: &str) -> Result<String, Fault> {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    let elapsed = elapsed.map_err(|_| Fault::new("the system clock is before 1970"))?;
    format(pattern, elapsed.as_secs())
}

/// The time `seconds` after 1970-01-01 00:00:00 UTC by `pattern`.
fn format(pattern: &str, seconds: u64) -> Result<String, Fault> {
    let days = seconds / 86_400;
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let (month_name, day_name) = (MONTHS[month as usize - 1], DAYS[((days + 4) % 7) as usize]);
    let half_day = if hour.is_multiple_of(12) { 12 } else { hour % 12 };
    let mut out = String::new();
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            out.push(character);
            continue;
        }
        let mut directive = characters.next();
        let bare = directive == Some('-');
        if bare {
            directive = characters.next();
        }
        let two = |number: u64| if bare { number.to_string() } else { format!("{number:02}") };
        out += &match directive {
            Some('Y') => year.to_string(),
            Some('y') => two(year % 100),
            Some('m') => two(month),
            Some('d') => two(day),
            Some('e') => format!("{day:2}"),
            Some('H') => two(hour),
            Some('I') => two(half_day),
            Some('M') => two(minute),
            Some('S') => two(second),
            Some('p') => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            Some('B') => month_name.to_owned(),
            Some('b' | 'h') => month_name[..3].to_owned(),
            Some('A') => day_name.to_owned(),
            Some('a') => day_name[..3].to_owned(),
            Some('j') => format!("{:03}", day_of_year(year, month, day)),
            Some('F') => format!("{year}-{month:02}-{day:02}"),
            Some('T') => format!("{hour:02}:{minute:02}:{second:02}"),
            Some('D') => format!("{month:02}/{day:02}/{:02}", year % 100),
            Some('Z') => "UTC".to_owned(),
            Some('z') => "+0000".to_owned(),
            Some('%') => "%".to_owned(),
            Some(other) => return Err(Fault::new(format!("strftime_now does not know '%{other}'"))),
            None => return Err(Fault::new("strftime_now pattern ends in '%'")),
        };
    }
    Ok(out)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn month_length(year: u64, month: u64) -> u64 {
    match month {
        2 => 28 + u64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn day_of_year(year: u64, month: u64, day: u64) -> u64 {
    (1..month).map(|earlier| month_length(year, earlier)).sum::<u64>() + day
}

/// Days after 1970-01-01 to `(year, month, day)`.
fn civil(mut days: u64) -> (u64, u64, u64) {
    let mut year = 1970;
    loop {
        let length = 365 + u64::from(is_leap(year));
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let mut month = 1;
    while days >= month_length(year, month) {
        days -= month_length(year, month);
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments() {
        // 2024-02-29 13:05:09 UTC was a Thursday, the 60th day.
        let all = "%Y-%m-%d %H:%M:%S %I%p %-d %e %j %B %b %A %a %y %%";
        assert_eq!(
            format(all, 1_709_211_909).unwrap(),
            "2024-02-29 13:05:09 01PM 29 29 060 February Feb Thursday Thu 24 %"
        );
        assert_eq!(format("%F %T %a", 0).unwrap(), "1970-01-01 00:00:00 Thu");
        assert!(format("%Q", 0).is_err());
    }
}
