//! The nine operations, one after the other as the specification has them.

use std::collections::HashMap;

use m3_abi::{Error, Output, Tap};

use crate::batch::{Batch, RowTable};
use crate::config::TextConfig;
use crate::ops::Ops;
use crate::pages::Lane;
use crate::rope::Rope;
use crate::sampling;
use crate::taps::TapPoint;

use super::linear::Linear;
use super::math::{for_rows, gemma_norm};
use super::msa::{Place, attend, block_scores, select};
use super::store::PageStore;
use super::weights::{Ffn, Weights};

/// One rank, the only one.
pub struct ReferenceModel {
    config: TextConfig,
    pub weights: Weights,
    pub store: PageStore,
    /// Encoded media by handle: rows of [hidden].
    pub media: HashMap<u64, Vec<f32>>,
    /// Points of the last step, until somebody takes them; `None` when nobody will ask.
    pub taps: Option<HashMap<TapPoint, Tap>>,
    rope: Rope,
    scratch: sampling::Scratch,
}

/// Residual stream and the result not yet added to it, both [T, hidden].
pub struct Act {
    residual: Vec<f32>,
    pending: Option<Vec<f32>>,
}

/// What a layer asks the pages.
pub struct Queries {
    /// [T, heads, head_dim].
    main: Vec<f32>,
    /// [T, index heads, index_dim]; empty on dense layers.
    index: Vec<f32>,
}

/// Chosen blocks, ascending: entry `token x index heads + head`.
pub type Selection = Vec<Vec<usize>>;

impl Act {
    /// Adds what is pending and hands out the normed stream.
    fn norm(&mut self, weight: &[f32], eps: f32) -> Vec<f32> {
        if let Some(pending) = self.pending.take() {
            self.residual.iter_mut().zip(pending).for_each(|(residual, pending)| *residual += pending);
        }
        let mut normed = self.residual.clone();
        normed.chunks_mut(weight.len()).for_each(|row| gemma_norm(row, weight, eps));
        normed
    }
}

impl ReferenceModel {
    pub fn new(config: TextConfig, weights: Weights, store: PageStore, with_taps: bool) -> Self {
        let rope = Rope::new(config.rope_theta, config.rotary_dim);
        let taps = with_taps.then(HashMap::new);
        ReferenceModel {
            config,
            weights,
            store,
            media: HashMap::new(),
            taps,
            rope,
            scratch: Default::default(),
        }
    }

    fn tap(&mut self, point: TapPoint, shape: &[usize], data: impl FnOnce() -> Vec<f32>) {
        if let Some(taps) = &mut self.taps {
            let shape = shape.iter().map(|&size| size as u64).collect();
            taps.insert(point, Tap { shape, data: data() });
        }
    }

    /// Projection, per-head norm, rotation: [T, hidden] -> [T, heads, dim].
    fn rotated(&self, inputs: &[f32], linear: &Linear, norm: &[f32], batch: &Batch) -> Vec<f32> {
        let mut heads = linear.apply(inputs);
        for (row, &position) in heads.chunks_mut(linear.num_rows()).zip(&batch.positions) {
            let angles = self.rope.angles(position);
            for head in row.chunks_mut(norm.len()) {
                gemma_norm(head, norm, self.config.norm_eps);
                Rope::rotate(head, &angles);
            }
        }
        heads
    }

    fn write_lane(&mut self, batch: &Batch, layer: usize, lane: Lane, heads: &[f32]) {
        let width = heads.len() / batch.num_tokens();
        for (&slot, heads) in batch.slots.iter().zip(heads.chunks(width)) {
            self.store.write(slot, layer, lane, heads);
        }
    }

    fn tap_selection(&mut self, layer: usize, scores: &[Vec<f32>], selection: &Selection) {
        let (num_heads, topk) = (self.config.sparse.num_index_heads, self.config.sparse.topk_blocks);
        let num_tokens = scores.len() / num_heads;
        let num_blocks = scores.iter().map(Vec::len).max().unwrap_or(0);
        let by_head =
            || (0..num_heads).flat_map(|head| (0..num_tokens).map(move |token| token * num_heads + head));
        self.tap(TapPoint::BlockScore(layer), &[num_heads, num_tokens, num_blocks], || {
            by_head().flat_map(|entry| padded(&scores[entry], num_blocks, f32::NEG_INFINITY)).collect()
        });
        let ids = |entry: usize| selection[entry].iter().map(|&block| block as f32).collect::<Vec<_>>();
        self.tap(TapPoint::Selected(layer), &[num_heads, num_tokens, topk], || {
            by_head().flat_map(|entry| padded(&ids(entry), topk, -1.0)).collect()
        });
    }
}

