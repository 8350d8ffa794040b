//! Projection, norms, rotation and pages; block choice; attention over all pages or the chosen ones.
//!
//! Short sequences and chunks take different kernels over disjoint tokens of the same buffers.

use m3_abi::Result;
use m3_gpu::launch::DevicePointer;
use m3_model::config::AttentionKind;
use m3_model::taps::TapPoint;

use super::work::{at, score_stride};
use super::{Rank, blocks, launched};
use crate::kernels::{
    DenseAttendDecodeArguments, DenseAttendPrefill, DenseAttendPrefillArguments, DenseMergeArguments,
    IndexScoreDecodeArguments, IndexScorePrefill, IndexScorePrefillArguments, NormRopeStoreArguments,
    NormRopeStoreVariant, SelectBlocksArguments, SelectBlocksVariant, SparseAttendDecode,
    SparseAttendDecodeArguments, SparseAttendPrefill, SparseAttendPrefillArguments, SparseCount,
    SparseCountArguments, SparseFill, SparseFillArguments, SparseMergeDecode, SparseMergeDecodeArguments,
    SparseMergePrefill, SparseMergePrefillArguments, SparseOffsetsArguments,
};
use crate::weights::Matrix;
use crate::weights::place::Layer;

/// Blocks that a decode launch should have: four for each multiprocessor of an H200.
const WANTED_BLOCKS: usize = 528;
/// The same for attention over whole contexts, whose programs wait longer for memory.
const WANTED_DENSE_BLOCKS: usize = 1056;
/// Blocks that a prefill launch over block lists should have.
const WANTED_LIST_BLOCKS: usize = 2048;
/// Entries from one list's counter to the next: a line of the cache.
const MOST_SPREAD: usize = 32;
/// Tokens from which the rotation takes several at once.
const MANY_TOKENS: usize = 32;

impl Rank {
    /// Fused projection of `normed`; queries to their buffers, keys and values to the pages.
    pub(super) fn project(&mut self, layer: usize, weights: &Layer<Matrix>) -> Result<()> {
        let (buffers, dims, tokens) = (self.work.buffers, &self.dims, self.run.counts.tokens);
        self.gemm(buffers.normed.pointer, &weights.projection, buffers.projected.pointer, tokens)?;
        let pages = self.pages.layer(layer);
        let norms = weights.index_norms;
        let index_heads = if norms.is_some() { dims.index_heads } else { 0 };
        let variant =
            if tokens < MANY_TOKENS { NormRopeStoreVariant::Few } else { NormRopeStoreVariant::Many };
        let or_null = |pointer: Option<DevicePointer>| pointer.unwrap_or(DevicePointer::NULL);
        let arguments = NormRopeStoreArguments {
            qkv: buffers.projected.pointer,
            angles: buffers.angles.pointer,
            slots: self.run.arrays.slots,
            query_norm: weights.query_norm.values,
            key_norm: weights.key_norm.values,
            index_query_norm: or_null(norms.map(|norms| norms.query.values)),
            index_key_norm: or_null(norms.map(|norms| norms.key.values)),
            queries: buffers.queries.pointer,
            index_queries: buffers.index_queries.pointer,
            k_pages: pages.keys,
            v_pages: pages.values,
            index_k_pages: pages.index_keys,
            tokens: tokens as i32,
            query_heads: dims.heads as i32,
            kv_heads: dims.kv_heads as i32,
            index_heads: index_heads as i32,
            eps: self.config.norm_eps,
        };
        let heads = dims.projected(self.config.layers[layer].attention) / dims.head_dim;
        let grid = [blocks(tokens, variant.block_t()), heads as u32, 1];
        launched(self.kernels.norm_rope_store.launch(&self.queue(), grid, variant, &arguments))
    }

