//! How fast the Hopper backend is on the machine that this runs on: decode steps, prefill, and what bounds them.
//!
//! One file without needs but NVIDIA's driver; `cargo xtask bench sm90` builds it, with the kernels inside. Weights are
//! synthetic. It judges nothing: the aims stand in the documentation.
#![allow(clippy::print_stdout, reason = "a program for people")]

mod bound;
mod client;
mod model;
mod report;
mod session;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use backend_sm90::DRIVER;
use backend_sm90::backend::Sm90Backend;
use clap::{Parser, Subcommand};
use m3_abi::Driver;

use bound::{Ceilings, Load};
use model::{Model, Shape, Weights};
use report::{DecodeReport, ModelReport, OperationReport, PrefillReport, Report};
use session::{Limits, Session};

/// Batch and cached tokens of the decode steps.
const DECODES: [(usize, usize); 6] =
    [(1, 2048), (8, 2048), (64, 2048), (256, 2048), (64, 32_768), (8, 131_072)];
/// New and cached tokens of the prefills.
const PREFILLS: [(usize, usize); 3] = [(8192, 0), (32_768, 0), (8192, 122_880)];

/// Replays of an operation; the median counts.
const OPERATION_REPEATS: usize = 7;

#[derive(Debug, Parser)]
#[command(name = "m3-bench-sm90", version, about = "Measures the Hopper backend on this machine")]
struct Arguments {
    /// Without one: steps, prefills and their operations.
    #[command(subcommand)]
    task: Option<Task>,
    #[arg(long, default_value_t = 0)]
    device: u32,
    #[arg(long, value_delimiter = ',', default_values = ["tp8", "full"])]
    shapes: Vec<Shape>,
    #[arg(long, value_delimiter = ',', default_values = ["bf16", "mxfp8"])]
    weights: Vec<Weights>,
    /// Timed decode steps of a batch; large batches take a quarter.
    #[arg(long, default_value_t = 200)]
    steps: usize,
    /// Timed prefills of a length.
    #[arg(long, default_value_t = 3)]
    repeats: usize,
    /// Only batches of at most this many sequences.
    #[arg(long, default_value_t = 256)]
    max_batch: usize,
    /// Only contexts of at most this many tokens.
    #[arg(long, default_value_t = 131_072)]
    most_context: usize,
    /// Memory for pages in GiB; 0 takes what fits.
    #[arg(long, default_value_t = 0)]
    page_gib: u64,
    /// Steps only, not their operations.
    #[arg(long)]
    no_operations: bool,
    /// Where the record goes.
    #[arg(long, global = true, default_value = "sm90.json")]
    out: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Streams from a running server.
    Serve(client::Load),
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    match &arguments.task {
        Some(Task::Serve(load)) => serve(load, &arguments),
        None => steps(&arguments),
    }
}

fn serve(load: &client::Load, arguments: &Arguments) -> Result<()> {
    let mut found = Vec::new();
    for concurrency in &load.concurrency {
        let report = load.measure(*concurrency);
        println!("{}", report.line());
        found.push(report);
    }
    let command = command();
    write(&arguments.out, &serde_json::json!({"command": command, "date": date(), "serve": found}))
}

/// After every model, so that a run that is cut short leaves what it has.
fn write(out: &Path, record: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(record)? + "\n";
    std::fs::write(out, text).with_context(|| out.display().to_string())
}

/// As it was typed, paths without their folders: a record names no machine's.
fn command() -> String {
    let shown = |argument: String| match argument.rsplit_once('/') {
        Some((folder, name)) if !folder.contains(":/") => name.to_owned(),
        _ => argument,
    };
    std::env::args().map(shown).collect::<Vec<_>>().join(" ")
}

fn date() -> String {
    let date = std::process::Command::new("date").arg("+%Y-%m-%d").output();
    let date = date.ok().and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    date.trim().to_owned()
}

fn steps(arguments: &Arguments) -> Result<()> {
    let mut report = describe(arguments.device)?;
    println!("{}, driver {}, {}", report.device, report.driver, report.date);
    for shape in &arguments.shapes {
        for weights in &arguments.weights {
            let model = Model::new(*shape, *weights)?;
            println!("\n{}", model.name);
            let found = measure(&model, *weights, arguments).unwrap_or_else(|error| {
                println!("not measured: {error:#}");
                let failures = vec![format!("{error:#}")];
                ModelReport { name: model.name.clone(), failures, ..ModelReport::default() }
            });
            report.models.push(found);
            write(&arguments.out, &report)?;
        }
    }
    println!("\nrecorded in {}", arguments.out.display());
    Ok(())
}

