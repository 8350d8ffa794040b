//! Every tensor a config implies: canonical name, shape, format and part in the model.
//!
//! Canonical names are the released scheme, `language_model.…` prefix included, whatever a file uses; [`crate::naming`]
//! maps them to the other schemes. No file is read here.

use crate::config::{AttentionKind, FfnKind, ModelConfig, Quantization, VisionConfig};
use crate::formats::{Format, MX_GROUP};

/// What a tensor is for; decides how it is cut for tensor parallelism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// `[vocab, hidden]`
    Embedding,
    /// `[vocab, hidden]`
    Head,
    /// Any norm weight of the text model, per hidden or per head dim.
    Norm,
    /// `[heads x head_dim, hidden]`
    Query,
    /// K or V, `[kv_heads x head_dim, hidden]`
    KeyValue,
    /// `[hidden, heads x head_dim]`
    AttentionOut,
    /// `[index_heads x index_dim, hidden]`
    IndexQuery,
    /// `[index_dim, hidden]`
    IndexKey,
    /// Gate or up projection, `[width, hidden]`
    DenseUp,
    /// `[hidden, width]`
    DenseDown,
    /// Router weight `[experts, hidden]` or correction bias `[experts]`.
    Router,
    SharedUp,
    SharedDown,
    ExpertUp {
        expert: usize,
    },
    ExpertDown {
        expert: usize,
    },
    /// Tower, projector and merge MLP.
    Vision,
}

/// One tensor of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Canonical: the released naming scheme.
    pub name: String,
    /// As the released build has it, or, in a [`crate::checkpoint::Checkpoint`], as the file has it.
    pub format: Format,
    /// Full model, row-major; 1 to 5 dims.
    pub shape: Vec<u64>,
    /// Text layer, `None` outside layers and in the vision part.
    pub layer: Option<usize>,
    pub role: Role,
}

impl TensorSpec {
    /// Number of values.
    pub fn parameters(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Scale entries of a row, 0 without scales.
    pub fn scale_columns(&self) -> u64 {
        match (self.format, self.shape.last()) {
            (Format::Mxfp8, Some(columns)) => columns.div_ceil(MX_GROUP as u64),
            _ => 0,
        }
    }

    /// Bytes of the values, scales not counted.
    pub fn value_bytes(&self) -> u64 {
        self.parameters() * self.format.value_bytes() as u64
    }

    /// Bytes of the scales, 0 without scales.
    pub fn scale_bytes(&self) -> u64 {
        let rows: u64 = self.shape[..self.shape.len() - 1].iter().product();
        rows * self.scale_columns()
    }

    /// Whether a file may store this tensor in `format`: the router and the patch embedding are F32 as released and
    /// bf16 when another library saved them again.
    pub fn accepts(&self, format: Format) -> bool {
        format == self.format || (self.format == Format::F32 && format == Format::Bf16)
    }
}

/// Sums over a tensor table, as its files would hold them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Entries of the file headers: scales count as tensors of their own.
    pub tensors: u64,
    /// Values, scales not counted.
    pub parameters: u64,
    /// Values and scales.
    pub bytes: u64,
}

impl Totals {
    pub fn of<'a>(specs: impl IntoIterator<Item = &'a TensorSpec>) -> Self {
        specs.into_iter().fold(Totals::default(), |sum, spec| Totals {
            tensors: sum.tensors + 1 + u64::from(spec.scale_columns() > 0),
            parameters: sum.parameters + spec.parameters(),
            bytes: sum.bytes + spec.value_bytes() + spec.scale_bytes(),
        })
    }
}

