//! `m3 bench`: a load generator for any server with OpenAI's API, in the field's terms: time to first token, time per output
//! token, gaps between packets, whole latency, goodput; at a rate of arrivals or over a sweep of concurrency.
//!
//! It measures what a client sees. It is one process: at very high rates its own CPU is part of what it measures, so its use
//! of CPU stands in the report.

mod client;
mod drive;
mod html;
mod options;
mod plot;
mod report;
mod stats;
mod workload;

use anyhow::{Context, ensure};

use crate::args::Parsed;
use client::Target;
pub use options::BenchOptions;
use report::Report;

/// Runs everything, prints a table, writes the files that were asked for. Fails when no request succeeded.
pub fn run(parsed: &Parsed) -> anyhow::Result<()> {
    let options = BenchOptions::read(parsed)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = runtime.block_on(measure(&options))?;
    crate::tools::print(&report::table(&report))?;
    let json = serde_json::to_string_pretty(&report)?;
    for (path, text) in [(&options.out, json), (&options.html, html::page(&report))] {
        let Some(path) = path else { continue };
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let failed: usize = report.runs.iter().map(|run| run.failed).sum();
    ensure!(
        report.runs.iter().any(|run| run.completed > 0),
        "all {failed} requests failed: {}",
        first_failure(&report)
    );
    Ok(())
}

/// All runs of a sweep, one after another.
pub async fn measure(options: &BenchOptions) -> anyhow::Result<Report> {
    let target = Target::connect(options).await?;
    let words = workload::calibrate(&target).await?;
    let mut runs = Vec::new();
    for (point, concurrency) in options.concurrency.iter().enumerate() {
        // Prompts of an earlier point would be found in the server's cache.
        let options = &BenchOptions { seed: options.seed.wrapping_add(point as u64), ..options.clone() };
        let conversations = workload::conversations(options, &words);
        if options.flush_cache {
            target.flush_cache().await?;
        }
        let outcome = drive::drive(&target, options, conversations, *concurrency).await;
        runs.push(stats::summary(&outcome, *concurrency, options));
    }
    let date = crate::clock::since_1970().as_secs();
    Ok(Report::new(options, target.model.clone(), date, runs))
}

fn first_failure(report: &Report) -> String {
    report
        .runs
        .iter()
        .find_map(|run| run.failures.first().map(|(reason, _)| reason.clone()))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
