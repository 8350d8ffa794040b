//! Typed options from flag values, with their limits and defaults. The only reader of [`Parsed`]'s values for the
//! commands that run a model; nothing here opens a file except `--api-key-file`.

use std::net::{IpAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use m3_abi::types::{DTYPE_BF16, DTYPE_F32, DTYPE_FP8_E4M3};

use super::numbers::{parse_bytes, parse_count};
use super::{ArgError, Parsed};
use crate::openai::reasoning::ReasoningNames;
use crate::openai::thinking::check_kwargs;
use crate::stream::{Pacing, StreamOptions};

/// Everything `m3 serve` and `m3 chat` need to know.
#[derive(Clone, Debug)]
pub struct Options {
    pub model: ModelOptions,
    pub backend: BackendOptions,
    pub engine: EngineOptions,
    pub http: HttpOptions,
}

/// Which model, under which names, with which text side.
#[derive(Clone, Debug)]
pub struct ModelOptions {
    /// `None` is the bundled model.
    pub dir: Option<PathBuf>,
    pub served_names: Vec<String>,
    pub tokenizer: Option<PathBuf>,
    pub chat_template: Option<PathBuf>,
    pub skip_tokenizer: bool,
    pub template_kwargs: serde_json::Map<String, serde_json::Value>,
    /// The checkpoint cannot answer without thinking.
    pub always_thinks: bool,
    /// Use `generation_config.json`; off = neutral defaults.
    pub model_defaults: bool,
    pub random_seed: Option<u64>,
    pub max_logprobs: u32,
    /// What the checkpoint must hold, when it was said.
    pub quantization: Option<String>,
}

/// Which device and how the model is laid over it.
#[derive(Clone, Debug)]
pub struct BackendOptions {
    /// `auto`, a name or a path.
    pub backend: String,
    pub dir: Option<PathBuf>,
    /// 0 = the checkpoint's.
    pub dtype: u32,
    /// 0 = as `dtype`.
    pub kv_dtype: u32,
    pub tp: u32,
    pub ep: u32,
    pub threads: u32,
    /// 0 = the backend decides.
    pub page_memory_bytes: u64,
    /// Share of a device's memory for weights and pages; `None` = not said.
    pub memory_share: Option<f64>,
}

/// Limits of the engine. `None` = decided at load.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    pub context: Option<usize>,
    pub max_running: Option<usize>,
    pub max_queued: usize,
    pub max_step_tokens: Option<usize>,
    pub page_tokens: Option<usize>,
    pub prefix_cache: bool,
}

/// The HTTP side.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    pub host: IpAddr,
    pub port: u16,
    pub api_keys: Vec<String>,
    pub stream: StreamOptions,
    pub drain: Duration,
    pub watchdog: Duration,
    pub max_body_bytes: usize,
    pub stream_buffer: usize,
    pub always_usage: bool,
    pub reasoning_names: ReasoningNames,
    /// Needed, when it is set, for what touches other callers' requests.
    pub admin_key: Option<String>,
    /// Most responses kept for `previous_response_id`; 0 = none.
    pub max_responses: usize,
    pub max_response_bytes: usize,
    /// Leave some agents' volatile first line in system texts.
    pub keep_billing_header: bool,
}

impl Options {
    /// Reads all options of `serve` and `chat`. `--help` and the flags of single commands are the callers'.
    pub fn read(parsed: &Parsed) -> Result<Self, ArgError> {
        Ok(Options {
            model: ModelOptions::read(parsed)?,
            backend: BackendOptions::read(parsed)?,
            engine: EngineOptions::read(parsed)?,
            http: HttpOptions::read(parsed)?,
        })
    }
}

impl ModelOptions {
    /// The first word or `--model` names the folder.
    pub fn read(parsed: &Parsed) -> Result<Self, ArgError> {
        let dir = model(parsed)?;
        let defaults = one_of(parsed, "sampling-defaults", &["model", "auto", "openai", "vllm"])?;
        let quantization = one_of(parsed, "quantization", &["auto", "none", "mxfp8", "modelopt", "fp8"])?;
        Ok(ModelOptions {
            dir: dir.map(PathBuf::from),
            served_names: served_names(parsed)?,
            tokenizer: parsed.value("tokenizer").map(PathBuf::from),
            chat_template: parsed.value("chat-template").map(PathBuf::from),
            skip_tokenizer: parsed.has("skip-tokenizer-init"),
            template_kwargs: template_kwargs(parsed)?,
            always_thinks: parsed.has("force-thinking"),
            model_defaults: !matches!(defaults, Some("openai" | "vllm")),
            random_seed: optional(parsed, "random-seed", "a whole number of at least 0")?,
            max_logprobs: count(parsed, "max-logprobs", 0, 1000)?.unwrap_or(20) as u32,
            quantization: quantization.filter(|name| *name != "auto").map(str::to_owned),
        })
    }
}