    /// Index scores and the best blocks of every token, into `selected`.
    pub(super) fn choose_blocks(&mut self, layer: usize) -> Result<()> {
        let score_all = i32::from(self.taps.is_on());
        if self.run.counts.chunks > 0 {
            self.score_chunks(layer, score_all)?;
            // Over all tokens, because addresses of parts need not be aligned; those of short sequences come next.
            let stride = score_stride(self.run.counts.tokens, &self.dims);
            let scores = self.work.buffers.chunk_scores.pointer;
            self.select(scores, self.run.counts.tokens, 1, stride)?;
        }
        if self.run.short > 0 {
            self.score_short(layer, score_all)?;
            let scores = self.work.buffers.short_scores.pointer;
            self.select(scores, self.run.short, self.work.sizes.max_pages, 1)?;
        }
        self.tap_choice(layer)
    }

    fn score_chunks(&self, layer: usize, score_all: i32) -> Result<()> {
        let (run, arrays, buffers) = (&self.run, &self.run.arrays, &self.work.buffers);
        let rows = run.longest * self.dims.index_heads;
        let grid = [
            blocks(rows, IndexScorePrefill::BLOCK_M),
            blocks(run.chunk_pages, IndexScorePrefill::BLOCKS),
            run.counts.chunks as u32,
        ];
        let arguments = IndexScorePrefillArguments {
            index_queries: buffers.index_queries.pointer,
            index_k_pages: self.pages.as_rows(self.pages.layer(layer).index_keys, 1, self.dims.index_dim),
            page_table: buffers.page_table.pointer,
            seq_row: arrays.chunk_row,
            seq_first_token: arrays.chunk_first_token,
            seq_len: arrays.chunk_len,
            seq_first_position: arrays.chunk_first_position,
            scores: buffers.chunk_scores.pointer,
            table_stride: self.table_stride(),
            score_stride: score_stride(run.counts.tokens, &self.dims) as i32,
            score_all,
        };
        launched(self.kernels.index_score_prefill.launch(&self.queue(), grid, &arguments))
    }

    fn score_short(&self, layer: usize, score_all: i32) -> Result<()> {
        let (run, buffers) = (&self.run, &self.work.buffers);
        let splits = WANTED_BLOCKS.div_ceil(run.short).clamp(1, run.short_pages);
        let arguments = IndexScoreDecodeArguments {
            index_queries: buffers.index_queries.pointer,
            index_k_pages: self.pages.layer(layer).index_keys,
            page_table: buffers.page_table.pointer,
            token_row: run.arrays.token_row,
            positions: run.arrays.positions,
            scores: buffers.short_scores.pointer,
            table_stride: self.table_stride(),
            score_stride: self.work.sizes.max_pages as i32,
            score_all,
        };
        let grid = [run.short as u32, splits as u32, 1];
        launched(self.kernels.index_score_decode.launch(&self.queue(), grid, &arguments))
    }

    fn select(
        &self,
        scores: DevicePointer,
        tokens: usize,
        row_stride: usize,
        block_stride: usize,
    ) -> Result<()> {
        let rows = tokens * self.dims.index_heads;
        let pages = self.run.chunk_pages.max(self.run.short_pages);
        let many = rows >= 1024 && pages <= SelectBlocksVariant::Many.widest() as usize;
        let variant = if many { SelectBlocksVariant::Many } else { SelectBlocksVariant::Few };
        let arguments = SelectBlocksArguments {
            scores,
            positions: self.run.arrays.positions,
            selected: self.work.buffers.selected.pointer,
            tokens: tokens as i32,
            row_stride: row_stride as i64,
            block_stride: block_stride as i64,
            init_blocks: self.dims.init_blocks as i32,
            local_blocks: self.dims.local_blocks as i32,
        };
        let grid = [blocks(rows, variant.rows()), 1, 1];
        launched(self.kernels.select_blocks.launch(&self.queue(), grid, variant, &arguments))
    }

