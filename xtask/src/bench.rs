//! `cargo xtask bench WHAT`: measures on this machine, prints, and records JSON under `bench/` with device, date and
//! command. Never part of CI: machines are noisy.

mod grammar;
mod server;

use crate::kernels;
use crate::process::{cargo, cargo_with, target_folder, works};
use anyhow::{Context, Result, anyhow, bail, ensure};
use m3_core::text::tokenizer::Tokenizer;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// `bench tokenizer-cold-run-CORPUS`: what the tokenizer's benchmark starts in fresh processes.
const COLD_RUN: &str = "tokenizer-cold-run-";

pub(crate) fn run(root: &Path, what: &str) -> Result<()> {
    if what == "sm90" {
        return gpu(root, what);
    }
    if what == "server" {
        // The server is another process, always a release build; what the load costs does not count.
        return record(root, what, &format!("cargo xtask bench {what}"), &server::run(root)?);
    }
    if cfg!(debug_assertions) {
        // Figures of a debug build mean nothing.
        return cargo(root, &["run", "--release", "--package", "xtask", "--", "bench", what]);
    }
    if let Some(corpus) = what.strip_prefix(COLD_RUN) {
        println!("{}", cold_run(root, corpus)?);
        return Ok(());
    }
    let result = match what {
        "cpu" => cpu()?,
        "vision" => vision()?,
        "tokenizer" => tokenizer()?,
        "grammar" => grammar::run(&released_vocabulary(root))?,
        other => {
            bail!(
                "no benchmark is called `{other}`; there are cpu, vision, tokenizer, grammar, server and sm90"
            )
        }
    };
    record(root, what, &format!("cargo xtask bench {what}"), &result)
}

/// Builds one file that measures on any machine with the driver, and runs it when this is one.
fn gpu(root: &Path, backend: &str) -> Result<()> {
    let pack = kernels::build(root, backend, false)?;
    let pack = pack.to_str().context("the pack's path is not UTF-8")?.to_owned();
    let arguments = ["build", "--release", "--package", &format!("{backend}-bench")];
    cargo_with(root, &arguments, &[("M3_KERNEL_PACK", pack)])?;
    let program = target_folder(root).join("release").join(format!("m3-bench-{backend}"));
    println!("{} measures on any machine with NVIDIA's driver, alone", program.display());
    if !Path::new("/proc/driver/nvidia").exists() {
        println!("This machine has none: copy the file to one that does.");
        return Ok(());
    }
    std::fs::create_dir_all(root.join("bench"))?;
    let record = root.join("bench").join(format!("{backend}.json"));
    let status = Command::new(&program).arg("--out").arg(&record).current_dir(root).status()?;
    ensure!(status.success(), "{} ended with {status}", program.display());
    Ok(())
}

fn cpu() -> Result<Value> {
    let report =
        backend_cpu::bench::run(&backend_cpu::bench::Options::default(), &mut |line| println!("{line}"))
            .map_err(|error| anyhow!("{error}"))?;
    Ok(serde_json::to_value(report)?)
}

/// Pictures encoded in each mode.
const PICTURES: usize = 5;

fn vision() -> Result<Value> {
    let report = backend_cpu::bench::run_vision(PICTURES, &mut |line| println!("{line}"))
        .map_err(|error| anyhow!("{error}"))?;
    for mode in &report.modes {
        let (best, share) = (mode.best_ms, mode.share_of_gemm * 100.0);
        println!("{:>10}: {best:.0} ms for {}, {share:.0} % of the GEMM rate", mode.dtype, report.image);
    }
    Ok(serde_json::to_value(report)?)
}

/// Runs of a corpus; the median counts.
const COLD_RUNS: usize = 7;
const CORPORA: [&str; 2] = ["rust", "chinese"];

