//! How fast a step can be at best: each part costs the longer of its products and its bytes, at rates that were seen in
//! practice, and parts come one after another. Predictions are therefore bounds, not promises; what an engine adds
//! (launches, gaps between steps) is not in them.
//!
//! MiniMax-M3's text path only.

use super::hardware::{Hardware, Weights};

/// MiniMax-M3.
const HIDDEN: f64 = 6144.0;
const HEADS: u32 = 64;
pub(super) const KV_HEADS: u32 = 4;
const HEAD: f64 = 128.0;
const VOCABULARY: f64 = 200_064.0;
const EXPERTS: f64 = 128.0;
const CHOSEN: f64 = 4.0;
const EXPERT_WIDTH: f64 = 3072.0;
const DENSE_WIDTH: f64 = 12_288.0;
const INDEX_HEADS: u32 = 4;
const BLOCK: f64 = 128.0;
const CHOSEN_BLOCKS: f64 = 16.0;
/// Tokens that a sparse layer attends to.
const SPAN: f64 = BLOCK * CHOSEN_BLOCKS;
const DENSE_LAYERS: f64 = 3.0;
const SPARSE_LAYERS: f64 = 57.0;
pub(super) const PAGE_TOKENS: u64 = 128;
/// Longest context of the model.
pub(super) const LONGEST: u64 = 1 << 20;

/// Shares of the datasheet's rates, as measured on an H200 (docs/performance.md); assumed elsewhere.
const OF_PRODUCTS: f64 = 0.80;
const OF_ATTENTION: f64 = 0.65;
const OF_MEMORY: f64 = 0.896;
const OF_LINKS: f64 = 0.80;
/// Seconds of the smallest sum over ranks.
const SUM_LATENCY: f64 = 4e-6;

/// One layout of the model on one kind of GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub hardware: &'static Hardware,
    pub tp: u32,
    pub weights: Weights,
    /// Bytes of an element of K, V and index-K.
    pub kv_bytes: f64,
}

/// New tokens of a step and what they attend to.
#[derive(Clone, Copy, Debug)]
struct Work {
    tokens: f64,
    /// Rows that need logits.
    logits: f64,
    /// Pairs of query and key in a dense and in a sparse layer.
    pairs_dense: f64,
    pairs_sparse: f64,
    /// Keys read.
    keys_dense: f64,
    keys_sparse: f64,
}

/// Heads of a rank.
struct Heads {
    query: f64,
    kv: f64,
    index: f64,
}

impl Layout {
    fn heads(&self) -> Heads {
        Heads {
            query: f64::from(HEADS / self.tp),
            // Above as many ranks as heads, each rank keeps one.
            kv: f64::from((KV_HEADS / self.tp).max(1)),
            index: f64::from((INDEX_HEADS / self.tp).max(1)),
        }
    }

    /// Bytes of weights on each rank.
    pub(super) fn weight_bytes(&self) -> f64 {
        let (heads, tp, each) = (self.heads(), f64::from(self.tp), self.weights.bytes());
        let attention = (heads.query * 2.0 + heads.kv * 2.0) * HEAD * HIDDEN;
        let index = (heads.index + 1.0) * HEAD * HIDDEN;
        let experts = (EXPERTS + 1.0) * 3.0 * HIDDEN * EXPERT_WIDTH / tp;
        let dense = 3.0 * HIDDEN * DENSE_WIDTH / tp;
        let body = DENSE_LAYERS * (attention + dense) + SPARSE_LAYERS * (attention + index + experts);
        body * each + SPARSE_LAYERS * HIDDEN * EXPERTS * 4.0 + 2.0 * VOCABULARY * HIDDEN * 2.0 / tp
    }

    /// Bytes of a token's keys and values on each rank.
    pub(super) fn token_bytes(&self) -> f64 {
        let layers = DENSE_LAYERS + SPARSE_LAYERS;
        layers * 2.0 * self.heads().kv * HEAD * self.kv_bytes + SPARSE_LAYERS * HEAD * self.kv_bytes
    }

    /// Seconds of a step in which `batch` sequences of `context` tokens get one more each.
    pub(super) fn decode(&self, batch: f64, context: f64) -> f64 {
        let near = context.min(SPAN);
        self.step(Work {
            tokens: batch,
            logits: batch,
            pairs_dense: batch * context,
            pairs_sparse: batch * near,
            keys_dense: batch * context,
            keys_sparse: batch * near,
        })
    }

    /// Seconds of reading `sequences` prompts of `length` tokens together, in steps of at most `chunk` tokens.
    pub(super) fn prefill(&self, sequences: f64, length: f64, chunk: f64) -> f64 {
        if length <= chunk {
            return self.read(sequences, length, 0.0, sequences);
        }
        let mut done = 0.0;
        let mut seconds = 0.0;
        while done < length {
            let now = chunk.min(length - done);
            let last = done + now >= length;
            seconds += self.read(1.0, now, done, if last { 1.0 } else { 0.0 });
            done += now;
        }
        seconds * sequences
    }

