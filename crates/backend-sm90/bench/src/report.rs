//! What a run found, as lines for people and JSON for the record.

use backend_sm90::timing::OperationTime;
use serde::Serialize;

use crate::bound::{Ceilings, Part, total_us};
use crate::session::StepTime;

/// Everything of one run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) command: String,
    pub(crate) date: String,
    pub(crate) device: String,
    pub(crate) driver: String,
    pub(crate) kernels: String,
    pub(crate) ceilings: Ceilings,
    pub(crate) models: Vec<ModelReport>,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct ModelReport {
    pub(crate) name: String,
    pub(crate) weight_bytes: u64,
    pub(crate) pages: u32,
    pub(crate) load_s: f64,
    pub(crate) warm_s: f64,
    pub(crate) decode: Vec<DecodeReport>,
    pub(crate) prefill: Vec<PrefillReport>,
    /// Rows whose logits held NaN: with any, the times mean nothing.
    pub(crate) faults: usize,
    /// What could not be measured, and why.
    pub(crate) failures: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct DecodeReport {
    pub(crate) batch: usize,
    pub(crate) context: usize,
    pub(crate) steps: usize,
    pub(crate) device_us: Spread,
    pub(crate) wall_us: Spread,
    /// Median of start to start less the device's time, as a share of the former.
    pub(crate) host_share: f64,
    /// That somebody chose, on average over the layers; the bound reads these.
    pub(crate) experts_drawn: f64,
    pub(crate) bound_us: f64,
    /// Of the device's median.
    pub(crate) share_of_bound: f64,
    /// How often a page of the contexts is used; 1 = never twice.
    pub(crate) page_sharing: f64,
    pub(crate) operations: Vec<OperationReport>,
}

/// One operation of a step, timed alone, and what bounds it.
#[derive(Debug, Serialize)]
pub(crate) struct OperationReport {
    pub(crate) name: &'static str,
    pub(crate) calls: usize,
    /// Of one call, as are the next three.
    pub(crate) us: f64,
    pub(crate) flops: f64,
    pub(crate) bytes: f64,
    pub(crate) bound_us: f64,
    pub(crate) share_of_bound: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct PrefillReport {
    pub(crate) tokens: usize,
    pub(crate) cached: usize,
    pub(crate) runs: usize,
    pub(crate) device_us: Spread,
    pub(crate) wall_us: Spread,
    pub(crate) bound_us: f64,
    pub(crate) share_of_bound: f64,
    pub(crate) tokens_per_s: f64,
    /// Of the last chunk.
    pub(crate) operations: Vec<OperationReport>,
}

/// The parts of [`crate::bound`] that an operation of the backend does, of those of its kind of layer.
fn does(operation: &str) -> &'static [&'static str] {
    match operation {
        "select_blocks" => &["index scores"],
        "attend, dense" => &["dense attention"],
        "attend, sparse" => &["sparse attention"],
        "attention_out" => &["projection out"],
        "attention_in, dense" => &["projections in, dense"],
        "attention_in, sparse" => &["projections in, sparse"],
        "dense_ffn" => &["dense mlp"],
        "moe_ffn" => &["router", "experts", "shared expert"],
        "head and sample" => &["head"],
        _ => &[],
    }
}

impl OperationReport {
    pub(crate) fn new(time: &OperationTime, parts: &[Part]) -> Self {
        let done = parts.iter().filter(|part| does(time.name).contains(&part.name));
        let calls = time.calls as f64;
        let sum = |of: fn(&Part) -> f64| done.clone().map(of).sum::<f64>() / calls;
        let bound_us = sum(|part| part.us);
        OperationReport {
            name: time.name,
            calls: time.calls,
            us: time.us,
            flops: sum(|part| part.flops),
            bytes: sum(|part| part.bytes),
            bound_us,
            share_of_bound: bound_us / time.us,
        }
    }

    pub(crate) fn line(&self) -> String {
        format!(
            "    {:<21} {:>3} x {:>9.2} us = {:>8.3} ms  bound {:>9.2} us = {:>4.0} %  {:>7.1} MB  {:>8.2} GFLOP",
            self.name,
            self.calls,
            self.us,
            self.us * self.calls as f64 / 1e3,
            self.bound_us,
            self.share_of_bound * 100.0,
            self.bytes / 1e6,
            self.flops / 1e9,
        )
    }
}

/// Order statistics.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) p99: f64,
}

