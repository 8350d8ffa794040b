//! The life of an instance: the order of calls before serving, two steps in flight, simulated time.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use m3_abi::types::{OPEN_SOLO, OPEN_TAPS, PageCopy, Ready, WarmShape};
use m3_abi::{Backend, Error, Media, OpenRequest, Output, Result, Step, TensorView, Ticket};

use crate::distribution::{START, chain};
use crate::options::Options;
use crate::outputs::{Slot, fill};
use crate::pages::{Pages, SLOT_BYTES};
use crate::rows::{Limits, Rows};
use crate::step::{Device, Encoded};

const DEFAULT_PAGES: u64 = 4096;
/// Patches that make one embedding row (2 x 2, as the model merges).
const MERGED_PATCHES: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Loading,
    Ready,
    Reserved,
    Warm,
}

/// A step that was submitted and not waited for.
struct Flight {
    ticket: u64,
    finish: Instant,
    device_time_us: u64,
    slots: Vec<Slot>,
    /// An encode takes a ticket but no place in flight.
    step: bool,
}

pub(crate) struct Instance {
    device: Device,
    stage: Stage,
    rank: u32,
    page_bytes: u64,
    max_pages: u64,
    weight_bytes: u64,
    num_steps: u64,
    tickets: u64,
    flights: VecDeque<Flight>,
    /// When the simulated device is free again.
    free_at: Instant,
    waited: u64,
    /// The first ticket that is never done.
    frozen_from: Option<u64>,
}

fn unsupported<T>(sentence: String) -> Result<T> {
    Err(Error::Unsupported(sentence))
}

fn check_request(request: &OpenRequest) -> Result<()> {
    let OpenRequest { rank, tp, ep, dp, node, .. } = *request;
    if tp == 0 || rank >= tp {
        return unsupported(format!("rank {rank} of {tp} does not exist"));
    }
    if ep == 0 || tp % ep != 0 {
        return unsupported(format!("{ep} expert groups do not divide {tp} ranks"));
    }
    if dp != 0 || node != 0 {
        return unsupported(format!("dp {dp} and node {node} are asked for; only 0 is built"));
    }
    if tp > 1 && request.comm_id.is_empty() && request.flags & OPEN_SOLO == 0 {
        return unsupported(format!("{tp} ranks need a comm id"));
    }
    if request.flags & OPEN_TAPS != 0 {
        return unsupported("the null backend has no taps".to_owned());
    }
    let limits = [
        ("max_rows", request.max_rows),
        ("max_step_tokens", request.max_step_tokens),
        ("max_context", request.max_context),
        ("page_tokens", request.page_tokens),
    ];
    match limits.iter().find(|limit| limit.1 == 0) {
        Some((name, _)) => unsupported(format!("{name} is 0")),
        None => Ok(()),
    }
}

impl Instance {
    pub(crate) fn open(request: &OpenRequest) -> Result<Self> {
        check_request(request)?;
        let options = Options::parse(&request.config).map_err(Error::Unsupported)?;
        let least = u64::from(request.page_tokens) * SLOT_BYTES as u64;
        let page_bytes = if options.page_bytes == 0 { least } else { options.page_bytes };
        if page_bytes < least {
            return unsupported(format!("m3_null.page_bytes is {page_bytes}; a page needs at least {least}"));
        }
        let max_pages = match (options.max_pages, request.page_memory_bytes) {
            (0, 0) => DEFAULT_PAGES,
            (0, memory) => memory / page_bytes,
            (most, _) => most,
        };
        let limits = Limits {
            max_rows: request.max_rows,
            max_step_tokens: request.max_step_tokens,
            max_context: request.max_context,
            page_tokens: request.page_tokens,
            max_logprobs: request.max_logprobs,
            vocab: options.vocab,
        };
        let (rows, pages, media) = (Rows::new(request.max_rows), Pages::default(), HashMap::new());
        Ok(Instance {
            device: Device { rows, pages, media, limits, options },
            stage: Stage::Loading,
            rank: request.rank,
            page_bytes,
            max_pages,
            weight_bytes: 0,
            num_steps: 0,
            tickets: 0,
            flights: VecDeque::new(),
            free_at: Instant::now(),
            waited: 0,
            frozen_from: None,
        })
    }

    fn expect(&self, stage: Stage, entry: &str) -> Result<()> {
        if self.stage != stage {
            return unsupported(format!(
                "{entry} was called at stage {:?}; it belongs to {stage:?}",
                self.stage
            ));
        }
        Ok(())
    }