impl Ops for ReferenceModel {
    type Act = Act;
    type Queries = Queries;
    type Selection = Selection;
    type Attended = Vec<f32>;
    type Logits = Vec<f32>;
    type Error = Error;

    fn config(&self) -> &TextConfig {
        &self.config
    }

    fn embed(&mut self, batch: &Batch) -> Result<Act, Error> {
        let hidden = self.config.hidden_size;
        let row = |&token: &u32| &self.weights.embedding[token as usize * hidden..][..hidden];
        let mut residual: Vec<f32> = batch.token_ids.iter().flat_map(row).copied().collect();
        for span in &batch.media {
            let Some(rows) = self.media.get(&span.handle) else {
                return Err(Error::Fatal(format!("media handle {} does not exist", span.handle)));
            };
            let (first, end) = (span.first_row as usize, span.first_row as usize + span.len);
            let Some(rows) = rows.get(first * hidden..end * hidden) else {
                let (handle, len) = (span.handle, rows.len() / hidden);
                let rows = format!("rows {first}..{end} of media {handle} reach beyond its {len}");
                return Err(Error::Fatal(rows));
            };
            residual[span.token * hidden..][..rows.len()].copy_from_slice(rows);
        }
        Ok(Act { residual, pending: None })
    }

    fn attention_in(&mut self, layer: usize, batch: &Batch, act: &mut Act) -> Result<Queries, Error> {
        let normed = act.norm(&self.weights.layers[layer].input_norm, self.config.norm_eps);
        let weights = &self.weights.layers[layer].attention;
        let main = self.rotated(&normed, &weights.query, &weights.query_norm, batch);
        let keys = self.rotated(&normed, &weights.key, &weights.key_norm, batch);
        let values = weights.value.apply(&normed);
        let index = weights.index.as_ref().map(|index| {
            let queries = self.rotated(&normed, &index.query, &index.query_norm, batch);
            (queries, self.rotated(&normed, &index.key, &index.key_norm, batch))
        });
        self.write_lane(batch, layer, Lane::K, &keys);
        self.write_lane(batch, layer, Lane::V, &values);
        let (index, index_keys) = index.unwrap_or_default();
        if !index_keys.is_empty() {
            self.write_lane(batch, layer, Lane::IndexK, &index_keys);
        }
        Ok(Queries { main, index })
    }

    fn select_blocks(&mut self, layer: usize, batch: &Batch, queries: &Queries) -> Result<Selection, Error> {
        let (num_heads, dim) = (self.config.sparse.num_index_heads, self.config.sparse.index_dim);
        let block_size = self.config.sparse.block_size;
        let num_blocks = batch.seqs.iter().map(|seq| seq.pages.len()).max().unwrap_or(0);
        // Filled by threads: [T x index heads, blocks], of which a token's first `position / block_size + 1` count.
        let mut scores = vec![0.0; batch.num_tokens() * num_heads * num_blocks];
        for_rows(&mut scores, num_heads * num_blocks, |token, scores| {
            let pages = batch.pages_of(&batch.seqs[batch.seq_of[token] as usize]);
            let keys = self.store.blocks(layer, Lane::IndexK, 0, pages);
            let queries = queries.index[token * num_heads * dim..][..num_heads * dim].chunks(dim);
            for (query, scores) in queries.zip(scores.chunks_mut(num_blocks)) {
                let found = block_scores(query, &keys, batch.positions[token] as usize, block_size);
                scores[..found.len()].copy_from_slice(&found);
            }
        });
        let visible = |entry: usize| batch.positions[entry / num_heads] as usize / block_size + 1;
        let scores: Vec<Vec<f32>> = scores
            .chunks(num_blocks)
            .enumerate()
            .map(|(entry, row)| row[..visible(entry)].to_vec())
            .collect();
        let selection = scores.iter().map(|scores| select(scores, &self.config.sparse)).collect();
        self.tap_selection(layer, &scores, &selection);
        Ok(selection)
    }

