//! Where each canonical tensor lies in a file, for every naming scheme found in the wild.
//!
//! Schemes differ in prefixes and in what is fused: the native one concatenates gate and up rows and stacks experts.
//! Every canonical tensor is still one contiguous run of rows of a stored one, so a view needs no copy.

use crate::names::{Role, TensorSpec};

/// How a checkpoint names its tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Naming {
    /// As released: `language_model.model.…`, separate experts.
    Released,
    /// The text-only class: released names without `language_model.`.
    ReleasedTextOnly,
    /// Saved again by transformers: `model.language_model.…`, fused gate and up, stacked experts.
    Native,
    /// The native text-only class: `model.…`, fused and stacked.
    NativeTextOnly,
}

impl Naming {
    pub const ALL: [Naming; 4] =
        [Naming::Released, Naming::ReleasedTextOnly, Naming::Native, Naming::NativeTextOnly];

    fn is_native(self) -> bool {
        matches!(self, Naming::Native | Naming::NativeTextOnly)
    }
}

/// A run of rows of a stored tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Name in the file.
    pub name: String,
    /// Shape the stored tensor must have.
    pub shape: Vec<u64>,
    /// First row of the run; rows are counted over all leading dims, a row is the last dim.
    pub first_row: u64,
}

/// The stored tensor that holds `spec` under `naming`; `num_experts` sizes the stacked ones.
pub fn source(spec: &TensorSpec, naming: Naming, num_experts: usize) -> Source {
    let whole = |name: String| Source { name, shape: spec.shape.clone(), first_row: 0 };
    match naming {
        Naming::Released => whole(spec.name.clone()),
        Naming::ReleasedTextOnly => whole(without_prefix(&spec.name).to_owned()),
        Naming::Native | Naming::NativeTextOnly => native(spec, naming, num_experts),
    }
}

/// Names a scale companion may have, the released spelling first.
pub fn scale_names(stored_name: &str) -> [String; 2] {
    [format!("{stored_name}_scale_inv"), format!("{stored_name}_scale")]
}

/// Whether a name belongs to a draft module, which this model class never holds.
pub fn is_draft(name: &str) -> bool {
    name.split('.').any(|part| matches!(part, "mtp" | "dspark"))
}

fn without_prefix(name: &str) -> &str {
    name.strip_prefix("language_model.").unwrap_or(name)
}

fn native(spec: &TensorSpec, naming: Naming, num_experts: usize) -> Source {
    let name = native_prefix(&spec.name, naming);
    let rows = spec.shape[0];
    match spec.role {
        Role::DenseUp | Role::SharedUp => {
            let (fused, half) = fused_gate_up(&name);
            Source { name: fused, shape: vec![2 * rows, spec.shape[1]], first_row: half * rows }
        }
        Role::ExpertUp { expert } => {
            let half = u64::from(name.ends_with(".w3.weight"));
            Source {
                name: stacked(&name, "gate_up_proj"),
                shape: vec![num_experts as u64, 2 * rows, spec.shape[1]],
                first_row: (2 * expert as u64 + half) * rows,
            }
        }
        Role::ExpertDown { expert } => Source {
            name: stacked(&name, "down_proj"),
            shape: vec![num_experts as u64, rows, spec.shape[1]],
            first_row: expert as u64 * rows,
        },
        _ => Source { name: native_module(&name), shape: spec.shape.clone(), first_row: 0 },
    }
}

fn native_prefix(name: &str, naming: Naming) -> String {
    debug_assert!(naming.is_native());
    let model = if naming == Naming::Native { "model.language_model." } else { "model." };
    if let Some(rest) = name.strip_prefix("language_model.model.") {
        return format!("{model}{}", rest.replace(".block_sparse_moe.", ".mlp."));
    }
    if let Some(rest) = name.strip_prefix("vision_tower.vision_model.") {
        let rest =
            rest.replace("embeddings.patch_embedding", "embeddings.proj").replace("encoder.layers", "layers");
        return format!("model.vision_tower.{rest}");
    }
    if let Some(rest) = name.strip_prefix("patch_merge_mlp.") {
        return format!("model.multi_modal_projector.merge_{rest}");
    }
    match without_prefix(name) {
        head if head.starts_with("lm_head") => head.to_owned(),
        projector => format!("model.{projector}"),
    }
}

fn native_module(name: &str) -> String {
    name.replace(".mlp.e_score_correction_bias", ".mlp.gate.e_score_correction_bias")
        .replace(".self_attn.index_", ".self_attn.indexer.")
}

/// `….gate_proj.weight` or `….up_proj.weight` to the fused name and which half it is.
fn fused_gate_up(name: &str) -> (String, u64) {
    match name.strip_suffix(".gate_proj.weight") {
        Some(module) => (format!("{module}.gate_up_proj.weight"), 0),
        None => (name.replace(".up_proj.weight", ".gate_up_proj.weight"), 1),
    }
}

/// `….experts.7.w1.weight` to `….experts.gate_up_proj`: a bare parameter, no `.weight`.
fn stacked(name: &str, parameter: &str) -> String {
    let module = name.split_once(".experts.").map_or(name, |(module, _)| module);
    format!("{module}.experts.{parameter}")
}
