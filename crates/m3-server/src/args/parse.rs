//! From words to flag values, over the table. Syntax only: what a value means is `options.rs`' business.

use std::collections::{BTreeMap, BTreeSet};

use super::ArgError;
use super::table::{Command, Effect, FLAGS, Flag, Kind};

/// A command line taken apart.
#[derive(Debug)]
pub struct Parsed {
    pub command: Command,
    /// Words that are no flags.
    pub words: Vec<String>,
    /// Values by canonical name; a switch has an empty list.
    pub values: BTreeMap<&'static str, Vec<String>>,
    /// Switches that were last turned off by name (`--flag=false`).
    pub off: BTreeSet<&'static str>,
    /// Which word stands directly behind which switch, by the word's place in `words`.
    pub behind_switch: BTreeMap<usize, String>,
    /// Sentences about flags that were accepted and do nothing.
    pub notes: Vec<String>,
}

impl Parsed {
    /// Was the flag given?
    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// The last value given.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.values.get(name)?.last().map(String::as_str)
    }

    /// All values given.
    pub fn many(&self, name: &str) -> &[String] {
        self.values.get(name).map_or(&[], Vec::as_slice)
    }
}

/// Parses the words after the program's name. Fails with the first thing that is wrong.
pub fn parse(args: &[String]) -> Result<Parsed, ArgError> {
    let Some((first, rest)) = args.split_first() else {
        return Err(unknown_command(""));
    };
    let command = Command::ALL.iter().find(|(name, _)| name == first).map(|(_, command)| *command);
    let command = command.ok_or_else(|| unknown_command(first))?;
    let mut parsed = Parsed {
        command,
        words: Vec::new(),
        values: BTreeMap::new(),
        off: BTreeSet::new(),
        behind_switch: BTreeMap::new(),
        notes: Vec::new(),
    };
    let mut rest = rest;
    while let Some((word, after)) = rest.split_first() {
        rest = if word == "--" {
            parsed.words.extend_from_slice(after);
            &[]
        } else if word.starts_with('-') && word.len() > 1 {
            take_flag(&mut parsed, word, after)?
        } else {
            parsed.words.push(word.clone());
            after
        };
    }
    Ok(parsed)
}

/// Reads one flag and its values; returns what is left.
fn take_flag<'a>(parsed: &mut Parsed, word: &str, after: &'a [String]) -> Result<&'a [String], ArgError> {
    let (given, inline) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (word, None),
    };
    let flag = find(given).ok_or_else(|| unknown_flag(given))?;
    if !flag.is_for(parsed.command) {
        return Err(ArgError::NotHere { given: given.to_owned(), command: parsed.command.name() });
    }
    let (values, rest) = take_values(flag, given, inline, after)?;
    let Some(values) = values else {
        parsed.values.remove(flag.name);
        parsed.off.insert(flag.name);
        return Ok(rest);
    };
    parsed.off.remove(flag.name);
    check_effect(parsed, flag, given, &values)?;
    if let (Kind::Switch, false, Some(word)) = (flag.kind, word.contains('='), rest.first()) {
        check_behind_switch(given, word)?;
        if !looks_like_flag(word) {
            parsed.behind_switch.insert(parsed.words.len(), given.to_owned());
        }
    }
    let slot = parsed.values.entry(flag.name).or_default();
    slot.extend(values);
    Ok(rest)
}

/// `None` for a switch that was explicitly turned off (`--flag=false`).
type Taken<'a> = (Option<Vec<String>>, &'a [String]);

