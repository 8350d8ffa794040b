//! What every slot of every page holds: which input wrote it and the chain value that went with it.

use m3_abi::{Error, Result};

use crate::distribution::{START, chain};

/// Bytes of a slot in the order of `read_pages`: input, chain, each 8, little-endian.
pub(crate) const SLOT_BYTES: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    /// Token, or token and image row mixed; [`UNWRITTEN`] when never written.
    input: u64,
    chain: u64,
}

const UNWRITTEN: u64 = u64::MAX;
const EMPTY: Slot = Slot { input: UNWRITTEN, chain: 0 };

#[derive(Clone, Debug)]
struct Page {
    slots: Vec<Slot>,
    /// Number of the last write, so that a reader can tell in one comparison that nothing changed.
    written: u64,
    /// Bound rows that have it in their table.
    holders: u32,
}

/// All pages of an instance.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    pages: Vec<Page>,
    page_tokens: usize,
    writes: u64,
}

/// How far a row has read its table: the chain at the start of each entry and the write it saw there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reader {
    seen: Vec<Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    page: u32,
    written: u64,
    full: bool,
    start: u64,
    end: u64,
}

impl Pages {
    pub(crate) fn reserve(page_tokens: usize, num_pages: u64) -> Self {
        let page = Page { slots: vec![EMPTY; page_tokens], written: 0, holders: 0 };
        Pages { pages: vec![page; num_pages as usize], page_tokens, writes: 0 }
    }

    fn check(&self, page: u32) -> Result<&Page> {
        let count = self.pages.len();
        self.pages
            .get(page as usize)
            .ok_or_else(|| Error::Fatal(format!("page {page} of {count} does not exist")))
    }

    fn page_mut(&mut self, page: u32) -> Result<&mut Page> {
        self.check(page)?;
        Ok(&mut self.pages[page as usize])
    }

    pub(crate) fn hold(&mut self, page: u32) -> Result<()> {
        self.page_mut(page)?.holders += 1;
        Ok(())
    }

    pub(crate) fn let_go(&mut self, page: u32) -> Result<()> {
        self.page_mut(page)?.holders -= 1;
        Ok(())
    }

    /// Chain value before `position` as the pages of `table` hold it; Fatal at the first slot that was not written by
    /// the token that belongs there.
    pub(crate) fn read(&self, row: u32, table: &[u32], position: usize, reader: &mut Reader) -> Result<u64> {
        let entries = position.div_ceil(self.page_tokens);
        let mut start = START;
        for (entry, page) in table[..entries].iter().copied().enumerate() {
            let slots = (position - entry * self.page_tokens).min(self.page_tokens);
            let full = slots == self.page_tokens;
            let written = self.check(page)?.written;
            let known = reader.seen.get(entry).filter(|seen| {
                full && seen.full && seen.page == page && seen.written == written && seen.start == start
            });
            if let Some(seen) = known {
                start = seen.end;
                continue;
            }
            let end = self.walk(row, page, entry, start, slots)?;
            reader.seen.truncate(entry);
            reader.seen.push(Seen { page, written, full, start, end });
            start = end;
        }
        Ok(start)
    }

    fn walk(&self, row: u32, page: u32, entry: usize, start: u64, slots: usize) -> Result<u64> {
        let mut before = start;
        for (index, slot) in self.check(page)?.slots[..slots].iter().enumerate() {
            let position = entry * self.page_tokens + index;
            let at = || format!("row {row} position {position} (page {page} slot {index})");
            if slot.input == UNWRITTEN {
                return Err(Error::Fatal(format!("read of unwritten slot: {}", at())));
            }
            if slot.chain != chain(before, slot.input) {
                return Err(Error::Fatal(format!("read of another sequence's slot: {}", at())));
            }
            before = slot.chain;
        }
        Ok(before)
    }

    /// The input that was written at a position, if one was.
    pub(crate) fn input(&self, table: &[u32], position: usize) -> Option<u64> {
        let page = self.pages.get(*table.get(position / self.page_tokens)? as usize)?;
        Some(page.slots[position % self.page_tokens].input).filter(|input| *input != UNWRITTEN)
    }

    /// Writes one position; gives the chain value after it.
    pub(crate) fn write(
        &mut self,
        row: u32,
        table: &[u32],
        position: usize,
        before: u64,
        input: u64,
    ) -> Result<u64> {
        let Some(page_id) = table.get(position / self.page_tokens).copied() else {
            let pages = table.len();
            return Err(Error::Fatal(format!(
                "row {row} has {pages} pages; position {position} needs one more"
            )));
        };
        self.writes += 1;
        let (written, index) = (self.writes, position % self.page_tokens);
        let page = self.page_mut(page_id)?;
        if page.holders != 1 {
            let holders = page.holders;
            return Err(Error::Fatal(format!("row {row} writes page {page_id}, which {holders} rows hold")));
        }
        let after = chain(before, input);
        page.slots[index] = Slot { input, chain: after };
        page.written = written;
        Ok(after)
    }

    /// Copies a whole page over another, which no row may hold twice.
    pub(crate) fn copy(&mut self, from: u32, to: u32) -> Result<()> {
        let slots = self.check(from)?.slots.clone();
        self.put(to, slots)
    }

    fn put(&mut self, to: u32, slots: Vec<Slot>) -> Result<()> {
        self.writes += 1;
        let written = self.writes;
        let page = self.page_mut(to)?;
        if page.holders > 1 {
            return Err(Error::Fatal(format!(
                "page {to} is overwritten while {} rows hold it",
                page.holders
            )));
        }
        *page = Page { slots, written, holders: page.holders };
        Ok(())
    }

    pub(crate) fn store(&self, page: u32, page_bytes: usize, bytes: &mut Vec<u8>) -> Result<()> {
        let start = bytes.len();
        for slot in &self.check(page)?.slots {
            bytes.extend_from_slice(&slot.input.to_le_bytes());
            bytes.extend_from_slice(&slot.chain.to_le_bytes());
        }
        bytes.resize(start + page_bytes, 0);
        Ok(())
    }

    pub(crate) fn restore(&mut self, page: u32, bytes: &[u8]) -> Result<()> {
        let slots = bytes.chunks_exact(SLOT_BYTES).take(self.page_tokens).map(|slot| {
            let (input, chain) = slot.split_at(SLOT_BYTES / 2);
            let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("half a slot is 8 bytes"));
            Slot { input: number(input), chain: number(chain) }
        });
        self.put(page, slots.collect())
    }
}
