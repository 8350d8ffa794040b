//! `pattern` and `format` as regular expressions over a whole text, in the syntax of the matching engine. JSON Schema's
//! dialect is ECMA's: the classes that differ are spelled out, narrower where the dialects disagree.

/// Formats that are enforced.
pub(in crate::text::grammar) const FORMATS: [&str; 9] =
    ["date", "time", "date-time", "uuid", "email", "hostname", "ipv4", "uri", "duration"];

/// Formats that JSON Schema defines and that are not enforced here. Any other name is an annotation.
pub(super) const UNSUPPORTED_FORMATS: [&str; 10] = [
    "idn-email",
    "idn-hostname",
    "ipv6",
    "uri-reference",
    "iri",
    "iri-reference",
    "uri-template",
    "json-pointer",
    "relative-json-pointer",
    "regex",
];

const DATE: &str = "[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)\
                    |02-(0[1-9]|1[0-9]|2[0-8]))";
const TIME: &str =
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";

/// The texts of a format; none of them needs an escape in JSON.
pub(in crate::text::grammar) fn format_pattern(name: &str) -> Option<String> {
    let label = "[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?";
    let byte = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
    Some(match name {
        "date" => DATE.to_owned(),
        "time" => TIME.to_owned(),
        "date-time" => format!("({DATE})T{TIME}"),
        "uuid" => "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}".to_owned(),
        "email" => {
            format!("[A-Za-z0-9_%+-]{{1,32}}(\\.[A-Za-z0-9_%+-]{{1,32}}){{0,3}}@{label}(\\.{label}){{1,4}}")
        }
        "hostname" => format!("{label}(\\.{label}){{0,5}}"),
        "ipv4" => format!("{byte}(\\.{byte}){{3}}"),
        "uri" => format!(
            "https?://{label}(\\.{label}){{0,5}}(:[1-9][0-9]{{0,3}})?\
                          (/[A-Za-z0-9._~!$&'()*+,;=:@-]{{0,128}}){{0,16}}(\\?[A-Za-z0-9._~&=+-]{{0,256}})?\
                          (#[A-Za-z0-9._~-]{{0,64}})?"
        ),
        "duration" => "P([0-9]{1,4}W|[0-9]{1,4}D|([0-9]{1,4}D)?T([0-9]{1,4}H([0-9]{1,4}M([0-9]{1,4}S)?)?\
                       |[0-9]{1,4}M([0-9]{1,4}S)?|[0-9]{1,4}S))"
            .to_owned(),
        _ => return None,
    })
}

/// A `pattern` that is looked for anywhere, as an expression for the whole text.
///
/// # Errors
/// A sentence when the expression uses what cannot be matched byte by byte: look-around, back references, word
/// boundaries, anchors inside.
pub(in crate::text::grammar) fn search_pattern(pattern: &str) -> Result<String, String> {
    let rust = Translator::run(pattern)?;
    let branches = branches(&rust).into_iter().map(whole_text);
    let joined = branches.map(|branch| format!("({branch})")).collect::<Vec<_>>().join("|");
    regex::Regex::new(&joined).map_err(|error| short(&error.to_string()))?;
    Ok(joined)
}

