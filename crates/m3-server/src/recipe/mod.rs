//! `m3 recipe`: the exact command for a kind of GPU, its memory plan, and how fast it can be at best.
//!
//! Arithmetic over datasheets: no device is asked. What was measured stands beside it with its file, and "verified" is said
//! only of a recipe that was served as a whole; see `verified`.

mod hardware;
mod plan;
mod print;
mod roofline;
mod simulate;
mod verified;

use anyhow::{Context, bail, ensure};

use crate::args::{ArgError, Parsed, number};
use hardware::{Hardware, Weights};
use plan::Memory;
use roofline::Layout;
use simulate::{Load, Prediction};

/// What is wanted of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strategy {
    Latency,
    Balanced,
    Throughput,
}

impl Strategy {
    const ALL: [(&'static str, Strategy); 3] = [
        ("latency", Strategy::Latency),
        ("balanced", Strategy::Balanced),
        ("throughput", Strategy::Throughput),
    ];

    /// Requests at once and tokens of a step: short steps keep gaps short, long ones fill the products.
    fn shape(self) -> (u64, u64) {
        match self {
            Strategy::Latency => (4, 2048),
            Strategy::Balanced => (64, 8192),
            Strategy::Throughput => (256, 16_384),
        }
    }
}

/// What was asked for, within its limits.
#[derive(Debug)]
struct Wanted {
    hardware: &'static Hardware,
    gpus: u32,
    weights: Weights,
    strategy: &'static str,
    step_tokens: u64,
    /// What was asked for, else what the strategy is for as far as the pages reach.
    concurrency: u64,
    asked: bool,
    input: u64,
    output: u64,
    context: Option<u64>,
    fp8_pages: bool,
    model: String,
}

/// Everything there is to say.
#[derive(Debug)]
struct Recipe {
    wanted: Wanted,
    memory: Memory,
    context: u64,
    command: String,
    prediction: Prediction,
    /// Of one request alone.
    alone: Prediction,
    evidence: verified::Evidence,
}

/// Prints a recipe, or the table of hardware.
pub fn run(parsed: &Parsed) -> anyhow::Result<()> {
    let json = parsed.has("json");
    if parsed.value("hardware").is_none() {
        return crate::tools::print(&if json { print::table_json() } else { print::table() });
    }
    let recipe = cook(Wanted::read(parsed)?)?;
    crate::tools::print(&if json { print::json(&recipe) } else { print::text(&recipe) })
}

impl Wanted {
    fn read(parsed: &Parsed) -> anyhow::Result<Self> {
        let named = parsed.value("hardware").unwrap_or_default().to_ascii_lowercase();
        let hardware =
            hardware::hardware(&named).ok_or_else(|| bad("hardware", &named, &hardware::names()))?;
        let gpus =
            number(parsed, "gpus", 1, u64::from(hardware.node))?.map_or(hardware.usual, |gpus| gpus as u32);
        if !plan::cuts(hardware).any(|cut| cut == gpus) {
            let cuts = plan::cuts(hardware).map(|cut| cut.to_string()).collect::<Vec<_>>().join(", ");
            bail!(bad(
                "gpus",
                &gpus.to_string(),
                &format!("one of {cuts}: the model's heads are cut evenly")
            ));
        }
        let (name, strategy) = strategy(parsed)?;
        let (concurrency, step_tokens) = strategy.shape();
        Ok(Wanted {
            hardware,
            gpus,
            weights: weights(parsed, hardware, gpus)?,
            strategy: name,
            step_tokens: number(parsed, "chunked-prefill-size", 1, 1 << 20)?.unwrap_or(step_tokens),
            concurrency: number(parsed, "concurrency", 1, 65_536)?.unwrap_or(concurrency),
            asked: parsed.value("concurrency").is_some(),
            input: number(parsed, "input-len", 1, roofline::LONGEST)?.unwrap_or(2048),
            output: number(parsed, "output-len", 1, roofline::LONGEST)?.unwrap_or(256),
            context: number(parsed, "context-length", 1, 1 << 31)?,
            fp8_pages: fp8_pages(parsed)?,
            model: model(parsed)?,
        })
    }

    fn layout(&self) -> Layout {
        let kv_bytes = if self.fp8_pages { 1.0 } else { 2.0 };
        Layout { hardware: self.hardware, tp: self.gpus, weights: self.weights, kv_bytes }
    }

