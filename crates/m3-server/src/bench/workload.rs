//! What is asked: prompts of given lengths in tokens, made of common words. How many tokens a word is, is learnt from the
//! server's own counts, so that lengths are right for any model without its tokenizer.

use anyhow::ensure;

use super::client::{Prompt, Target};
use super::options::{BenchOptions, Trace};

/// Short and common, so that most are one token anywhere.
const WORDS: [&str; 64] = [
    "the", "of", "and", "to", "in", "is", "was", "for", "on", "that", "with", "as", "it", "by", "at", "from",
    "his", "an", "were", "are", "which", "this", "be", "had", "or", "one", "not", "but", "its", "new",
    "time", "has", "their", "also", "first", "two", "more", "they", "all", "other", "who", "some", "when",
    "out", "year", "can", "over", "city", "only", "most", "school", "world", "use", "about", "up", "state",
    "between", "many", "where", "during", "name", "later", "part", "work",
];

/// Words of the two probes.
const PROBES: [usize; 2] = [32, 288];

/// How a server counts: a prompt of `n` words has about `base + n * per_word` tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Counts {
    pub base: f64,
    pub per_word: f64,
}

/// One after another, each behind the answer to the one before.
#[derive(Clone, Debug)]
pub(super) struct Conversation {
    pub turns: Vec<Turn>,
}

/// One request.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    pub text: String,
    /// Most tokens of the answer.
    pub output: usize,
}

/// Asks twice and draws a line through the counts.
pub(super) async fn calibrate(target: &Target) -> anyhow::Result<Counts> {
    let mut random = Random::new(0x5eed);
    let mut counted = [0.0; 2];
    for (count, words) in counted.iter_mut().zip(PROBES) {
        let sample = target.ask(&Prompt::first(&text(&mut random, words)), 1).await;
        if let Some(reason) = sample.failure {
            anyhow::bail!("the first request failed: {reason}");
        }
        ensure!(sample.prompt_tokens > 0, "the server reports no prompt_tokens, which lengths are made by");
        *count = f64::from(sample.prompt_tokens);
    }
    let per_word = (counted[1] - counted[0]) / (PROBES[1] - PROBES[0]) as f64;
    ensure!(per_word > 0.1, "prompts of {PROBES:?} words have {counted:?} tokens, which cannot be");
    Ok(Counts { base: (counted[0] - per_word * PROBES[0] as f64).max(0.0), per_word })
}

/// As many requests as were asked for, the same for the same seed.
pub(super) fn conversations(options: &BenchOptions, counts: &Counts) -> Vec<Conversation> {
    let mut random = Random::new(options.seed);
    let words = |tokens: f64| (tokens / counts.per_word).round().max(1.0) as usize;
    let prefixes: Vec<String> = match options.trace {
        Trace::SharedPrefix => {
            (0..options.groups).map(|_| text(&mut random, words(options.prefix as f64))).collect()
        }
        Trace::Random | Trace::Conversation => Vec::new(),
    };
    let turns = if options.trace == Trace::Conversation { options.turns } else { 1 };
    let mut left = options.requests;
    let mut all = Vec::new();
    while left > 0 {
        let turns = turns.min(left);
        left -= turns;
        let turn = |at: usize, random: &mut Random| {
            let (input, output) =
                (random.length(options.input, options.range), random.length(options.output, options.range));
            // What the template adds is part of the first prompt's length.
            let own = if at == 0 { input - counts.base } else { input };
            let mut asked = text(random, words(own));
            if !prefixes.is_empty() {
                asked = format!("{} {asked}", prefixes[random.below(prefixes.len())]);
            }
            Turn { text: asked, output: output as usize }
        };
        all.push(Conversation { turns: (0..turns).map(|at| turn(at, &mut random)).collect() });
    }
    all
}

fn text(random: &mut Random, words: usize) -> String {
    (0..words).map(|_| WORDS[random.below(WORDS.len())]).collect::<Vec<_>>().join(" ")
}

/// SplitMix64: small, and the same everywhere.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// 0 to below 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, count: usize) -> usize {
        (self.share() * count as f64) as usize
    }

    /// From `least` of `most` to all of it, whole.
    fn length(&mut self, most: usize, least: f64) -> f64 {
        let most = most as f64;
        (most * (least + (1.0 - least) * self.share())).round().max(1.0)
    }

    /// Seconds to the next of `rate` arrivals a second that know nothing of each other.
    pub(super) fn wait(&mut self, rate: f64) -> f64 {
        -(1.0 - self.share()).ln() / rate
    }
}
