//! The vision tower, the projector and the merge, as the specification has them: patches to rows of the text model.
//!
//! No class token, no learned positions, no norm after the last layer. Patches of one segment attend to each other in
//! both directions. Reading tensors is [`super::vision_weights`]' part; pixels are nobody's here.

use crate::config::VisionConfig;
use crate::rope::Rope;
use crate::vision::{AxialRope, longest_segment, places, segments};

use super::math::{dot, for_rows};
use super::vision_weights::{Affine, LayerNorm, VisionLayer, VisionWeights};

/// What a medium becomes.
#[derive(Clone, Debug, PartialEq)]
pub struct Encoded {
    /// [patches, vision hidden]: output of the last layer.
    pub tower_out: Vec<f32>,
    /// [patches / merge^2, text hidden]: what replaces embedding rows.
    pub features: Vec<f32>,
}

/// Encodes patches that [`crate::vision::check_grids`] has passed.
pub fn encode(
    config: &VisionConfig,
    weights: &VisionWeights,
    patches: &[f32],
    grids: &[[u32; 3]],
) -> Encoded {
    let mut stream = weights.patch.apply(patches);
    weights.pre_norm.apply(&mut stream, config.layer_norm_eps);
    let rope = AxialRope::new(config);
    let angles: Vec<Vec<(f32, f32)>> =
        places(config, grids).into_iter().map(|place| rope.angles(place)).collect();
    let segments = segments(config, grids);
    for layer in &weights.layers {
        let attended = attention(config, layer, &stream, &angles, &segments);
        add(&mut stream, &attended);
        let mut normed = stream.clone();
        layer.norm2.apply(&mut normed, config.layer_norm_eps);
        let inner = gelu_of(layer.fc1.apply(&normed));
        add(&mut stream, &layer.fc2.apply(&inner));
    }
    let features = project(config, weights, &stream);
    Encoded { tower_out: stream, features }
}

/// Bytes that encoding takes beside the patches, at its fullest, for the largest media that the default sizes make in a
/// context of `max_context` tokens: per patch its angles and its stream, and either the rows of attention, those of the
/// MLP, or those of the projector.
pub fn workspace_bytes(config: &VisionConfig, text_hidden: usize, max_context: usize) -> usize {
    let fitting = max_context.saturating_mul(config.merged_patches());
    let (hidden, patches) = (config.hidden_size, longest_segment(config).min(fitting));
    let angles = AxialRope::new(config).num_pairs() * 8 + size_of::<Vec<(f32, f32)>>() + 12;
    let attention = 6 * hidden;
    let mlp = 2 * hidden + config.intermediate_size;
    let projector = config.projector_hidden_size + text_hidden;
    patches * (angles + 4 * (hidden + attention.max(mlp).max(projector)))
}

/// Projector per patch, then the rows of each merge group side by side through the merge MLP.
fn project(config: &VisionConfig, weights: &VisionWeights, tower_out: &[f32]) -> Vec<f32> {
    let projected = mlp(&weights.projector, tower_out);
    let text_hidden = projected.len() / (tower_out.len() / config.hidden_size);
    // Groups are neighbours already, so side by side is the array itself, read in longer rows.
    debug_assert_eq!(weights.merge[0].num_columns(), config.merged_patches() * text_hidden);
    mlp(&weights.merge, &projected)
}

fn mlp(linears: &[Affine; 2], inputs: &[f32]) -> Vec<f32> {
    linears[1].apply(&gelu_of(linears[0].apply(inputs)))
}

fn attention(
    config: &VisionConfig,
    layer: &VisionLayer,
    stream: &[f32],
    angles: &[Vec<(f32, f32)>],
    segments: &[std::ops::Range<usize>],
) -> Vec<f32> {
    let (hidden, dim) = (config.hidden_size, config.head_dim());
    let mut normed = stream.to_vec();
    layer.norm1.apply(&mut normed, config.layer_norm_eps);
    let rotated = |linear: &Affine| {
        let mut rows = linear.apply(&normed);
        for (row, angles) in rows.chunks_mut(hidden).zip(angles) {
            row.chunks_mut(dim).for_each(|head| Rope::rotate(head, angles));
        }
        rows
    };
    let (queries, keys, values) = (rotated(&layer.query), rotated(&layer.key), layer.value.apply(&normed));
    let mut attended = vec![0.0; stream.len()];
    for segment in segments {
        let rows = segment.start * hidden..segment.end * hidden;
        let (keys, values) = (&keys[rows.clone()], &values[rows.clone()]);
        for_rows(&mut attended[rows], hidden, |row, attended| {
            let queries = &queries[(segment.start + row) * hidden..][..hidden];
            for head in 0..config.num_heads {
                let at = head * dim;
                attend(&queries[at..at + dim], (keys, values), (hidden, at), &mut attended[at..at + dim]);
            }
        });
    }
    layer.output.apply(&attended)
}

