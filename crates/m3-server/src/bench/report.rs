//! The result as a document for programs and a table for people.

use serde::Serialize;
use serde_json::{Value, json};

use super::options::BenchOptions;
use super::stats::Run;

/// Everything a reader needs to judge and repeat the figures.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub tool: String,
    pub command: String,
    /// Seconds since 1970.
    pub date: u64,
    pub url: String,
    pub model: String,
    pub workload: Value,
    pub runs: Vec<Run>,
}

impl Report {
    pub fn new(options: &BenchOptions, model: String, date: u64, runs: Vec<Run>) -> Self {
        let goal = options.goal;
        Report {
            tool: format!("m3 bench {}", env!("CARGO_PKG_VERSION")),
            command: options.command.clone(),
            date,
            url: format!("{}{}", options.url, options.path()),
            model,
            workload: json!({
                "trace": options.trace.name(), "num_prompts": options.requests, "input_len": options.input,
                "output_len": options.output, "range_ratio": options.range, "prefix_len": options.prefix,
                "prefix_groups": options.groups, "turns": options.turns, "request_rate": options.rate,
                "ignore_eos": options.ignore_eos, "seed": options.seed,
                "goodput": {"ttft_ms": goal.ttft, "tpot_ms": goal.tpot, "e2e_ms": goal.e2e},
            }),
            runs,
        }
    }
}

/// A block for each point of the sweep.
pub(super) fn table(report: &Report) -> String {
    let mut text =
        format!("{} at {}, {}\n", report.model, report.url, report.workload["trace"].as_str().unwrap_or(""));
    for run in &report.runs {
        text.push_str(&format!(
            "\n{} at once: {} answered, {} failed in {:.2} s\n",
            run.concurrency, run.completed, run.failed, run.duration
        ));
        text.push_str(&format!(
            "  {:.2} requests/s, {:.0} tokens/s written, {:.0} tokens/s in all, {} of {} prompt tokens cached\n",
            run.request_throughput, run.output_throughput, run.total_token_throughput, run.total_cached_tokens,
            run.total_input_tokens
        ));
        if let (Some(share), Some(rate)) = (run.goodput_share, run.goodput_per_second) {
            text.push_str(&format!("  goodput {:.1} % of requests, {rate:.2} requests/s\n", share * 100.0));
        }
        text.push_str(&format!(
            "  {:<22}{:>10}{:>10}{:>10}{:>10}{:>10}\n",
            "milliseconds", "mean", "p50", "p90", "p95", "p99"
        ));
        let rows = [
            ("time to first token", &run.ttft_ms),
            ("time per output token", &run.tpot_ms),
            ("gap between packets", &run.itl_ms),
            ("whole request", &run.e2e_ms),
        ];
        for (name, spread) in rows {
            text.push_str(&format!(
                "  {name:<22}{:>10.2}{:>10.2}{:>10.2}{:>10.2}{:>10.2}\n",
                spread.mean, spread.p50, spread.p90, spread.p95, spread.p99
            ));
        }
        for (reason, count) in run.failures.iter().take(5) {
            text.push_str(&format!("  {count} x {reason}\n"));
        }
        if run.client_cpus > 0.8 {
            text.push_str(&format!(
                "  this program used {:.1} processors: it may be the limit\n",
                run.client_cpus
            ));
        }
    }
    text
}
