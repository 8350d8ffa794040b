//! A whole backend in one file: its "model" answers the sum of all tokens before, modulo the vocabulary.
//!
//! Everything around that sum is what a real backend does too: pages hold what positions wrote, rows hold page tables
//! and settings, steps carry deltas, results wait for their ticket. What it is not: fast, sampled or parallel.

use std::collections::VecDeque;

use m3_abi::types::{self, RowBind, Seq, WarmShape};
use m3_abi::{
    Backend, Driver, Error, OpenRequest, Output, ProbeReport, ProbeRequest, Result, Step, TensorView, Ticket,
};

m3_abi::export_backend!(ToyDriver);

struct ToyDriver;

fn unsupported<T>(sentence: String) -> Result<T> {
    Err(Error::Unsupported(sentence))
}

impl Driver for ToyDriver {
    fn name(&self) -> &str {
        "toy"
    }

    fn version(&self) -> &str {
        "1.0"
    }

    fn probe(&self, _request: &ProbeRequest) -> Result<ProbeReport> {
        Ok(ProbeReport {
            score: 1,
            num_devices: 1,
            weight_formats: types::FORMAT_F32 | types::FORMAT_BF16 | types::FORMAT_MXFP8, // None is read.
            dtypes: types::DTYPE_F32,
            kv_dtypes: types::DTYPE_F32,
            flags: types::PROBE_BY_NAME_ONLY, // Never serve sums to someone who asked for a model.
            device: "a sum".to_owned(),
            ..ProbeReport::default()
        })
    }

    fn comm_id(&self) -> Result<Vec<u8>> {
        unsupported("the toy backend has one rank".to_owned())
    }

    /// The last chance to say no politely: after `open` the host plans with what was promised.
    fn open(&self, request: &OpenRequest) -> Result<Box<dyn Backend>> {
        if request.tp != 1 {
            return unsupported(format!("tp is {}; the toy backend has 1 rank", request.tp));
        }
        if request.page_tokens == 0 {
            return unsupported("page_tokens is 0".to_owned());
        }
        Ok(Box::new(Toy {
            page_tokens: request.page_tokens as usize,
            vocab: 0,
            slots: Vec::new(),
            rows: (0..request.max_rows).map(|_| Row::default()).collect(),
            tickets: 0,
            results: VecDeque::new(),
        }))
    }
}

/// A line of the device's table: which pages a sequence has, and how it wants its tokens.
#[derive(Default)]
struct Row {
    pages: Vec<u32>,
    settings: Option<RowBind>,
    last_sampled: u32,
}

/// Output slot and token.
type Results = Vec<(usize, u32)>;

struct Toy {
    page_tokens: usize,
    /// Rows of the embedding, the only weight that a sum needs.
    vocab: u32,
    /// What stands for K and V: slot `page * page_tokens + offset` holds the token that was written there.
    slots: Vec<u32>,
    rows: Vec<Row>,
    tickets: u64,
    results: VecDeque<(Ticket, Results)>,
}

impl Toy {
    fn slot(&self, row: &Row, position: usize) -> usize {
        row.pages[position / self.page_tokens] as usize * self.page_tokens + position % self.page_tokens
    }

    /// Where a model would be: reads every position up to this one through the page table.
    fn next_token(&self, row: &Row, position: usize) -> u32 {
        let sum: u64 = (0..=position).map(|before| u64::from(self.slots[self.slot(row, before)])).sum();
        (sum % u64::from(self.vocab)) as u32
    }

    fn apply_deltas(&mut self, step: &Step<'_>) {
        for row in step.releases {
            self.rows[*row as usize] = Row::default();
        }
        for bind in step.binds {
            self.rows[bind.row as usize].settings = Some(*bind);
        }
        for append in step.pages {
            let ids = &step.page_ids[append.offset as usize..][..append.count as usize];
            let row = &mut self.rows[append.row as usize];
            row.pages.truncate(append.first as usize);
            row.pages.extend_from_slice(ids);
        }
    }

    /// Writes the part's tokens, then answers the last `num_logits` positions.
    fn run_part(&mut self, seq: &Seq, step: &Step<'_>, results: &mut Results) {
        let mut row = std::mem::take(&mut self.rows[seq.row as usize]);
        let first_logit = (seq.num_tokens - seq.num_logits) as usize;
        for index in 0..seq.num_tokens as usize {
            let token = match seq.flags & types::SEQ_CHAINED {
                0 => step.tokens[seq.token_offset as usize + index],
                _ => row.last_sampled,
            };
            let position = seq.first_position as usize + index;
            let slot = self.slot(&row, position);
            self.slots[slot] = token;
            if index >= first_logit {
                let output = index - first_logit;
                let token = match scored(seq, step, output) {
                    Some(target) => target,
                    None => self.next_token(&row, position),
                };
                row.last_sampled = token;
                results.push((seq.output_offset as usize + output, token));
            }
        }
        self.rows[seq.row as usize] = row;
    }
}

/// The id whose log-probability is wanted at a logits position, instead of a sampled one.
fn scored(seq: &Seq, step: &Step<'_>, output: usize) -> Option<u32> {
    if seq.target_offset == types::NONE {
        return None;
    }
    Some(step.targets[seq.target_offset as usize + output]).filter(|target| *target != types::NONE)
}

impl Backend for Toy {
    /// Every tensor passes here once, cut for this rank; a real backend copies it to the device in its own layout.
    fn load(&mut self, tensor: &TensorView<'_>) -> Result<()> {
        if tensor.name.ends_with("embed_tokens.weight") {
            self.vocab = tensor.shape[0] as u32;
        }
        Ok(())
    }

    fn ready(&mut self) -> Result<types::Ready> {
        if self.vocab == 0 {
            return unsupported("tensor embed_tokens.weight was not loaded".to_owned());
        }
        let page_bytes = self.page_tokens as u64 * 4;
        Ok(types::Ready { page_bytes, max_pages: (1 << 20) / page_bytes, ..types::Ready::default() })
    }

    fn reserve(&mut self, num_pages: u64) -> Result<()> {
        self.slots = vec![0; num_pages as usize * self.page_tokens];
        Ok(())
    }

    fn warm(&mut self, _shapes: &[WarmShape]) -> Result<()> {
        Ok(())
    }

    /// A device would be given work here and the call return; a sum is done at once and kept until it is waited for.
    fn submit(&mut self, step: &Step<'_>) -> Result<Ticket> {
        let masked = |seq: &&Seq| seq.mask_offset != types::NONE;
        if let Some(seq) = step.seqs.iter().find(masked) {
            return Err(Error::Fatal(format!("row {} has a mask, which a sum cannot keep", seq.row)));
        }
        self.apply_deltas(step);
        let mut results = Results::new();
        for seq in step.seqs {
            self.run_part(seq, step, &mut results);
        }
        self.tickets += 1;
        self.results.push_back((Ticket(self.tickets), results));
        Ok(Ticket(self.tickets))
    }

    fn wait(&mut self, ticket: Ticket, output: &mut Output) -> Result<()> {
        while self.results.front().is_some_and(|(first, _)| *first <= ticket) {
            let Some((finished, results)) = self.results.pop_front() else { break };
            if finished == ticket {
                for (slot, token) in results {
                    output.tokens[slot] = token;
                    output.faults[slot] = 0;
                    output.logprobs[slot] = -(self.vocab as f32).ln();
                }
            }
        }
        Ok(())
    }

    fn done(&mut self) -> Result<Ticket> {
        Ok(Ticket(self.tickets))
    }
}