/// The exact tensor table of a config, in layer order: embedding, layers, final norm, head, vision.
pub fn expected_tensors(config: &ModelConfig) -> Vec<TensorSpec> {
    let mut table = Table { specs: Vec::new(), linear: linear_format(config), layer: None };
    let text = &config.text;
    let (hidden, vocab) = (text.hidden_size, text.vocab_size);
    table.push("language_model.model.embed_tokens.weight", Format::Bf16, &[vocab, hidden], Role::Embedding);
    for layer in 0..text.layers.len() {
        table.layer = Some(layer);
        let prefix = format!("language_model.model.layers.{layer}");
        push_attention(&mut table, &prefix, config, layer);
        match text.layers[layer].ffn {
            FfnKind::Dense => push_dense(&mut table, &format!("{prefix}.mlp"), config),
            FfnKind::Moe => push_moe(&mut table, &format!("{prefix}.block_sparse_moe"), config),
        }
    }
    table.layer = None;
    table.push("language_model.model.norm.weight", Format::Bf16, &[hidden], Role::Norm);
    table.push("language_model.lm_head.weight", Format::Bf16, &[vocab, hidden], Role::Head);
    if let Some(vision) = &config.vision {
        push_vision(&mut table, vision, hidden);
    }
    table.specs
}

fn linear_format(config: &ModelConfig) -> Format {
    match config.quantization {
        Quantization::None => Format::Bf16,
        Quantization::Mxfp8 => Format::Mxfp8,
    }
}

struct Table {
    specs: Vec<TensorSpec>,
    /// Format of the text model's linears.
    linear: Format,
    layer: Option<usize>,
}

impl Table {
    fn push(&mut self, name: impl Into<String>, format: Format, shape: &[usize], role: Role) {
        let shape = shape.iter().map(|size| *size as u64).collect();
        self.specs.push(TensorSpec { name: name.into(), format, shape, layer: self.layer, role });
    }

    fn linear(&mut self, name: String, shape: [usize; 2], role: Role) {
        self.push(name, self.linear, &shape, role);
    }

    fn norm(&mut self, name: String, size: usize) {
        self.push(name, Format::Bf16, &[size], Role::Norm);
    }

    /// A vision linear or layer norm: weight and bias.
    fn vision_pair(&mut self, name: &str, shape: &[usize]) {
        self.push(format!("{name}.weight"), Format::Bf16, shape, Role::Vision);
        self.push(format!("{name}.bias"), Format::Bf16, &shape[..1], Role::Vision);
    }
}

fn push_attention(table: &mut Table, layer: &str, config: &ModelConfig, index: usize) {
    let text = &config.text;
    let hidden = text.hidden_size;
    let (query, key_value) = (text.num_heads * text.head_dim, text.num_kv_heads * text.head_dim);
    let attention = format!("{layer}.self_attn");
    table.norm(format!("{layer}.input_layernorm.weight"), hidden);
    table.linear(format!("{attention}.q_proj.weight"), [query, hidden], Role::Query);
    table.linear(format!("{attention}.k_proj.weight"), [key_value, hidden], Role::KeyValue);
    table.linear(format!("{attention}.v_proj.weight"), [key_value, hidden], Role::KeyValue);
    table.norm(format!("{attention}.q_norm.weight"), text.head_dim);
    table.norm(format!("{attention}.k_norm.weight"), text.head_dim);
    if text.layers[index].attention == AttentionKind::Sparse {
        let dim = text.sparse.index_dim;
        let index_query = text.sparse.num_index_heads * dim;
        table.linear(format!("{attention}.index_q_proj.weight"), [index_query, hidden], Role::IndexQuery);
        table.linear(format!("{attention}.index_k_proj.weight"), [dim, hidden], Role::IndexKey);
        table.norm(format!("{attention}.index_q_norm.weight"), dim);
        table.norm(format!("{attention}.index_k_norm.weight"), dim);
    }
    table.linear(format!("{attention}.o_proj.weight"), [hidden, query], Role::AttentionOut);
    table.norm(format!("{layer}.post_attention_layernorm.weight"), hidden);
}