/// Softmax attention of one query over all `(keys, values)` of a segment; a head lies `at` in rows of `hidden`.
fn attend(query: &[f32], (keys, values): (&[f32], &[f32]), (hidden, at): (usize, usize), output: &mut [f32]) {
    let scale = 1.0 / (query.len() as f32).sqrt();
    let head = |rows: &[f32], row: usize| rows[row * hidden + at..][..query.len()].to_vec();
    let num_keys = keys.len() / hidden;
    let scores: Vec<f32> = (0..num_keys).map(|key| dot(query, &head(keys, key)) * scale).collect();
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f32> = scores.iter().map(|score| (score - max).exp()).collect();
    let sum: f32 = weights.iter().sum();
    for (row, weight) in weights.iter().enumerate() {
        for (output, value) in output.iter_mut().zip(head(values, row)) {
            *output += weight / sum * value;
        }
    }
}

fn add(stream: &mut [f32], more: &[f32]) {
    stream.iter_mut().zip(more).for_each(|(stream, more)| *stream += more);
}

/// The exact GELU, `x * (1 + erf(x / sqrt 2)) / 2`.
pub fn gelu(value: f32) -> f32 {
    0.5 * value * (1.0 + libm::erff(value * std::f32::consts::FRAC_1_SQRT_2))
}

fn gelu_of(mut values: Vec<f32>) -> Vec<f32> {
    values.iter_mut().for_each(|value| *value = gelu(*value));
    values
}

impl LayerNorm {
    /// Mean 0 and variance 1 per row, then weight and bias.
    pub fn apply(&self, rows: &mut [f32], eps: f32) {
        for_rows(rows, self.weight.len(), |_, row| {
            let count = row.len() as f32;
            let mean = row.iter().sum::<f32>() / count;
            row.iter_mut().for_each(|value| *value -= mean);
            let scale = 1.0 / (dot(row, row) / count + eps).sqrt();
            for ((value, weight), bias) in row.iter_mut().zip(&self.weight).zip(&self.bias) {
                *value = *value * scale * weight + bias;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// M3's own widths: 12,288 patches of the longest segment, whose projector's rows are the widest.
    #[test]
    fn the_workspace_is_that_of_the_longest_segment_that_fits() {
        let config = VisionConfig {
            hidden_size: 1280,
            num_layers: 32,
            num_heads: 16,
            intermediate_size: 5120,
            patch_size: 14,
            temporal_patch_size: 2,
            merge_size: 2,
            num_channels: 3,
            layer_norm_eps: 1e-5,
            rope_theta: 1e4,
            segment_max_frames: 4,
            projector_hidden_size: 6144,
        };
        let per_patch = 39 * 8 + 24 + 12 + 4 * (1280 + 6144 + 6144);
        assert_eq!(workspace_bytes(&config, 6144, 1 << 20), 12_288 * per_patch);
        assert_eq!(workspace_bytes(&config, 6144, 1000), 4000 * per_patch);
    }

    #[test]
    fn gelu_is_the_exact_one() {
        for (value, wanted) in [(0.0, 0.0), (1.0, 0.841_344_8), (-1.0, -0.158_655_25), (-3.0, -0.004_049_69)]
        {
            assert!((gelu(value) - wanted).abs() < 1e-7, "gelu({value}) is {}", gelu(value));
        }
    }

    #[test]
    fn layer_norm_takes_the_mean_out() {
        let norm = LayerNorm { weight: vec![1.0, 2.0], bias: vec![0.5, 0.0] };
        let mut rows = [101.0, 99.0, -5.0, 5.0];
        norm.apply(&mut rows, 0.0);
        assert_eq!(rows, [1.5, -2.0, -0.5, 2.0]);
    }
}