impl BackendOptions {
    /// Also for `m3 backends`, which only looks at `backend` and `dir`.
    pub fn read(parsed: &Parsed) -> Result<Self, ArgError> {
        let tp = count(parsed, "tp", 1, 1024)?.unwrap_or(1) as u32;
        let ep = count(parsed, "ep", 1, 1024)?.map(|ep| ep as u32);
        if let Some(ep) = ep.filter(|ep| *ep != tp && parsed.has("enable-expert-parallel")) {
            let reason = "the switch means as many expert-parallel groups as --tp";
            return Err(conflict("--enable-expert-parallel", &format!("--ep {ep}"), reason));
        }
        let ep = ep.unwrap_or(if parsed.has("enable-expert-parallel") { tp } else { 1 });
        if !tp.is_multiple_of(ep) {
            return Err(bad("ep", &ep.to_string(), &format!("a divisor of --tp, which is {tp}")));
        }
        let memory = parsed.value("kv-cache-memory-bytes").map(|text| {
            parse_bytes(text).ok_or_else(|| bad("kv-cache-memory-bytes", text, "bytes, such as 4G or 512M"))
        });
        Ok(BackendOptions {
            backend: parsed.value("backend").unwrap_or("auto").to_owned(),
            dir: parsed.value("backend-dir").map(PathBuf::from),
            dtype: dtype(parsed, "dtype")?,
            kv_dtype: dtype(parsed, "kv-cache-dtype")?,
            tp,
            ep,
            threads: count(parsed, "threads", 0, 4096)?.unwrap_or(0) as u32,
            page_memory_bytes: memory.transpose()?.unwrap_or(0),
            memory_share: share(parsed)?,
        })
    }
}

impl EngineOptions {
    fn read(parsed: &Parsed) -> Result<Self, ArgError> {
        const MOST: u64 = 1 << 31;
        let size =
            |name, least, most| count(parsed, name, least, most).map(|size| size.map(|size| size as usize));
        Ok(EngineOptions {
            context: size("context-length", 1, MOST)?,
            max_running: size("max-running-requests", 1, 65_536)?,
            max_queued: size("max-queued-requests", 0, MOST)?.unwrap_or(1024),
            max_step_tokens: size("chunked-prefill-size", 1, 1 << 24)?,
            page_tokens: size("page-size", 1, 1 << 16)?,
            prefix_cache: prefix_cache(parsed)?,
        })
    }
}

impl HttpOptions {
    fn read(parsed: &Parsed) -> Result<Self, ArgError> {
        Ok(HttpOptions {
            host: host(parsed)?,
            port: count(parsed, "port", 0, 65_535)?.unwrap_or(30_000) as u16,
            api_keys: api_keys(parsed)?,
            stream: stream(parsed)?,
            drain: seconds(parsed, "shutdown-timeout", 300.0)?,
            watchdog: seconds(parsed, "watchdog-timeout", 300.0)?,
            max_body_bytes: count(parsed, "max-body-mb", 1, 4096)?.unwrap_or(64) as usize * (1 << 20),
            stream_buffer: count(parsed, "stream-buffer", 1, 1 << 20)?.unwrap_or(4096) as usize,
            always_usage: parsed.has("enable-force-include-usage"),
            reasoning_names: reasoning_names(parsed)?,
            admin_key: admin_key(parsed)?,
            max_responses: count(parsed, "max-stored-responses", 0, 1 << 20)?.unwrap_or(1024) as usize,
            max_response_bytes: response_bytes(parsed)?,
            keep_billing_header: parsed.has("keep-billing-header"),
        })
    }
}

