//! Whether a newcomer waits a moment for pages that somebody ahead of it is computing, instead of computing the same
//! pages again: the answers to one prompt, asked for at once, cost one prompt.
//!
//! It cannot wait for long or for ever. It holds nothing while it waits, so it is in nobody's way. It waits only for
//! running sequences ahead of it in line whose known tokens are not all computed; those have a part in every step
//! whose budget lasts, and newcomers are only asked when it has lasted, so it waits for at most the steps in flight
//! and the next. It is asked again at every plan: once the pages are cached, or whoever computed them has ended or
//! was preempted, it goes on.

use super::Scheduler;
use super::queue::Place;
use super::sequence::Sequence;

impl Scheduler {
    /// Whether the next full page that `sequence`, which waits at `place`, could take from the cache is on its way
    /// there.
    pub(super) fn awaits_a_page(&self, place: Place, sequence: &Sequence) -> bool {
        if !self.config.prefix_cache {
            return false;
        }
        let page_tokens = self.config.page_tokens;
        let usable = sequence.key(sequence.max_cached_tokens());
        let ahead = self.queues.running.range(..place).map(|(_, leader)| leader);
        let coming =
            ahead.filter_map(|leader| leader.coming()).map(|key| usable.common_pages(&key, page_tokens));
        coming.max().is_some_and(|most| most > self.cache.num_known(usable, most))
    }
}
