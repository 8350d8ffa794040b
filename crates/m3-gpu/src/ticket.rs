//! Steps in flight: each gets a ticket, a slot of double-buffered memory, and an event at its end.
//!
//! Tickets count from 1 and finish in order, because all of them pass through one stream. What a step computes and where
//! its results lie is the backend's; it picks buffers by [`Open::slot`].

use m3_abi::Ticket;

use crate::device::Device;
use crate::error::{GpuError, Result};
use crate::stream::{Event, Stream};

/// The timeline of one instance.
#[derive(Debug)]
pub struct Tickets {
    slots: Vec<Slot>,
    /// Newest ticket given, and newest known to be done.
    given: u64,
    done: u64,
    open: Option<u64>,
}

#[derive(Debug)]
struct Slot {
    start: Event,
    end: Event,
    device_us: u64,
}

/// A step that is being put into the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    pub ticket: Ticket,
    /// Which of the doubled buffers it may use: `(ticket - 1) % depth`.
    pub slot: usize,
}

impl Tickets {
    /// For `depth` steps in flight (2: the host prepares one while the device runs the other).
    pub fn new(device: &Device, depth: usize) -> Result<Self> {
        let slot = || Ok(Slot { start: device.event(true)?, end: device.event(true)?, device_us: 0 });
        let slots = (0..depth.max(1)).map(|_| slot()).collect::<Result<_>>()?;
        Ok(Tickets { slots, given: 0, done: 0, open: None })
    }

    /// Starts a step. When `depth` steps are in flight, blocks until the oldest has run: its slot is used again, and
    /// what it left there must have been read.
    pub fn begin(&mut self, stream: &Stream) -> Result<Open> {
        let step = self.given + 1;
        if let Some(open) = self.open {
            return Err(GpuError::StepOpen { step, open });
        }
        if let Some(oldest) = step.checked_sub(self.slots.len() as u64).filter(|oldest| *oldest > 0) {
            self.wait(Ticket(oldest))?;
        }
        let slot = self.slot(step);
        self.slots[slot].start.record(stream)?;
        self.open = Some(step);
        Ok(Open { ticket: Ticket(step), slot })
    }

    /// All of the step's work is in the stream.
    pub fn finish(&mut self, open: Open, stream: &Stream) -> Result<Ticket> {
        let slot = self.slot(open.ticket.0);
        self.slots[slot].end.record(stream)?;
        self.open = None;
        self.given = open.ticket.0;
        Ok(open.ticket)
    }

    /// The step could not be put in: its number is given to the next one.
    pub fn abandon(&mut self, _open: Open) {
        self.open = None;
    }

    /// Blocks until the step has run; earlier ones have then run too.
    pub fn wait(&mut self, ticket: Ticket) -> Result<()> {
        if ticket.0 == 0 || ticket.0 > self.given {
            return Err(GpuError::NoTicket { ticket: ticket.0, newest: self.given });
        }
        while self.done < ticket.0 {
            let slot = self.slot(self.done + 1);
            self.slots[slot].end.wait()?;
            self.note_done(slot)?;
        }
        Ok(())
    }

    /// The newest step that has run, without blocking; 0 when none has.
    pub fn done(&mut self) -> Result<Ticket> {
        while self.done < self.given {
            let slot = self.slot(self.done + 1);
            if !self.slots[slot].end.is_done()? {
                break;
            }
            self.note_done(slot)?;
        }
        Ok(Ticket(self.done))
    }

    /// Microseconds that the device spent from the start to the end of a step that has run, as long as its slot was not
    /// used again.
    pub fn device_us(&self, ticket: Ticket) -> Option<u64> {
        let fresh = ticket.0 > 0 && ticket.0 <= self.done && ticket.0 + self.slots.len() as u64 > self.given;
        fresh.then(|| self.slots[self.slot(ticket.0)].device_us)
    }

    /// Steps given and not known to have run.
    pub fn in_flight(&self) -> u64 {
        self.given - self.done
    }

    /// Which of the doubled buffers a ticket uses.
    pub fn slot_of(&self, ticket: Ticket) -> usize {
        self.slot(ticket.0)
    }

    fn note_done(&mut self, slot: usize) -> Result<()> {
        let slot = &mut self.slots[slot];
        slot.device_us = (f64::from(slot.end.since_ms(&slot.start)?) * 1000.0).round() as u64;
        self.done += 1;
        Ok(())
    }

    fn slot(&self, ticket: u64) -> usize {
        ((ticket - 1) % self.slots.len() as u64) as usize
    }
}
