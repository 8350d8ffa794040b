//! An instance behind a table, as a [`Backend`].
//!
//! After a Fatal nothing but `close` is called. Tickets must count 1, 2, 3, …: `submit` and `encode` share them.

use std::ffi::c_void;
use std::sync::Arc;

use super::answer::{Guarded, Sentence};
use crate::backend::{Backend, Error, Media, Output, Result, Step, Tap, TensorView, Ticket};
use crate::crossing::{Element, span_of, text_of};
use crate::table::Table;
use crate::types::{
    EncodeArgs, EncodeResult, OutputArgs, PageCopy, Ready, Region, RegionArgs, ReserveArgs, StepArgs,
    TapArgs, Tensor, WarmShape,
};

pub(super) struct Instance {
    table: Table,
    name: Arc<str>,
    handle: *mut c_void,
    err: Sentence,
    /// Newest ticket given, newest ticket known to be done.
    given: u64,
    finished: u64,
    /// Of `ready`: the first guess at the room that `read_pages` needs.
    page_bytes: u64,
    death: Option<String>,
}

// SAFETY: an instance may be called from any thread, one call at a time (rule of the header); `&mut self` sees to that.
unsafe impl Send for Instance {}

/// Calls a table entry with the handle first and the sentence last, and turns its status into a result.
/// `call!(self, "ready", ready(out.pointer()))`; a null entry is "cannot".
macro_rules! call {
    ($self:ident, $what:literal, $entry:ident($($argument:expr),*)) => {{
        $self.alive()?;
        let Some(entry) = $self.table.$entry else {
            return Err(Error::Unsupported(format!("backend {} cannot {}", $self.name, $what)));
        };
        // SAFETY: the table keeps the rules of the header, the handle is open, and the arguments live through the call.
        let status = unsafe { entry($self.handle, $($argument,)* $self.err.text()) };
        let outcome = $self.err.outcome(&$self.name, stringify!($entry), status);
        $self.noted(outcome)
    }};
}

impl Instance {
    pub(super) fn new(table: Table, name: Arc<str>, handle: *mut c_void) -> Self {
        Instance {
            table,
            name,
            handle,
            err: Sentence::new(),
            given: 0,
            finished: 0,
            page_bytes: 0,
            death: None,
        }
    }

    fn alive(&self) -> Result<()> {
        match &self.death {
            Some(death) => Err(Error::Fatal(format!("this instance is dead: {death}"))),
            None => Ok(()),
        }
    }

    fn noted<T>(&mut self, outcome: Result<T>) -> Result<T> {
        if let Err(Error::Fatal(sentence)) = &outcome
            && self.death.is_none()
        {
            self.death = Some(sentence.clone());
        }
        outcome
    }

    fn lie<T>(&mut self, sentence: String) -> Result<T> {
        let outcome = Err(Error::Fatal(format!("backend {} {sentence}", self.name)));
        self.noted(outcome)
    }

    fn unsupported<T>(&self, sentence: String) -> Result<T> {
        Err(Error::Unsupported(sentence))
    }

    fn next_ticket(&mut self, entry: &str, ticket: u64) -> Result<Ticket> {
        let expected = self.given + 1;
        if ticket != expected {
            return self.lie(format!("gave ticket {ticket} from {entry} where {expected} is next"));
        }
        self.given = ticket;
        Ok(Ticket(ticket))
    }

    /// Arrays of equal length, or the pointers would promise room that is not there.
    fn check_output(&self, output: &Output) -> Result<()> {
        let slots = output.tokens.len();
        let lens = [output.logprobs.len(), output.faults.len(), output.ranks.len()];
        let top = slots * output.top_capacity;
        if lens.iter().any(|len| *len != slots)
            || output.top_ids.len() != top
            || output.top_logprobs.len() != top
        {
            return self.unsupported(format!("output arrays for {slots} slots have unequal lengths"));
        }
        Ok(())
    }
}

impl Backend for Instance {
    fn load(&mut self, tensor: &TensorView<'_>) -> Result<()> {
        let num_dims = tensor.shape.len();
        if num_dims > 5 || tensor.strides.len() != num_dims {
            let strides = tensor.strides.len();
            let name = tensor.name;
            return self.unsupported(format!(
                "tensor {name} has {num_dims} dimensions and {strides} strides; at most 5 of each, equally many"
            ));
        }
        let (mut shape, mut strides) = ([0; 5], [0; 5]);
        shape[..num_dims].copy_from_slice(tensor.shape);
        strides[..num_dims].copy_from_slice(tensor.strides);
        let tensor = Tensor {
            size: size_of::<Tensor>() as u32,
            format: tensor.format,
            num_dims: num_dims as u32,
            group_offset: tensor.group_offset,
            shape,
            strides,
            name: span_of(tensor.name.as_bytes()),
            data: tensor.data,
            scale: tensor.scale,
            scale_stride: tensor.scale_stride,
            seed: tensor.seed,
        };
        call!(self, "load", load(&raw const tensor))
    }

