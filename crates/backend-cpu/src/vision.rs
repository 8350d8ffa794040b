//! The vision tower on this CPU: patches to rows of the text model, on the threads of the current rayon pool.
//!
//! Everything heavy is a GEMM: the linears through the tuned one, attention through products of its own
//! ([`attend`]). Segments do not see each other, so they are encoded in groups that fill the GEMMs and bound the memory.
//! As in the text model the stream is f32, and in bf16 everything that enters a GEMM is rounded once. A rank encodes
//! whole media and talks to no other rank.

mod attend;
#[cfg(test)]
mod tests;
mod workspace;

use std::ops::Range;

use m3_model::taps::TapPoint;
use m3_model::vision::{AxialRope, places, segments};
use rayon::prelude::*;

use crate::buffer::{Buffer, Precision};
use crate::kernels::Kernels;
use crate::kernels::gemm::Rows;
use crate::taps::Recorder;
use crate::weights::vision::{Affine, Norm, Vision, VisionLayer};

pub(crate) use workspace::Shape;

/// Segments are gathered until they have this many patches: enough rows for the GEMM's best rate.
const GROUP_PATCHES: usize = 2048;
/// Patches that go through an MLP at a time, so that its inner rows stay in cache; a multiple of any merge group.
const MLP_ROWS: usize = 1024;

/// Turns media into rows.
pub(crate) struct Encoder {
    pub(crate) kernels: Kernels,
    pub(crate) precision: Precision,
    pub(crate) vision: Vision,
}

/// What the patches of one group have in common for all layers.
struct Group {
    /// Rows that attend to each other.
    segments: Vec<Range<usize>>,
    /// [patches, pairs]: cosine and sine.
    angles: Vec<(f32, f32)>,
    num_pairs: usize,
}

impl Encoder {
    /// `[rows, text hidden]` of grids that [`m3_model::vision::check_grids`] has passed.
    pub(crate) fn encode(&self, patches: &[f32], grids: &[[u32; 3]], taps: &mut Recorder) -> Vec<f32> {
        let config = &self.vision.config;
        let row_len = config.row_len();
        let places = places(config, grids);
        let mut features = Vec::new();
        for group in groups(segments(config, grids)) {
            let (first, last) = (group[0].start, group[group.len() - 1].end);
            let stream = self.tower(&patches[first * row_len..last * row_len], &places[first..last], group);
            taps.append(TapPoint::TowerOut, config.hidden_size, &stream);
            features.extend(self.project(&stream));
        }
        taps.append(TapPoint::Features, self.vision.text_hidden, &features);
        features
    }

    /// Output of the last layer.
    fn tower(&self, patches: &[f32], places: &[[u32; 3]], mut segments: Vec<Range<usize>>) -> Vec<f32> {
        let (config, vision) = (&self.vision.config, &self.vision);
        let first = segments[0].start;
        segments.iter_mut().for_each(|segment| *segment = segment.start - first..segment.end - first);
        let rope = AxialRope::new(config);
        let mut angles = Vec::with_capacity(places.len() * rope.num_pairs());
        places.iter().for_each(|&place| angles.extend(rope.angles(place)));
        let group = Group { segments, angles, num_pairs: rope.num_pairs() };
        let (hidden, num_patches) = (config.hidden_size, places.len());
        let row_len = config.row_len();
        let mut rows = self.buffer();
        rows.fill(num_patches, row_len, |row, out| out.copy_from_slice(&patches[row * row_len..][..row_len]));
        let mut stream = vec![0.0; num_patches * hidden];
        self.kernels.gemm(rows.rows(row_len), &vision.patch, &mut stream);
        drop(rows);
        let (norm, eps) = (&vision.pre_norm, config.layer_norm_eps);
        stream.par_chunks_mut(hidden).for_each(|row| {
            self.kernels.layer_norm(row, &norm.weight, &norm.bias, eps);
        });
        let mut normed = self.buffer();
        for layer in &vision.layers {
            self.norm_into(&stream, &layer.norm1, &mut normed);
            let attended = self.attention(layer, &normed, &group);
            self.add_linear(attended.rows(hidden), &layer.out, &mut stream);
            self.norm_into(&stream, &layer.norm2, &mut normed);
            self.mlp(layer, &normed, &mut stream);
        }
        stream
    }

