//! M3's nine operations on this CPU: one rank, threads of the current rayon pool.
//!
//! Values between operations live in [`Work`], so the associated types of [`Ops`] are empty: each operation reads what the
//! one before left there. The residual stream is f32 in both modes; in bf16 everything that enters a GEMM is rounded
//! once. [`attend`], [`project`], [`select`], [`ffn`], [`route`] and [`head`] hold the operations.

mod attend;
mod ffn;
mod head;
mod project;
mod route;
mod select;
mod work;

use std::collections::HashMap;
use std::sync::Arc;

use m3_abi::{Error, Output};
use m3_model::batch::{Batch, RowTable};
use m3_model::config::TextConfig;
use m3_model::ops::Ops;
use m3_model::rope::Rope;
use m3_model::taps::TapPoint;

use crate::buffer::Precision;
use crate::group::Member;
use crate::kernels::Kernels;
use crate::pages::PagePool;
use crate::taps::Recorder;
use crate::weights::Model;

pub(crate) use work::{Sizes, Work};

/// One rank's model, ready to run.
pub(crate) struct CpuOps {
    pub(crate) config: TextConfig,
    pub(crate) kernels: Kernels,
    pub(crate) precision: Precision,
    pub(crate) model: Arc<Model>,
    pub(crate) pool: Arc<PagePool>,
    /// Peers; `None` alone or when opened solo.
    pub(crate) peers: Option<Member>,
    pub(crate) taps: Recorder,
    pub(crate) rope: Rope,
    pub(crate) work: Work,
    pub(crate) sampling: m3_model::sampling::Scratch,
    /// Encoded media by handle: rows of [hidden], whole on every rank.
    pub(crate) media: HashMap<u64, Vec<f32>>,
}

impl CpuOps {
    /// Reduces what is pending over ranks and adds it to the residual stream.
    fn settle(&mut self) -> Result<(), Error> {
        if !std::mem::take(&mut self.work.has_pending) {
            return Ok(());
        }
        if let Some(peers) = &mut self.peers {
            peers.all_reduce(&mut self.work.pending)?;
        }
        add(&mut self.work.residual, &self.work.pending);
        Ok(())
    }

    /// Settles and norms the residual stream into `work.normed`.
    fn norm_in(&mut self, gain: &[f32]) -> Result<(), Error> {
        self.settle()?;
        let (kernels, hidden, eps) = (self.kernels, self.config.hidden_size, self.config.norm_eps);
        let work = &mut self.work;
        let residual = &work.residual;
        work.normed.fill(residual.len() / hidden, hidden, |row, normed| {
            normed.copy_from_slice(&residual[row * hidden..][..hidden]);
            kernels.rms_norm(normed, gain, eps);
        });
        Ok(())
    }
}

/// `to += from`, in parallel.
fn add(to: &mut [f32], from: &[f32]) {
    use rayon::prelude::*;
    const CHUNK: usize = 16 * 1024;
    to.par_chunks_mut(CHUNK).zip(from.par_chunks(CHUNK)).for_each(|(to, from)| {
        to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
    });
}

impl Ops for CpuOps {
    type Act = ();
    type Queries = ();
    type Selection = ();
    type Attended = ();
    type Logits = ();
    type Error = Error;

    fn config(&self) -> &TextConfig {
        &self.config
    }

    fn embed(&mut self, batch: &Batch) -> Result<(), Error> {
        self.embed_tokens(batch)
    }

    fn attention_in(&mut self, layer: usize, batch: &Batch, _act: &mut ()) -> Result<(), Error> {
        let model = self.model.clone();
        self.norm_in(&model.layers[layer].input_norm)?;
        self.project(layer, batch);
        Ok(())
    }

    fn select_blocks(&mut self, layer: usize, batch: &Batch, _queries: &()) -> Result<(), Error> {
        self.choose_blocks(layer, batch);
        Ok(())
    }

    fn attend(
        &mut self,
        layer: usize,
        batch: &Batch,
        _queries: (),
        selection: Option<()>,
    ) -> Result<(), Error> {
        self.attend_pages(layer, batch, selection.is_some());
        Ok(())
    }

    fn attention_out(
        &mut self,
        layer: usize,
        batch: &Batch,
        _attended: (),
        _act: &mut (),
    ) -> Result<(), Error> {
        let out = &self.model.layers[layer].attention.out;
        let work = &mut self.work;
        work.pending.resize(batch.num_tokens() * self.config.hidden_size, 0.0);
        self.kernels.gemm(work.attended.rows(out.cols()), out, &mut work.pending);
        work.has_pending = true;
        Ok(())
    }

    fn dense_ffn(&mut self, layer: usize, _batch: &Batch, _act: &mut ()) -> Result<(), Error> {
        let model = self.model.clone();
        self.norm_in(&model.layers[layer].post_norm)?;
        self.run_dense(&model.layers[layer].ffn)
    }

    fn moe_ffn(&mut self, layer: usize, _batch: &Batch, _act: &mut ()) -> Result<(), Error> {
        let model = self.model.clone();
        self.norm_in(&model.layers[layer].post_norm)?;
        self.run_moe(layer, &model.layers[layer].ffn)
    }

    fn logits(&mut self, batch: &Batch, _act: ()) -> Result<(), Error> {
        self.final_norm(batch)
    }

    fn sample(
        &mut self,
        batch: &Batch,
        _logits: (),
        rows: &mut RowTable,
        output: &mut Output,
    ) -> Result<(), Error> {
        self.sample_positions(batch, rows, output)
    }

    fn layer_done(&mut self, layer: usize, _act: &()) -> Result<(), Error> {
        if self.taps.is_on() {
            // The same sum that the next norm would take, only earlier; every rank keeps taps or none.
            self.settle()?;
            let (residual, hidden) = (&self.work.residual, self.config.hidden_size);
            self.taps
                .keep(TapPoint::LayerOut(layer), &[residual.len() / hidden, hidden], || residual.clone());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
