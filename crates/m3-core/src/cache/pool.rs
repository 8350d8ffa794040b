//! The ledger of page ids: which are free, how many sequences hold each, which the prefix tree knows.
//! It owns ids only; the bytes of a page are the backend's. No tree and no eviction order here.

use crate::metrics::PageCounts;

/// A page of keys, values and index keys of every layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(pub u32);

impl PageId {
    fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Sequences that rely on the page.
    holders: u32,
    /// Known to the prefix tree.
    published: bool,
}

/// What became of a page when one holder let go of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// Others still hold it.
    Held,
    /// Nobody holds it and the tree does not know it.
    Free,
    /// Only the tree knows it now.
    Idle,
}

/// All pages of the device, in one of three states: free, leased (held by a sequence) or cached (idle in the tree).
#[derive(Debug)]
pub struct PagePool {
    entries: Vec<Entry>,
    free: Vec<PageId>,
    num_idle: usize,
}

impl PagePool {
    pub fn new(num_pages: usize) -> Self {
        let num_pages = u32::try_from(num_pages).expect("page ids are u32; the configuration was checked");
        PagePool {
            entries: vec![Entry::default(); num_pages as usize],
            // Taken from the end, so that low ids are used first.
            free: (0..num_pages).rev().map(PageId).collect(),
            num_idle: 0,
        }
    }

    pub fn counts(&self) -> PageCounts {
        let total = self.entries.len();
        PageCounts {
            free: self.free.len(),
            cached: self.num_idle,
            leased: total - self.free.len() - self.num_idle,
            total,
        }
    }

    /// A free page, now with one holder.
    pub fn take(&mut self) -> Option<PageId> {
        let page = self.free.pop()?;
        self.entries[page.index()].holders = 1;
        Some(page)
    }

    /// One more holder of a page that is held or idle; `true` when it was idle.
    pub fn hold(&mut self, page: PageId) -> bool {
        let entry = &mut self.entries[page.index()];
        assert!(entry.holders > 0 || entry.published, "page {} is free and cannot be held", page.0);
        entry.holders += 1;
        let was_idle = entry.holders == 1;
        self.num_idle -= usize::from(was_idle);
        was_idle
    }

    /// One holder less.
    pub fn release(&mut self, page: PageId) -> Released {
        let entry = &mut self.entries[page.index()];
        assert!(entry.holders > 0, "page {} was released more often than it was held", page.0);
        entry.holders -= 1;
        match (entry.holders, entry.published) {
            (0, true) => {
                self.num_idle += 1;
                Released::Idle
            }
            (0, false) => {
                self.free.push(page);
                Released::Free
            }
            _ => Released::Held,
        }
    }

    /// The tree now knows this held page.
    pub fn publish(&mut self, page: PageId) {
        let entry = &mut self.entries[page.index()];
        assert!(entry.holders > 0 && !entry.published, "page {} cannot be published twice or free", page.0);
        entry.published = true;
    }

    /// The tree has forgotten this idle page, which is free again.
    pub fn retract(&mut self, page: PageId) {
        let entry = &mut self.entries[page.index()];
        assert!(entry.holders == 0 && entry.published, "page {} is not idle and cannot be evicted", page.0);
        entry.published = false;
        self.num_idle -= 1;
        self.free.push(page);
    }

    /// Sequences that hold `page`.
    pub fn holders(&self, page: PageId) -> u32 {
        self.entries[page.index()].holders
    }
}