    fn attend(
        &mut self,
        layer: usize,
        batch: &Batch,
        queries: Queries,
        selection: Option<Selection>,
    ) -> Result<Vec<f32>, Error> {
        let (dim, num_heads, num_kv_heads) =
            (self.config.head_dim, self.config.num_heads, self.config.num_kv_heads);
        let block_size = self.config.sparse.block_size;
        let mut attended = vec![0.0; queries.main.len()];
        for_rows(&mut attended, num_heads * dim, |token, attended| {
            let pages = batch.pages_of(&batch.seqs[batch.seq_of[token] as usize]);
            let place = Place { position: batch.positions[token] as usize, block_size };
            let visible: Vec<usize> = (0..place.position / block_size + 1).collect();
            let queries = queries.main[token * num_heads * dim..].chunks(dim);
            for (head, (query, output)) in queries.zip(attended.chunks_mut(dim)).enumerate() {
                let kv_head = head / (num_heads / num_kv_heads);
                let keys = self.store.blocks(layer, Lane::K, kv_head, pages);
                let values = self.store.blocks(layer, Lane::V, kv_head, pages);
                // One index head per KV head.
                let chosen = selection.as_ref().map(|chosen| &chosen[token * num_kv_heads + kv_head]);
                attend(query, &keys, &values, chosen.unwrap_or(&visible), place, output);
            }
        });
        Ok(attended)
    }

    fn attention_out(
        &mut self,
        layer: usize,
        _batch: &Batch,
        attended: Vec<f32>,
        act: &mut Act,
    ) -> Result<(), Error> {
        act.pending = Some(self.weights.layers[layer].attention.output.apply(&attended));
        Ok(())
    }

    fn dense_ffn(&mut self, layer: usize, _batch: &Batch, act: &mut Act) -> Result<(), Error> {
        let weights = &self.weights.layers[layer];
        let Ffn::Dense(mlp) = &weights.ffn else {
            return Err(Error::Fatal(format!("layer {layer} has no dense FFN")));
        };
        let normed = act.norm(&weights.post_attention_norm, self.config.norm_eps);
        act.pending = Some(mlp.apply(&normed, &self.config));
        Ok(())
    }

    fn moe_ffn(&mut self, layer: usize, batch: &Batch, act: &mut Act) -> Result<(), Error> {
        let weights = &self.weights.layers[layer];
        let Ffn::Moe(moe) = &weights.ffn else {
            return Err(Error::Fatal(format!("layer {layer} has no experts")));
        };
        let normed = act.norm(&weights.post_attention_norm, self.config.norm_eps);
        let routing = moe.route(&normed, &self.config);
        act.pending = Some(moe.apply(&normed, &routing, &self.config));
        let (num_tokens, count) = (batch.num_tokens(), self.config.experts_per_token);
        self.tap(TapPoint::RouterScore(layer), &[num_tokens, self.config.num_experts], || {
            routing.iter().flat_map(|token| token.scores.iter().copied()).collect()
        });
        self.tap(TapPoint::Routed(layer), &[num_tokens, count], || {
            routing.iter().flat_map(|token| token.experts.iter().map(|&expert| expert as f32)).collect()
        });
        self.tap(TapPoint::RoutedWeights(layer), &[num_tokens, count], || {
            routing.iter().flat_map(|token| token.weights.iter().copied()).collect()
        });
        Ok(())
    }

    fn logits(&mut self, batch: &Batch, act: Act) -> Result<Vec<f32>, Error> {
        let hidden = self.config.hidden_size;
        let gather = |values: &[f32]| -> Vec<f32> {
            batch
                .logits
                .iter()
                .flat_map(|position| &values[position.token * hidden..][..hidden])
                .copied()
                .collect()
        };
        let mut wanted = Act { residual: gather(&act.residual), pending: act.pending.as_deref().map(gather) };
        let normed = wanted.norm(&self.weights.norm, self.config.norm_eps);
        let logits = self.weights.head.apply(&normed);
        let (count, vocab_size) = (batch.logits.len(), self.config.vocab_size);
        self.tap(TapPoint::Logits, &[count, vocab_size], || logits.clone());
        self.tap(TapPoint::Hidden, &[count, hidden], || normed);
        Ok(logits)
    }

    fn sample(
        &mut self,
        batch: &Batch,
        logits: Vec<f32>,
        rows: &mut RowTable,
        output: &mut Output,
    ) -> Result<(), Error> {
        for (index, logits) in logits.chunks(self.config.vocab_size).enumerate() {
            sampling::fill_slot(batch, index, logits, rows, output, &mut self.scratch);
        }
        Ok(())
    }

    fn layer_done(&mut self, layer: usize, act: &Act) -> Result<(), Error> {
        let hidden = self.config.hidden_size;
        let num_tokens = act.residual.len() / hidden;
        self.tap(TapPoint::LayerOut(layer), &[num_tokens, hidden], || match &act.pending {
            Some(pending) => {
                act.residual.iter().zip(pending).map(|(residual, pending)| residual + pending).collect()
            }
            None => act.residual.clone(),
        });
        Ok(())
    }
}

/// `values`, then `fill` up to `len`.
fn padded(values: &[f32], len: usize, fill: f32) -> Vec<f32> {
    let mut values = values.to_vec();
    values.resize(len, fill);
    values
}
