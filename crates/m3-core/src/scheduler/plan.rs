//! Choosing what the next step computes: decoding rows first, then chunks of known tokens, then newcomers, within the
//! token budget; and taking pages back from the last in line when an earlier sequence needs one.

use super::Scheduler;
use super::queue::Place;
use super::sequence::Residence;
use super::step::{Part, Step, next_mask};
use crate::event::FinishReason;

/// Steps submitted and not yet read; the most the plugin line allows.
pub const MAX_STEPS_IN_FLIGHT: usize = 2;

/// A step whose results are awaited.
pub(super) struct StepInFlight {
    pub(super) id: u64,
    pub(super) parts: Vec<(Place, Part)>,
    pub(super) num_tokens: usize,
    pub(super) planned_us: u64,
}

/// Who takes part in the step, with how many tokens.
struct Draft {
    members: Vec<(Place, usize)>,
    budget: usize,
}

impl Draft {
    fn add(&mut self, place: Place, wanted: usize) {
        let num_tokens = wanted.min(self.budget);
        self.budget -= num_tokens;
        self.members.push((place, num_tokens));
    }
}

/// Whether a sequence has the page its next token goes to.
enum Room {
    Ready,
    /// Its own pages were taken back: it is last in line.
    Preempted,
    /// Only by preempting, which has to wait until no step is in flight.
    Stalled,
}

impl Scheduler {
    /// The next step, to be submitted to every rank as it is. `None` when there is nothing to compute now: all is
    /// done, or results in flight are needed first.
    pub fn plan(&mut self, now_us: u64) -> Option<Step> {
        if self.in_flight.len() >= MAX_STEPS_IN_FLIGHT {
            return None;
        }
        loop {
            let preemptions = self.counters.preemptions;
            let draft = self.draft(now_us)?;
            if draft.members.is_empty() && self.counters.preemptions == preemptions {
                return None;
            }
            // Drafting again is finite: each round a failing grammar has ended its request, or the only sequences
            // were preempted (they held twins of cached pages) and start over without.
            if let Some(step) = self.build(draft, now_us) {
                return Some(step);
            }
        }
    }

    /// `None` when planning has to wait for the steps in flight.
    fn draft(&mut self, now_us: u64) -> Option<Draft> {
        let mut draft = Draft { members: Vec::new(), budget: self.config.max_step_tokens };
        let preemptions = self.counters.preemptions;
        if self.config.mixed_chunk {
            self.draft_decodes(&mut draft)?;
        }
        self.draft_chunks(&mut draft);
        // Whoever was just preempted must not take the page back in the same breath.
        if self.counters.preemptions == preemptions {
            self.admit(&mut draft, now_us);
        }
        if !self.config.mixed_chunk && draft.members.is_empty() {
            self.draft_decodes(&mut draft)?;
        }
        Some(draft)
    }

    fn draft_decodes(&mut self, draft: &mut Draft) -> Option<()> {
        let decoding = self.running_places(|sequence| !sequence.is_prefilling());
        for place in decoding {
            if draft.budget == 0 {
                break;
            }
            match self.make_room(place) {
                Room::Ready => draft.add(place, 1),
                Room::Preempted => {}
                Room::Stalled => return None,
            }
        }
        Some(())
    }

    fn draft_chunks(&mut self, draft: &mut Draft) {
        for place in self.running_places(super::sequence::Sequence::is_prefilling) {
            if draft.budget == 0 {
                break;
            }
            // Pages for all known tokens were leased on admission.
            let ready = self.queues.running[&place].ready();
            if ready > 0 {
                draft.add(place, ready);
            }
        }
    }