    /// One step that reads `length` tokens of each sequence behind `prefix` known ones.
    fn read(&self, sequences: f64, length: f64, prefix: f64, logits: f64) -> f64 {
        let triangle = |tokens: f64| tokens * prefix + tokens * (tokens + 1.0) / 2.0;
        // Until the span is full, every key is attended to.
        let near = (SPAN - prefix).clamp(0.0, length);
        let keys = sequences * (prefix + length);
        let pairs_sparse = sequences * (triangle(near) + (length - near) * SPAN);
        self.step(Work {
            tokens: sequences * length,
            logits,
            pairs_dense: sequences * triangle(length),
            pairs_sparse,
            keys_dense: keys,
            keys_sparse: keys.min(pairs_sparse),
        })
    }

    fn step(&self, work: Work) -> f64 {
        let attention = self.projections(&work) + self.attention(&work);
        attention + self.feed_forward(&work) + self.head(&work) + self.sums(&work)
    }

    fn rates(&self) -> Rates {
        let hardware = self.hardware;
        let quantised = match self.weights {
            Weights::Bf16 => hardware.bf16,
            Weights::Mxfp8 if hardware.native_mxfp8 => hardware.fp8,
            Weights::Nvfp4 if hardware.fp4 > 0.0 => hardware.fp4,
            Weights::Mxfp8 | Weights::Nvfp4 => hardware.bf16,
        };
        Rates {
            quantised: quantised * 1e12 * OF_PRODUCTS,
            bf16: hardware.bf16 * 1e12 * OF_PRODUCTS,
            attention: hardware.bf16 * 1e12 * OF_ATTENTION,
            memory: hardware.bandwidth * 1e12 * OF_MEMORY,
        }
    }

    /// A product of `tokens` rows with a matrix of `inputs` by `outputs`, `activation` bytes on both sides.
    fn product(&self, tokens: f64, inputs: f64, outputs: f64, activation: f64) -> f64 {
        let rates = self.rates();
        let bytes = inputs * outputs * self.weights.bytes() + activation;
        (2.0 * tokens * inputs * outputs / rates.quantised).max(bytes / rates.memory)
    }

    fn projections(&self, work: &Work) -> f64 {
        let (heads, tokens, memory) = (self.heads(), work.tokens, self.rates().memory);
        let (query, kv) = (heads.query * HEAD, heads.kv * HEAD);
        let inputs = |outputs: f64| {
            self.product(tokens, HIDDEN, outputs, tokens * HIDDEN * 2.0 + tokens * outputs * 2.0)
        };
        let (dense, sparse) = (query + 2.0 * kv, query + 2.0 * kv + (heads.index + 1.0) * HEAD);
        let output = self.product(tokens, query, HIDDEN, tokens * HIDDEN * 2.0 + tokens * query * 2.0);
        let rest = 4.0 * tokens * HIDDEN * 2.0
            + 2.0 * tokens * (query + 2.0 * kv) * 2.0
            + tokens * 2.0 * kv * self.kv_bytes;
        let layers = DENSE_LAYERS + SPARSE_LAYERS;
        DENSE_LAYERS * inputs(dense) + SPARSE_LAYERS * inputs(sparse) + layers * (output + rest / memory)
    }

    fn attention(&self, work: &Work) -> f64 {
        let (heads, rates) = (self.heads(), self.rates());
        let (query, kv) = (heads.query * HEAD, heads.kv * HEAD);
        let attend = |pairs: f64, keys: f64| {
            let bytes = keys * 2.0 * kv * self.kv_bytes + 2.0 * work.tokens * query * 2.0;
            (4.0 * query * pairs / rates.attention).max(bytes / rates.memory)
        };
        let index = heads.index;
        let score = {
            let bytes = work.keys_dense * HEAD * self.kv_bytes + work.tokens * index * HEAD * 2.0;
            (2.0 * index * HEAD * work.pairs_dense / rates.bf16).max(bytes / rates.memory)
        };
        let choose =
            2.0 * (work.pairs_dense / BLOCK) * index * 4.0 + work.tokens * index * CHOSEN_BLOCKS * 4.0;
        DENSE_LAYERS * attend(work.pairs_dense, work.keys_dense)
            + SPARSE_LAYERS * (score + choose / rates.memory + attend(work.pairs_sparse, work.keys_sparse))
    }

