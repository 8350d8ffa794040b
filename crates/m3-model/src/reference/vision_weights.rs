//! Loaded vision tensors, put where the tower looks for them. Always unquantised.

use std::collections::HashMap;

use m3_abi::Error;

use crate::config::VisionConfig;

use super::linear::Linear;
use super::tensor::Tensor;

/// `y = x W^T + b`; the patch embedding has no bias.
#[derive(Clone, Debug)]
pub struct Affine {
    weight: Linear,
    /// [rows], or empty.
    bias: Vec<f32>,
}

impl Affine {
    /// [N, columns] -> [N, rows].
    pub fn apply(&self, inputs: &[f32]) -> Vec<f32> {
        let mut outputs = self.weight.apply(inputs);
        if !self.bias.is_empty() {
            for row in outputs.chunks_mut(self.bias.len()) {
                row.iter_mut().zip(&self.bias).for_each(|(output, bias)| *output += bias);
            }
        }
        outputs
    }

    pub fn num_columns(&self) -> usize {
        self.weight.num_columns()
    }
}

/// Weight and bias, [hidden] each.
#[derive(Clone, Debug)]
pub struct LayerNorm {
    pub weight: Vec<f32>,
    pub bias: Vec<f32>,
}

#[derive(Clone, Debug)]
pub struct VisionLayer {
    pub norm1: LayerNorm,
    pub query: Affine,
    pub key: Affine,
    pub value: Affine,
    pub output: Affine,
    pub norm2: LayerNorm,
    pub fc1: Affine,
    pub fc2: Affine,
}

/// Tower, projector and merge MLP.
#[derive(Clone, Debug)]
pub struct VisionWeights {
    /// [hidden, channels x time x y x x].
    pub patch: Affine,
    pub pre_norm: LayerNorm,
    pub layers: Vec<VisionLayer>,
    pub projector: [Affine; 2],
    pub merge: [Affine; 2],
}

impl VisionWeights {
    /// Takes every vision tensor out of `tensors`; `None` when there is not one, as in a text-only copy of a checkpoint.
    ///
    /// # Errors
    /// `Unsupported` with the name of a tensor that is missing or has another shape than the config implies.
    pub fn assemble(
        config: &VisionConfig,
        text_hidden: usize,
        tensors: &mut HashMap<String, Tensor>,
    ) -> Result<Option<Self>, Error> {
        if !tensors.keys().any(|name| !name.starts_with("language_model.")) {
            return Ok(None);
        }
        let mut shelf = Shelf { tensors };
        let (hidden, projector) = (config.hidden_size, config.projector_hidden_size);
        let tower = "vision_tower.vision_model";
        let merged = config.merged_patches() * text_hidden;
        let patch = format!("{tower}.embeddings.patch_embedding.weight");
        Ok(Some(VisionWeights {
            patch: Affine { weight: shelf.weight(&patch, [hidden, config.row_len()])?, bias: Vec::new() },
            // The misspelling is the released name.
            pre_norm: shelf.norm(&format!("{tower}.pre_layrnorm"), hidden)?,
            layers: (0..config.num_layers)
                .map(|layer| shelf.layer(config, &format!("{tower}.encoder.layers.{layer}")))
                .collect::<Result<_, _>>()?,
            projector: [
                shelf.affine("multi_modal_projector.linear_1", [projector, hidden])?,
                shelf.affine("multi_modal_projector.linear_2", [text_hidden, projector])?,
            ],
            merge: [
                shelf.affine("patch_merge_mlp.linear_1", [projector, merged])?,
                shelf.affine("patch_merge_mlp.linear_2", [text_hidden, projector])?,
            ],
        }))
    }
}

struct Shelf<'a> {
    tensors: &'a mut HashMap<String, Tensor>,
}

impl Shelf<'_> {
    fn values(&mut self, name: &str, [rows, columns]: [usize; 2]) -> Result<Vec<f32>, Error> {
        let Some(tensor) = self.tensors.remove(name) else {
            return Err(Error::Unsupported(format!("tensor {name} was not loaded")));
        };
        if tensor.columns != columns || tensor.values.len() != rows * columns {
            let (found, width) = (tensor.values.len() / tensor.columns.max(1), tensor.columns);
            let sizes = format!("is {found} x {width}, the config says {rows} x {columns}");
            return Err(Error::Unsupported(format!("tensor {name} {sizes}")));
        }
        Ok(tensor.values)
    }

    fn weight(&mut self, name: &str, shape: [usize; 2]) -> Result<Linear, Error> {
        Ok(Linear::plain(self.values(name, shape)?, shape[1]))
    }

    fn affine(&mut self, name: &str, shape: [usize; 2]) -> Result<Affine, Error> {
        Ok(Affine {
            weight: self.weight(&format!("{name}.weight"), shape)?,
            bias: self.values(&format!("{name}.bias"), [1, shape[0]])?,
        })
    }

    fn norm(&mut self, name: &str, size: usize) -> Result<LayerNorm, Error> {
        Ok(LayerNorm {
            weight: self.values(&format!("{name}.weight"), [1, size])?,
            bias: self.values(&format!("{name}.bias"), [1, size])?,
        })
    }

    fn layer(&mut self, config: &VisionConfig, prefix: &str) -> Result<VisionLayer, Error> {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let square = [hidden, hidden];
        Ok(VisionLayer {
            norm1: self.norm(&format!("{prefix}.layer_norm1"), hidden)?,
            query: self.affine(&format!("{prefix}.self_attn.q_proj"), square)?,
            key: self.affine(&format!("{prefix}.self_attn.k_proj"), square)?,
            value: self.affine(&format!("{prefix}.self_attn.v_proj"), square)?,
            output: self.affine(&format!("{prefix}.self_attn.out_proj"), square)?,
            norm2: self.norm(&format!("{prefix}.layer_norm2"), hidden)?,
            fc1: self.affine(&format!("{prefix}.mlp.fc1"), [inner, hidden])?,
            fc2: self.affine(&format!("{prefix}.mlp.fc2"), [hidden, inner])?,
        })
    }
}