    /// Over every page, into `attended`.
    pub(super) fn attend_all(&mut self, layer: usize) -> Result<()> {
        if self.run.counts.chunks > 0 {
            self.attend_all_chunks(layer)?;
        }
        if self.run.short > 0 {
            self.attend_all_short(layer)?;
        }
        Ok(())
    }

    fn attend_all_chunks(&self, layer: usize) -> Result<()> {
        let (run, arrays, buffers) = (&self.run, &self.run.arrays, &self.work.buffers);
        let pages = self.pages.layer(layer);
        let (heads, dim) = (self.dims.kv_heads, self.dims.head_dim);
        let arguments = DenseAttendPrefillArguments {
            queries: buffers.queries.pointer,
            k_pages: self.pages.as_rows(pages.keys, heads, dim),
            v_pages: self.pages.as_rows(pages.values, heads, dim),
            page_table: buffers.page_table.pointer,
            seq_row: arrays.chunk_row,
            seq_first_token: arrays.chunk_first_token,
            seq_len: arrays.chunk_len,
            seq_first_position: arrays.chunk_first_position,
            out: buffers.attended.pointer,
            table_stride: self.table_stride(),
        };
        let grid = [
            blocks(run.longest * self.dims.group(), DenseAttendPrefill::BLOCK_M),
            self.dims.kv_heads as u32,
            run.counts.chunks as u32,
        ];
        launched(self.kernels.dense_attend_prefill.launch(&self.queue(), grid, &arguments))
    }

    fn attend_all_short(&self, layer: usize) -> Result<()> {
        let (run, buffers, dims) = (&self.run, &self.work.buffers, &self.dims);
        let pages = self.pages.layer(layer);
        let max_runs = self.work.sizes.max_runs;
        let arguments = DenseAttendDecodeArguments {
            queries: buffers.queries.pointer,
            k_pages: pages.keys,
            v_pages: pages.values,
            page_table: buffers.page_table.pointer,
            token_row: run.arrays.token_row,
            positions: run.arrays.positions,
            partial: buffers.short_partial.pointer,
            partial_lse: buffers.short_lse.pointer,
            table_stride: self.table_stride(),
            max_runs: max_runs as i32,
        };
        // The grid does not change results: programs take runs in turn.
        let programs =
            WANTED_DENSE_BLOCKS.div_ceil(run.short * dims.kv_heads).clamp(1, max_runs.min(run.short_pages));
        let grid = [run.short as u32, dims.kv_heads as u32, programs as u32];
        launched(self.kernels.dense_attend_decode.launch(&self.queue(), grid, &arguments))?;
        let arguments = DenseMergeArguments {
            partial: buffers.short_partial.pointer,
            partial_lse: buffers.short_lse.pointer,
            positions: run.arrays.positions,
            out: buffers.attended.pointer,
            max_runs: max_runs as i32,
        };
        let grid = [run.short as u32, dims.heads as u32, 1];
        launched(self.kernels.dense_merge.launch(&self.queue(), grid, &arguments))
    }

    /// Over the chosen pages, into `attended`.
    pub(super) fn attend_chosen(&mut self, layer: usize) -> Result<()> {
        if self.run.counts.chunks > 0 {
            self.list_tokens_of_blocks()?;
            self.attend_chosen_chunks(layer)?;
        }
        if self.run.short > 0 {
            self.attend_chosen_short(layer)?;
        }
        Ok(())
    }

