//! Pages for sequences: a [`Lease`] is the single owner of everything a sequence holds, and [`PageCache`] hands leases
//! out, shares full pages of equal prefixes between them and takes cached pages back when free ones run out.

pub mod media;
mod missed;
pub mod pool;
pub mod radix;
#[cfg(test)]
mod tests;

pub use pool::{PageId, PagePool};
pub use radix::{KeyElement, KeyedRun, PrefixKey, PrefixTree};

use crate::metrics::{Misses, PageCounts};
use missed::Missed;
use pool::Released;
use radix::NodeId;

/// Everything one sequence holds. Given back whole, through [`PageCache::release`].
#[must_use = "a lease that is not released leaks its pages"]
#[derive(Debug)]
pub struct Lease {
    /// In order of position.
    pages: Vec<PageId>,
    /// Pages of the tree that hold the same prefix as pages of our own: held because nodes of ours hang below them.
    twins: Vec<PageId>,
    /// Leading pages that the tree knows (as ours or as a twin), and the node of the last one.
    num_published: usize,
    tip: Option<NodeId>,
    num_matched: usize,
}

impl Lease {
    pub fn pages(&self) -> &[PageId] {
        &self.pages
    }

    /// Leading pages that were found in the cache.
    pub fn num_matched(&self) -> usize {
        self.num_matched
    }
}

/// The pool and the prefix tree together.
///
/// Invariant: whoever holds a node's page holds the pages of all its ancestors, so every idle page can be evicted,
/// leaves first.
#[derive(Debug)]
pub struct PageCache {
    pool: PagePool,
    tree: PrefixTree,
    /// Per page, its node in the tree.
    nodes: Vec<Option<NodeId>>,
    page_tokens: usize,
    share_prefixes: bool,
    num_evicted: u64,
    num_released: u64,
    missed: Missed,
}

impl PageCache {
    /// With `share_prefixes` off nothing is ever cached.
    pub fn new(num_pages: usize, page_tokens: usize, share_prefixes: bool) -> Self {
        PageCache {
            pool: PagePool::new(num_pages),
            tree: PrefixTree::new(page_tokens),
            nodes: vec![None; num_pages],
            page_tokens,
            share_prefixes,
            num_evicted: 0,
            num_released: 0,
            missed: Missed::default(),
        }
    }

    pub fn counts(&self) -> PageCounts {
        self.pool.counts()
    }

    /// Pages evicted since start.
    pub fn num_evicted(&self) -> u64 {
        self.num_evicted
    }

    /// Notes why a sequence that starts to run found only `matched` pages of what it could have used.
    pub fn note_miss(&mut self, usable: PrefixKey<'_>, matched: usize) {
        let full = usable.tokens.len() / self.page_tokens;
        if !self.share_prefixes {
            self.missed.counts.off += 1;
        } else if full == 0 {
            self.missed.counts.short += 1;
        } else if matched < full {
            self.missed.note(self.tree.identity(usable, matched), matched);
        }
    }

    /// Sequences that found less than they could have used.
    pub fn misses(&self) -> Misses {
        self.missed.counts
    }

    /// Leases released since start: while it stands still, a lease that did not fit will not fit.
    pub fn num_released(&self) -> u64 {
        self.num_released
    }

    /// Leading full pages of `key`, `max_pages` at most, that are in the cache.
    pub fn num_known(&self, key: PrefixKey<'_>, max_pages: usize) -> usize {
        self.tree.find(key, max_pages.min(key.tokens.len() / self.page_tokens)).len()
    }

