//! Sends conversations at a rate, never more at once than allowed, and gathers what came of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::client::{Prompt, Sample, Target};
use super::options::{BenchOptions, Trace};
use super::workload::{Conversation, Random};

/// All samples of a run.
#[derive(Debug)]
pub(super) struct Outcome {
    pub samples: Vec<Sample>,
    pub seconds: f64,
    /// This process's own CPU time over the run.
    pub cpu_seconds: f64,
}

/// Runs one point of the sweep. The warm-up is not part of it.
pub(super) async fn drive(
    target: &Target,
    options: &BenchOptions,
    conversations: Vec<Conversation>,
    concurrency: usize,
) -> Outcome {
    warm(target, options, &conversations).await;
    let bar = bar(options, concurrency);
    let room = Arc::new(Semaphore::new(concurrency));
    let mut random = Random::new(options.seed ^ 0xa771_7a15);
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let mut due = Duration::ZERO;
    let samples = {
        let mut running = JoinSet::new();
        let mut samples = Vec::new();
        let target = target.clone();
        for conversation in conversations {
            if let Some(rate) = options.rate {
                tokio::time::sleep(due.saturating_sub(start.elapsed())).await;
                due += Duration::from_secs_f64(random.wait(rate));
            }
            // Closing it would be a bug here; then everything goes at once.
            let permit = Arc::clone(&room).acquire_owned().await.ok();
            let (target, bar) = (target.clone(), bar.clone());
            let remembers = options.trace == Trace::Conversation;
            running.spawn(async move {
                let samples = talk(&target, conversation, remembers, &bar).await;
                drop(permit);
                samples
            });
            while let Some(ended) = running.try_join_next() {
                samples.extend(ended.unwrap_or_default());
            }
        }
        while let Some(ended) = running.join_next().await {
            samples.extend(ended.unwrap_or_default());
        }
        samples
    };
    let seconds = start.elapsed().as_secs_f64();
    bar.finish_and_clear();
    Outcome { samples, seconds, cpu_seconds: cpu_seconds() - cpu }
}

async fn warm(target: &Target, options: &BenchOptions, conversations: &[Conversation]) {
    // What fails here fails again where it is counted.
    for turn in conversations.iter().filter_map(|each| each.turns.first()).take(options.warmup) {
        // Another beginning, so that the prompt is not in the cache when it counts.
        target.ask(&Prompt::first(&format!("Warm up. {}", turn.text)), turn.output).await;
    }
}

/// One conversation, turn by turn; a failure ends it.
async fn talk(
    target: &Target,
    conversation: Conversation,
    remembers: bool,
    bar: &ProgressBar,
) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut history = Vec::new();
    let turns = conversation.turns.len();
    for (at, turn) in conversation.turns.into_iter().enumerate() {
        history.push(turn.text);
        let mut sample = target.ask(&Prompt { history: history.clone() }, turn.output).await;
        bar.inc(1);
        let said = std::mem::take(&mut sample.text);
        let failed = sample.failure.is_some();
        samples.push(sample);
        if failed {
            // Turns that could not be asked count as failed too.
            let never =
                || Sample { failure: Some("the turn before it failed".to_owned()), ..Sample::default() };
            samples.extend((at + 1..turns).map(|_| never()));
            bar.inc((turns - at - 1) as u64);
            return samples;
        }
        if remembers {
            history.push(said);
        }
    }
    samples
}

fn bar(options: &BenchOptions, concurrency: usize) -> ProgressBar {
    let place = if options.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(Some(options.requests as u64), place);
    let template = "{prefix:>9} {wide_bar} {pos}/{len} {per_sec} {eta}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_prefix(format!("{concurrency} at once"));
    bar
}

/// User and system time of this process, in seconds.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in brackets may hold spaces; the 12th and 13th field behind it are hundredths of a second.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    fields.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}