fn describe(device: u32) -> Result<Report> {
    let opened = m3_gpu::device::Device::cuda(device)?;
    let info = opened.info();
    let pack = m3_gpu::pack::Pack::read(backend_sm90::PACK, DRIVER.name())?;
    Ok(Report {
        command: command(),
        date: date(),
        device: format!("{} ({} processors)", info.name, info.processors),
        driver: info.driver.clone(),
        kernels: pack.hash().to_owned(),
        ceilings: Ceilings::H200,
        models: Vec::new(),
    })
}

fn measure(model: &Model, weights: Weights, arguments: &Arguments) -> Result<ModelReport> {
    let limits =
        Limits { device: arguments.device, page_memory_bytes: arguments.page_gib << 30, ..Limits::default() };
    let mut session = Session::open(|request| DRIVER.open_rank(request), model, &limits)?;
    let mut report = ModelReport {
        name: model.name.clone(),
        weight_bytes: session.ready.weight_bytes,
        pages: session.num_pages(),
        load_s: session.load_s,
        warm_s: session.warm_s,
        ..ModelReport::default()
    };
    println!(
        "{:.1} GiB of weights in {:.1} s, {} pages, warm in {:.1} s",
        report.weight_bytes as f64 / f64::from(1 << 30),
        report.load_s,
        report.pages,
        report.warm_s
    );
    let text = &model.config.text;
    let parts = |load: &Load| bound::parts(text, model.tp, weights, load, &Ceilings::H200);
    let fits =
        |batch: usize, context: usize| batch <= arguments.max_batch && context <= arguments.most_context;
    for (batch, context) in DECODES.into_iter().filter(|(batch, context)| fits(*batch, *context)) {
        let steps = if batch > 64 { arguments.steps.div_ceil(4) } else { arguments.steps }.max(2);
        match session.decode(batch, context, steps) {
            Ok(times) => {
                let sharing = session.sharing(batch, context, steps);
                let drawn = session.experts_drawn()?;
                let parts = parts(&Load { experts: Some(drawn), ..Load::decode(batch, context + steps / 2) });
                let mut found = DecodeReport::new((batch, context), &times, &parts, (sharing, drawn));
                println!("{}", found.line());
                found.operations = operations(&mut session, arguments, &parts)?;
                report.decode.push(found);
            }
            Err(error) => fail(&mut report, format!("decode {batch} x {context}: {error:#}")),
        }
    }
    for (tokens, cached) in PREFILLS.into_iter().filter(|(tokens, cached)| fits(1, tokens + cached)) {
        // The first run loads what only such steps use.
        let times: Result<Vec<_>> =
            (0..=arguments.repeats).map(|_| session.prefill(tokens, cached)).collect();
        match times {
            Ok(times) => {
                let bound = prefill_bound(&parts, tokens, cached, limits.chunk);
                let mut found = PrefillReport::new((tokens, cached), &times[1..], bound);
                println!("{}", found.line());
                let last = (tokens - 1) % limits.chunk + 1;
                let parts = parts(&Load::prefill(last, cached + tokens - last));
                found.operations = operations(&mut session, arguments, &parts)?;
                report.prefill.push(found);
            }
            Err(error) => fail(&mut report, format!("prefill {tokens} on {cached}: {error:#}")),
        }
    }
    report.faults = session.faults;
    if report.faults > 0 {
        println!("{} rows held NaN: these times mean nothing", report.faults);
    }
    Ok(report)
}

/// The last step's operations, each alone.
fn operations(
    session: &mut Session<Sm90Backend>,
    arguments: &Arguments,
    parts: &[bound::Part],
) -> Result<Vec<OperationReport>> {
    if arguments.no_operations {
        return Ok(Vec::new());
    }
    let times = session.time_operations(OPERATION_REPEATS)?;
    let found: Vec<_> = times.iter().map(|time| OperationReport::new(time, parts)).collect();
    found.iter().for_each(|operation| println!("{}", operation.line()));
    Ok(found)
}

fn prefill_bound(
    parts: &dyn Fn(&Load) -> Vec<bound::Part>,
    tokens: usize,
    cached: usize,
    chunk: usize,
) -> f64 {
    let starts = (0..tokens).step_by(chunk);
    let loads = starts.map(|start| Load::prefill(chunk.min(tokens - start), cached + start));
    loads.map(|load| bound::total_us(&parts(&load))).sum()
}

fn fail(report: &mut ModelReport, sentence: String) {
    println!("not measured: {sentence}");
    report.failures.push(sentence);
}