/// Encoding text that the tokenizer has not seen: every run is a fresh process, because the encoder keeps caches that
/// outlive threads and tokenizers.
fn tokenizer() -> Result<Value> {
    let mut rows = Vec::new();
    for corpus in CORPORA {
        let mut runs = (0..COLD_RUNS).map(|_| fresh_process(corpus)).collect::<Result<Vec<Value>>>()?;
        let rate = |run: &Value| run["cold_mb_per_s"].as_f64().unwrap_or(0.0);
        runs.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
        let (slowest, fastest) = (rate(&runs[0]), rate(&runs[COLD_RUNS - 1]));
        let median = runs.swap_remove(COLD_RUNS / 2);
        println!(
            "{corpus:>10}: {:.1} MB/s cold (median of {COLD_RUNS}; {slowest:.1} to {fastest:.1})",
            rate(&median)
        );
        rows.push(json!({"corpus": corpus, "median": median, "slowest_mb_per_s": slowest, "fastest_mb_per_s": fastest}));
    }
    Ok(json!({"runs": COLD_RUNS, "corpora": rows}))
}

fn fresh_process(corpus: &str) -> Result<Value> {
    let output =
        Command::new(std::env::current_exe()?).args(["bench", &format!("{COLD_RUN}{corpus}")]).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).with_context(|| format!("{text}{}", String::from_utf8_lossy(&output.stderr)))
}

fn released_vocabulary(root: &Path) -> PathBuf {
    let shared = std::env::var_os("M3_SHARED").map_or_else(|| root.join("../shared"), PathBuf::from);
    shared.join("data/tokenizer.reconstructed.json")
}

/// One run in this process.
fn cold_run(root: &Path, corpus: &str) -> Result<Value> {
    let path = released_vocabulary(root);
    let texts = if corpus == "rust" { sources(root, "rs")? } else { vec![chinese()] };
    let begun = Instant::now();
    let tokenizer = Tokenizer::from_file(&path)
        .with_context(|| format!("the released vocabulary, {}", path.display()))?;
    let load_s = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let mut tokens = 0;
    for text in &texts {
        tokens += tokenizer.encode_ordinary(text)?.len();
    }
    let seconds = begun.elapsed().as_secs_f64();
    let bytes: usize = texts.iter().map(String::len).sum();
    let rate = bytes as f64 / 1e6 / seconds;
    Ok(json!({
        "bytes": bytes, "tokens": tokens, "load_s": load_s, "cold_mb_per_s": rate,
    }))
}

fn sources(root: &Path, extension: &str) -> Result<Vec<String>> {
    crate::tidy::files(root, extension)?.iter().map(|path| Ok(std::fs::read_to_string(path)?)).collect()
}

/// A megabyte of sentences of common characters in a fixed disorder.
fn chinese() -> String {
    let characters: Vec<char> = "的一是不了人我在有他这中大来上国个到说们为子和你地出道也时年得就那要下以生会自着去之过家学对可她里后小么心多天而能好都然没日于起还发成事只作当想看文无开手十用主行方又如前所本见经头面公同三已老从动两长".chars().collect();
    let mut state = 7u64;
    let mut text = String::new();
    while text.len() < 1_000_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push(characters[(state >> 33) as usize % characters.len()]);
        if (state >> 20).is_multiple_of(14) {
            text.push('。');
        }
    }
    text
}

/// Writes `bench/WHAT.json`: the result with device, date and command.
pub(crate) fn record(root: &Path, what: &str, command: &str, result: &Value) -> Result<()> {
    let machine = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = machine.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let date = if works("date", &["--version"]) {
        String::from_utf8(Command::new("date").arg("+%Y-%m-%d").output()?.stdout)?.trim().to_owned()
    } else {
        "unknown".to_owned()
    };
    let threads = std::thread::available_parallelism()?.get();
    let whole = json!({
        "command": command, "date": date,
        "device": format!("{} ({threads} threads)", model.trim_start_matches([':', '\t', ' '])), "result": result,
    });
    let path = root.join("bench").join(format!("{what}.json"));
    std::fs::create_dir_all(root.join("bench"))?;
    std::fs::write(&path, serde_json::to_string_pretty(&whole)? + "\n")?;
    println!("recorded in {}", path.display());
    Ok(())
}