    /// Turns the selection around: which tokens want a block.
    fn list_tokens_of_blocks(&self) -> Result<()> {
        let (run, arrays, buffers) = (&self.run, &self.run.arrays, &self.work.buffers);
        let (kv_heads, batch) = (self.dims.kv_heads, run.counts.chunks);
        // Counters stand as far apart as the buffer allows for this step's lists.
        let counters = buffers.item_counts.bytes as usize / size_of::<i32>();
        let spread = (counters / (kv_heads * run.items).max(1)).clamp(1, MOST_SPREAD);
        let grid = |each| [blocks(run.longest, each), kv_heads as u32, batch as u32];
        let arguments = SparseCountArguments {
            selected: buffers.selected.pointer,
            seq_first_token: arrays.chunk_first_token,
            seq_len: arrays.chunk_len,
            seq_first_item: arrays.chunk_first_item,
            counts: buffers.item_counts.pointer,
            ranks: buffers.item_ranks.pointer,
            partial_lse: buffers.chunk_lse.pointer,
            kv_heads: kv_heads as i32,
            batch: batch as i32,
            spread: spread as i32,
        };
        launched(self.kernels.sparse_count.launch(&self.queue(), grid(SparseCount::BLOCK_T), &arguments))?;
        let arguments = SparseOffsetsArguments {
            counts: buffers.item_counts.pointer,
            offsets: buffers.item_offsets.pointer,
            items: (kv_heads * run.items) as i32,
            spread: spread as i32,
        };
        launched(self.kernels.sparse_offsets.launch(&self.queue(), [1, 1, 1], &arguments))?;
        let arguments = SparseFillArguments {
            selected: buffers.selected.pointer,
            ranks: buffers.item_ranks.pointer,
            offsets: buffers.item_offsets.pointer,
            seq_first_token: arrays.chunk_first_token,
            seq_len: arrays.chunk_len,
            seq_first_item: arrays.chunk_first_item,
            entries: buffers.item_entries.pointer,
            kv_heads: kv_heads as i32,
            batch: batch as i32,
        };
        launched(self.kernels.sparse_fill.launch(&self.queue(), grid(SparseFill::BLOCK_T), &arguments))
    }

    fn attend_chosen_chunks(&self, layer: usize) -> Result<()> {
        let (run, arrays, buffers, dims) = (&self.run, &self.run.arrays, &self.work.buffers, &self.dims);
        let pages = self.pages.layer(layer);
        let arguments = SparseAttendPrefillArguments {
            queries: buffers.queries.pointer,
            k_pages: pages.keys,
            v_pages: pages.values,
            page_table: buffers.page_table.pointer,
            seq_row: arrays.chunk_row,
            seq_first_token: arrays.chunk_first_token,
            seq_len: arrays.chunk_len,
            seq_first_position: arrays.chunk_first_position,
            seq_first_item: arrays.chunk_first_item,
            offsets: buffers.item_offsets.pointer,
            entries: buffers.item_entries.pointer,
            partial: buffers.chunk_partial.pointer,
            partial_lse: buffers.chunk_lse.pointer,
            table_stride: self.table_stride(),
            kv_heads: dims.kv_heads as i32,
            batch: run.counts.chunks as i32,
        };
        let most_parts = blocks(run.longest * dims.group(), SparseAttendPrefill::ROWS) as usize;
        let whole = run.chunk_pages * dims.kv_heads * run.counts.chunks;
        // A program loads its block once, so it should see 4 to 8 tiles of an average list.
        let tiles =
            run.longest * dims.topk * dims.group() / (SparseAttendPrefill::ROWS as usize * run.chunk_pages);
        let parts = (tiles / 8).max((tiles / 4).min(WANTED_LIST_BLOCKS / whole)).clamp(1, most_parts);
        let grid = [run.chunk_pages as u32, (dims.kv_heads * parts) as u32, run.counts.chunks as u32];
        launched(self.kernels.sparse_attend_prefill.launch(&self.queue(), grid, &arguments))?;
        // Tokens of chunks stand behind those of short sequences.
        let (heads, first) = (dims.heads, run.short * dims.heads);
        let rows = (run.counts.tokens - run.short) * heads;
        let arguments = SparseMergePrefillArguments {
            partial: at(buffers.chunk_partial, first * dims.topk * dims.head_dim, 2),
            partial_lse: at(buffers.chunk_lse, first * dims.topk, 4),
            out: at(buffers.attended, first * dims.head_dim, 2),
            rows: rows as i32,
            heads: heads as i32,
        };
        let grid = [blocks(rows, SparseMergePrefill::BLOCK_R), 1, 1];
        launched(self.kernels.sparse_merge_prefill.launch(&self.queue(), grid, &arguments))
    }