impl Spread {
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let index = (values.len() as f64 * share) as usize;
            values.get(index.min(values.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
        };
        Spread { min: at(0.0), median: at(0.5), p99: at(0.99) }
    }
}

/// Steps at the start of a run that do not count: two are in flight before the first is waited for.
const WARM_STEPS: usize = 8;

impl DecodeReport {
    pub(crate) fn new(
        (batch, context): (usize, usize),
        times: &[StepTime],
        parts: &[Part],
        (sharing, experts_drawn): (f64, f64),
    ) -> Self {
        let steady = &times[WARM_STEPS.min(times.len() / 2)..];
        let device = Spread::of(steady.iter().map(|time| time.device));
        let wall = Spread::of(steady.iter().map(|time| time.wall));
        let host = Spread::of(steady.iter().map(|time| (time.wall - time.device) / time.wall));
        let bound = total_us(parts);
        DecodeReport {
            batch,
            context,
            steps: steady.len(),
            device_us: device,
            wall_us: wall,
            host_share: host.median,
            experts_drawn,
            bound_us: bound,
            share_of_bound: bound / device.median,
            page_sharing: sharing,
            operations: Vec::new(),
        }
    }

    pub(crate) fn line(&self) -> String {
        format!(
            "decode  B={:<4} ctx {:<7} device {:>9.3} ms  wall {:>9.3} ms (p99 {:.3})  host {:>5.1} %  {:>5.1} experts  bound {:>8.3} ms = {:>4.0} %",
            self.batch,
            self.context,
            self.device_us.median / 1e3,
            self.wall_us.median / 1e3,
            self.wall_us.p99 / 1e3,
            self.host_share * 100.0,
            self.experts_drawn,
            self.bound_us / 1e3,
            self.share_of_bound * 100.0,
        )
    }
}

impl PrefillReport {
    pub(crate) fn new((tokens, cached): (usize, usize), times: &[StepTime], bound: f64) -> Self {
        let device = Spread::of(times.iter().map(|time| time.device));
        let wall = Spread::of(times.iter().map(|time| time.wall));
        PrefillReport {
            tokens,
            cached,
            runs: times.len(),
            device_us: device,
            wall_us: wall,
            bound_us: bound,
            share_of_bound: bound / device.median,
            tokens_per_s: tokens as f64 / wall.median * 1e6,
            operations: Vec::new(),
        }
    }

    pub(crate) fn line(&self) -> String {
        format!(
            "prefill {} on {:<7} device {:>9.1} ms  wall {:>9.1} ms  {:>8.0} tokens/s  bound {:>8.1} ms = {:>4.0} %",
            self.tokens,
            self.cached,
            self.device_us.median / 1e3,
            self.wall_us.median / 1e3,
            self.tokens_per_s,
            self.bound_us / 1e3,
            self.share_of_bound * 100.0,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_are_order_statistics() {
        let spread = Spread::of((1..=100).rev().map(f64::from));
        assert_eq!(spread, Spread { min: 1.0, median: 51.0, p99: 100.0 });
        assert!(Spread::of(std::iter::empty()).median.is_nan());
    }

    #[test]
    fn an_operation_is_held_against_the_parts_that_it_does() {
        let part = |name, us| Part { name, flops: 2.0 * us, bytes: 3.0 * us, us };
        let parts =
            [part("router", 2.0), part("experts", 30.0), part("shared expert", 8.0), part("head", 99.0)];
        let report = OperationReport::new(&OperationTime { name: "moe_ffn", calls: 4, us: 20.0 }, &parts);
        assert_eq!((report.bound_us, report.flops, report.share_of_bound), (10.0, 20.0, 0.5));
    }

    #[test]
    fn the_first_steps_do_not_count_and_the_hosts_share_is_what_the_device_does_not_work() {
        let slow = StepTime { wall: 900.0, device: 1.0 };
        let steady = StepTime { wall: 110.0, device: 100.0 };
        let times = [vec![slow; 8], vec![steady; 50]].concat();
        let report = DecodeReport::new((1, 128), &times, &[], (1.0, 4.0));
        assert_eq!((report.steps, report.device_us.median, report.wall_us.p99), (50, 100.0, 110.0));
        assert!((report.host_share - 10.0 / 110.0).abs() < 1e-9);
    }
}