    fn load(&self, concurrency: u64) -> Load {
        let size = |size: u64| size as usize;
        Load {
            concurrency: size(concurrency),
            input: size(self.input),
            output: size(self.output),
            step_tokens: size(self.step_tokens),
        }
    }
}

/// Checks what fits and puts the recipe together.
fn cook(mut wanted: Wanted) -> anyhow::Result<Recipe> {
    if let Some(reason) = wanted.weights.refused() {
        bail!("--weights {}: {reason}", wanted.weights.name());
    }
    let layout = wanted.layout();
    let memory = plan::memory(&layout).with_context(|| plan::misfit(&layout))?;
    let each = wanted.input + wanted.output;
    if !wanted.asked {
        wanted.concurrency = wanted.concurrency.min(plan::at_once(&memory, each));
    }
    if let Some(reason) = plan::too_much(&memory, wanted.concurrency, each, wanted.context) {
        bail!(reason);
    }
    let context = wanted.context.unwrap_or(memory.tokens.min(roofline::LONGEST));
    ensure!(memory.fraction > 0.0, "nothing is left for weights and pages");
    Ok(Recipe {
        command: command(&wanted, &memory),
        prediction: simulate::predict(&layout, &wanted.load(wanted.concurrency)),
        alone: simulate::predict(&layout, &wanted.load(1)),
        evidence: verified::evidence(wanted.hardware.name, wanted.gpus, wanted.weights),
        context,
        memory,
        wanted,
    })
}

/// What to type. A test parses every one.
fn command(wanted: &Wanted, memory: &Memory) -> String {
    let mut words =
        vec![format!("m3 serve {}", wanted.model), format!("--backend {}", wanted.hardware.backend)];
    words.push(format!("--tp {}", wanted.gpus));
    words.push(format!("--mem-fraction-static {:.2}", memory.fraction));
    words.push(format!("--max-running-requests {}", wanted.concurrency.max(16)));
    words.push(format!("--chunked-prefill-size {}", wanted.step_tokens));
    words.extend(wanted.context.map(|context| format!("--context-length {context}")));
    words.extend(wanted.fp8_pages.then(|| "--kv-cache-dtype fp8".to_owned()));
    words.join(" ")
}

fn bad(flag: &str, value: &str, expected: &str) -> ArgError {
    ArgError::BadValue { flag: format!("--{flag}"), value: value.to_owned(), expected: expected.to_owned() }
}

fn strategy(parsed: &Parsed) -> Result<(&'static str, Strategy), ArgError> {
    let named = parsed.value("strategy").unwrap_or("balanced");
    let found = Strategy::ALL.into_iter().find(|(name, _)| *name == named);
    found.ok_or_else(|| bad("strategy", named, "latency, balanced or throughput"))
}

/// What was asked for, else the widest that fits and can be loaded.
fn weights(parsed: &Parsed, hardware: &'static Hardware, tp: u32) -> Result<Weights, ArgError> {
    let Some(named) = parsed.value("weights") else {
        let fits = |weights: &Weights| {
            plan::memory(&Layout { hardware, tp, weights: *weights, kv_bytes: 2.0 }).is_some()
        };
        // MXFP8 where products take it as it is: half the bytes at no cost.
        let best = if hardware.native_mxfp8 { Weights::Mxfp8 } else { Weights::Bf16 };
        return Ok(if fits(&best) { best } else { Weights::Mxfp8 });
    };
    let found = Weights::ALL.into_iter().find(|weights| weights.name() == named);
    found.ok_or_else(|| bad("weights", named, "bf16, mxfp8 or nvfp4"))
}

fn fp8_pages(parsed: &Parsed) -> Result<bool, ArgError> {
    match parsed.value("kv-cache-dtype") {
        None | Some("auto" | "bfloat16" | "bf16") => Ok(false),
        Some("fp8" | "fp8_e4m3") => Ok(true),
        Some(other) => Err(bad("kv-cache-dtype", other, "auto, bfloat16 or fp8")),
    }
}

/// The folder to name in the command.
fn model(parsed: &Parsed) -> anyhow::Result<String> {
    ensure!(parsed.words.len() <= 1, ArgError::ExtraWord(parsed.words.get(1).cloned().unwrap_or_default()));
    let given = parsed.words.first().map(String::as_str).or(parsed.value("model"));
    Ok(given.map_or_else(|| "/models/MiniMax-M3".to_owned(), str::to_owned))
}

#[cfg(test)]
mod tests;
