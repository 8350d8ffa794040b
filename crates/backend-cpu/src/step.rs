//! A step that outlives the call that brought it: `submit` returns before the worker has run it.

use m3_abi::Step;
use m3_abi::types::{MediaSpan, PageAppend, RowBind, Seq, TokenBias};

/// Copies of everything an [`m3_abi::Step`] points to. Buffers are reused.
#[derive(Default)]
pub(crate) struct OwnedStep {
    id: u64,
    releases: Vec<u32>,
    binds: Vec<RowBind>,
    pages: Vec<PageAppend>,
    page_ids: Vec<u32>,
    seqs: Vec<Seq>,
    tokens: Vec<u32>,
    targets: Vec<u32>,
    masks: Vec<u32>,
    history: Vec<u32>,
    biases: Vec<TokenBias>,
    media: Vec<MediaSpan>,
}

fn refill<T: Clone>(to: &mut Vec<T>, from: &[T]) {
    to.clear();
    to.extend_from_slice(from);
}

impl OwnedStep {
    pub(crate) fn copy(&mut self, step: &Step<'_>) {
        self.id = step.id;
        refill(&mut self.releases, step.releases);
        refill(&mut self.binds, step.binds);
        refill(&mut self.pages, step.pages);
        refill(&mut self.page_ids, step.page_ids);
        refill(&mut self.seqs, step.seqs);
        refill(&mut self.tokens, step.tokens);
        refill(&mut self.targets, step.targets);
        refill(&mut self.masks, step.masks);
        refill(&mut self.history, step.history);
        refill(&mut self.biases, step.biases);
        refill(&mut self.media, step.media);
    }

    pub(crate) fn view(&self) -> Step<'_> {
        Step {
            id: self.id,
            releases: &self.releases,
            binds: &self.binds,
            pages: &self.pages,
            page_ids: &self.page_ids,
            seqs: &self.seqs,
            tokens: &self.tokens,
            targets: &self.targets,
            masks: &self.masks,
            history: &self.history,
            biases: &self.biases,
            media: &self.media,
        }
    }
}
