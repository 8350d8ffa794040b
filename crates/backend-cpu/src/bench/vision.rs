//! The vision tower at the released shape with synthetic weights: a 672 x 672 picture through the backend's own `encode`.

use std::time::Instant;

use m3_abi::types::{DTYPE_BF16, DTYPE_F32};
use m3_abi::{Backend, Driver, Error, OpenRequest, Output, Result, TensorView};
use m3_model::checkpoint::row_major_strides;
use m3_model::config::{ModelConfig, VisionConfig};
use m3_model::names::expected_tensors;
use serde::Serialize;

use super::Limits;
use crate::backend;
use crate::driver::CpuDriver;
use crate::kernels::Kernels;
use crate::machine;

/// The released tower, projector and merge on a text model that is as small as it may be at M3's width.
const CONFIG: &str = r#"{
  "architectures": ["MiniMaxM3SparseForConditionalGeneration"], "model_type": "minimax_m3_vl",
  "text_config": {
    "architectures": ["MiniMaxM3SparseForCausalLM"],
    "hidden_size": 6144, "intermediate_size": 64, "dense_intermediate_size": 64,
    "shared_intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 1, "head_dim": 128, "vocab_size": 512, "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-06, "use_gemma_norm": true, "attention_output_gate": false, "rope_theta": 5000000,
    "rotary_dim": 64, "partial_rotary_factor": 0.5, "hidden_act": "swigluoai", "use_qk_norm": true,
    "qk_norm_type": "per_head", "tie_word_embeddings": false, "num_local_experts": 4,
    "num_experts_per_tok": 2, "n_shared_experts": 1, "scoring_func": "sigmoid", "use_routing_bias": true,
    "moe_layer_freq": [0, 1], "swiglu_alpha": 1.702, "swiglu_limit": 7.0, "routed_scaling_factor": 2.0,
    "sparse_attention_config": {
      "use_sparse_attention": true, "sparse_index_dim": 128, "sparse_num_index_heads": 1,
      "sparse_topk_blocks": 16, "sparse_block_size": 128, "sparse_disable_index_value": [0, 1],
      "sparse_score_type": "max", "sparse_init_block": 0, "sparse_local_block": 1,
      "sparse_attention_freq": [0, 1]
    }
  },
  "vision_config": {
    "model_type": "clip_vision_model", "hidden_size": 1280, "num_attention_heads": 16,
    "num_hidden_layers": 32, "intermediate_size": 5120, "patch_size": 14, "projection_dim": 6144,
    "position_embedding_type": "rope", "rope_mode": "3d", "rope_theta": 10000.0, "hidden_act": "gelu",
    "layer_norm_eps": 1e-05, "num_channels": 3, "vision_segment_max_frames": 4,
    "img_token_compression_config": {
      "image_token_compression_method": "patch_merge", "spatial_merge_size": 2, "temporal_patch_size": 2
    }
  },
  "projector_hidden_size": 6144, "projector_hidden_act": "gelu", "multimodal_projector_bias": true,
  "image_token_index": 500, "video_token_index": 501
}"#;

/// Patches of 672 x 672.
const GRID: [u32; 3] = [1, 48, 48];

/// One mode.
#[derive(Clone, Debug, Serialize)]
pub struct VisionRate {
    /// Activations: `float32` or `bfloat16`; weights are bf16.
    pub dtype: String,
    /// Fastest and median encode of one picture.
    pub best_ms: f64,
    pub median_ms: f64,
    /// What the same multiply-adds take at the best GEMM rate of the mode.
    pub gemm_bound_ms: f64,
    /// `gemm_bound_ms / best_ms`.
    pub share_of_gemm: f64,
    pub gflops: f64,
}

/// What `bench vision` shows.
#[derive(Clone, Debug, Serialize)]
pub struct VisionReport {
    pub cpu: String,
    pub isa: String,
    pub num_threads: usize,
    /// The better of before and after: the machine may have other things to do.
    pub limits: Limits,
    pub image: String,
    pub num_patches: usize,
    /// Multiply-adds counted as two, in 10^9: linears, attention products, projector and merge.
    pub gflop: f64,
    pub repeats: usize,
    pub modes: Vec<VisionRate>,
}

/// Multiply-adds of one medium of a single segment, counted as two.
pub fn operations(config: &VisionConfig, text_hidden: usize, num_patches: usize) -> f64 {
    let (hidden, inner) = (config.hidden_size as f64, config.intermediate_size as f64);
    let (patches, projector, text) =
        (num_patches as f64, config.projector_hidden_size as f64, text_hidden as f64);
    let merged = config.merged_patches() as f64;
    let layer = 4.0 * hidden * hidden + 2.0 * hidden * inner + 2.0 * patches * hidden;
    let tower = patches * (config.row_len() as f64 * hidden + config.num_layers as f64 * layer);
    let project = patches * (hidden * projector + projector * text);
    let merge = patches / merged * (merged * text * projector + projector * text);
    2.0 * (tower + project + merge)
}