    fn buffer(&self) -> Buffer {
        Buffer::new(self.precision, 0)
    }

    fn norm_into(&self, stream: &[f32], norm: &Norm, normed: &mut Buffer) {
        let (hidden, eps) = (norm.weight.len(), self.vision.config.layer_norm_eps);
        normed.fill(stream.len() / hidden, hidden, |row, out| {
            out.copy_from_slice(&stream[row * hidden..][..hidden]);
            self.kernels.layer_norm(out, &norm.weight, &norm.bias, eps);
        });
    }

    /// `stream += x W^T + b`.
    fn add_linear(&self, inputs: Rows<'_>, linear: &Affine, stream: &mut [f32]) {
        let mut out = vec![0.0; stream.len()];
        self.kernels.gemm(inputs, &linear.weight, &mut out);
        let width = linear.bias.len();
        stream.par_chunks_mut(width).zip(out.par_chunks(width)).for_each(|(stream, out)| {
            stream.iter_mut().zip(out).zip(&linear.bias).for_each(|((to, from), bias)| *to += from + bias);
        });
    }

    fn mlp(&self, layer: &VisionLayer, normed: &Buffer, stream: &mut [f32]) {
        let hidden = self.vision.config.hidden_size;
        let rows = normed.rows(hidden);
        let mut inner = self.buffer();
        for (block, stream) in stream.chunks_mut(MLP_ROWS * hidden).enumerate() {
            let first = block * MLP_ROWS;
            let inputs = rows.range(first, first + stream.len() / hidden);
            self.activated(inputs, &layer.fc1, &mut inner);
            self.add_linear(inner.rows(layer.fc1.bias.len()), &layer.fc2, stream);
        }
    }

    /// `gelu(x W^T + b)`, rounded.
    fn activated(&self, inputs: Rows<'_>, linear: &Affine, out: &mut Buffer) {
        let width = linear.bias.len();
        out.reset(inputs.len * width);
        self.kernels.gemm(inputs, &linear.weight, &mut out.values);
        out.fill(inputs.len, width, |_, row| self.kernels.gelu(row, &linear.bias));
    }

    /// `gelu(x W1^T + b1) W2^T + b2`, rounded.
    fn two_linears(&self, inputs: Rows<'_>, linears: &[Affine; 2]) -> Buffer {
        let (mut inner, mut out) = (self.buffer(), self.buffer());
        self.activated(inputs, &linears[0], &mut inner);
        let width = linears[1].bias.len();
        out.reset(inputs.len * width);
        self.kernels.gemm(inner.rows(linears[0].bias.len()), &linears[1].weight, &mut out.values);
        out.fill(inputs.len, width, |_, row| {
            row.iter_mut().zip(&linears[1].bias).for_each(|(value, bias)| *value += bias);
        });
        out
    }

    /// Projector, then the merge MLP over the patches of each group side by side: they are neighbours already.
    fn project(&self, stream: &[f32]) -> Vec<f32> {
        let (config, text_hidden) = (&self.vision.config, self.vision.text_hidden);
        let (hidden, merged) = (config.hidden_size, config.merged_patches());
        let block = MLP_ROWS.next_multiple_of(merged);
        let mut features = Vec::with_capacity(stream.len() / hidden / merged * text_hidden);
        for stream in stream.chunks(block * hidden) {
            let mut rows = self.buffer();
            rows.fill(stream.len() / hidden, hidden, |row, out| {
                out.copy_from_slice(&stream[row * hidden..][..hidden]);
            });
            let projected = self.two_linears(rows.rows(hidden), &self.vision.projector);
            let mut merge = self.two_linears(projected.rows(merged * text_hidden), &self.vision.merge);
            features.append(&mut merge.values);
        }
        features
    }
}

/// Neighbouring segments, together.
fn groups(segments: Vec<Range<usize>>) -> Vec<Vec<Range<usize>>> {
    let mut groups: Vec<Vec<Range<usize>>> = Vec::new();
    for segment in segments {
        match groups.last_mut() {
            Some(group) if segment.end - group[0].start <= GROUP_PATCHES => group.push(segment),
            _ => groups.push(vec![segment]),
        }
    }
    groups
}