fn push_dense(table: &mut Table, mlp: &str, config: &ModelConfig) {
    let (hidden, width) = (config.text.hidden_size, config.text.dense_intermediate_size);
    table.linear(format!("{mlp}.gate_proj.weight"), [width, hidden], Role::DenseUp);
    table.linear(format!("{mlp}.up_proj.weight"), [width, hidden], Role::DenseUp);
    table.linear(format!("{mlp}.down_proj.weight"), [hidden, width], Role::DenseDown);
}

fn push_moe(table: &mut Table, moe: &str, config: &ModelConfig) {
    let text = &config.text;
    let (hidden, experts) = (text.hidden_size, text.num_experts);
    let (width, shared) = (text.expert_intermediate_size, text.shared_intermediate_size);
    table.push(format!("{moe}.gate.weight"), Format::F32, &[experts, hidden], Role::Router);
    table.push(format!("{moe}.e_score_correction_bias"), Format::F32, &[experts], Role::Router);
    table.linear(format!("{moe}.shared_experts.gate_proj.weight"), [shared, hidden], Role::SharedUp);
    table.linear(format!("{moe}.shared_experts.up_proj.weight"), [shared, hidden], Role::SharedUp);
    table.linear(format!("{moe}.shared_experts.down_proj.weight"), [hidden, shared], Role::SharedDown);
    for expert in 0..experts {
        let prefix = format!("{moe}.experts.{expert}");
        table.linear(format!("{prefix}.w1.weight"), [width, hidden], Role::ExpertUp { expert });
        table.linear(format!("{prefix}.w3.weight"), [width, hidden], Role::ExpertUp { expert });
        table.linear(format!("{prefix}.w2.weight"), [hidden, width], Role::ExpertDown { expert });
    }
}

fn push_vision(table: &mut Table, vision: &VisionConfig, text_hidden: usize) {
    let (hidden, inner) = (vision.hidden_size, vision.intermediate_size);
    let patch =
        [hidden, vision.num_channels, vision.temporal_patch_size, vision.patch_size, vision.patch_size];
    let tower = "vision_tower.vision_model";
    table.push(format!("{tower}.embeddings.patch_embedding.weight"), Format::F32, &patch, Role::Vision);
    // The misspelling is the released name.
    table.vision_pair(&format!("{tower}.pre_layrnorm"), &[hidden]);
    for layer in 0..vision.num_layers {
        let prefix = format!("{tower}.encoder.layers.{layer}");
        table.vision_pair(&format!("{prefix}.layer_norm1"), &[hidden]);
        for part in ["q_proj", "k_proj", "v_proj", "out_proj"] {
            table.vision_pair(&format!("{prefix}.self_attn.{part}"), &[hidden, hidden]);
        }
        table.vision_pair(&format!("{prefix}.layer_norm2"), &[hidden]);
        table.vision_pair(&format!("{prefix}.mlp.fc1"), &[inner, hidden]);
        table.vision_pair(&format!("{prefix}.mlp.fc2"), &[hidden, inner]);
    }
    let projector = vision.projector_hidden_size;
    let merged = vision.merge_size * vision.merge_size * text_hidden;
    table.vision_pair("multi_modal_projector.linear_1", &[projector, hidden]);
    table.vision_pair("multi_modal_projector.linear_2", &[text_hidden, projector]);
    table.vision_pair("patch_merge_mlp.linear_1", &[projector, merged]);
    table.vision_pair("patch_merge_mlp.linear_2", &[text_hidden, projector]);
}

/// Standard deviation of synthetic weights. Products keep the size of their input, but what a layer adds stays small beside
/// the token's own embedding and no expert is preferred: tokens then choose as many different experts as trained weights
/// make them, and so as many weights are read. `name` is canonical, `columns` of this rank.
pub fn synthetic_deviation(name: &str, columns: usize) -> f32 {
    let keeping = 1.0 / (columns as f32).sqrt();
    match name.rsplit('.').find(|part| *part != "weight") {
        Some("embed_tokens") => 1.0,
        Some("e_score_correction_bias") => 0.0,
        Some("o_proj" | "down_proj" | "w2") => keeping / 16.0,
        _ => keeping,
    }
}
