//! Drives the reference with steps, the way an engine does.

use std::path::Path;

use m3_abi::types::{DTYPE_F32, NONE, OPEN_TAPS, PageAppend, RowBind, SEQ_CHAINED, Seq};
use m3_abi::{Backend, OpenRequest, Output, Step, Tap, TensorView};
use m3_model::checkpoint::Checkpoint;
use m3_model::config::{ModelConfig, TextConfig};
use m3_model::reference::{QuantMode, ReferenceBackend};

/// Alternatives every output has room for.
pub(crate) const TOP: usize = 4;

pub(crate) struct Run {
    pub(crate) backend: ReferenceBackend,
    pub(crate) config: TextConfig,
    pub(crate) page_tokens: u32,
    next_page: u32,
    step: u64,
}

/// One sequence's part of a step, with the pages it newly needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    pub(crate) row: u32,
    pub(crate) first_position: u32,
    /// Empty = chained.
    pub(crate) tokens: Vec<u32>,
    pub(crate) num_logits: u32,
    pub(crate) output_index: u32,
    /// Page table entries from `.0` on.
    pub(crate) pages: Option<(u32, Vec<u32>)>,
    pub(crate) bind: Option<RowBind>,
    /// What `bind`'s penalties look at.
    pub(crate) history: Vec<u32>,
}

/// Greedy, with [`TOP`] alternatives.
pub(crate) fn greedy(row: u32) -> RowBind {
    RowBind { num_logprobs: TOP as u32, ..RowBind::greedy(row) }
}

pub(crate) fn open_request(checkpoint: &Checkpoint) -> OpenRequest {
    OpenRequest {
        flags: OPEN_TAPS,
        tp: 1,
        ep: 1,
        dtype: DTYPE_F32,
        kv_dtype: DTYPE_F32,
        max_rows: 4,
        max_step_tokens: 4096,
        max_context: 4096,
        page_tokens: checkpoint.config().text.sparse.block_size as u32,
        max_logprobs: TOP as u32,
        config: checkpoint.config_json().to_vec(),
        ..OpenRequest::default()
    }
}

/// Loads every tensor of a checkpoint.
pub(crate) fn load(backend: &mut dyn Backend, checkpoint: &Checkpoint) {
    for tensor in checkpoint.load_order() {
        let view = TensorView {
            name: &tensor.spec.name,
            format: tensor.spec.format.abi(),
            shape: tensor.shape(),
            strides: &tensor.strides(),
            data: tensor.data.as_ptr(),
            scale: tensor.scale.map_or(std::ptr::null(), <[u8]>::as_ptr),
            scale_stride: tensor.scale_stride,
            group_offset: 0,
            seed: 0,
        };
        backend.load(&view).unwrap();
    }
}

impl Run {
    pub(crate) fn open(folder: &Path, mode: QuantMode, num_pages: u64) -> Self {
        Run::open_with(folder, mode, num_pages, |_| {})
    }

    /// The same, with something changed in the request.
    pub(crate) fn open_with(
        folder: &Path,
        mode: QuantMode,
        num_pages: u64,
        change: impl FnOnce(&mut OpenRequest),
    ) -> Self {
        let checkpoint = Checkpoint::open(folder).unwrap();
        let mut request = open_request(&checkpoint);
        change(&mut request);
        let mut backend = ReferenceBackend::open(&request, mode).unwrap();
        load(&mut backend, &checkpoint);
        backend.ready().unwrap();
        backend.reserve(num_pages).unwrap();
        backend.warm(&[]).unwrap();
        let config = ModelConfig::from_json(&request.config).unwrap().config.text;
        Run { backend, config, page_tokens: request.page_tokens, next_page: 0, step: 0 }
    }

    /// Unused page ids.
    pub(crate) fn take_pages(&mut self, count: usize) -> Vec<u32> {
        let first = self.next_page;
        self.next_page += count as u32;
        (first..self.next_page).collect()
    }

    pub(crate) fn pages_for(&self, num_tokens: usize) -> usize {
        num_tokens.div_ceil(self.page_tokens as usize)
    }

    /// Submits one step and waits for it. Output slots follow the order of the parts.
    pub(crate) fn step(&mut self, parts: &[Part], releases: &[u32]) -> Output {
        self.step += 1;
        let mut arrays = Arrays::default();
        parts.iter().for_each(|part| arrays.push(part));
        let step = Step {
            id: self.step,
            releases,
            binds: &arrays.binds,
            pages: &arrays.pages,
            page_ids: &arrays.page_ids,
            seqs: &arrays.seqs,
            tokens: &arrays.tokens,
            history: &arrays.history,
            ..Step::default()
        };
        let ticket = self.backend.submit(&step).unwrap();
        let mut output = Output::with_capacity(arrays.num_outputs as usize, TOP);
        self.backend.wait(ticket, &mut output).unwrap();
        output
    }

    pub(crate) fn tap(&mut self, name: &str) -> Tap {
        self.backend.tap(name).unwrap()
    }

    /// Binds `row`, gives it pages and computes `tokens` in chunks of `chunk`; returns the logits of every position.
    pub(crate) fn prefill(&mut self, row: u32, tokens: &[u32], chunk: usize) -> Vec<f32> {
        let pages = self.take_pages(self.pages_for(tokens.len()));
        self.prefill_on(row, tokens, 0, chunk, pages)
    }

    /// The same on given pages, with the first `cached` tokens already in them.
    pub(crate) fn prefill_on(
        &mut self,
        row: u32,
        tokens: &[u32],
        cached: usize,
        chunk: usize,
        pages: Vec<u32>,
    ) -> Vec<f32> {
        let mut logits = Vec::new();
        let (mut bind, mut pages) = (Some(greedy(row)), Some((0, pages)));
        for start in (cached..tokens.len()).step_by(chunk) {
            let tokens = tokens[start..tokens.len().min(start + chunk)].to_vec();
            let (first_position, num_logits) = (start as u32, tokens.len() as u32);
            let (bind, pages) = (bind.take(), pages.take());
            let part = Part { row, first_position, tokens, num_logits, pages, bind, ..Part::default() };
            self.step(&[part], &[]);
            logits.extend(self.tap("logits").data);
        }
        logits
    }
}

#[derive(Default)]
struct Arrays {
    binds: Vec<RowBind>,
    pages: Vec<PageAppend>,
    page_ids: Vec<u32>,
    seqs: Vec<Seq>,
    tokens: Vec<u32>,
    history: Vec<u32>,
    num_outputs: u32,
}

impl Arrays {
    fn push(&mut self, part: &Part) {
        self.binds
            .extend(part.bind.map(|bind| RowBind { history_offset: self.history.len() as u32, ..bind }));
        self.history.extend(&part.history);
        if let Some((first, ids)) = &part.pages {
            let (offset, count) = (self.page_ids.len() as u32, ids.len() as u32);
            self.pages.push(PageAppend { row: part.row, first: *first, offset, count });
            self.page_ids.extend(ids);
        }
        let chained = part.tokens.is_empty();
        self.seqs.push(Seq {
            row: part.row,
            flags: if chained { SEQ_CHAINED } else { 0 },
            first_position: part.first_position,
            num_tokens: if chained { 1 } else { part.tokens.len() as u32 },
            token_offset: self.tokens.len() as u32,
            num_logits: part.num_logits,
            output_offset: self.num_outputs,
            target_offset: NONE,
            mask_offset: NONE,
            output_index: part.output_index,
        });
        self.tokens.extend(&part.tokens);
        self.num_outputs += part.num_logits;
    }
}
