//! Numbers for `/metrics`: what the HTTP side measures itself, and the text that Prometheus reads.
//!
//! Names of SGLang and vLLM are written beside our own so that their dashboards load; a name is only written when
//! its meaning is measured here. No user data in labels.

mod engine;
mod histogram;
mod http;
mod names;
mod text;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use m3_core::event::{Finish, FinishReason};
use m3_core::text::parse::Faults;

pub use histogram::Histogram;
pub use http::{Asked, HttpCounts};
pub use text::render;

/// Seconds; every bucket of vLLM's and SGLang's is among them.
const TTFT: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.2, 0.25, 0.4, 0.5, 0.6, 0.75, 0.8, 1.0, 2.0, 2.5, 4.0,
    5.0, 6.0, 7.5, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 160.0, 200.0, 400.0, 640.0, 2560.0,
];
/// Seconds; starts at 1 ms, because M3's tokens come every few milliseconds.
const GAP: &[f64] = &[
    0.001, 0.002, 0.003, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,
    0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];
/// Seconds.
const LATENCY: &[f64] = &[
    0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0,
    240.0, 480.0, 960.0, 1920.0, 7680.0,
];
/// Answers of one request.
const ANSWERS: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0];
/// Tokens.
const LENGTH: &[f64] =
    &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6];

/// What the HTTP side measures. All counts are since start.
#[derive(Debug)]
pub struct ServerMetrics {
    pub time_to_first_token: Histogram,
    pub inter_token: Histogram,
    pub time_per_output_token: Histogram,
    pub end_to_end: Histogram,
    pub queue_time: Histogram,
    pub prefill_time: Histogram,
    pub decode_time: Histogram,
    /// Prefill and decode together.
    pub compute_time: Histogram,
    pub prompt_tokens: Histogram,
    /// Of a prompt, those that were not cached.
    pub uncached_tokens: Histogram,
    pub generation_tokens: Histogram,
    /// What requests asked for: answers, and tokens of each.
    pub asked_answers: Histogram,
    pub asked_tokens: Histogram,
    pub http: HttpCounts,
    /// Requests answered with an error, by class of status: 4xx, 5xx, and 429 alone.
    pub errors: [AtomicU64; 3],
    /// Tokens that an idle engine was asked for: those that came and those that did not.
    pub idle_probes: [AtomicU64; 2],
    /// Repairs and drops of the output parser, by kind.
    parser_faults: [AtomicU64; 11],
}

impl Default for ServerMetrics {
    fn default() -> Self {
        ServerMetrics {
            time_to_first_token: Histogram::new(TTFT),
            inter_token: Histogram::new(GAP),
            time_per_output_token: Histogram::new(GAP),
            end_to_end: Histogram::new(LATENCY),
            queue_time: Histogram::new(LATENCY),
            prefill_time: Histogram::new(LATENCY),
            decode_time: Histogram::new(LATENCY),
            compute_time: Histogram::new(LATENCY),
            prompt_tokens: Histogram::new(LENGTH),
            uncached_tokens: Histogram::new(LENGTH),
            generation_tokens: Histogram::new(LENGTH),
            asked_answers: Histogram::new(ANSWERS),
            asked_tokens: Histogram::new(LENGTH),
            http: HttpCounts::default(),
            errors: Default::default(),
            idle_probes: Default::default(),
            parser_faults: Default::default(),
        }
    }
}

impl ServerMetrics {
    /// What a request asks for.
    pub fn asked(&self, answers: u32, max_tokens: Option<u32>) {
        self.asked_answers.observe(f64::from(answers));
        if let Some(tokens) = max_tokens {
            self.asked_tokens.observe(f64::from(tokens));
        }
    }

    /// The first token of an answer, `since` the request came.
    pub fn first_token(&self, since: Duration) {
        self.time_to_first_token.observe(since.as_secs_f64());
    }

    /// `count` tokens that came together, `since` the ones before.
    pub fn next_tokens(&self, since: Duration, count: usize) {
        for _ in 0..count {
            self.inter_token.observe(since.as_secs_f64() / count as f64);
        }
    }

    /// An answer's end. Only good ones count towards lengths and times.
    pub fn answer_ended(&self, since: Duration, finish: &Finish, completion_tokens: u32) {
        if matches!(finish.reason, FinishReason::Error(_)) {
            return;
        }
        let seconds = |us: u64| us as f64 / 1e6;
        self.end_to_end.observe(since.as_secs_f64());
        self.queue_time.observe(seconds(finish.timings.queued_us));
        self.prefill_time.observe(seconds(finish.timings.prefill_us));
        self.decode_time.observe(seconds(finish.timings.decode_us));
        self.compute_time.observe(seconds(finish.timings.prefill_us + finish.timings.decode_us));
        let usage = &finish.usage;
        self.prompt_tokens.observe(f64::from(usage.prompt_tokens));
        self.uncached_tokens.observe(f64::from(usage.prompt_tokens.saturating_sub(usage.cached_tokens)));
        self.generation_tokens.observe(f64::from(completion_tokens));
        if completion_tokens > 1 {
            self.time_per_output_token
                .observe(seconds(finish.timings.decode_us) / f64::from(completion_tokens - 1));
        }
    }

    /// What the output parser mended in one answer.
    pub fn parser_faults(&self, faults: &Faults) {
        for (counter, (_, count)) in self.parser_faults.iter().zip(fault_counts(faults)) {
            counter.fetch_add(u64::from(count), Ordering::Relaxed);
        }
    }

    /// A response with an error status.
    pub fn error_status(&self, status: u16) {
        let at = match status {
            429 => 2,
            500.. => 1,
            400.. => 0,
            _ => return,
        };
        self.errors[at].fetch_add(1, Ordering::Relaxed);
    }

    /// A token that an idle engine was asked for, and whether it came.
    pub fn idle_probe(&self, good: bool) {
        self.idle_probes[usize::from(!good)].fetch_add(1, Ordering::Relaxed);
    }

    fn fault_totals(&self) -> [(&'static str, u64); 11] {
        let mut at = 0;
        fault_counts(&Faults::default()).map(|(name, _)| {
            let total = self.parser_faults[at].load(Ordering::Relaxed);
            at += 1;
            (name, total)
        })
    }
}

fn fault_counts(faults: &Faults) -> [(&'static str, u32); 11] {
    [
        ("repeated_key", faults.repeated_keys),
        ("stray_text", faults.stray_text),
        ("mismatched_tag", faults.mismatched_tags),
        ("dropped_parameter", faults.dropped_parameters),
        ("unclosed_call", faults.unclosed_calls),
        ("truncated_call", faults.truncated_calls),
        ("nameless_call", faults.nameless_calls),
        ("undeclared_tool", faults.undeclared_tools),
        ("recovered_parameter", faults.recovered_parameters),
        ("untypable_value", faults.untypable_values),
        ("too_deep", faults.too_deep),
    ]
}
