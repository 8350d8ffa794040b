//! Requests in a closed loop over the roofline's steps: as many at once as the recipe is for, each replaced when it ends,
//! prompts before decoding. Gives the medians that a load generator would see from an engine that meets every bound.

use super::roofline::Layout;

/// What arrives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub concurrency: usize,
    pub input: usize,
    pub output: usize,
    /// Most tokens of a step.
    pub step_tokens: usize,
}

/// What comes out, in seconds and tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prediction {
    /// Medians.
    pub first_token: f64,
    pub each_token: f64,
    /// All tokens written, over the whole time.
    pub output_per_second: f64,
}

/// Enough for medians to settle, few enough for an instant.
fn requests(concurrency: usize) -> usize {
    (2 * concurrency).clamp(32, 1024)
}

/// Runs the loop.
pub(super) fn predict(layout: &Layout, load: &Load) -> Prediction {
    let wanted = requests(load.concurrency);
    let (input, output) = (load.input as f64, load.output as f64);
    let together = (load.step_tokens / load.input.max(1)).max(1);
    let mut decode = Remembered::new(|batch| layout.decode(batch as f64, input + output / 2.0));
    let mut prefill =
        Remembered::new(|prompts| layout.prefill(prompts as f64, input, load.step_tokens as f64));
    let (mut now, mut sent) = (0.0, 0);
    let (mut firsts, mut gaps) = (Vec::new(), Vec::new());
    let mut waiting: Vec<f64> = Vec::new();
    // When it got its first token, and how many are to come.
    let mut running: Vec<(f64, usize)> = Vec::new();
    while firsts.len() < wanted || !running.is_empty() {
        while sent < wanted && running.len() + waiting.len() < load.concurrency {
            waiting.push(now);
            sent += 1;
        }
        if !waiting.is_empty() {
            let rest = waiting.split_off(together.min(waiting.len()));
            let taken = std::mem::replace(&mut waiting, rest);
            now += prefill.of(taken.len());
            firsts.extend(taken.iter().map(|came| now - came));
            running.extend(taken.iter().filter(|_| load.output > 1).map(|_| (now, load.output - 1)));
            continue;
        }
        now += decode.of(running.len());
        running.iter_mut().for_each(|request| request.1 -= 1);
        let ended = |request: &(f64, usize)| request.1 == 0;
        gaps.extend(running.iter().filter(|one| ended(one)).map(|one| (now - one.0) / (output - 1.0)));
        running.retain(|request| !ended(request));
    }
    Prediction {
        first_token: median(&mut firsts),
        each_token: median(&mut gaps),
        output_per_second: wanted as f64 * output / now,
    }
}

/// A function of a small count, asked for again and again.
struct Remembered<F> {
    function: F,
    values: Vec<f64>,
}

impl<F: Fn(usize) -> f64> Remembered<F> {
    fn new(function: F) -> Self {
        Remembered { function, values: Vec::new() }
    }

    fn of(&mut self, count: usize) -> f64 {
        if self.values.len() <= count {
            self.values.resize(count + 1, f64::NAN);
        }
        if self.values[count].is_nan() {
            self.values[count] = (self.function)(count);
        }
        self.values[count]
    }
}

/// 0 of nothing.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::hardware::{Weights, hardware};

    fn layout() -> Layout {
        Layout { hardware: hardware("h200").unwrap(), tp: 8, weights: Weights::Bf16, kv_bytes: 2.0 }
    }

    #[test]
    fn one_request_alone_waits_for_its_own_steps_only() {
        let load = Load { concurrency: 1, input: 2048, output: 256, step_tokens: 8192 };
        let (prediction, layout) = (predict(&layout(), &load), layout());
        assert!((prediction.first_token - layout.prefill(1.0, 2048.0, 8192.0)).abs() < 1e-9);
        assert!((prediction.each_token - layout.decode(1.0, 2176.0)).abs() < 1e-9);
    }

    #[test]
    fn many_requests_write_more_in_all_and_wait_longer() {
        let at = |concurrency| {
            predict(&layout(), &Load { concurrency, input: 2048, output: 256, step_tokens: 8192 })
        };
        let (few, many) = (at(4), at(64));
        assert!(many.output_per_second > 2.0 * few.output_per_second);
        assert!(many.first_token > few.first_token && many.each_token > few.each_token);
    }

    #[test]
    fn an_answer_of_one_token_has_no_gaps() {
        let prediction = predict(&layout(), &Load { concurrency: 4, input: 10, output: 1, step_tokens: 100 });
        assert!(prediction.first_token > 0.0 && prediction.each_token == 0.0);
    }
}