    fn take_off(&mut self, cost_us: u64, slots: Vec<Slot>, step: bool) -> Ticket {
        self.tickets += 1;
        self.free_at = self.free_at.max(Instant::now()) + Duration::from_micros(cost_us);
        let (ticket, finish) = (self.tickets, self.free_at);
        self.flights.push_back(Flight { ticket, finish, device_time_us: cost_us, slots, step });
        Ticket(ticket)
    }

    /// Asked-for misbehaviour, so that the engine's answer to it can be tested.
    fn misbehave(&self) -> Result<()> {
        let Options { fault_at, panic_at, .. } = self.device.options;
        let step = self.num_steps;
        assert!(panic_at != Some(step), "step {step} panics as asked");
        if fault_at == Some(step) {
            return Err(Error::Fatal(format!("step {step} fails as asked")));
        }
        Ok(())
    }

    /// From this step on a wait never returns, as on a device that hangs.
    fn freeze(&mut self) {
        let Options { freeze_at, freeze_rank, .. } = self.device.options;
        if freeze_at == Some(self.num_steps) && freeze_rank.is_none_or(|rank| rank == self.rank) {
            self.frozen_from = Some(self.tickets + 1);
        }
    }

    fn check_pages(&self, pages: &[u32], entry: &str) -> Result<()> {
        if self.stage < Stage::Reserved {
            return unsupported(format!("{entry} was called before reserve"));
        }
        let most = self.max_pages;
        match pages.iter().find(|page| u64::from(**page) >= most) {
            Some(page) => Err(Error::Fatal(format!("{entry} of page {page}; there are at most {most}"))),
            None => Ok(()),
        }
    }
}

impl Backend for Instance {
    fn load(&mut self, tensor: &TensorView<'_>) -> Result<()> {
        self.expect(Stage::Loading, "load")?;
        if tensor.shape.len() != tensor.strides.len() || tensor.name.is_empty() {
            return unsupported(format!("tensor {:?} has no name or unequal shape and strides", tensor.name));
        }
        self.weight_bytes += tensor.shape.iter().product::<u64>();
        Ok(())
    }

    fn ready(&mut self) -> Result<Ready> {
        self.expect(Stage::Loading, "ready")?;
        if self.max_pages == 0 {
            return unsupported(format!("no page of {} bytes fits the page memory", self.page_bytes));
        }
        let Options { memory_bytes, step_token_bytes, .. } = self.device.options;
        let workspace = u64::from(self.device.limits.max_step_tokens) * step_token_bytes;
        if memory_bytes > 0 && workspace > memory_bytes {
            return unsupported(format!(
                "the workspace needs {workspace} bytes of device memory; {memory_bytes} are free"
            ));
        }
        self.stage = Stage::Ready;
        Ok(Ready {
            size: size_of::<Ready>() as u32,
            reserved: 0,
            page_bytes: self.page_bytes,
            max_pages: self.max_pages,
            weight_bytes: self.weight_bytes,
            workspace_bytes: workspace,
        })
    }

    fn reserve(&mut self, num_pages: u64) -> Result<()> {
        self.expect(Stage::Ready, "reserve")?;
        if num_pages == 0 || num_pages > self.max_pages {
            return unsupported(format!("{num_pages} pages are asked for; 1 to {} fit", self.max_pages));
        }
        self.device.pages = Pages::reserve(self.device.limits.page_tokens as usize, num_pages);
        self.max_pages = num_pages;
        self.stage = Stage::Reserved;
        Ok(())
    }

    fn warm(&mut self, shapes: &[WarmShape]) -> Result<()> {
        self.expect(Stage::Reserved, "warm")?;
        let most = self.device.limits.max_step_tokens;
        if let Some(shape) = shapes.iter().find(|shape| shape.num_tokens > most) {
            return unsupported(format!("a shape has {} tokens; opened with {most}", shape.num_tokens));
        }
        self.stage = Stage::Warm;
        Ok(())
    }

