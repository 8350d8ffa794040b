//! What the host changes on the device between steps, in stream order with them: page tables and penalty counts.
//!
//! Entries are sent in bundles and put in place by a kernel; nothing here waits for the device, unless more bundles are sent
//! at once than there are buffers.

use m3_abi::Result;
use m3_abi::types::{PageAppend, RowBind};
use m3_gpu::device::Device;
use m3_gpu::launch::DevicePointer;
use m3_gpu::memory::Region;
use m3_gpu::staging::{Layout, Staging};

use crate::kernels::{CountHistory, CountHistoryArguments, ScatterI32, ScatterI32Arguments};
use crate::ops::work::{SCATTERED, at};
use crate::ops::{Rank, blocks, launched};

/// Buffers for bundles: a long prompt's pages come in one.
const BUNDLES: usize = 4;

/// Sends entries of device tables.
#[derive(Debug)]
pub(crate) struct Upkeep {
    staging: Staging,
}

/// `table[index] = value`, for a table of 32-bit values.
pub(crate) type Entry = (i64, i32);

impl Upkeep {
    pub(crate) fn new(device: &Device) -> Result<Upkeep> {
        let (layout, ..) = layout(SCATTERED);
        Ok(Upkeep { staging: Staging::new(device, layout.bytes(), BUNDLES)? })
    }

    /// New entries of rows' page tables, in their order.
    pub(crate) fn append_pages(
        &mut self,
        rank: &Rank,
        appends: &[PageAppend],
        page_ids: &[u32],
    ) -> Result<()> {
        let max_pages = rank.work.sizes.max_pages as i64;
        let table = rank.work.buffers.page_table;
        let mut entries: Vec<Entry> = Vec::new();
        let mut rows: Vec<u32> = Vec::new();
        for append in appends {
            // Entries of one launch are distinct; a row that comes again may name the same ones.
            if rows.contains(&append.row) {
                self.scatter(rank, table.pointer, &entries)?;
                entries.clear();
                rows.clear();
            }
            rows.push(append.row);
            let ids = &page_ids[append.offset as usize..][..append.count as usize];
            let first = i64::from(append.row) * max_pages + i64::from(append.first);
            entries.extend(ids.iter().zip(first..).map(|(&id, index)| (index, id as i32)));
        }
        self.scatter(rank, table.pointer, &entries)
    }

    /// Puts entries in place; indexes are distinct.
    pub(crate) fn scatter(&mut self, rank: &Rank, table: DevicePointer, entries: &[Entry]) -> Result<()> {
        for bundle in entries.chunks(SCATTERED) {
            let (layout, indexes, values) = layout(bundle.len());
            let to = rank.work.buffers.scatter;
            let mut arrays = self.staging.begin(&layout)?;
            let (index, value): (Vec<i64>, Vec<i32>) = bundle.iter().copied().unzip();
            arrays.write(indexes, &index)?;
            arrays.write(values, &value)?;
            arrays.send(&rank.stream, to)?;
            let arguments = ScatterI32Arguments {
                target: table,
                index: indexes.pointer(to),
                value: values.pointer(to),
                count: bundle.len() as i32,
            };
            let grid = [blocks(bundle.len(), ScatterI32::BLOCK), 1, 1];
            launched(rank.kernels.scatter_i32.launch(&rank.queue(), grid, &arguments))?;
        }
        Ok(())
    }

    /// A row's counts from the ids that penalties look at.
    pub(crate) fn count_history(&mut self, rank: &Rank, bind: &RowBind, history: &[u32]) -> Result<()> {
        let counts = counts_of(rank, bind.row)?;
        rank.stream.fill(counts, 0)?;
        let mut prompt = bind.prompt_len as usize;
        for bundle in history.chunks(SCATTERED) {
            let mut layout = Layout::new();
            let ids = layout.field::<u32>("history", bundle.len());
            let to = rank.work.buffers.scatter;
            let mut arrays = self.staging.begin(&layout)?;
            arrays.write(ids, bundle)?;
            arrays.send(&rank.stream, to)?;
            let arguments = CountHistoryArguments {
                counts: counts.pointer,
                history: ids.pointer(to),
                length: bundle.len() as i32,
                prompt_length: prompt.min(bundle.len()) as i32,
            };
            let grid = [blocks(bundle.len(), CountHistory::THREADS), 1, 1];
            launched(rank.kernels.count_history.launch(&rank.queue(), grid, &arguments))?;
            prompt = prompt.saturating_sub(bundle.len());
        }
        Ok(())
    }
}

fn layout(count: usize) -> (Layout, m3_gpu::staging::Field<i64>, m3_gpu::staging::Field<i32>) {
    let mut layout = Layout::new();
    let indexes = layout.field("indexes", count);
    let values = layout.field("values", count);
    (layout, indexes, values)
}

/// A row's counts: as many as the rank samples from.
fn counts_of(rank: &Rank, row: u32) -> Result<Region> {
    let vocab = rank.dims.vocab_part.len();
    let counts = rank.work.buffers.counts;
    let first = at(counts, row as usize * vocab, 4).0 - counts.pointer.0;
    Ok(counts.part(first, (vocab * 4) as u64)?)
}
