//! Pages of K, V and index keys: a buffer per layer and lane, and the way between them and canonical order.
//!
//! A lane's part of a page is one run of bytes in both, `[heads, tokens, dim]`, so moving a page is a copy per lane. Which
//! page belongs to whom is the host's knowledge.

use m3_abi::types::{DTYPE_BF16, PageCopy, Region as AbiRegion};
use m3_abi::{Error, Result};
use m3_gpu::arena::{Arena, ArenaPlan, PieceId};
use m3_gpu::arguments::Matrix;
use m3_gpu::device::Device;
use m3_gpu::launch::DevicePointer;
use m3_gpu::memory::{Pinned, Region};
use m3_gpu::stream::Stream;
use m3_model::pages::{Lane, PageLayout};

/// bf16 with every bit set is NaN: what nobody wrote shows when it is read.
const POISON: u8 = 0xff;

/// All pages of a rank.
pub(crate) struct Pages {
    arena: Arena,
    lanes: Vec<LanePages>,
    layout: PageLayout,
    num_pages: usize,
    /// One canonical page on its way between host and device.
    staging: Pinned,
}

/// One lane of one layer: `[pages, heads, tokens, dim]` bf16.
struct LanePages {
    piece: PieceId,
    layer: usize,
    lane: Lane,
    /// Of this lane in one page.
    page_bytes: u64,
    /// In a canonical page.
    offset: u64,
}

/// Where a layer's pages start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LayerPages {
    pub(crate) keys: DevicePointer,
    pub(crate) values: DevicePointer,
    /// Null on dense layers.
    pub(crate) index_keys: DevicePointer,
}

impl Pages {
    pub(crate) fn new(
        device: &Device,
        stream: &Stream,
        layout: PageLayout,
        num_pages: usize,
    ) -> Result<Pages> {
        let mut plan = ArenaPlan::new();
        let lanes = layout.lanes().iter().map(|place| {
            let page_bytes = (place.num_heads * layout.page_tokens * place.dim * layout.value_bytes) as u64;
            LanePages {
                piece: plan
                    .add(format!("layer {} {:?}", place.layer, place.lane), page_bytes * num_pages as u64),
                layer: place.layer,
                lane: place.lane,
                page_bytes,
                offset: (place.offset * layout.value_bytes) as u64,
            }
        });
        let lanes = lanes.collect();
        let arena = plan.carve(device, "pages")?;
        arena.poison(stream, POISON)?;
        let staging = device.pinned(layout.page_bytes() as u64, "page transfer")?;
        Ok(Pages { arena, lanes, layout, num_pages, staging })
    }

    pub(crate) fn layer(&self, layer: usize) -> LayerPages {
        let find = |lane| {
            let found = self.lanes.iter().find(|pages| pages.layer == layer && pages.lane == lane);
            found.map_or(DevicePointer::NULL, |pages| self.arena.region(pages.piece).pointer)
        };
        LayerPages { keys: find(Lane::K), values: find(Lane::V), index_keys: find(Lane::IndexK) }
    }

    /// All pages of a lane as a matrix of one row per head and token, for the copy engine.
    pub(crate) fn as_rows(&self, base: DevicePointer, heads: usize, dim: usize) -> Matrix {
        let rows = self.num_pages * heads * self.layout.page_tokens;
        Matrix { base, rows: rows as i32, columns: dim as i32, row_stride: dim as i64 }
    }

    /// Copies pages one after the other, in stream order with the steps.
    pub(crate) fn copy(&self, stream: &Stream, copies: &[PageCopy]) -> Result<()> {
        for copy in copies {
            self.check(copy.from)?;
            self.check(copy.to)?;
            if copy.from == copy.to {
                continue;
            }
            for lane in &self.lanes {
                stream.copy(self.part(lane, copy.to)?, self.part(lane, copy.from)?)?;
            }
        }
        Ok(())
    }

    /// Appends whole pages in canonical order.
    pub(crate) fn read(&self, stream: &Stream, pages: &[u32], bytes: &mut Vec<u8>) -> Result<()> {
        pages.iter().try_for_each(|&page| self.check(page))?;
        let page_bytes = self.layout.page_bytes();
        for &page in pages {
            for lane in &self.lanes {
                stream.download(&self.staging, lane.offset, self.part(lane, page)?)?;
            }
            stream.synchronize()?;
            let start = bytes.len();
            bytes.resize(start + page_bytes, 0);
            self.staging.read(0, &mut bytes[start..])?;
        }
        Ok(())
    }

    /// Fills whole pages from canonical order.
    pub(crate) fn write(&mut self, stream: &Stream, pages: &[u32], bytes: &[u8]) -> Result<()> {
        pages.iter().try_for_each(|&page| self.check(page))?;
        let page_bytes = self.layout.page_bytes();
        if bytes.len() != pages.len() * page_bytes {
            let (got, count) = (bytes.len(), pages.len());
            return Err(Error::Unsupported(format!("{got} bytes for {count} pages of {page_bytes} bytes")));
        }
        for (&page, from) in pages.iter().zip(bytes.chunks_exact(page_bytes)) {
            self.staging.write(0, from)?;
            for lane in &self.lanes {
                stream.upload(self.part(lane, page)?, &self.staging, lane.offset)?;
            }
            stream.synchronize()?;
        }
        Ok(())
    }

    /// Every buffer, for a transfer engine.
    pub(crate) fn regions(&self, device: u32) -> Vec<AbiRegion> {
        let region = |lane: &LanePages| {
            let memory = self.arena.region(lane.piece);
            AbiRegion {
                base: memory.pointer.0,
                len_bytes: memory.bytes,
                memory_kind: 1,
                device,
                page_stride_bytes: lane.page_bytes,
                first_layer: lane.layer as u32,
                num_layers: 1,
                lanes: 1 << (lane.lane as u32),
                dtype: DTYPE_BF16,
                layout_hash: self.layout_hash(),
            }
        };
        self.lanes.iter().map(region).collect()
    }

    /// FNV-1a over everything that decides where a value lies, with a word for "a buffer per lane".
    fn layout_hash(&self) -> u64 {
        let lanes = self.layout.lanes().iter();
        let lanes = lanes.flat_map(|lane| [lane.layer, lane.lane as usize, lane.num_heads, lane.dim]);
        let head = [2, self.layout.page_tokens, self.layout.value_bytes];
        head.into_iter()
            .chain(lanes)
            .fold(0xcbf2_9ce4_8422_2325, |hash, value| (hash ^ value as u64).wrapping_mul(0x0100_0000_01b3))
    }

    fn part(&self, lane: &LanePages, page: u32) -> Result<Region> {
        Ok(self.arena.region(lane.piece).part(u64::from(page) * lane.page_bytes, lane.page_bytes)?)
    }

    fn check(&self, page: u32) -> Result<()> {
        if (page as usize) < self.num_pages {
            return Ok(());
        }
        let num_pages = self.num_pages;
        Err(Error::Unsupported(format!("page {page} is beyond the {num_pages} reserved pages")))
    }
}

#[cfg(test)]
mod tests;