    fn submit(&mut self, step: &Step<'_>) -> Result<Ticket> {
        self.expect(Stage::Warm, "submit")?;
        let flying = self.flights.iter().filter(|flight| flight.step).count();
        if flying >= 2 {
            return Err(Error::Fatal(format!(
                "step {} is submitted while {flying} are not waited for",
                step.id
            )));
        }
        self.num_steps += 1;
        self.misbehave()?;
        self.freeze();
        let slots = self.device.step(step)?;
        let tokens: u64 = step.seqs.iter().map(|seq| u64::from(seq.num_tokens)).sum();
        let cost_us = self.device.options.step_us + self.device.options.token_us * tokens;
        Ok(self.take_off(cost_us, slots, true))
    }

    fn wait(&mut self, ticket: Ticket, output: &mut Output) -> Result<()> {
        if ticket.0 <= self.waited || ticket.0 > self.tickets {
            let (waited, given) = (self.waited, self.tickets);
            return unsupported(format!(
                "ticket {} is waited for; {waited} was already, {given} is the newest",
                ticket.0
            ));
        }
        let position = self.flights.iter().position(|flight| flight.ticket == ticket.0);
        let flight = &self.flights[position.expect("tickets after the last waited one are in flight")];
        if self.rank == 0 {
            fill(&flight.slots, self.device.limits.vocab, output)?;
        }
        output.device_time_us = flight.device_time_us;
        let frozen = self.frozen_from.is_some_and(|from| ticket.0 >= from);
        std::thread::sleep(flight.finish.saturating_duration_since(Instant::now()));
        if frozen {
            loop {
                std::thread::park();
            }
        }
        self.waited = ticket.0;
        self.flights.retain(|flight| flight.ticket > ticket.0);
        Ok(())
    }

    fn done(&mut self) -> Result<Ticket> {
        let now = Instant::now();
        let finished = self
            .flights
            .iter()
            .take_while(|flight| {
                flight.finish <= now && self.frozen_from.is_none_or(|from| flight.ticket < from)
            })
            .last();
        Ok(Ticket(finished.map_or(self.waited, |flight| flight.ticket)))
    }

    fn copy_pages(&mut self, copies: &[PageCopy]) -> Result<()> {
        for PageCopy { from, to } in copies {
            self.check_pages(&[*from, *to], "copy_pages")?;
            self.device.pages.copy(*from, *to)?;
        }
        Ok(())
    }

    fn read_pages(&mut self, pages: &[u32], bytes: &mut Vec<u8>) -> Result<()> {
        self.check_pages(pages, "read_pages")?;
        bytes.clear();
        pages.iter().try_for_each(|page| self.device.pages.store(*page, self.page_bytes as usize, bytes))
    }

    fn write_pages(&mut self, pages: &[u32], bytes: &[u8]) -> Result<()> {
        self.check_pages(pages, "write_pages")?;
        let page_bytes = self.page_bytes as usize;
        if bytes.len() != pages.len() * page_bytes {
            let (has, needs) = (bytes.len(), pages.len() * page_bytes);
            return unsupported(format!("{} pages have {needs} bytes; {has} were given", pages.len()));
        }
        let pieces = bytes.chunks_exact(page_bytes);
        pages.iter().zip(pieces).try_for_each(|(page, bytes)| self.device.pages.restore(*page, bytes))
    }

    fn encode(&mut self, patches: &[f32], row_len: usize, grids: &[[u32; 3]]) -> Result<Media> {
        self.expect(Stage::Warm, "encode")?;
        let expected: u64 =
            grids.iter().map(|grid| grid.iter().map(|side| u64::from(*side)).product::<u64>()).sum();
        let rows = patches.len() / row_len.max(1);
        if expected != rows as u64 || !expected.is_multiple_of(MERGED_PATCHES) || expected == 0 {
            return unsupported(format!(
                "{rows} patches do not fill grids of {expected}, in groups of {MERGED_PATCHES}"
            ));
        }
        let content = patches.iter().fold(START, |before, value| chain(before, u64::from(value.to_bits())));
        let num_rows = (expected / MERGED_PATCHES) as u32;
        let ticket = self.take_off(self.device.options.step_us, Vec::new(), false);
        let handle = ticket.0;
        self.device.media.insert(handle, Encoded { content, num_rows });
        Ok(Media { handle, num_rows, ticket, bytes: u64::from(num_rows) * 8 })
    }

    fn media_free(&mut self, handle: u64) -> Result<()> {
        match self.device.media.remove(&handle) {
            Some(_) => Ok(()),
            None => Err(Error::Fatal(format!("medium {handle} is freed but not encoded"))),
        }
    }

    fn trace(&mut self, _begin: bool) -> Result<()> {
        Ok(())
    }
}
