//! Steps written shortly, sent through the function table as a server sends them.
#![allow(dead_code, reason = "each test file uses its part")]

use m3_abi::types::{MediaSpan, NONE, PageAppend, RowBind, SEQ_CHAINED, Seq, TokenBias};
use m3_abi::{Backend, Driver, Error, OpenRequest, Output, Plugin, Step, Ticket};

pub(crate) const VOCAB: u32 = 100;
pub(crate) const PAGE_TOKENS: u32 = 4;

pub(crate) fn request(null: &str) -> OpenRequest {
    OpenRequest {
        tp: 1,
        ep: 1,
        max_rows: 4,
        max_step_tokens: 16,
        max_context: 32,
        page_tokens: PAGE_TOKENS,
        max_logprobs: 5,
        config: format!(r#"{{"text_config": {{"vocab_size": {VOCAB}}}, "m3_null": {null}}}"#).into_bytes(),
        ..OpenRequest::default()
    }
}

pub(crate) fn opened(request: &OpenRequest) -> m3_abi::Result<Box<dyn Backend>> {
    let mut instance = Plugin::linked(&backend_null::LINKED)?.open(request)?;
    instance.ready()?;
    instance.reserve(8)?;
    instance.warm(&[])?;
    Ok(instance)
}

/// An instance with 8 pages, and how many steps it was sent.
pub(crate) struct Bench {
    pub instance: Box<dyn Backend>,
    pub top: usize,
}

/// The arrays of a step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Draft {
    pub releases: Vec<u32>,
    pub binds: Vec<RowBind>,
    pub pages: Vec<PageAppend>,
    pub page_ids: Vec<u32>,
    pub seqs: Vec<Seq>,
    pub tokens: Vec<u32>,
    pub targets: Vec<u32>,
    pub masks: Vec<u32>,
    pub history: Vec<u32>,
    pub biases: Vec<TokenBias>,
    pub media: Vec<MediaSpan>,
}

pub(crate) fn settings(row: u32) -> RowBind {
    RowBind::greedy(row)
}

impl Draft {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn release(mut self, row: u32) -> Self {
        self.releases.push(row);
        self
    }

    pub(crate) fn bind(self, row: u32) -> Self {
        self.bind_with(settings(row))
    }

    pub(crate) fn bind_with(mut self, bind: RowBind) -> Self {
        self.binds.push(bind);
        self
    }

    pub(crate) fn pages(mut self, row: u32, first: u32, ids: &[u32]) -> Self {
        let (offset, count) = (self.page_ids.len() as u32, ids.len() as u32);
        self.pages.push(PageAppend { row, first, offset, count });
        self.page_ids.extend_from_slice(ids);
        self
    }

    /// Tokens at `first ..`; logits of the last one, as output `index` in slot 0, or none.
    pub(crate) fn part(mut self, row: u32, first: u32, tokens: &[u32], index: Option<u32>) -> Self {
        self.seqs.push(Seq {
            row,
            flags: 0,
            first_position: first,
            num_tokens: tokens.len() as u32,
            token_offset: self.tokens.len() as u32,
            num_logits: u32::from(index.is_some()),
            output_offset: 0,
            target_offset: NONE,
            mask_offset: NONE,
            output_index: index.unwrap_or(0),
        });
        self.tokens.extend_from_slice(tokens);
        self
    }

    pub(crate) fn chained(self, row: u32, first: u32, index: u32) -> Self {
        let mut draft = self.part(row, first, &[0], Some(index));
        draft.tokens.pop();
        draft.edit(|seq| (seq.flags, seq.token_offset) = (SEQ_CHAINED, 0))
    }

    /// Changes the last part.
    pub(crate) fn edit(mut self, change: impl FnOnce(&mut Seq)) -> Self {
        change(self.seqs.last_mut().unwrap());
        self
    }
}

impl Bench {
    pub(crate) fn new(null: &str) -> Self {
        Bench { instance: opened(&request(null)).unwrap(), top: 0 }
    }

    pub(crate) fn submit(&mut self, draft: &Draft) -> m3_abi::Result<Ticket> {
        self.instance.submit(&Step {
            id: 0,
            releases: &draft.releases,
            binds: &draft.binds,
            pages: &draft.pages,
            page_ids: &draft.page_ids,
            seqs: &draft.seqs,
            tokens: &draft.tokens,
            targets: &draft.targets,
            masks: &draft.masks,
            history: &draft.history,
            biases: &draft.biases,
            media: &draft.media,
        })
    }

    pub(crate) fn wait(&mut self, ticket: Ticket) -> m3_abi::Result<Output> {
        let mut output = Output::with_capacity(8, self.top);
        self.instance.wait(ticket, &mut output)?;
        Ok(output)
    }

    pub(crate) fn output(&mut self, draft: Draft) -> Output {
        let ticket = self.submit(&draft).unwrap();
        self.wait(ticket).unwrap()
    }

    /// Token of slot 0.
    pub(crate) fn token(&mut self, draft: Draft) -> u32 {
        self.output(draft).tokens[0]
    }

    pub(crate) fn run(&mut self, draft: Draft) {
        self.output(draft);
    }

    #[track_caller]
    pub(crate) fn fatal(&mut self, draft: Draft, sentence: &str) {
        match self.submit(&draft) {
            Err(Error::Fatal(said)) => assert!(said.contains(sentence), "{said:?} lacks {sentence:?}"),
            other => panic!("not fatal ({sentence}): {other:?}"),
        }
    }
}
