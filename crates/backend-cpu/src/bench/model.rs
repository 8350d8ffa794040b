//! A synthetic model with M3's proportions, timed through the backend's own interface.

use std::time::Instant;

use m3_abi::types::{DTYPE_BF16, DTYPE_F32, NONE, PageAppend, RowBind, Seq};
use m3_abi::{Backend, OpenRequest, Output, Result, Step, TensorView};
use m3_model::checkpoint::row_major_strides;
use m3_model::config::{AttentionKind, FfnKind, ModelConfig, TextConfig};
use m3_model::names::{Role, expected_tensors};

use super::{DecodeReport, Limits, ModelReport, Options, Rate};
use crate::backend;
use crate::driver::CpuDriver;
use crate::kernels::matrix::Format;
use m3_abi::Driver;

/// M3 with fewer, thinner layers: 3 dense and 2 sparse, experts of half of hidden as in the original, 4 of 16 chosen.
const CONFIG: &str = r#"{
  "architectures": ["MiniMaxM3SparseForConditionalGeneration"], "model_type": "minimax_m3_vl",
  "text_config": {
    "architectures": ["MiniMaxM3SparseForCausalLM"],
    "hidden_size": 3072, "intermediate_size": 1536, "dense_intermediate_size": 6144,
    "shared_intermediate_size": 1536, "num_hidden_layers": 5, "num_attention_heads": 32,
    "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 32768, "max_position_embeddings": 1048576,
    "rms_norm_eps": 1e-06, "use_gemma_norm": true, "attention_output_gate": false, "rope_theta": 5000000,
    "rotary_dim": 64, "partial_rotary_factor": 0.5, "hidden_act": "swigluoai", "use_qk_norm": true,
    "qk_norm_type": "per_head", "tie_word_embeddings": false, "num_local_experts": 16,
    "num_experts_per_tok": 4, "n_shared_experts": 1, "scoring_func": "sigmoid", "use_routing_bias": true,
    "moe_layer_freq": [0, 0, 0, 1, 1], "swiglu_alpha": 1.702, "swiglu_limit": 7.0,
    "routed_scaling_factor": 2.0,
    "sparse_attention_config": {
      "use_sparse_attention": true, "sparse_index_dim": 128, "sparse_num_index_heads": 4,
      "sparse_topk_blocks": 16, "sparse_block_size": 128, "sparse_disable_index_value": [0, 0, 0, 1, 1],
      "sparse_score_type": "max", "sparse_init_block": 0, "sparse_local_block": 1,
      "sparse_attention_freq": [0, 0, 0, 1, 1]
    }
  }
}"#;

/// One model and mode to measure.
pub(super) struct Bench {
    pub(super) format: Format,
    pub(super) is_bf16: bool,
    pub(super) num_threads: usize,
}

/// Bytes and multiply-adds of a step, counted from the shapes.
#[derive(Clone, Copy, Default)]
struct Cost {
    bytes: f64,
    flops: f64,
}

/// An instance and where its only sequences stand.
struct Session {
    backend: Box<dyn Backend>,
    page_tokens: usize,
    next_page: u32,
}

impl Bench {
    pub(super) fn name(&self) -> String {
        format!("{} weights, {} activations", self.weights(), self.dtype())
    }

