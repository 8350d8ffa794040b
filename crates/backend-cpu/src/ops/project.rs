//! `attention_in` after its norm: projections, per-head norms, rotation, and what goes into the pages.

#![expect(unsafe_code, reason = "tokens of a step write disjoint slots of the pages")]

use m3_model::batch::Batch;
use m3_model::pages::Lane;
use m3_model::rope::Rope;
use rayon::prelude::*;

use super::CpuOps;
use crate::kernels::matrix::Matrix;
use crate::weights::Indexer;

/// First columns of the parts of a projected row.
struct Columns {
    keys: usize,
    values: usize,
    index_queries: usize,
    index_key: usize,
    width: usize,
}

/// One token's rotation.
type Angles<'a> = &'a [(f32, f32)];

impl CpuOps {
    fn columns(&self, layer: usize) -> Columns {
        let (sizes, dim) = (self.work.sizes, self.config.head_dim);
        let keys = sizes.heads * dim;
        let values = keys + sizes.kv_heads * dim;
        let index_queries = values + sizes.kv_heads * dim;
        let index_dim = self.config.sparse.index_dim;
        let (index_key, width) = match self.model.layers[layer].attention.indexer {
            None => (index_queries, index_queries),
            Some(_) => {
                let index_key = index_queries + sizes.index_heads * index_dim;
                (index_key, index_key + index_dim)
            }
        };
        Columns { keys, values, index_queries, index_key, width }
    }

    /// Queries, keys, values and index vectors of `work.normed`; writes this step's slots of the pages.
    pub(super) fn project(&mut self, layer: usize, batch: &Batch) {
        let columns = self.columns(layer);
        let model = self.model.clone();
        let weights = &model.layers[layer].attention;
        let mut parts: Vec<&Matrix> = vec![&weights.query, &weights.key, &weights.value];
        if let Some(indexer) = &weights.indexer {
            parts.extend([&indexer.query, &indexer.key]);
        }
        self.work.projected.resize(batch.num_tokens() * columns.width, 0.0);
        let rows = self.work.normed.rows(self.config.hidden_size);
        self.kernels.gemm_side_by_side(rows, &parts, &mut self.work.projected);
        self.rotate_queries(layer, batch, &columns);
        self.write_keys(layer, batch, &columns);
        if let Some(indexer) = &weights.indexer {
            self.index_vectors(layer, indexer, batch, &columns);
        }
    }

    /// Norms and rotates the heads of one token in place.
    fn heads(&self, heads: &mut [f32], gain: &[f32], angles: Angles<'_>) {
        for head in heads.chunks_mut(gain.len()) {
            self.kernels.rms_norm(head, gain, self.config.norm_eps);
            Rope::rotate(head, angles);
        }
    }

    fn rotate_queries(&mut self, layer: usize, batch: &Batch, columns: &Columns) {
        let mut queries = std::mem::replace(&mut self.work.queries, crate::buffer::Buffer::empty());
        let this = &*self;
        queries.fill(batch.num_tokens(), columns.keys, |token, row| {
            row.copy_from_slice(&this.work.projected[token * columns.width..][..columns.keys]);
            this.heads(row, &this.model.layers[layer].attention.query_norm, this.work.angles_of(token));
        });
        self.work.queries = queries;
    }

    fn write_keys(&mut self, layer: usize, batch: &Batch, columns: &Columns) {
        let dim = self.config.head_dim;
        let mut projected = std::mem::take(&mut self.work.projected);
        let this = &*self;
        projected.par_chunks_mut(columns.width).zip(&batch.slots).enumerate().for_each(
            |(token, (row, &slot))| {
                let (keys, values) =
                    row[columns.keys..columns.index_queries].split_at_mut(columns.values - columns.keys);
                this.heads(keys, &this.model.layers[layer].attention.key_norm, this.work.angles_of(token));
                for (lane, heads) in [(Lane::K, keys), (Lane::V, values)] {
                    for (head, values) in heads.chunks(dim).enumerate() {
                        // SAFETY: slots of a step are distinct and nothing reads them before this loop has ended.
                        unsafe { this.pool.write(layer, lane, head, slot, values) };
                    }
                }
            },
        );
        self.work.projected = projected;
    }

    fn index_vectors(&mut self, layer: usize, indexer: &Indexer, batch: &Batch, columns: &Columns) {
        let mut queries = std::mem::replace(&mut self.work.index_queries, crate::buffer::Buffer::empty());
        let this = &*self;
        let width = columns.index_key - columns.index_queries;
        queries.fill(batch.num_tokens(), width, |token, row| {
            let projected = &this.work.projected[token * columns.width..][..columns.width];
            row.copy_from_slice(&projected[columns.index_queries..columns.index_key]);
            let angles = this.work.angles_of(token);
            this.heads(row, &indexer.query_norm, angles);
            let mut key = projected[columns.index_key..].to_vec();
            this.heads(&mut key, &indexer.key_norm, angles);
            // SAFETY: as for the keys.
            unsafe { this.pool.write(layer, Lane::IndexK, 0, batch.slots[token], &key) };
        });
        self.work.index_queries = queries;
    }
}
