//! Dense FFN and MoE: SwiGLU MLPs over groups of tokens, summed with weights.
//!
//! Both are lists of parts (an MLP and the tokens it sees): a dense FFN is one part, an MoE layer one part per expert that
//! somebody chose plus the shared expert. One parallel loop makes the inner activations of all parts, a second one the
//! sums; a task of the second owns some output columns and adds its parts in order, so sums do not depend on threads.

#![expect(unsafe_code, reason = "tasks write disjoint columns")]

use m3_abi::Error;
use m3_model::taps::TapPoint;
use rayon::prelude::*;

use super::CpuOps;
use crate::buffer::Precision;
use crate::kernels::convert::round_to_bf16;
use crate::kernels::gemm::{Rows, Tile};
use crate::kernels::matrix::Matrix;
use crate::kernels::swiglu::Swiglu;
use crate::kernels::{SendPtr, with_task_scratch};
use crate::weights::{Ffn, Mlp};

/// An MLP and who goes through it.
struct Part<'a> {
    mlp: &'a Mlp,
    /// Tokens and their weights; `None` = all, with weight 1.
    routed: Option<(&'a [u32], &'a [f32])>,
    num_rows: usize,
    /// First value of this part in `work.inner`.
    offset: usize,
}

impl<'a> Part<'a> {
    fn width(&self) -> usize {
        self.mlp.gate.rows()
    }

    fn inputs(&self, all: Rows<'a>) -> Rows<'a> {
        self.routed.map_or(all, |(tokens, _)| all.pick(tokens))
    }
}

impl CpuOps {
    pub(super) fn run_dense(&mut self, ffn: &Ffn) -> Result<(), Error> {
        let Ffn::Dense(mlp) = ffn else { unreachable!("the layer plan says dense") };
        let num_rows = self.work.normed.values.len() / self.config.hidden_size;
        self.run_parts(&[Part { mlp, routed: None, num_rows, offset: 0 }]);
        Ok(())
    }

    pub(super) fn run_moe(&mut self, layer: usize, ffn: &Ffn) -> Result<(), Error> {
        let Ffn::Moe { router, bias, shared, experts } = ffn else { unreachable!("the layer plan says MoE") };
        self.route(layer, router, bias);
        let num_rows = self.work.normed.values.len() / self.config.hidden_size;
        let routing = std::mem::replace(&mut self.work.routing, super::route::Routing::new(&self.config, 0));
        let mut parts = vec![Part { mlp: shared, routed: None, num_rows, offset: 0 }];
        let mut offset = num_rows * shared.gate.rows();
        for (expert, mlp) in self.model.plan.experts.clone().zip(experts) {
            let group = routing.starts[expert]..routing.starts[expert + 1];
            if group.is_empty() {
                continue;
            }
            let num_rows = group.len();
            let routed = Some((&routing.tokens[group.clone()], &routing.scaled[group]));
            parts.push(Part { mlp, routed, num_rows, offset });
            offset += num_rows * mlp.gate.rows();
        }
        self.run_parts(&parts);
        drop(parts);
        self.work.routing = routing;
        Ok(())
    }

    fn route(&mut self, layer: usize, router: &Matrix, bias: &[f32]) {
        let (experts, per_token) = (self.config.num_experts, self.config.experts_per_token);
        let work = &mut self.work;
        let inputs = Rows { bf16: None, ..work.normed.rows(self.config.hidden_size) };
        let num_tokens = inputs.len;
        work.routing.scores.resize(num_tokens * experts, 0.0);
        self.kernels.gemm(inputs, router, &mut work.routing.scores);
        work.routing.choose(bias, self.config.routed_scaling_factor);
        let routing = &work.routing;
        self.taps.keep(TapPoint::RouterScore(layer), &[num_tokens, experts], || routing.scores.clone());
        self.taps.keep(TapPoint::Routed(layer), &[num_tokens, per_token], || {
            routing.experts.iter().map(|&expert| expert as f32).collect()
        });
        self.taps.keep(TapPoint::RoutedWeights(layer), &[num_tokens, per_token], || routing.weights.clone());
    }