    /// `num_pages` pages of which the first may come from the cache, covering at most `max_cached_tokens` tokens of
    /// `key`. `None`, with nothing changed but the age of cached pages, when there are not enough.
    pub fn lease(&mut self, key: PrefixKey<'_>, max_cached_tokens: usize, num_pages: usize) -> Option<Lease> {
        let max_pages = (max_cached_tokens.min(key.tokens.len()) / self.page_tokens).min(num_pages);
        let found = if self.share_prefixes { self.tree.find(key, max_pages) } else { Vec::new() };
        let mut lease = Lease {
            pages: found.iter().map(|&(_, page)| page).collect(),
            twins: Vec::new(),
            num_published: found.len(),
            tip: found.last().map(|&(node, _)| node),
            num_matched: found.len(),
        };
        // Held before anything is evicted, so that a match cannot be evicted for its own sequence.
        for &(node, page) in &found {
            self.hold(node, page);
        }
        let counts = self.counts();
        if num_pages - found.len() > counts.free + counts.cached {
            self.give_back(lease);
            return None;
        }
        while lease.pages.len() < num_pages {
            assert!(self.grow(&mut lease), "{counts:?} were counted as enough for {num_pages} pages");
        }
        Some(lease)
    }

    /// One more page at the end; `false` when every page is leased.
    #[must_use]
    pub fn grow(&mut self, lease: &mut Lease) -> bool {
        let page = self.pool.take().or_else(|| {
            self.evict_one();
            self.pool.take()
        });
        lease.pages.extend(page);
        page.is_some()
    }

    /// Offers all full pages of `key` to other sequences; their contents must be final and sound.
    pub fn publish(&mut self, lease: &mut Lease, key: PrefixKey<'_>) {
        let num_full = key.tokens.len() / self.page_tokens;
        if !self.share_prefixes {
            return;
        }
        for index in lease.num_published..num_full.min(lease.pages.len()) {
            let own = lease.pages[index];
            let node = self.tree.extend(lease.tip, key, index, own);
            let known = self.tree.page(node);
            if known == own {
                self.pool.publish(own);
                self.nodes[own.0 as usize] = Some(node);
            } else {
                self.hold(node, known);
                lease.twins.push(known);
            }
            lease.tip = Some(node);
            lease.num_published = index + 1;
        }
    }

    /// Gives everything back; pages the tree knows stay cached.
    pub fn release(&mut self, lease: Lease) {
        self.num_released += 1;
        self.give_back(lease);
    }

    /// Forgets every cached page that no sequence holds; `true` when the tree is empty then.
    pub fn flush(&mut self) -> bool {
        while self.evict_one() {}
        self.tree.is_empty()
    }

    /// Checks the books against the leases that exist; a sentence when they do not agree.
    pub fn audit<'a>(&self, leases: impl Iterator<Item = &'a Lease>) -> Result<(), String> {
        let mut expected = vec![0u32; self.nodes.len()];
        for lease in leases {
            for page in lease.pages.iter().chain(&lease.twins) {
                expected[page.0 as usize] += 1;
            }
        }
        let mut num_leased = 0;
        for (index, &holders) in expected.iter().enumerate() {
            let counted = self.pool.holders(PageId(index as u32));
            if counted != holders {
                return Err(format!("page {index} counts {counted} holders; {holders} leases hold it"));
            }
            num_leased += usize::from(holders > 0);
        }
        let counts = self.counts();
        if counts.leased != num_leased || counts.free + counts.leased + counts.cached != counts.total {
            return Err(format!("{counts:?} do not add up; {num_leased} pages are leased"));
        }
        let published = self.nodes.iter().flatten().count();
        if published != self.tree.len() {
            return Err(format!("the tree has {} pages; {published} are marked", self.tree.len()));
        }
        Ok(())
    }

    fn give_back(&mut self, lease: Lease) {
        self.tree.advance();
        for page in lease.pages.into_iter().chain(lease.twins) {
            if self.pool.release(page) == Released::Idle {
                let node = self.nodes[page.0 as usize].expect("idle pages have a node");
                self.tree.mark_idle(node);
            }
        }
    }

    fn hold(&mut self, node: NodeId, page: PageId) {
        if self.pool.hold(page) {
            self.tree.mark_held(node);
        }
    }

    fn evict_one(&mut self) -> bool {
        let Some((page, identity)) = self.tree.evict() else { return false };
        self.missed.forgotten(identity);
        self.nodes[page.0 as usize] = None;
        self.pool.retract(page);
        self.num_evicted += 1;
        true
    }
}