    fn weights(&self) -> &'static str {
        if self.format == Format::Mxfp8 { "mxfp8" } else { "bf16" }
    }

    fn dtype(&self) -> &'static str {
        if self.is_bf16 { "bfloat16" } else { "float32" }
    }

    pub(super) fn measure(&self, options: &Options, limits: &Limits) -> Result<ModelReport> {
        let config = backend::plan(CONFIG.as_bytes(), 1, 1)?.0;
        let (mut session, weight_bytes) = self.open(&config, options)?;
        let text = &config.text;
        let tokens = options.prefill_tokens;
        let mut row = 0;
        let seconds = median(options.repeats.min(5), || {
            row += 1;
            session.prefill(row, tokens)
        })?;
        let prefill = self.rate(tokens, self.cost(text, tokens, 1, tokens / 2), seconds, limits);
        let mut decode = Vec::new();
        for &batch in &options.batches {
            let rows: Vec<u32> =
                (0..batch as u32).map(|index| 100 + decode.len() as u32 * 32 + index).collect();
            for &row in &rows {
                session.prefill(row, options.context)?;
            }
            let mut position = options.context as u32;
            let seconds = median(options.repeats, || {
                let seconds = session.decode(&rows, position)?;
                position += 1;
                Ok(seconds)
            })?;
            let rate = self.rate(batch, self.cost(text, batch, batch, options.context), seconds, limits);
            decode.push(DecodeReport { batch, rate });
        }
        Ok(ModelReport {
            weights: self.weights().to_owned(),
            dtype: self.dtype().to_owned(),
            weight_bytes,
            prefill_tokens: tokens,
            prefill,
            context: options.context,
            decode,
        })
    }

    fn open(&self, config: &ModelConfig, options: &Options) -> Result<(Session, u64)> {
        let longest = options.prefill_tokens.max(options.context) + options.repeats + 1;
        let dtype = if self.is_bf16 { DTYPE_BF16 } else { DTYPE_F32 };
        let request = OpenRequest {
            tp: 1,
            ep: 1,
            dtype,
            kv_dtype: dtype,
            max_rows: 256,
            max_step_tokens: options.prefill_tokens.max(options.context) as u32,
            max_context: longest as u32,
            page_tokens: config.text.sparse.block_size as u32,
            num_threads: self.num_threads as u32,
            config: CONFIG.as_bytes().to_vec(),
            ..OpenRequest::default()
        };
        let mut backend = CpuDriver::detect().open(&request)?;
        for (seed, spec) in expected_tensors(config).iter().enumerate() {
            let is_linear =
                spec.shape.len() == 2 && !matches!(spec.role, Role::Embedding | Role::Head | Role::Router);
            let format = if is_linear && self.format == Format::Mxfp8 {
                m3_model::formats::Format::Mxfp8
            } else {
                spec.format
            };
            let strides = row_major_strides(&spec.shape);
            backend.load(&TensorView {
                name: &spec.name,
                format: format.abi(),
                shape: &spec.shape,
                strides: &strides[..spec.shape.len()],
                data: std::ptr::null(),
                scale: std::ptr::null(),
                scale_stride: 0,
                group_offset: 0,
                seed: seed as u64,
            })?;
        }
        let ready = backend.ready()?;
        let rows = 1 + options.repeats.min(5) + options.batches.iter().sum::<usize>();
        let pages = rows * (longest / config.text.sparse.block_size + 1);
        backend.reserve((pages as u64).min(ready.max_pages))?;
        backend.warm(&[])?;
        let page_tokens = config.text.sparse.block_size;
        Ok((Session { backend, page_tokens, next_page: 0 }, ready.weight_bytes))
    }

    /// What a step of `tokens` tokens with `logits` logits positions reads and computes; `context` = mean keys seen.
    fn cost(&self, text: &TextConfig, tokens: usize, logits: usize, context: usize) -> Cost {
        let linear = if self.format == Format::Mxfp8 { 1.0 + 1.0 / 32.0 } else { 2.0 };
        let hidden = text.hidden_size as f64;
        let mut cost = Cost::default();
        let mut add = |values: f64, bytes: f64, rows: f64| {
            cost.bytes += values * bytes;
            cost.flops += 2.0 * values * rows;
        };
        let rows = tokens as f64;
        let (query, kv) =
            ((text.num_heads * text.head_dim) as f64, (text.num_kv_heads * text.head_dim) as f64);
        for layer in &text.layers {
            add(hidden * (2.0 * query + 2.0 * kv), linear, rows);
            if layer.attention == AttentionKind::Sparse {
                let index = ((text.sparse.num_index_heads + 1) * text.sparse.index_dim) as f64;
                add(hidden * index, linear, rows);
            }
            // Keys and values are read by each token; queries of a group share them.
            let kv_bytes = if self.is_bf16 { 2.0 } else { 4.0 };
            add(2.0 * kv * context as f64 * rows, kv_bytes, query / kv);
            match layer.ffn {
                FfnKind::Dense => add(3.0 * hidden * text.dense_intermediate_size as f64, linear, rows),
                FfnKind::Moe => {
                    add(hidden * text.num_experts as f64, 4.0, rows);
                    add(3.0 * hidden * text.shared_intermediate_size as f64, linear, rows);
                    let expert = 3.0 * hidden * text.expert_intermediate_size as f64;
                    // Expected number of experts that somebody chose, all equally likely.
                    let share = text.experts_per_token as f64 / text.num_experts as f64;
                    let touched = text.num_experts as f64 * (1.0 - (1.0 - share).powf(rows));
                    add(expert * touched, linear, rows * text.experts_per_token as f64 / touched);
                }
            }
        }
        add(hidden * text.vocab_size as f64, 2.0, logits as f64);
        cost
    }

    fn rate(&self, tokens: usize, cost: Cost, seconds: f64, limits: &Limits) -> Rate {
        let gemm = if self.is_bf16 { limits.gemm_bf16_gflops } else { limits.gemm_f32_gflops };
        let (gb_per_s, gflops) = (cost.bytes / seconds / 1e9, cost.flops / seconds / 1e9);
        Rate {
            tokens_per_s: tokens as f64 / seconds,
            step_ms: seconds * 1e3,
            gb_per_s,
            share_of_bandwidth: gb_per_s / limits.read_gb_per_s,
            gflops,
            share_of_gemm: gflops / gemm,
        }
    }
}

