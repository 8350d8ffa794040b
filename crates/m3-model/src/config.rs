//! What a checkpoint's `config.json` says, in one shape whatever naming the file uses.
//!
//! Both published shapes are read; every known field with a value this engine does not implement is reported at
//! once, unknown keys are listed for the log. No defaults are guessed for anything that changes the model.

mod generation;
mod layers;
mod quantization;
mod read;
mod section;
mod text;
mod vision;

pub use generation::GenerationConfig;
pub use read::Loaded;

/// The whole model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    pub text: TextConfig,
    /// `None` when the config has no vision part.
    pub vision: Option<VisionConfig>,
    pub quantization: Quantization,
    pub image_token_id: Option<u32>,
    pub video_token_id: Option<u32>,
}

/// The language model. Sizes are the full model's, before any tensor-parallel cut.
#[derive(Clone, Debug, PartialEq)]
pub struct TextConfig {
    pub hidden_size: usize,
    pub vocab_size: usize,
    pub max_position_embeddings: usize,
    pub num_heads: usize,
    pub num_kv_heads: usize,
    pub head_dim: usize,
    /// Leading dims of a head that rotate, half-split pairs.
    pub rotary_dim: usize,
    pub rope_theta: f64,
    pub norm_eps: f32,
    pub dense_intermediate_size: usize,
    pub expert_intermediate_size: usize,
    pub shared_intermediate_size: usize,
    pub num_experts: usize,
    pub experts_per_token: usize,
    pub routed_scaling_factor: f32,
    pub swiglu_alpha: f32,
    pub swiglu_limit: f32,
    pub sparse: SparseConfig,
    /// One plan per layer.
    pub layers: Vec<LayerPlan>,
}

/// The index branch of block-sparse attention.
#[derive(Clone, Debug, PartialEq)]
pub struct SparseConfig {
    /// One per KV head.
    pub num_index_heads: usize,
    pub index_dim: usize,
    /// Tokens; equal to a page.
    pub block_size: usize,
    /// Includes the forced blocks.
    pub topk_blocks: usize,
    pub init_blocks: usize,
    pub local_blocks: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionKind {
    Dense,
    Sparse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FfnKind {
    Dense,
    Moe,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerPlan {
    pub attention: AttentionKind,
    pub ffn: FfnKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantization {
    None,
    Mxfp8,
}

/// The vision tower and projector.
#[derive(Clone, Debug, PartialEq)]
pub struct VisionConfig {
    pub hidden_size: usize,
    pub num_layers: usize,
    pub num_heads: usize,
    pub intermediate_size: usize,
    pub patch_size: usize,
    pub temporal_patch_size: usize,
    pub merge_size: usize,
    pub num_channels: usize,
    pub layer_norm_eps: f32,
    pub rope_theta: f64,
    pub segment_max_frames: usize,
    pub projector_hidden_size: usize,
}