    /// First come, first served: the first that does not fit, or whose pages are on their way, keeps all behind it
    /// waiting. Nobody is preempted for a
    /// newcomer, whatever its priority.
    fn admit(&mut self, draft: &mut Draft, now_us: u64) {
        while draft.budget > 0 && !self.free_rows.is_empty() {
            let Some((&place, sequence)) = self.queues.waiting.first_key_value() else { break };
            let released = self.cache.num_released();
            if self.blocked == Some((place, released)) || self.awaits_a_page(place, sequence) {
                break;
            }
            let num_pages = sequence.starting_pages(&self.config);
            let key = sequence.key(sequence.tokens.len());
            let Some(lease) = self.cache.lease(key, sequence.max_cached_tokens(), num_pages) else {
                self.blocked = Some((place, released));
                break;
            };
            let (_, mut sequence) =
                self.queues.waiting.pop_first().expect("its first has just been looked at");
            let row = self.free_rows.pop().expect("there is a free row");
            let matched = lease.num_matched() * self.config.page_tokens;
            sequence.computed = matched;
            sequence.done = matched;
            sequence.residence = Some(Residence { row, lease, bound: false, sent_pages: 0 });
            if sequence.started_us.is_none() {
                sequence.started_us = Some(now_us);
                self.started.push(sequence.request.id);
                sequence.cached_tokens = matched as u32;
                self.counters.prompt_tokens += sequence.prompt_len as u64;
                self.counters.cached_tokens += matched as u64;
                let usable = sequence.key(sequence.max_cached_tokens());
                self.cache.note_miss(usable, matched / self.config.page_tokens);
            }
            // With media, the first chunk may have to wait for them.
            let ready = sequence.ready();
            if ready > 0 {
                draft.add(place, ready);
            }
            self.queues.running.insert(place, sequence);
        }
    }

    fn running_places(&self, wanted: impl Fn(&super::sequence::Sequence) -> bool) -> Vec<Place> {
        let running = self.queues.running.iter();
        running
            .filter(|(_, sequence)| sequence.remaining() > 0 && wanted(sequence))
            .map(|(place, _)| *place)
            .collect()
    }

    /// A page for the next token of a decoding sequence, from the last in line if need be. The first in line can take
    /// from everyone and fits the pool alone (or it was refused), so it always gets on; if twins of cached pages stand
    /// in its own way, it is preempted itself and continues from those pages.
    fn make_room(&mut self, place: Place) -> Room {
        loop {
            let Some(sequence) = self.queues.running.get_mut(&place) else { return Room::Preempted };
            let needed = sequence.computed / self.config.page_tokens + 1;
            let lease = &mut sequence.residence.as_mut().expect("running sequences are resident").lease;
            if lease.pages().len() >= needed || self.cache.grow(lease) {
                return Room::Ready;
            }
            if !self.in_flight.is_empty() {
                return Room::Stalled;
            }
            self.preempt_last();
        }
    }

    /// Takes everything back from the last in line; its full pages stay cached while nobody needs them.
    fn preempt_last(&mut self) {
        let (place, mut sequence) = self.queues.running.pop_last().expect("somebody is running");
        self.evacuate(&mut sequence);
        sequence.forget_computed();
        self.counters.preemptions += 1;
        self.queues.waiting.insert(place, sequence);
    }

    /// `None` when there are no members or the grammar of each has failed.
    fn build(&mut self, draft: Draft, now_us: u64) -> Option<Step> {
        let mut members = Vec::with_capacity(draft.members.len());
        for (place, num_tokens) in draft.members {
            match self.mask_for(place, num_tokens) {
                Ok(mask) => members.push((place, num_tokens, mask)),
                Err(fault) => self.end(place, FinishReason::Error(fault), now_us),
            }
        }
        if members.is_empty() {
            return None;
        }
        self.num_planned += 1;
        let mut step =
            Step { id: self.num_planned, releases: std::mem::take(&mut self.releases), ..Step::default() };
        let mut parts = Vec::with_capacity(members.len());
        for (place, num_tokens, mask) in members {
            let sequence = self.queues.running.get_mut(&place).expect("members are running");
            parts.push((place, step.push(&self.config, sequence, num_tokens, mask.as_deref())));
        }
        let num_tokens = step.num_tokens();
        self.in_flight.push_back(StepInFlight { id: step.id, parts, num_tokens, planned_us: now_us });
        Some(step)
    }

    fn mask_for(&mut self, place: Place, num_tokens: usize) -> Result<Option<Vec<u32>>, String> {
        let sequence = self.queues.running.get_mut(&place).expect("members are running");
        if !sequence.samples_at(sequence.computed + num_tokens) {
            return Ok(None);
        }
        next_mask(&self.config, sequence)
    }
}