    fn attend_chosen_short(&self, layer: usize) -> Result<()> {
        let (run, buffers, dims) = (&self.run, &self.work.buffers, &self.dims);
        let pages = self.pages.layer(layer);
        let arguments = SparseAttendDecodeArguments {
            queries: buffers.queries.pointer,
            k_pages: pages.keys,
            v_pages: pages.values,
            page_table: buffers.page_table.pointer,
            token_row: run.arrays.token_row,
            positions: run.arrays.positions,
            selected: buffers.selected.pointer,
            partial: buffers.short_partial.pointer,
            partial_lse: buffers.short_lse.pointer,
            table_stride: self.table_stride(),
        };
        let grid = [run.short as u32, dims.kv_heads as u32, SparseAttendDecode::SPLITS];
        launched(self.kernels.sparse_attend_decode.launch(&self.queue(), grid, &arguments))?;
        let rows = run.short * dims.heads;
        let arguments = SparseMergeDecodeArguments {
            partial: buffers.short_partial.pointer,
            partial_lse: buffers.short_lse.pointer,
            out: buffers.attended.pointer,
            rows: rows as i32,
            heads: dims.heads as i32,
        };
        let grid = [blocks(rows, SparseMergeDecode::BLOCK_R), 1, 1];
        launched(self.kernels.sparse_merge_decode.launch(&self.queue(), grid, &arguments))
    }

    fn table_stride(&self) -> i32 {
        self.work.sizes.max_pages as i32
    }

    fn tap_choice(&mut self, layer: usize) -> Result<()> {
        if !self.taps.is_on() || self.config.layers[layer].attention != AttentionKind::Sparse {
            return Ok(());
        }
        let (tokens, heads, topk) = (self.run.counts.tokens, self.dims.index_heads, self.dims.topk);
        let selected = self.i32_of(self.work.buffers.selected, tokens * heads * topk)?;
        self.taps.keep_heads(TapPoint::Selected(layer), heads, topk, &selected);
        let pages = self.run.chunk_pages.max(if self.run.short > 0 { self.run.short_pages } else { 0 });
        let scores = self.scores_by_token(pages)?;
        self.taps.keep_heads(TapPoint::BlockScore(layer), heads, pages, &scores);
        Ok(())
    }

    /// `[T, heads, pages]` from both layouts, minus infinity where nothing is visible.
    fn scores_by_token(&self, pages: usize) -> Result<Vec<f32>> {
        let (run, heads, block) = (&self.run, self.dims.index_heads, self.dims.block);
        let (tokens, stride) = (run.counts.tokens, score_stride(run.counts.tokens, &self.dims));
        let max_pages = self.work.sizes.max_pages;
        let short = self.f32_of(self.work.buffers.short_scores, run.short * heads * max_pages)?;
        let chunk = self.f32_of(self.work.buffers.chunk_scores, run.chunk_pages * stride)?;
        let positions = self.taps_positions(tokens)?;
        let mut scores = vec![f32::NEG_INFINITY; tokens * heads * pages];
        for (token, &position) in positions.iter().enumerate() {
            for head in 0..heads {
                for page in 0..=position as usize / block {
                    let row = token * heads + head;
                    scores[row * pages + page] = if token < run.short {
                        short[row * max_pages + page]
                    } else {
                        chunk[page * stride + row]
                    };
                }
            }
        }
        Ok(scores)
    }

    fn taps_positions(&self, tokens: usize) -> Result<Vec<i32>> {
        let step = self.work.buffers.step;
        let first = self.run.arrays.positions.0 - step.pointer.0;
        Ok(self.stream.download_values(step.part(first, (tokens * 4) as u64)?)?)
    }
}