    fn run_parts(&mut self, parts: &[Part<'_>]) {
        let len = parts.iter().map(|part| part.num_rows * part.width()).sum();
        self.work.inner.reset(len);
        let mut inner = std::mem::replace(&mut self.work.inner, crate::buffer::Buffer::empty());
        self.inner_activations(parts, SendPtr(inner.values.as_mut_ptr()), SendPtr(inner.bits.as_mut_ptr()));
        self.work.inner = inner;
        let mut pending = std::mem::take(&mut self.work.pending);
        pending.resize(self.work.residual.len(), 0.0);
        self.sum_parts(parts, &mut pending);
        self.work.pending = pending;
        self.work.has_pending = true;
    }

    /// SwiGLU of gate and up, `[rows, width]` per part.
    fn inner_activations(&self, parts: &[Part<'_>], values: SendPtr<f32>, bits: SendPtr<u16>) {
        let mut tasks = Vec::new();
        for part in parts {
            let chunk = self.kernels.columns_per_task(part.num_rows, &part.mlp.gate);
            tasks.extend((0..part.width()).step_by(chunk).map(|first| (part, first, chunk)));
        }
        let swiglu = Swiglu { alpha: self.config.swiglu_alpha, limit: self.config.swiglu_limit };
        let normed = self.work.normed.rows(self.config.hidden_size);
        tasks.par_iter().with_max_len(1).for_each(|&(part, first, chunk)| {
            let last = (first + chunk).min(part.width());
            let (columns, x) = (last - first, part.inputs(normed));
            with_task_scratch(2 * part.num_rows * columns, |scratch| {
                let (gate, up) = scratch.split_at_mut(part.num_rows * columns);
                for (w, out) in [(&part.mlp.gate, &mut *gate), (&part.mlp.up, &mut *up)] {
                    let out = out.as_mut_ptr();
                    // SAFETY: the scratch holds `num_rows` rows of `columns`.
                    unsafe { self.kernels.gemm_tile(&Tile { x, w, first, last, out, out_stride: columns }) };
                }
                self.kernels.swiglu(gate, up, swiglu);
                for (row, gate) in gate.chunks(columns).enumerate() {
                    let at = part.offset + row * part.width() + first;
                    // SAFETY: these columns of this part belong to this task alone; bits are there in bf16.
                    unsafe {
                        let values = std::slice::from_raw_parts_mut(values.get().add(at), columns);
                        values.copy_from_slice(gate);
                        if self.precision == Precision::Bf16 {
                            round_to_bf16(
                                values,
                                std::slice::from_raw_parts_mut(bits.get().add(at), columns),
                            );
                        }
                    }
                }
            });
        });
    }

    /// `pending[token] = sum over parts of weight * down(inner)`.
    fn sum_parts(&self, parts: &[Part<'_>], pending: &mut [f32]) {
        let hidden = self.config.hidden_size;
        let rows: usize = parts.iter().map(|part| part.num_rows).sum();
        let most = parts.iter().map(|part| part.num_rows).max().unwrap_or(0);
        let chunk = self.kernels.columns_per_task(rows, &parts[0].mlp.down);
        let num_tokens = pending.len() / hidden;
        let out = SendPtr(pending.as_mut_ptr());
        let inner = &self.work.inner;
        (0..hidden.div_ceil(chunk)).into_par_iter().with_max_len(1).for_each(|task| {
            let (first, last) = (task * chunk, ((task + 1) * chunk).min(hidden));
            let columns = last - first;
            let row = |token: usize| {
                // SAFETY: these columns of every row belong to this task alone.
                unsafe { std::slice::from_raw_parts_mut(out.get().add(token * hidden + first), columns) }
            };
            (0..num_tokens).for_each(|token| row(token).fill(0.0));
            with_task_scratch(most * columns, |scratch| {
                for part in parts {
                    let values = part.offset..part.offset + part.num_rows * part.width();
                    let bits = inner.bits().map(|bits| &bits[values.clone()]);
                    let x = Rows::new(&inner.values[values], bits, part.width());
                    let (w, out) = (&part.mlp.down, scratch.as_mut_ptr());
                    // SAFETY: the scratch holds `num_rows` rows of `columns`.
                    unsafe { self.kernels.gemm_tile(&Tile { x, w, first, last, out, out_stride: columns }) };
                    for (index, added) in scratch.chunks(columns).take(part.num_rows).enumerate() {
                        let (token, weight) = match part.routed {
                            None => (index, 1.0),
                            Some((tokens, weights)) => (tokens[index] as usize, weights[index]),
                        };
                        row(token).iter_mut().zip(added).for_each(|(sum, value)| *sum += weight * value);
                    }
                }
            });
        });
    }
}