fn take_values<'a>(
    flag: &Flag,
    given: &str,
    inline: Option<String>,
    after: &'a [String],
) -> Result<Taken<'a>, ArgError> {
    match (flag.kind, inline) {
        (Kind::Switch, None) => Ok((Some(Vec::new()), after)),
        (Kind::Switch, Some(value)) => match value.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" => Ok((Some(Vec::new()), after)),
            "false" | "0" | "no" => Ok((None, after)),
            _ => Err(ArgError::BadValue { flag: given.to_owned(), value, expected: "true or false".into() }),
        },
        (_, Some(value)) => Ok((Some(vec![value]), after)),
        (kind, None) => {
            let many = matches!(kind, Kind::Many(_));
            let limit = if many { usize::MAX } else { 1 };
            let count = after.iter().take(limit).take_while(|word| !looks_like_flag(word)).count();
            if count == 0 {
                return Err(ArgError::MissingValue { given: given.to_owned() });
            }
            Ok((Some(after[..count].to_vec()), &after[count..]))
        }
    }
}

/// Words that are plainly meant as a switch's value.
fn check_behind_switch(given: &str, word: &str) -> Result<(), ArgError> {
    const VALUES: [&str; 8] = ["true", "false", "yes", "no", "on", "off", "1", "0"];
    if VALUES.contains(&word.to_ascii_lowercase().as_str()) {
        return Err(ArgError::SwitchValue { flag: given.to_owned(), value: word.to_owned() });
    }
    Ok(())
}

/// `-1` and `-0.5` are values.
fn looks_like_flag(word: &str) -> bool {
    word.len() > 1 && word.starts_with('-') && word.parse::<f64>().is_err()
}

fn check_effect(parsed: &mut Parsed, flag: &Flag, given: &str, values: &[String]) -> Result<(), ArgError> {
    let shown = std::iter::once(given).chain(values.iter().map(String::as_str)).collect::<Vec<_>>().join(" ");
    match flag.effect {
        Effect::Set => {}
        Effect::Harmless => parsed.notes.push(format!("{shown} does nothing here: {}", flag.help)),
        Effect::NotYet => return Err(ArgError::NoEffect { given: shown, reason: flag.help.to_owned() }),
        Effect::Only(allowed) => {
            if values.iter().any(|value| !allowed.contains(&value.as_str())) {
                let reason = format!("{} (accepted: {})", flag.help, allowed.join(", "));
                return Err(ArgError::NoEffect { given: shown, reason });
            }
        }
    }
    Ok(())
}

/// Underscores count as dashes, as argparse users are used to.
fn find(given: &str) -> Option<&'static Flag> {
    let (dashes, bare) = match given.strip_prefix("--") {
        Some(bare) => ("--", bare.replace('_', "-")),
        None => ("-", given.to_owned()),
    };
    FLAGS.iter().find(|flag| match dashes {
        "--" => flag.name == bare || flag.also.contains(&bare.as_str()),
        _ => flag.also.contains(&bare.as_str()),
    })
}

fn unknown_flag(given: &str) -> ArgError {
    let bare = given.trim_start_matches('-').replace('_', "-");
    let score = |flag: &Flag| {
        let names = std::iter::once(&flag.name).chain(flag.also);
        names.map(|name| strsim::jaro_winkler(name, &bare)).fold(0.0, f64::max)
    };
    let nearest = FLAGS.iter().max_by(|a, b| score(a).total_cmp(&score(b)));
    let nearest = nearest.map(all_names).unwrap_or_default();
    ArgError::UnknownFlag { given: given.to_owned(), nearest }
}

/// `--name (also --alias, -a)`.
pub(super) fn all_names(flag: &Flag) -> String {
    let dashed = |name: &&str| if name.starts_with('-') { (*name).to_owned() } else { format!("--{name}") };
    let also = flag.also.iter().map(dashed).collect::<Vec<_>>().join(", ");
    if also.is_empty() { format!("--{}", flag.name) } else { format!("--{} (also {also})", flag.name) }
}

fn unknown_command(given: &str) -> ArgError {
    let nearest = Command::ALL.iter().map(|(name, _)| (strsim::jaro_winkler(name, given), *name));
    let best = nearest.max_by(|a, b| a.0.total_cmp(&b.0));
    let nearest = match best {
        Some((score, name)) if score > 0.7 => format!("\"m3 {name}\""),
        _ => Command::ALL.map(|(name, _)| name).join(", "),
    };
    ArgError::UnknownCommand { given: given.to_owned(), nearest }
}