fn stream(parsed: &Parsed) -> Result<StreamOptions, ArgError> {
    let milliseconds = |name: &str, default: u64| {
        let given = count(parsed, name, 0, 10_000)?;
        Ok(Duration::from_millis(given.unwrap_or(default)))
    };
    let pacing = Pacing {
        min_tokens: count(parsed, "stream-interval", 1, 1 << 20)?.unwrap_or(1) as usize,
        gather: milliseconds("stream-gather-ms", 25)?,
        hold: milliseconds("stream-hold-ms", 200)?,
    };
    Ok(StreamOptions { pacing, heartbeat: seconds(parsed, "heartbeat-secs", 10.0)? })
}

/// A word and `--model` are the same thing; two different folders are a mistake.
fn model(parsed: &Parsed) -> Result<Option<&str>, ArgError> {
    if let Some(extra) = parsed.words.get(1) {
        return Err(match parsed.behind_switch.range(..2).next() {
            Some((at, flag)) => {
                ArgError::SwitchValue { flag: flag.clone(), value: parsed.words[*at].clone() }
            }
            None => ArgError::ExtraWord(extra.clone()),
        });
    }
    let named: Vec<&str> = parsed.words.iter().chain(parsed.many("model")).map(String::as_str).collect();
    match named.iter().find(|name| **name != named[0]) {
        Some(other) => Err(conflict(
            &format!("the model {}", named[0]),
            &format!("the model {other}"),
            "a server has one model",
        )),
        None if named.first() == Some(&"") => Err(bad("model", "", "a folder")),
        None => Ok(named.first().copied()),
    }
}

fn served_names(parsed: &Parsed) -> Result<Vec<String>, ArgError> {
    let names = parsed.many("served-model-name");
    match names.iter().find(|name| name.trim().is_empty()) {
        Some(name) => Err(bad("served-model-name", name, "a name of at least one character")),
        None => Ok(names.to_vec()),
    }
}

fn template_kwargs(parsed: &Parsed) -> Result<serde_json::Map<String, serde_json::Value>, ArgError> {
    let name = "default-chat-template-kwargs";
    let kwargs = json_object(parsed, name)?;
    if let Err(error) = check_kwargs("it", &kwargs) {
        let text = parsed.value(name).unwrap_or_default();
        return Err(bad(name, text, &format!("variables of the chat template ({})", error.message)));
    }
    Ok(kwargs)
}

fn prefix_cache(parsed: &Parsed) -> Result<bool, ArgError> {
    let (on, off) = ("enable-prefix-caching", "disable-radix-cache");
    match (parsed.has(on) || parsed.off.contains(off), parsed.has(off) || parsed.off.contains(on)) {
        (true, true) => {
            let typed = |name: &str| format!("--{name}{}", if parsed.has(name) { "" } else { "=false" });
            Err(conflict(&typed(off), &typed(on), "one turns the prefix cache off, the other on"))
        }
        (_, off) => Ok(!off),
    }
}

/// An address, or a name this machine knows, such as `localhost`.
fn host(parsed: &Parsed) -> Result<IpAddr, ArgError> {
    let host = parsed.value("host").unwrap_or("127.0.0.1");
    if let Ok(address) = IpAddr::from_str(host.trim_matches(['[', ']'])) {
        return Ok(address);
    }
    let found = (host, 0).to_socket_addrs().map(Iterator::collect::<Vec<_>>).unwrap_or_default();
    // Clients that are told a name try IPv4 too, but not all of them IPv6.
    let best = found.iter().find(|address| address.is_ipv4()).or(found.first());
    let expected = "an IP address, such as 127.0.0.1 or 0.0.0.0, or a name that has one";
    best.map(|address| address.ip()).ok_or_else(|| bad("host", host, expected))
}

fn conflict(first: &str, second: &str, reason: &'static str) -> ArgError {
    ArgError::Conflict { first: first.to_owned(), second: second.to_owned(), reason }
}

fn share(parsed: &Parsed) -> Result<Option<f64>, ArgError> {
    const EXPECTED: &str = "a number above 0, up to 1";
    let share: Option<f64> = optional(parsed, "mem-fraction-static", EXPECTED)?;
    match share {
        Some(share) if !(share > 0.0 && share <= 1.0) => {
            Err(bad("mem-fraction-static", &share.to_string(), EXPECTED))
        }
        Some(_) if parsed.has("kv-cache-memory-bytes") => Err(conflict(
            "--mem-fraction-static",
            "--kv-cache-memory-bytes",
            "each decides how much memory the pages get",
        )),
        share => Ok(share),
    }
}

