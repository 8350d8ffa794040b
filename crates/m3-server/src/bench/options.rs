//! What `m3 bench` is told.

use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::args::{ArgError, Parsed, number};

/// What prompts are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// Every prompt is new.
    Random,
    /// Groups of prompts begin alike.
    SharedPrefix,
    /// Each request goes on where the one before it ended.
    Conversation,
}

/// Most milliseconds that still count as good; `None` = any.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Goal {
    pub ttft: Option<f64>,
    pub tpot: Option<f64>,
    pub e2e: Option<f64>,
}

/// Everything that a run depends on.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// Without a slash at the end, and without `/v1`.
    pub url: String,
    pub key: Option<String>,
    /// `None` = the first that the server lists.
    pub model: Option<String>,
    /// `/v1/chat/completions` rather than `/v1/completions`.
    pub chat: bool,
    pub trace: Trace,
    pub requests: usize,
    pub input: usize,
    pub output: usize,
    /// Lengths are drawn from this share of the above to all of it.
    pub range: f64,
    pub prefix: usize,
    pub groups: usize,
    pub turns: usize,
    /// Arrivals a second; `None` = as soon as there is room.
    pub rate: Option<f64>,
    pub concurrency: Vec<usize>,
    pub warmup: usize,
    pub goal: Goal,
    pub seed: u64,
    pub ignore_eos: bool,
    pub flush_cache: bool,
    /// More fields of every request.
    pub extra: Map<String, Value>,
    pub timeout: f64,
    pub out: Option<PathBuf>,
    pub html: Option<PathBuf>,
    pub quiet: bool,
    /// As typed, without the key, for the report.
    pub command: String,
}

impl BenchOptions {
    /// Checks every value.
    pub fn read(parsed: &Parsed) -> Result<Self, ArgError> {
        let size = |name: &str, least, most, default: usize| {
            number(parsed, name, least, most).map(|size| size.map_or(default, |size| size as usize))
        };
        if let Some(word) = parsed.words.get(1) {
            return Err(ArgError::ExtraWord(word.clone()));
        }
        Ok(BenchOptions {
            url: url(parsed)?,
            key: key(parsed),
            model: parsed.value("model").map(str::to_owned),
            chat: choice(parsed, "endpoint", &["chat", "completions"])? == "chat",
            trace: trace(parsed)?,
            requests: size("num-prompts", 1, 1 << 24, 100)?,
            input: size("input-len", 1, 1 << 24, 512)?,
            output: size("output-len", 1, 1 << 24, 128)?,
            range: real(parsed, "range-ratio", 1.0, 0.0, 1.0)?,
            prefix: size("prefix-len", 0, 1 << 24, 1024)?,
            groups: size("prefix-groups", 1, 1 << 24, 8)?,
            turns: size("turns", 1, 10_000, 4)?,
            rate: rate(parsed)?,
            concurrency: concurrency(parsed)?,
            warmup: size("warmup", 0, 1 << 20, 1)?,
            goal: goal(parsed)?,
            seed: number(parsed, "random-seed", 0, u64::MAX)?.unwrap_or(0),
            ignore_eos: !parsed.has("respect-eos"),
            flush_cache: parsed.has("flush-cache"),
            extra: extra(parsed)?,
            timeout: real(parsed, "timeout", 600.0, 0.001, 86_400.0)?,
            out: parsed.value("out").map(PathBuf::from),
            html: parsed.value("html").map(PathBuf::from),
            quiet: parsed.has("quiet"),
            command: command(parsed),
        })
    }

    /// The path that is asked.
    pub fn path(&self) -> &'static str {
        if self.chat { "/v1/chat/completions" } else { "/v1/completions" }
    }
}

impl Trace {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Trace::Random => "random",
            Trace::SharedPrefix => "shared-prefix",
            Trace::Conversation => "conversation",
        }
    }
}

fn bad(flag: &str, value: &str, expected: &str) -> ArgError {
    ArgError::BadValue { flag: format!("--{flag}"), value: value.to_owned(), expected: expected.to_owned() }
}