/// Measures on all cores; `progress` is told what comes next.
///
/// # Errors
/// When the synthetic tower does not fit into memory.
pub fn run_vision(repeats: usize, progress: &mut dyn FnMut(&str)) -> Result<VisionReport> {
    let config = backend::plan(CONFIG.as_bytes(), 1, 1)?.0;
    let Some(vision) = &config.vision else {
        return Err(Error::Unsupported("the benchmark's config has no vision tower".to_owned()));
    };
    let num_patches = GRID.iter().product::<u32>() as usize;
    let flop = operations(vision, config.text.hidden_size, num_patches);
    progress("limits of the machine");
    let mut limits = measure_limits()?;
    let mut times = Vec::new();
    for (dtype, name) in [(DTYPE_BF16, "bfloat16"), (DTYPE_F32, "float32")] {
        progress(&format!("{name}: {repeats} pictures"));
        times.push((name, encode_times(&config, vision.row_len(), dtype, repeats)?));
    }
    progress("limits of the machine, again");
    let after = measure_limits()?;
    limits.gemm_bf16_gflops = limits.gemm_bf16_gflops.max(after.gemm_bf16_gflops);
    limits.gemm_f32_gflops = limits.gemm_f32_gflops.max(after.gemm_f32_gflops);
    let rate = |(name, seconds): (&str, Vec<f64>)| {
        let gflops = if name == "bfloat16" { limits.gemm_bf16_gflops } else { limits.gemm_f32_gflops };
        let (best, median, bound) = (seconds[0], seconds[seconds.len() / 2], flop / 1e9 / gflops);
        VisionRate {
            dtype: name.to_owned(),
            best_ms: best * 1e3,
            median_ms: median * 1e3,
            gemm_bound_ms: bound * 1e3,
            share_of_gemm: bound / best,
            gflops: flop / 1e9 / best,
        }
    };
    Ok(VisionReport {
        cpu: machine::cpu_name(),
        isa: Kernels::detect().isa().name().to_owned(),
        num_threads: machine::num_cores(),
        limits,
        image: "672 x 672".to_owned(),
        num_patches,
        gflop: flop / 1e9,
        repeats,
        modes: times.into_iter().map(rate).collect(),
    })
}

fn measure_limits() -> Result<Limits> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(machine::num_cores()).build();
    let pool = pool.map_err(|error| Error::Unsupported(format!("threads: {error}")))?;
    Ok(pool.install(|| Limits::measure(Kernels::detect())))
}

/// Seconds of each picture, ascending.
fn encode_times(config: &ModelConfig, row_len: usize, dtype: u32, repeats: usize) -> Result<Vec<f64>> {
    let mut backend = open(config, dtype)?;
    let count = GRID.iter().product::<u32>() as usize * row_len;
    let patches: Vec<f32> = (0..count).map(|index| ((index * 7919) % 509) as f32 / 127.0 - 2.0).collect();
    let mut seconds = Vec::new();
    for _ in 0..repeats.max(1) {
        let start = Instant::now();
        let media = backend.encode(&patches, row_len, &[GRID])?;
        backend.wait(media.ticket, &mut Output::default())?;
        seconds.push(start.elapsed().as_secs_f64());
        backend.media_free(media.handle)?;
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds)
}

fn open(config: &ModelConfig, dtype: u32) -> Result<Box<dyn Backend>> {
    let request = OpenRequest {
        tp: 1,
        ep: 1,
        dtype,
        kv_dtype: dtype,
        max_rows: 1,
        max_step_tokens: 128,
        max_context: 128,
        page_tokens: config.text.sparse.block_size as u32,
        page_memory_bytes: 1 << 24,
        config: CONFIG.as_bytes().to_vec(),
        ..OpenRequest::default()
    };
    let mut backend = CpuDriver::detect().open(&request)?;
    for (seed, spec) in expected_tensors(config).iter().enumerate() {
        let strides = row_major_strides(&spec.shape);
        backend.load(&TensorView {
            name: &spec.name,
            format: spec.format.abi(),
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
    backend.reserve(ready.max_pages.min(1))?;
    backend.warm(&[])?;
    Ok(backend)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_square_picture_takes_four_teraflop_at_the_released_shape() {
        let config = backend::plan(CONFIG.as_bytes(), 1, 1).unwrap().0;
        let flop = operations(config.vision.as_ref().unwrap(), 6144, 2304);
        // 32 layers of 90.6 (linears) + 27.2 (attention), 6.9 for patches, 210.2 and 217.4 behind the tower.
        assert!((flop / 1e9 - 4203.7).abs() < 10.0, "{}", flop / 1e9);
    }
}