    fn feed_forward(&self, work: &Work) -> f64 {
        let (tp, tokens, rates) = (f64::from(self.tp), work.tokens, self.rates());
        let activation = 2.0 * tokens * HIDDEN * 2.0;
        let widened = |rows: f64, width: f64, matrices: f64, activation: f64| {
            let flops = 2.0 * rows * 3.0 * HIDDEN * width / tp;
            let bytes = matrices * 3.0 * HIDDEN * width / tp * self.weights.bytes() + activation;
            (flops / rates.quantised).max(bytes / rates.memory)
        };
        let dense = widened(tokens, DENSE_WIDTH, 1.0, activation + 2.0 * tokens * DENSE_WIDTH / tp * 2.0);
        let hidden = 2.0 * tokens * CHOSEN * EXPERT_WIDTH / tp * 2.0;
        let routed = widened(tokens * CHOSEN, EXPERT_WIDTH, distinct_experts(tokens), activation + hidden);
        let shared = widened(tokens, EXPERT_WIDTH, 1.0, 2.0 * tokens * EXPERT_WIDTH / tp * 2.0);
        let router = (2.0 * tokens * HIDDEN * EXPERTS / rates.bf16)
            .max((HIDDEN * EXPERTS * 4.0 + tokens * HIDDEN * 2.0) / rates.memory);
        DENSE_LAYERS * dense + SPARSE_LAYERS * (routed + shared + router)
    }

    fn head(&self, work: &Work) -> f64 {
        let (rates, columns) = (self.rates(), VOCABULARY / f64::from(self.tp));
        let bytes = HIDDEN * columns * 2.0 + work.logits * columns * 4.0;
        (2.0 * work.logits * HIDDEN * columns / rates.bf16).max(bytes / rates.memory)
    }

    /// Two sums over ranks in each layer, by the best of three ways.
    fn sums(&self, work: &Work) -> f64 {
        if self.tp == 1 {
            return 0.0;
        }
        let (tp, bytes) = (f64::from(self.tp), work.tokens * HIDDEN * 2.0);
        let link = self.hardware.link * 1e9 * OF_LINKS;
        let at_once = (tp - 1.0) * bytes / link;
        let scattered = 2.0 * (tp - 1.0) / tp * bytes / link;
        let in_switch = if self.hardware.switch_sums { bytes / link } else { scattered };
        2.0 * (DENSE_LAYERS + SPARSE_LAYERS) * (SUM_LATENCY + at_once.min(scattered).min(in_switch))
    }
}

struct Rates {
    quantised: f64,
    bf16: f64,
    attention: f64,
    memory: f64,
}

/// Expected number of experts that `tokens` tokens choose, when all are equally likely.
fn distinct_experts(tokens: f64) -> f64 {
    EXPERTS * (1.0 - (1.0 - CHOSEN / EXPERTS).powf(tokens))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::hardware::hardware;

    fn layout(name: &str, tp: u32, weights: Weights) -> Layout {
        Layout { hardware: hardware(name).unwrap(), tp, weights, kv_bytes: 2.0 }
    }

    #[track_caller]
    fn near(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 0.005, "{found} is not {expected}");
    }

    #[test]
    fn sizes_are_the_models() {
        let gib = f64::from(1 << 30);
        near(layout("h200", 8, Weights::Bf16).weight_bytes() / gib, 99.6);
        near(layout("h200", 8, Weights::Mxfp8).weight_bytes() / gib, 51.7);
        assert_eq!(layout("h200", 1, Weights::Bf16).token_bytes(), 137_472.0);
    }

    /// Values of an independent model of the same rules, written down on 2026-11-30.
    #[test]
    fn steps_take_what_the_rules_say() {
        for (name, tp, weights, batch, context, milliseconds) in STEPS {
            near(layout(name, tp, weights).decode(batch, context) * 1e3, milliseconds);
        }
        for (name, tp, weights, length, chunk, milliseconds) in READS {
            near(layout(name, tp, weights).prefill(1.0, length, chunk) * 1e3, milliseconds);
        }
    }

    const STEPS: [(&str, u32, Weights, f64, f64, f64); 6] = [
        ("h200", 8, Weights::Bf16, 1.0, 2048.0, 2.0349),
        ("h200", 8, Weights::Bf16, 64.0, 2176.0, 23.9172),
        ("h200", 8, Weights::Mxfp8, 64.0, 32768.0, 20.8322),
        ("b200", 8, Weights::Mxfp8, 64.0, 2176.0, 8.2589),
        ("mi300x", 8, Weights::Bf16, 16.0, 8192.0, 10.6349),
        ("b300", 4, Weights::Mxfp8, 256.0, 131_072.0, 94.3366),
    ];
    const READS: [(&str, u32, Weights, f64, f64, f64); 3] = [
        ("h200", 8, Weights::Bf16, 2048.0, 8192.0, 43.9624),
        ("h200", 8, Weights::Mxfp8, 131_072.0, 8192.0, 2102.0631),
        ("mi355x", 8, Weights::Mxfp8, 32_768.0, 8192.0, 295.3280),
    ];
}