/// Median seconds of `count` runs after one that does not count.
fn median(count: usize, mut run: impl FnMut() -> Result<f64>) -> Result<f64> {
    run()?;
    let mut seconds = (0..count).map(|_| run()).collect::<Result<Vec<f64>>>()?;
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[seconds.len() / 2])
}

impl Session {
    /// Seconds of one step.
    fn run(&mut self, step: &Step<'_>) -> Result<f64> {
        let mut output = Output::with_capacity(step.seqs.len(), 0);
        let start = Instant::now();
        let ticket = self.backend.submit(step)?;
        self.backend.wait(ticket, &mut output)?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Binds a row, gives it fresh pages with room for some decoding, and computes `len` tokens.
    fn prefill(&mut self, row: u32, len: usize) -> Result<f64> {
        let count = (len / self.page_tokens + 1) as u32;
        let page_ids: Vec<u32> = (self.next_page..self.next_page + count).collect();
        self.next_page += count;
        let tokens: Vec<u32> = (0..len as u32).map(|index| (index * 7919 + row * 31) % 32_000).collect();
        self.run(&Step {
            binds: &[RowBind::greedy(row)],
            pages: &[PageAppend { row, first: 0, offset: 0, count }],
            page_ids: &page_ids,
            seqs: &[seq(row, 0, len, 0)],
            tokens: &tokens,
            ..Step::default()
        })
    }

    /// One token for each row.
    fn decode(&mut self, rows: &[u32], position: u32) -> Result<f64> {
        let tokens: Vec<u32> = rows.iter().map(|row| (row * 131 + position * 17) % 32_000).collect();
        let seqs: Vec<Seq> =
            rows.iter().enumerate().map(|(index, &row)| seq(row, position, 1, index as u32)).collect();
        self.run(&Step { seqs: &seqs, tokens: &tokens, ..Step::default() })
    }
}

/// A part of `len` tokens whose last position is sampled into slot `index`, tokens from `index` on.
fn seq(row: u32, first_position: u32, len: usize, index: u32) -> Seq {
    Seq {
        row,
        flags: 0,
        first_position,
        num_tokens: len as u32,
        token_offset: index,
        num_logits: 1,
        output_offset: index,
        target_offset: NONE,
        mask_offset: NONE,
        output_index: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_decode_step_are_those_of_the_tensors_it_reads() {
        let text = backend::plan(CONFIG.as_bytes(), 1, 1).unwrap().0.text;
        let bench = Bench { format: Format::Bf16, is_bf16: true, num_threads: 1 };
        let cost = bench.cost(&text, 1, 1, 0);
        let attention = 5.0 * 3072.0 * (2.0 * 4096.0 + 1024.0) + 2.0 * 3072.0 * 640.0;
        let mlps = 3.0 * 3.0 * 3072.0 * 6144.0 + 2.0 * 5.0 * 3.0 * 3072.0 * 1536.0;
        let expected = 2.0 * (attention + mlps + 3072.0 * 32768.0) + 4.0 * 2.0 * 3072.0 * 16.0;
        assert!((cost.bytes / expected - 1.0).abs() < 1e-9, "{} / {expected}", cost.bytes);
    }
}