fn reasoning_names(parsed: &Parsed) -> Result<ReasoningNames, ArgError> {
    let text = parsed.value("reasoning-field").unwrap_or("reasoning_content");
    ReasoningNames::parse(text)
        .ok_or_else(|| bad("reasoning-field", text, "reasoning_content, reasoning or both"))
}

fn api_keys(parsed: &Parsed) -> Result<Vec<String>, ArgError> {
    let mut keys = parsed.many("api-key").to_vec();
    if let Some(path) = parsed.value("api-key-file") {
        let text = std::fs::read_to_string(path)
            .map_err(|error| bad("api-key-file", path, &format!("a readable file ({error})")))?;
        keys.extend(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned));
        if keys.is_empty() {
            return Err(bad("api-key-file", path, "a file with at least one key"));
        }
    }
    if keys.iter().any(String::is_empty) {
        return Err(bad("api-key", "", "a key of at least one character"));
    }
    Ok(keys)
}

fn admin_key(parsed: &Parsed) -> Result<Option<String>, ArgError> {
    match parsed.value("admin-api-key") {
        Some("") => Err(bad("admin-api-key", "", "a key of at least one character")),
        key => Ok(key.map(str::to_owned)),
    }
}

fn response_bytes(parsed: &Parsed) -> Result<usize, ArgError> {
    let Some(text) = parsed.value("stored-response-bytes") else { return Ok(256 << 20) };
    let bytes = parse_bytes(text).and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or_else(|| bad("stored-response-bytes", text, "bytes, such as 1G or 256M"))
}

/// The value as typed is not shown again for keys: `expected` never repeats it.
fn bad(flag: &str, value: &str, expected: &str) -> ArgError {
    ArgError::BadValue { flag: format!("--{flag}"), value: value.to_owned(), expected: expected.to_owned() }
}

fn optional<T: FromStr>(parsed: &Parsed, name: &str, expected: &str) -> Result<Option<T>, ArgError> {
    let parse = |text: &str| text.parse().map_err(|_| bad(name, text, expected));
    parsed.value(name).map(parse).transpose()
}

fn count(parsed: &Parsed, name: &str, least: u64, most: u64) -> Result<Option<u64>, ArgError> {
    let Some(text) = parsed.value(name) else { return Ok(None) };
    let number = parse_count(text).filter(|number| (least..=most).contains(number));
    number.map(Some).ok_or_else(|| bad(name, text, &format!("a whole number from {least} to {most}")))
}

fn seconds(parsed: &Parsed, name: &str, default: f64) -> Result<Duration, ArgError> {
    let expected = "seconds from 0 to 86400";
    let seconds: f64 = optional(parsed, name, expected)?.unwrap_or(default);
    if !(0.0..=86_400.0).contains(&seconds) {
        return Err(bad(name, &seconds.to_string(), expected));
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn one_of<'a>(parsed: &'a Parsed, name: &str, allowed: &[&str]) -> Result<Option<&'a str>, ArgError> {
    let Some(text) = parsed.value(name) else { return Ok(None) };
    if allowed.contains(&text) { Ok(Some(text)) } else { Err(bad(name, text, &allowed.join(", "))) }
}

fn dtype(parsed: &Parsed, name: &str) -> Result<u32, ArgError> {
    let Some(text) = parsed.value(name) else { return Ok(0) };
    let fp8 = name == "kv-cache-dtype";
    match text {
        "auto" => Ok(0),
        "bfloat16" | "bf16" => Ok(DTYPE_BF16),
        "float32" | "float" | "f32" => Ok(DTYPE_F32),
        "fp8" | "fp8_e4m3" if fp8 => Ok(DTYPE_FP8_E4M3),
        _ if fp8 => Err(bad(name, text, "auto, bfloat16, float32 or fp8")),
        _ => Err(bad(name, text, "auto, bfloat16 or float32")),
    }
}

fn json_object(parsed: &Parsed, name: &str) -> Result<serde_json::Map<String, serde_json::Value>, ArgError> {
    let Some(text) = parsed.value(name) else { return Ok(serde_json::Map::new()) };
    serde_json::from_str(text).map_err(|error| bad(name, text, &format!("a JSON object ({error})")))
}
