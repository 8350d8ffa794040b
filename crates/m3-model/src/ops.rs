//! The inner interface: nine fused operations that make a model, and the model made of them.
//!
//! A kernel author implements the nine required functions and has M3; then overrides the widest provided
//! composition (`attention`, `ffn`, `layer`, `forward`) that can be beaten. The compositions never look inside the
//! associated types. One value of the implementing type is one rank: collectives happen inside.
//!
//! **Pending sum.** `attention_out`, `dense_ffn` and `moe_ffn` leave their result in [`Ops::Act`] as a partial sum
//! that is neither reduced over ranks nor added to the residual stream. The norm at the head of the next operation
//! (`attention_in`, the FFNs, `logits`) takes it: reduce, add to the residual, normalise, in one kernel where the
//! device can. Exactly one sum is pending between two operations, none after `embed`.
//!
//! Shapes below: `T` tokens of the batch; heads are the rank's own.

use m3_abi::Output;

use crate::batch::{Batch, RowTable};
use crate::config::{AttentionKind, FfnKind, TextConfig};

/// One rank's operations. All take the whole batch: decode rows and prefill chunks together.
pub trait Ops {
    /// Between layers: residual stream [T, hidden] and the pending sum. May be a handle to workspace.
    type Act;
    /// From `attention_in`: queries [T, heads, head_dim] and, on sparse layers, index queries.
    type Queries;
    /// From `select_blocks`: chosen blocks per token and KV head, ascending.
    type Selection;
    /// From `attend`: [T, heads, head_dim].
    type Attended;
    /// From `logits`: [`Batch::logits`] rows over the (rank's part of the) vocabulary.
    type Logits;
    type Error;

    fn config(&self) -> &TextConfig;

    /// Embedding rows of the tokens, replaced by media rows where the batch says so.
    fn embed(&mut self, batch: &Batch) -> Result<Self::Act, Self::Error>;

    /// Input norm (taking the pending sum), fused q, k, v and index projections, per-head norms, rotation; writes
    /// K, V and, on sparse layers, index-K to the batch's slots.
    fn attention_in(
        &mut self,
        layer: usize,
        batch: &Batch,
        act: &mut Self::Act,
    ) -> Result<Self::Queries, Self::Error>;

    /// Index scores against every visible block, then the best blocks per token and KV head. Sparse layers only.
    fn select_blocks(
        &mut self,
        layer: usize,
        batch: &Batch,
        queries: &Self::Queries,
    ) -> Result<Self::Selection, Self::Error>;

    /// Causal attention over all pages, or over the selected ones.
    fn attend(
        &mut self,
        layer: usize,
        batch: &Batch,
        queries: Self::Queries,
        selection: Option<Self::Selection>,
    ) -> Result<Self::Attended, Self::Error>;

    /// Output projection, left pending.
    fn attention_out(
        &mut self,
        layer: usize,
        batch: &Batch,
        attended: Self::Attended,
        act: &mut Self::Act,
    ) -> Result<(), Self::Error>;

    /// Post-attention norm (taking the pending sum) and the clamped-SwiGLU MLP, left pending.
    fn dense_ffn(&mut self, layer: usize, batch: &Batch, act: &mut Self::Act) -> Result<(), Self::Error>;

    /// Post-attention norm (taking the pending sum), router, routed experts and shared expert, left pending.
    fn moe_ffn(&mut self, layer: usize, batch: &Batch, act: &mut Self::Act) -> Result<(), Self::Error>;

    /// Final norm (taking the pending sum) and head, at the batch's logits positions only.
    fn logits(&mut self, batch: &Batch, act: Self::Act) -> Result<Self::Logits, Self::Error>;

    /// Samples or scores every logits position as [`crate::sampling`] specifies, fills `output` (rank 0) and records
    /// the tokens in `rows`.
    fn sample(
        &mut self,
        batch: &Batch,
        logits: Self::Logits,
        rows: &mut RowTable,
        output: &mut Output,
    ) -> Result<(), Self::Error>;

    /// Called after each layer, so that a backend with taps can keep `layer_out.i`: residual plus pending sum.
    fn layer_done(&mut self, _layer: usize, _act: &Self::Act) -> Result<(), Self::Error> {
        Ok(())
    }

    fn attention(&mut self, layer: usize, batch: &Batch, act: &mut Self::Act) -> Result<(), Self::Error> {
        let queries = self.attention_in(layer, batch, act)?;
        let selection = match self.config().layers[layer].attention {
            AttentionKind::Dense => None,
            AttentionKind::Sparse => Some(self.select_blocks(layer, batch, &queries)?),
        };
        let attended = self.attend(layer, batch, queries, selection)?;
        self.attention_out(layer, batch, attended, act)
    }

    fn ffn(&mut self, layer: usize, batch: &Batch, act: &mut Self::Act) -> Result<(), Self::Error> {
        match self.config().layers[layer].ffn {
            FfnKind::Dense => self.dense_ffn(layer, batch, act),
            FfnKind::Moe => self.moe_ffn(layer, batch, act),
        }
    }

    fn layer(&mut self, layer: usize, batch: &Batch, act: &mut Self::Act) -> Result<(), Self::Error> {
        self.attention(layer, batch, act)?;
        self.ffn(layer, batch, act)?;
        self.layer_done(layer, act)
    }

    /// The whole model over one batch. A batch without tokens does nothing, one without logits
    /// positions only fills pages.
    fn forward(
        &mut self,
        batch: &Batch,
        rows: &mut RowTable,
        output: &mut Output,
    ) -> Result<(), Self::Error> {
        if batch.num_tokens() == 0 {
            return Ok(());
        }
        let mut act = self.embed(batch)?;
        for layer in 0..self.config().layers.len() {
            self.layer(layer, batch, &mut act)?;
        }
        if batch.logits.is_empty() {
            return Ok(());
        }
        let logits = self.logits(batch, act)?;
        self.sample(batch, logits, rows, output)
    }
}
