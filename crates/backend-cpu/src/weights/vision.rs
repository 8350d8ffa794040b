//! The vision tower's tensors, placed: every rank holds them whole.

use m3_abi::{Error, Result};
use m3_model::config::{ModelConfig, VisionConfig};
use m3_model::names::{Role, expected_tensors};

use super::Store;
use crate::buffer::Precision;
use crate::kernels::convert::f32_to_bf16;
use crate::kernels::matrix::{Format, Matrix};

/// `y = x W^T + b`.
pub(crate) struct Affine {
    pub(crate) weight: Matrix,
    pub(crate) bias: Vec<f32>,
}

/// A layer norm.
pub(crate) struct Norm {
    pub(crate) weight: Vec<f32>,
    pub(crate) bias: Vec<f32>,
}

pub(crate) struct VisionLayer {
    pub(crate) norm1: Norm,
    pub(crate) query: Affine,
    pub(crate) key: Affine,
    pub(crate) value: Affine,
    pub(crate) out: Affine,
    pub(crate) norm2: Norm,
    pub(crate) fc1: Affine,
    pub(crate) fc2: Affine,
}

/// Tower, projector and merge MLP.
pub(crate) struct Vision {
    pub(crate) config: VisionConfig,
    pub(crate) text_hidden: usize,
    /// No bias.
    pub(crate) patch: Matrix,
    /// What `patch` views when the stored one is float32 and activations are bf16.
    _patch_bits: Vec<u16>,
    pub(crate) pre_norm: Norm,
    pub(crate) layers: Vec<VisionLayer>,
    pub(crate) projector: [Affine; 2],
    pub(crate) merge: [Affine; 2],
}

impl Vision {
    /// `None` when the config has no tower or not one of its tensors was loaded (a text-only copy of a checkpoint).
    ///
    /// # Errors
    /// Unsupported with every missing or misshapen tensor. The views last as long as `store` does.
    pub(crate) fn resolve(
        config: &ModelConfig,
        precision: Precision,
        store: &Store,
    ) -> Result<Option<Vision>> {
        let Some(vision) = &config.vision else { return Ok(None) };
        let specs: Vec<_> =
            expected_tensors(config).into_iter().filter(|spec| spec.role == Role::Vision).collect();
        if specs.iter().all(|spec| store.find(&spec.name).is_none()) {
            return Ok(None);
        }
        let mut problems = Vec::new();
        for spec in &specs {
            let wanted = match spec.shape.as_slice() {
                [size] => (1, *size as usize),
                [rows, inner @ ..] => (*rows as usize, inner.iter().product::<u64>() as usize),
                [] => (0, 0),
            };
            match store.find(&spec.name).map(|found| (found.rows(), found.cols())) {
                None => problems.push(format!("{} is missing", spec.name)),
                Some(found) if found != wanted => {
                    let ((rows, cols), (of, by)) = (found, wanted);
                    problems.push(format!("{} is {rows} x {cols}, not {of} x {by}", spec.name));
                }
                Some(_) => {}
            }
        }
        if !problems.is_empty() {
            let shown = problems[..problems.len().min(10)].join("; ");
            let count = problems.len();
            return Err(Error::Unsupported(format!("{count} vision tensors cannot be used: {shown}")));
        }
        place(vision, config.text.hidden_size, precision, store).map(Some)
    }
}

fn place(config: &VisionConfig, text_hidden: usize, precision: Precision, store: &Store) -> Result<Vision> {
    let tower = "vision_tower.vision_model";
    let patch = store.matrix(&format!("{tower}.embeddings.patch_embedding.weight"))?;
    let mut patch_bits = Vec::new();
    if precision == Precision::Bf16 && patch.format() == Format::F32 {
        let mut row = vec![0.0; patch.cols()];
        for index in 0..patch.rows() {
            patch.decode_row(index, &mut row);
            patch_bits.extend(row.iter().map(|&value| f32_to_bf16(value)));
        }
    }
    let patch = match patch_bits.is_empty() {
        true => patch,
        false => Matrix::of_bf16(&patch_bits, patch.rows(), patch.cols()),
    };
    Ok(Vision {
        config: config.clone(),
        text_hidden,
        patch,
        _patch_bits: patch_bits,
        // The misspelling is the released name.
        pre_norm: norm(store, &format!("{tower}.pre_layrnorm"))?,
        layers: (0..config.num_layers)
            .map(|layer| vision_layer(store, &format!("{tower}.encoder.layers.{layer}")))
            .collect::<Result<_>>()?,
        projector: [
            affine(store, "multi_modal_projector.linear_1")?,
            affine(store, "multi_modal_projector.linear_2")?,
        ],
        merge: [affine(store, "patch_merge_mlp.linear_1")?, affine(store, "patch_merge_mlp.linear_2")?],
    })
}

fn affine(store: &Store, name: &str) -> Result<Affine> {
    let weight = store.matrix(&format!("{name}.weight"))?;
    Ok(Affine { weight, bias: store.vector(&format!("{name}.bias"))? })
}

fn norm(store: &Store, name: &str) -> Result<Norm> {
    let weight = store.vector(&format!("{name}.weight"))?;
    Ok(Norm { weight, bias: store.vector(&format!("{name}.bias"))? })
}

fn vision_layer(store: &Store, prefix: &str) -> Result<VisionLayer> {
    let linear = |name: &str| affine(store, &format!("{prefix}.{name}"));
    Ok(VisionLayer {
        norm1: norm(store, &format!("{prefix}.layer_norm1"))?,
        query: linear("self_attn.q_proj")?,
        key: linear("self_attn.k_proj")?,
        value: linear("self_attn.v_proj")?,
        out: linear("self_attn.out_proj")?,
        norm2: norm(store, &format!("{prefix}.layer_norm2"))?,
        fc1: linear("mlp.fc1")?,
        fc2: linear("mlp.fc2")?,
    })
}