fn url(parsed: &Parsed) -> Result<String, ArgError> {
    let given = parsed.words.first().map(String::as_str).or(parsed.value("url"));
    let given = given.unwrap_or("http://127.0.0.1:30000").trim_end_matches('/');
    let base = given.strip_suffix("/v1").unwrap_or(given);
    let known =
        ["http://", "https://"].iter().any(|scheme| base.len() > scheme.len() && base.starts_with(scheme));
    if known {
        Ok(base.to_owned())
    } else {
        Err(bad("url", given, "an address such as http://127.0.0.1:30000"))
    }
}

/// From the flag, else from where other clients look.
fn key(parsed: &Parsed) -> Option<String> {
    let given = parsed.value("api-key").map(str::to_owned);
    given.or_else(|| std::env::var("OPENAI_API_KEY").ok()).filter(|key| !key.is_empty())
}

fn choice<'a>(parsed: &'a Parsed, flag: &str, allowed: &[&'static str]) -> Result<&'a str, ArgError> {
    match parsed.value(flag) {
        None => Ok(allowed[0]),
        Some(given) if allowed.contains(&given) => Ok(given),
        Some(given) => Err(bad(flag, given, &allowed.join(" or "))),
    }
}

fn trace(parsed: &Parsed) -> Result<Trace, ArgError> {
    let all = [Trace::Random, Trace::SharedPrefix, Trace::Conversation];
    let named = choice(parsed, "trace", &all.map(Trace::name))?;
    Ok(all.into_iter().find(|trace| trace.name() == named).unwrap_or(Trace::Random))
}

fn real(parsed: &Parsed, flag: &str, default: f64, least: f64, most: f64) -> Result<f64, ArgError> {
    let Some(text) = parsed.value(flag) else { return Ok(default) };
    let value = text.parse::<f64>().ok().filter(|value| (least..=most).contains(value));
    value.ok_or_else(|| bad(flag, text, &format!("a number from {least} to {most}")))
}

fn rate(parsed: &Parsed) -> Result<Option<f64>, ArgError> {
    match parsed.value("request-rate") {
        None | Some("inf") => Ok(None),
        Some(_) => real(parsed, "request-rate", 1.0, 1e-3, 1e6).map(Some),
    }
}

fn concurrency(parsed: &Parsed) -> Result<Vec<usize>, ArgError> {
    let text = parsed.value("concurrency").unwrap_or("16");
    let one = |word: &str| word.trim().parse::<usize>().ok().filter(|count| (1..=65_536).contains(count));
    let all: Option<Vec<usize>> = text.split(',').map(one).collect();
    all.ok_or_else(|| bad("concurrency", text, "counts from 1 to 65536 with commas between, such as 1,8,64"))
}

/// `ttft:500 tpot:50 e2e:10000`, in milliseconds.
fn goal(parsed: &Parsed) -> Result<Goal, ArgError> {
    let mut goal = Goal::default();
    for word in parsed.many("goodput") {
        let expected = "ttft:MS, tpot:MS or e2e:MS";
        let (name, limit) = word.split_once(':').ok_or_else(|| bad("goodput", word, expected))?;
        let limit = limit.parse::<f64>().ok().filter(|limit| *limit > 0.0 && limit.is_finite());
        let limit = Some(limit.ok_or_else(|| bad("goodput", word, expected))?);
        match name {
            "ttft" => goal.ttft = limit,
            "tpot" => goal.tpot = limit,
            "e2e" | "e2el" => goal.e2e = limit,
            _ => return Err(bad("goodput", word, expected)),
        }
    }
    Ok(goal)
}

fn extra(parsed: &Parsed) -> Result<Map<String, Value>, ArgError> {
    let Some(text) = parsed.value("extra-body") else { return Ok(Map::new()) };
    match serde_json::from_str(text) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(bad("extra-body", text, "a JSON object")),
        Err(error) => Err(bad("extra-body", text, &format!("a JSON object ({error})"))),
    }
}

fn command(parsed: &Parsed) -> String {
    let mut words = vec!["m3 bench".to_owned()];
    words.extend(parsed.words.iter().cloned());
    for (name, values) in &parsed.values {
        let shown = if *name == "api-key" { "KEY".to_owned() } else { values.join(" ") };
        words.push(format!("--{name} {shown}").trim_end().to_owned());
    }
    words.join(" ")
}
