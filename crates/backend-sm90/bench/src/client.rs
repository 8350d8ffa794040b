//! Load on a server that speaks OpenAI's completions, and when its tokens came: time to first token, time per token, gaps.
//!
//! One thread per stream over plain HTTP/1.1; prompts are random token ids, so that nothing is cached and no tokenizer is
//! needed. `m3 serve` or any other server: only what is measured here is compared.

mod http;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

use crate::report::Spread;
use http::EventStream;

#[derive(Clone, Debug, Args)]
pub(crate) struct Load {
    /// Host and port of the server.
    #[arg(long, default_value = "127.0.0.1:30000")]
    pub(crate) address: String,
    /// The `model` of the requests.
    #[arg(long, default_value = "m3")]
    pub(crate) model: String,
    /// Tokens of a prompt.
    #[arg(long, default_value_t = 2048)]
    pub(crate) input: usize,
    /// Tokens of an answer; ends of answers are ignored.
    #[arg(long, default_value_t = 256)]
    pub(crate) output: usize,
    /// Streams at once, a measurement each.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 64])]
    pub(crate) concurrency: Vec<usize>,
    /// Requests of each stream, one after the other.
    #[arg(long, default_value_t = 4)]
    pub(crate) rounds: usize,
    /// Prompt ids lie below this.
    #[arg(long, default_value_t = 20_000)]
    pub(crate) ids: u32,
}

/// One concurrency.
#[derive(Debug, Serialize)]
pub(crate) struct LoadReport {
    pub(crate) concurrency: usize,
    pub(crate) input: usize,
    pub(crate) output: usize,
    pub(crate) requests: usize,
    pub(crate) ttft_ms: Spread,
    /// Of each request: from its first to its last token, by the tokens between.
    pub(crate) tpot_ms: Spread,
    /// Between two events of a stream.
    pub(crate) itl_ms: Spread,
    pub(crate) output_tokens_per_s: f64,
    pub(crate) failures: Vec<String>,
}

/// When the events of one answer came. Seconds from the request.
#[derive(Debug, Default)]
struct Answer {
    events: Vec<f64>,
    tokens: usize,
}

impl Load {
    pub(crate) fn measure(&self, concurrency: usize) -> LoadReport {
        let (answers, failures) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        let next = AtomicUsize::new(0);
        let total = concurrency * self.rounds;
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..concurrency {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= total {
                            return;
                        }
                        match self.request(concurrency, number) {
                            Ok(answer) => lock(&answers).push(answer),
                            Err(error) => lock(&failures).push(format!("{error:#}")),
                        }
                    }
                });
            }
        });
        let seconds = begun.elapsed().as_secs_f64();
        let answers = answers.into_inner().unwrap_or_else(PoisonError::into_inner);
        let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.report(concurrency, &answers, failures, seconds)
    }

    fn report(
        &self,
        concurrency: usize,
        answers: &[Answer],
        failures: Vec<String>,
        seconds: f64,
    ) -> LoadReport {
        let first = |answer: &Answer| answer.events.first().map(|first| first * 1e3);
        let per_token = |answer: &Answer| {
            let span = answer.events.last()? - answer.events.first()?;
            (answer.tokens > 1).then(|| span * 1e3 / (answer.tokens - 1) as f64)
        };
        let gaps = |answer: &Answer| -> Vec<f64> {
            answer.events.windows(2).map(|pair| (pair[1] - pair[0]) * 1e3).collect()
        };
        LoadReport {
            concurrency,
            input: self.input,
            output: self.output,
            requests: answers.len(),
            ttft_ms: Spread::of(answers.iter().filter_map(first)),
            tpot_ms: Spread::of(answers.iter().filter_map(per_token)),
            itl_ms: Spread::of(answers.iter().flat_map(gaps)),
            output_tokens_per_s: answers.iter().map(|answer| answer.tokens).sum::<usize>() as f64 / seconds,
            failures,
        }
    }

    fn request(&self, concurrency: usize, number: usize) -> Result<Answer> {
        let body = json!({
            "model": self.model, "prompt": self.prompt(concurrency, number), "max_tokens": self.output,
            "ignore_eos": true, "temperature": 0, "stream": true, "stream_options": {"include_usage": true},
        });
        let begun = Instant::now();
        let mut stream = EventStream::post(&self.address, "/v1/completions", &body.to_string())?;
        let mut answer = Answer::default();
        while let Some(data) = stream.next_event()? {
            let event: Value = serde_json::from_str(&data).with_context(|| data.clone())?;
            ensure!(event.get("error").is_none(), "{}", event["error"]);
            if let Some(tokens) = event["usage"]["completion_tokens"].as_u64() {
                answer.tokens = tokens as usize;
            }
            if event["choices"].as_array().is_some_and(|choices| !choices.is_empty()) {
                answer.events.push(begun.elapsed().as_secs_f64());
            }
        }
        ensure!(
            answer.tokens == self.output,
            "{} tokens came, {} were asked for",
            answer.tokens,
            self.output
        );
        Ok(answer)
    }

    /// Ids that no other request of the run begins with.
    fn prompt(&self, concurrency: usize, number: usize) -> Vec<u32> {
        let mut state = (concurrency as u64) << 32 | number as u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % u64::from(self.ids)) as u32
        };
        (0..self.input).map(|_| next()).collect()
    }
}

impl LoadReport {
    pub(crate) fn line(&self) -> String {
        let failed = match self.failures.first() {
            Some(first) => format!("  {} failed: {first}", self.failures.len()),
            None => String::new(),
        };
        format!(
            "c={:<4} {}/{}  TTFT {:.1} ms (p99 {:.1})  TPOT {:.2} ms (p99 {:.2})  ITL {:.2} ms (p99 {:.2})  {:.0} tokens/s{failed}",
            self.concurrency,
            self.input,
            self.output,
            self.ttft_ms.median,
            self.ttft_ms.p99,
            self.tpot_ms.median,
            self.tpot_ms.p99,
            self.itl_ms.median,
            self.itl_ms.p99,
            self.output_tokens_per_s,
        )
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