/// The last line of a regular expression's error says what it is; those before draw the place.
fn short(error: &str) -> String {
    error.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

fn whole_text(branch: &str) -> String {
    let any = "(?s:.)*";
    let (begin, rest) = match branch.strip_prefix('^') {
        Some(rest) => ("", rest),
        None => (any, branch),
    };
    let anchored = rest.ends_with('$') && !is_escaped(rest);
    match anchored {
        true => format!("{begin}{}", &rest[..rest.len() - 1]),
        false => format!("{begin}{rest}{any}"),
    }
}

/// True when the last character stands behind an odd number of backslashes.
fn is_escaped(text: &str) -> bool {
    let before = &text[..text.len() - 1];
    (before.len() - before.trim_end_matches('\\').len()) % 2 == 1
}

/// The alternatives of the outermost level.
fn branches(pattern: &str) -> Vec<&str> {
    let (mut depth, mut class, mut escaped, mut start) = (0, 0, false, 0);
    let mut all = Vec::new();
    for (at, byte) in pattern.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'[' => class += 1,
            b']' if class > 0 => class -= 1,
            _ if class > 0 => {}
            b'(' => depth += 1,
            b')' => depth -= 1,
            b'|' if depth == 0 => {
                all.push(&pattern[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    all.push(&pattern[start..]);
    all
}

/// Rewrites ECMA's syntax.
struct Translator<'p> {
    rest: std::iter::Peekable<std::str::Chars<'p>>,
    out: String,
    in_class: bool,
}

impl<'p> Translator<'p> {
    fn run(pattern: &'p str) -> Result<String, String> {
        let mut translator =
            Translator { rest: pattern.chars().peekable(), out: String::new(), in_class: false };
        while let Some(character) = translator.rest.next() {
            translator.take(character)?;
        }
        Ok(translator.out)
    }

    fn take(&mut self, character: char) -> Result<(), String> {
        match character {
            '\\' => return self.escape(),
            '[' if self.in_class => self.out.push_str("\\["),
            '[' => {
                self.in_class = true;
                self.out.push('[');
                if self.rest.next_if_eq(&'^').is_some() {
                    self.out.push('^');
                }
                if self.rest.peek() == Some(&']') {
                    return Err("an empty class is not supported".to_owned());
                }
            }
            ']' if self.in_class => {
                self.in_class = false;
                self.out.push(']');
            }
            '&' | '~' if self.in_class => self.out.extend(['\\', character]),
            '.' if !self.in_class => self.out.push_str("[^\\n\\r\\x{2028}\\x{2029}]"),
            '(' if !self.in_class => return self.group(),
            other => self.out.push(other),
        }
        Ok(())
    }

    fn group(&mut self) -> Result<(), String> {
        self.out.push('(');
        if self.rest.next_if_eq(&'?').is_none() {
            return Ok(());
        }
        match self.rest.next() {
            Some(':') => self.out.push_str("?:"),
            Some('<') if !matches!(self.rest.peek(), Some('=' | '!')) => self.out.push_str("?<"),
            _ => return Err("look-around is not supported".to_owned()),
        }
        Ok(())
    }

    fn escape(&mut self) -> Result<(), String> {
        let Some(character) = self.rest.next() else { return Err("it ends in a backslash".to_owned()) };
        let class = match character {
            'd' => "0-9",
            'w' => "0-9A-Za-z_",
            's' => " \\t\\n\\r\\f\\v",
            'D' => "^0-9",
            'W' => "^0-9A-Za-z_",
            'S' => "^\\s\\x{feff}",
            'b' | 'B' if !self.in_class => return Err("word boundaries are not supported".to_owned()),
            '1'..='9' | 'k' => return Err("back references are not supported".to_owned()),
            'c' | 'p' | 'P' | 'x' | 'u' | 'n' | 'r' | 't' | 'f' | 'v' | '0' => {
                return self.character(character);
            }
            other => {
                if other.is_ascii_punctuation() || other == ' ' {
                    self.out.push('\\');
                }
                if other == '/' || other == ' ' {
                    self.out.pop();
                }
                self.out.push(other);
                return Ok(());
            }
        };
        match self.in_class && !class.starts_with('^') {
            true => self.out.push_str(class),
            false => {
                self.out.push('[');
                self.out.push_str(class);
                self.out.push(']');
            }
        }
        Ok(())
    }

    fn character(&mut self, character: char) -> Result<(), String> {
        match character {
            'c' => Err("control escapes are not supported".to_owned()),
            '0' => {
                self.out.push_str("\\x00");
                Ok(())
            }
            other => {
                self.out.extend(['\\', other]);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pattern: &str, text: &str) -> bool {
        let whole = search_pattern(pattern).unwrap();
        regex::Regex::new(&format!("^(?:{whole})$")).unwrap().is_match(text)
    }

    #[test]
    fn patterns_search_unless_anchored() {
        for (pattern, text, expected) in [
            ("b+", "abbc", true),
            ("^b+$", "abb", false),
            ("^a|b$", "axx", true),
            ("^a|b$", "xxb", true),
            ("^a|b$", "xax", false),
            ("^\\d{2}$", "42", true),
            ("^\\d{2}$", "٤٢", false),
            ("^.$", "\r", false),
            ("^[\\w-]+$", "a-b", true),
            ("^[[&&]$", "&", true),
            ("^a\\$", "a$b", true),
            ("^\\/x$", "/x", true),
            ("^(?<name>a)$", "a", true),
        ] {
            assert_eq!(found(pattern, text), expected, "{pattern} on {text:?}");
        }
    }

    #[test]
    fn what_cannot_be_matched_is_refused() {
        for pattern in ["(?=a)b", "(?<!a)b", "\\bword", "(a)\\1", "a(", "[]", "\\"] {
            assert!(search_pattern(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn formats_match_what_they_name() {
        for (name, good, bad) in [
            ("date", "2024-02-28", "2024-02-31"),
            ("time", "23:59:59Z", "24:00:00Z"),
            ("date-time", "2024-01-31T00:00:00+02:00", "2024-01-31 00:00:00"),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567"),
            ("email", "a.b@example.org", "a@b@c"),
            ("hostname", "a.example.org", "-a"),
            ("ipv4", "127.0.0.1", "256.1.1.1"),
            ("uri", "https://example.org/a?b=c#d", "example.org"),
            ("duration", "P1DT2H", "1D"),
        ] {
            let pattern = regex::Regex::new(&format!("^({})$", format_pattern(name).unwrap())).unwrap();
            assert!(pattern.is_match(good) && !pattern.is_match(bad), "{name}");
        }
        assert_eq!(FORMATS.len(), FORMATS.iter().filter_map(|name| format_pattern(name)).count());
    }
}