    fn ready(&mut self) -> Result<Ready> {
        let mut out = Guarded::<Ready>::new();
        call!(self, "get ready", ready(out.pointer()))?;
        let checked = out.check(&self.name, "ready");
        self.noted(checked)?;
        let ready = Ready { size: size_of::<Ready>() as u32, ..out.value };
        if ready.page_bytes == 0 {
            return self.lie("says a page has 0 bytes".to_owned());
        }
        if ready.page_bytes.checked_mul(ready.max_pages).is_none() {
            let (pages, bytes) = (ready.max_pages, ready.page_bytes);
            return self.lie(format!("says it has room for {pages} pages of {bytes} bytes, more than 2^64"));
        }
        self.page_bytes = ready.page_bytes;
        Ok(ready)
    }

    fn reserve(&mut self, num_pages: u64) -> Result<()> {
        let args = ReserveArgs { size: size_of::<ReserveArgs>() as u32, reserved: 0, num_pages };
        call!(self, "reserve", reserve(&raw const args))
    }

    fn warm(&mut self, shapes: &[WarmShape]) -> Result<()> {
        let shapes = span_of(shapes);
        call!(self, "warm", warm(&raw const shapes))
    }

    fn submit(&mut self, step: &Step<'_>) -> Result<Ticket> {
        let args = StepArgs {
            size: size_of::<StepArgs>() as u32,
            reserved: 0,
            id: step.id,
            releases: span_of(step.releases),
            binds: span_of(step.binds),
            pages: span_of(step.pages),
            page_ids: span_of(step.page_ids),
            seqs: span_of(step.seqs),
            tokens: span_of(step.tokens),
            targets: span_of(step.targets),
            masks: span_of(step.masks),
            history: span_of(step.history),
            biases: span_of(step.biases),
            media: span_of(step.media),
        };
        let mut ticket = 0;
        call!(self, "submit", submit(&raw const args, &raw mut ticket))?;
        self.next_ticket("submit", ticket)
    }

    fn wait(&mut self, ticket: Ticket, output: &mut Output) -> Result<()> {
        self.alive()?;
        self.check_output(output)?;
        if ticket.0 == 0 || ticket.0 > self.given {
            return self
                .unsupported(format!("ticket {} was never given; the newest is {}", ticket.0, self.given));
        }
        let mut out = Guarded::<OutputArgs>::new();
        out.value.capacity = output.tokens.len() as u32;
        out.value.top_capacity = output.top_capacity as u32;
        out.value.tokens = output.tokens.as_mut_ptr();
        out.value.logprobs = output.logprobs.as_mut_ptr();
        out.value.faults = output.faults.as_mut_ptr();
        out.value.ranks = output.ranks.as_mut_ptr();
        out.value.top_ids = output.top_ids.as_mut_ptr();
        out.value.top_logprobs = output.top_logprobs.as_mut_ptr();
        let given = (out.value.capacity, out.value.top_capacity);
        call!(self, "wait", wait(ticket.0, out.pointer()))?;
        let checked = out.check(&self.name, "wait");
        self.noted(checked)?;
        let taken = (out.value.capacity, out.value.top_capacity);
        if taken != given {
            return self.lie(format!(
                "says it filled {} slots of {} alternatives; it was given {} of {}",
                taken.0, taken.1, given.0, given.1
            ));
        }
        output.device_time_us = out.value.device_time_us;
        self.finished = self.finished.max(ticket.0);
        Ok(())
    }

    fn done(&mut self) -> Result<Ticket> {
        let mut ticket = 0;
        call!(self, "tell what is done", done(&raw mut ticket))?;
        if ticket > self.given || ticket < self.finished {
            let (given, finished) = (self.given, self.finished);
            return self.lie(format!(
                "says ticket {ticket} is the newest done; {given} is the newest given and {finished} was done before"
            ));
        }
        self.finished = ticket;
        Ok(Ticket(ticket))
    }

    fn copy_pages(&mut self, copies: &[PageCopy]) -> Result<()> {
        let copies = span_of(copies);
        call!(self, "copy pages", copy_pages(&raw const copies))
    }

