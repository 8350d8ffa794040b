//! From samples to figures, in the names that the field's load generators use.

use std::collections::BTreeMap;

use serde::Serialize;

use super::client::Sample;
use super::drive::Outcome;
use super::options::{BenchOptions, Goal};

/// Mean and percentiles, in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    pub mean: f64,
    pub std: f64,
    pub min: f64,
    pub p50: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    pub max: f64,
}

/// One point of a sweep.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    pub concurrency: usize,
    /// Seconds from the first request to the last answer.
    pub duration: f64,
    pub completed: usize,
    pub failed: usize,
    /// Reasons, the most frequent first.
    pub failures: Vec<(String, usize)>,
    pub total_input_tokens: u64,
    pub total_cached_tokens: u64,
    pub total_output_tokens: u64,
    pub request_throughput: f64,
    pub output_throughput: f64,
    pub total_token_throughput: f64,
    /// Sent to first packet.
    pub ttft_ms: Spread,
    /// First packet to last, per token after the first packet's first.
    pub tpot_ms: Spread,
    /// Between two packets of an answer.
    pub itl_ms: Spread,
    /// Sent to end.
    pub e2e_ms: Spread,
    /// Share of all requests, failed ones included, that met the goal, and how many a second; `None` without a goal.
    pub goodput_share: Option<f64>,
    pub goodput_per_second: Option<f64>,
    /// This program's own use of CPU, in processors.
    pub client_cpus: f64,
    /// Twenty-one points of the time to first token, from least to most.
    pub ttft_curve_ms: Vec<f64>,
    pub tpot_curve_ms: Vec<f64>,
}

/// Sums a run up.
pub(super) fn summary(outcome: &Outcome, concurrency: usize, options: &BenchOptions) -> Run {
    let good: Vec<&Sample> = outcome.samples.iter().filter(|sample| sample.failure.is_none()).collect();
    let seconds = outcome.seconds.max(1e-9);
    let total = |of: fn(&Sample) -> u32| good.iter().map(|sample| u64::from(of(sample))).sum::<u64>();
    let (input, output) = (total(|sample| sample.prompt_tokens), total(|sample| sample.output_tokens));
    let all =
        |of: fn(&Sample) -> Option<f64>| good.iter().filter_map(|sample| of(sample)).collect::<Vec<_>>();
    let (firsts, tpots) = (sorted(all(ttft)), sorted(all(tpot)));
    let gaps = good.iter().flat_map(|sample| sample.packets.windows(2).map(|pair| (pair[1] - pair[0]) * 1e3));
    let met = (options.goal != Goal::default())
        .then(|| good.iter().filter(|sample| meets(sample, &options.goal)).count() as f64);
    Run {
        concurrency,
        duration: outcome.seconds,
        completed: good.len(),
        failed: outcome.samples.len() - good.len(),
        failures: failures(&outcome.samples),
        total_input_tokens: input,
        total_cached_tokens: total(|sample| sample.cached_tokens),
        total_output_tokens: output,
        request_throughput: good.len() as f64 / seconds,
        output_throughput: output as f64 / seconds,
        total_token_throughput: (input + output) as f64 / seconds,
        itl_ms: spread(&sorted(gaps.collect())),
        e2e_ms: spread(&sorted(all(|sample| Some(sample.end * 1e3)))),
        goodput_share: met.map(|met| met / outcome.samples.len().max(1) as f64),
        goodput_per_second: met.map(|met| met / seconds),
        client_cpus: outcome.cpu_seconds / seconds,
        ttft_curve_ms: curve(&firsts),
        tpot_curve_ms: curve(&tpots),
        ttft_ms: spread(&firsts),
        tpot_ms: spread(&tpots),
    }
}

fn ttft(sample: &Sample) -> Option<f64> {
    sample.packets.first().map(|first| first * 1e3)
}

/// Answers of one token have none.
fn tpot(sample: &Sample) -> Option<f64> {
    let (first, last) = (sample.packets.first()?, sample.packets.last()?);
    (sample.output_tokens > 1).then(|| (last - first) * 1e3 / f64::from(sample.output_tokens - 1))
}

fn meets(sample: &Sample, goal: &Goal) -> bool {
    let within = |value: Option<f64>, limit: Option<f64>| match (value, limit) {
        (Some(value), Some(limit)) => value <= limit,
        _ => true,
    };
    within(ttft(sample), goal.ttft)
        && within(tpot(sample), goal.tpot)
        && within(Some(sample.end * 1e3), goal.e2e)
}

fn failures(samples: &[Sample]) -> Vec<(String, usize)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    samples
        .iter()
        .filter_map(|sample| sample.failure.as_deref())
        .for_each(|reason| *counts.entry(reason).or_default() += 1);
    let mut counts: Vec<(String, usize)> =
        counts.into_iter().map(|(reason, count)| (reason.to_owned(), count)).collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// Linear between neighbours, as numpy does it; 0 of nothing.
pub(super) fn percentile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let at = share * last as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (at - low as f64)
}

fn spread(sorted: &[f64]) -> Spread {
    if sorted.is_empty() {
        return Spread::default();
    }
    let count = sorted.len() as f64;
    let mean = sorted.iter().sum::<f64>() / count;
    let variance = sorted.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    let at = |share| percentile(sorted, share);
    Spread {
        mean,
        std: variance.sqrt(),
        min: at(0.0),
        p50: at(0.5),
        p90: at(0.9),
        p95: at(0.95),
        p99: at(0.99),
        max: at(1.0),
    }
}

fn curve(sorted: &[f64]) -> Vec<f64> {
    if sorted.is_empty() {
        Vec::new()
    } else {
        (0..=20).map(|at| percentile(sorted, f64::from(at) / 20.0)).collect()
    }
}