    fn read_pages(&mut self, pages: &[u32], bytes: &mut Vec<u8>) -> Result<()> {
        let (count, pages) = (pages.len() as u64, span_of(pages));
        bytes.clear();
        let room = self.page_bytes.saturating_mul(count);
        if usize::try_from(room).is_err() || bytes.try_reserve_exact(room as usize).is_err() {
            return self.lie(format!("says {count} pages have {room} bytes, more than memory has"));
        }
        bytes.resize(room as usize, 0);
        let mut retried = false;
        loop {
            let mut text = text_of(bytes);
            call!(self, "read pages", read_pages(&raw const pages, &raw mut text))?;
            let len = usize::try_from(text.len).unwrap_or(usize::MAX);
            if len <= bytes.len() {
                bytes.truncate(len);
                return Ok(());
            }
            // A page may be longer in canonical order than on the device, but not by orders of magnitude.
            if retried || text.len > room.saturating_mul(16) {
                return self.lie(format!("says {count} pages have {len} bytes; {} were given", bytes.len()));
            }
            retried = true;
            bytes.resize(len, 0);
        }
    }

    fn write_pages(&mut self, pages: &[u32], bytes: &[u8]) -> Result<()> {
        let (pages, bytes) = (span_of(pages), span_of(bytes));
        call!(self, "write pages", write_pages(&raw const pages, &raw const bytes))
    }

    fn regions(&mut self) -> Result<Vec<Region>> {
        const MOST: u64 = 65_536;
        let mut regions = vec![Region::default(); 64];
        loop {
            let mut out = Guarded::<RegionArgs>::new();
            out.value.data = regions.as_mut_ptr();
            out.value.capacity = regions.len() as u64;
            out.value.stride = size_of::<Region>() as u64;
            call!(self, "name its page buffers", regions(out.pointer()))?;
            let checked = out.check(&self.name, "regions");
            self.noted(checked)?;
            let count = out.value.count;
            if count > MOST {
                return self.lie(format!("says it has {count} regions; at most {MOST} are believed"));
            }
            let fits = count as usize <= regions.len();
            regions.resize(count as usize, Region::default());
            if fits {
                return Ok(regions);
            }
        }
    }

    fn encode(&mut self, patches: &[f32], row_len: usize, grids: &[[u32; 3]]) -> Result<Media> {
        let args = EncodeArgs {
            size: size_of::<EncodeArgs>() as u32,
            reserved: 0,
            patches: span_of(patches),
            row_len: row_len as u64,
            grids: span_of(grids),
        };
        let mut out = Guarded::<EncodeResult>::new();
        call!(self, "encode images", encode(&raw const args, out.pointer()))?;
        let checked = out.check(&self.name, "encode");
        self.noted(checked)?;
        let result = out.value;
        let rows = patches.len() / row_len.max(1);
        if result.num_rows as usize > rows {
            return self.lie(format!("made {} embedding rows of {rows} patches", result.num_rows));
        }
        let ticket = self.next_ticket("encode", result.ticket)?;
        Ok(Media { handle: result.handle, num_rows: result.num_rows, ticket, bytes: result.bytes })
    }

    fn media_free(&mut self, handle: u64) -> Result<()> {
        call!(self, "free media", media_free(handle))
    }

    fn tap(&mut self, name: &str) -> Result<Tap> {
        const MOST: u64 = 1 << 32;
        let mut data: Vec<f32> = Vec::new();
        loop {
            let mut out = Guarded::<TapArgs>::new();
            out.value.name = span_of(name.as_bytes());
            out.value.data = data.as_mut_ptr();
            out.value.capacity = data.len() as u64;
            call!(self, "read taps", tap(out.pointer()))?;
            let checked = out.check(&self.name, "tap");
            self.noted(checked)?;
            let num_dims = out.value.num_dims as usize;
            let Some(shape) = out.value.shape.get(..num_dims) else {
                return self.lie(format!("says tap {name} has {num_dims} dimensions; at most 5 exist"));
            };
            let values =
                shape.iter().try_fold(1_u64, |product, len| product.checked_mul(*len)).unwrap_or(u64::MAX);
            if values > MOST {
                return self.lie(format!("says tap {name} has {values} values; at most {MOST} are believed"));
            }
            let fits = values as usize <= data.len();
            if !fits && data.try_reserve_exact(values as usize).is_err() {
                return self.lie(format!("says tap {name} has {values} values, more than memory has"));
            }
            data.resize(values as usize, 0.0);
            if fits {
                return Ok(Tap { shape: shape.to_vec(), data });
            }
        }
    }

    fn trace(&mut self, begin: bool) -> Result<()> {
        call!(self, "trace", trace(u32::from(begin)))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let Some(close) = self.table.close else { return };
        // SAFETY: the handle is open and this is the only place that closes it.
        let status = unsafe { close(self.handle, self.err.text()) };
        if let Err(error) = self.err.outcome(&self.name, "close", status) {
            crate::log::say(crate::log::WARN, &format!("closing an instance of {}: {error}", self.name));
        }
    }
}

const _: () = assert!(<Region as Element>::MINIMUM_BYTES <= size_of::<Region>());
