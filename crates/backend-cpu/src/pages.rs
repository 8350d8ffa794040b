//! The bytes of all pages of a rank: one allocation, each page in canonical order.
//!
//! Canonical (layer, lane, KV head, token, dim) is also the fastest order here, because a head's keys of a page stand
//! together; so pages are copied, read and written whole. Which page belongs to whom is the host's knowledge.

#![expect(unsafe_code, reason = "tasks of a step write disjoint slots of one allocation")]

use std::alloc::{Layout, alloc_zeroed, dealloc};

use m3_abi::types::{DTYPE_BF16, DTYPE_F32, PageCopy, Region};
use m3_abi::{Error, Result};
use m3_model::config::TextConfig;
use m3_model::pages::{Lane, LanePlace, PageLayout};

use crate::kernels::attention::KvBlock;
use crate::kernels::convert::f32_to_bf16;
use crate::kernels::matrix::Format;

/// Alignment of the first page: a cache line.
const ALIGN: usize = 64;
/// What the allocator is asked for: beyond this it would clear, and so touch, every page of memory itself instead of
/// taking zeroed ones from the system as they are used.
const ALLOCATED_ALIGN: usize = 16;

/// Pages of one rank.
pub(crate) struct PagePool {
    allocation: *mut u8,
    /// First page: the allocation, aligned.
    base: *mut u8,
    memory: Layout,
    layout: PageLayout,
    num_pages: usize,
    format: Format,
}

// SAFETY: access is through the methods below, whose callers keep writes of one slot to one thread at a time.
unsafe impl Send for PagePool {}
// SAFETY: as above.
unsafe impl Sync for PagePool {}

impl Drop for PagePool {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`.
        unsafe { dealloc(self.allocation, self.memory) }
    }
}

/// The layout and the format of values for a `DTYPE_*` of pages.
pub(crate) fn layout(
    config: &TextConfig,
    tp: usize,
    kv_dtype: u32,
    page_tokens: usize,
) -> Result<PageLayout> {
    if kv_dtype != DTYPE_F32 && kv_dtype != DTYPE_BF16 {
        return Err(Error::Unsupported(format!(
            "KV dtype {kv_dtype}: the cpu backend keeps pages in f32 or bf16"
        )));
    }
    PageLayout::new(config, tp, kv_dtype, page_tokens).map_err(|error| Error::Unsupported(error.to_string()))
}

impl PagePool {
    pub(crate) fn new(layout: PageLayout, num_pages: u64) -> Result<PagePool> {
        let page_bytes = layout.page_bytes() as u64;
        let refused =
            || Error::Unsupported(format!("{num_pages} pages of {page_bytes} bytes cannot be allocated"));
        let bytes = num_pages.checked_mul(page_bytes).and_then(|bytes| usize::try_from(bytes).ok());
        let bytes = bytes.filter(|&bytes| bytes > 0).ok_or_else(refused)?;
        let memory = bytes.checked_add(ALIGN).ok_or_else(refused)?;
        let memory = Layout::from_size_align(memory, ALLOCATED_ALIGN).map_err(|_| refused())?;
        // SAFETY: the size is not zero.
        let allocation = unsafe { alloc_zeroed(memory) };
        if allocation.is_null() {
            return Err(refused());
        }
        // SAFETY: fewer than ALIGN bytes further, and that many were added.
        let base = unsafe { allocation.add(allocation.align_offset(ALIGN)) };
        let format = if layout.value_bytes == 4 { Format::F32 } else { Format::Bf16 };
        Ok(PagePool { allocation, base, memory, layout, num_pages: num_pages as usize, format })
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    pub(crate) fn page_tokens(&self) -> usize {
        self.layout.page_tokens
    }

    fn place(&self, layer: usize, lane: Lane) -> &LanePlace {
        self.layout.lane(layer, lane).expect("only sparse layers are asked for index keys")
    }

    /// First byte of a head's values for a token of a page.
    fn at(&self, page: usize, place: &LanePlace, head: usize, token: usize) -> *mut u8 {
        assert!(page < self.num_pages, "page {page} of {}", self.num_pages);
        let value = self.layout.value_offset(place, head, token) * self.layout.value_bytes;
        // SAFETY: page, lane, head and token lie inside the allocation.
        unsafe { self.base.add(page * self.layout.page_bytes() + value) }
    }

    /// Keys and values of a head.
    pub(crate) fn block(&self, layer: usize, head: usize, page: u32, visible: usize) -> KvBlock {
        let first = |lane| self.at(page as usize, self.place(layer, lane), head, 0).cast_const();
        KvBlock { keys: first(Lane::K), values: first(Lane::V), visible }
    }

    /// Index keys, `[page_tokens, index_dim]`.
    pub(crate) fn index_keys(&self, layer: usize, page: u32) -> *const u8 {
        self.at(page as usize, self.place(layer, Lane::IndexK), 0, 0)
    }

    /// Stores the values of one head at a slot, rounded to the pages' format.
    ///
    /// # Safety
    /// Nobody reads or writes this slot's head meanwhile.
    pub(crate) unsafe fn write(&self, layer: usize, lane: Lane, head: usize, slot: u64, values: &[f32]) {
        let place = self.place(layer, lane);
        assert_eq!(values.len(), place.dim);
        let tokens = self.layout.page_tokens as u64;
        let to = self.at((slot / tokens) as usize, place, head, (slot % tokens) as usize);
        // SAFETY: `to` is good for `dim` values; the caller's promise for the rest.
        unsafe {
            match self.format {
                Format::F32 => to.cast::<f32>().copy_from_nonoverlapping(values.as_ptr(), values.len()),
                _ => {
                    for (i, &value) in values.iter().enumerate() {
                        to.cast::<u16>().add(i).write(f32_to_bf16(value));
                    }
                }
            }
        }
    }

    fn page(&self, page: u32) -> Result<*mut u8> {
        if page as usize >= self.num_pages {
            return Err(Error::Unsupported(format!(
                "page {page} is beyond the {} reserved pages",
                self.num_pages
            )));
        }
        // SAFETY: inside the allocation.
        Ok(unsafe { self.base.add(page as usize * self.layout.page_bytes()) })
    }

    /// Copies whole pages. No step runs meanwhile.
    pub(crate) fn copy(&self, copies: &[PageCopy]) -> Result<()> {
        for copy in copies {
            let (from, to) = (self.page(copy.from)?, self.page(copy.to)?);
            // SAFETY: two whole pages of the allocation, which may be the same one.
            unsafe { std::ptr::copy(from, to, self.layout.page_bytes()) };
        }
        Ok(())
    }

    /// Appends whole pages in canonical order. No step runs meanwhile.
    pub(crate) fn read(&self, pages: &[u32], bytes: &mut Vec<u8>) -> Result<()> {
        for &page in pages {
            // SAFETY: a whole page of the allocation.
            bytes.extend_from_slice(unsafe {
                std::slice::from_raw_parts(self.page(page)?, self.layout.page_bytes())
            });
        }
        Ok(())
    }

    /// Fills whole pages from canonical order. No step runs meanwhile.
    pub(crate) fn fill(&self, pages: &[u32], bytes: &[u8]) -> Result<()> {
        let page_bytes = self.layout.page_bytes();
        if bytes.len() != pages.len() * page_bytes {
            let (got, count) = (bytes.len(), pages.len());
            return Err(Error::Unsupported(format!("{got} bytes for {count} pages of {page_bytes} bytes")));
        }
        for (&page, from) in pages.iter().zip(bytes.chunks_exact(page_bytes)) {
            // SAFETY: a whole page of the allocation.
            unsafe { self.page(page)?.copy_from_nonoverlapping(from.as_ptr(), page_bytes) };
        }
        Ok(())
    }

    /// The one buffer that holds everything.
    pub(crate) fn region(&self, num_layers: usize) -> Region {
        Region {
            base: self.base as u64,
            len_bytes: (self.num_pages * self.layout.page_bytes()) as u64,
            memory_kind: 0,
            device: 0,
            page_stride_bytes: self.layout.page_bytes() as u64,
            first_layer: 0,
            num_layers: num_layers as u32,
            lanes: 0b111,
            dtype: if self.format == Format::F32 { DTYPE_F32 } else { DTYPE_BF16 },
            layout_hash: self.layout_hash(),
        }
    }

    /// FNV-1a over everything that decides where a value lies.
    fn layout_hash(&self) -> u64 {
        let lanes = self.layout.lanes().iter();
        let lanes =
            lanes.flat_map(|lane| [lane.layer, lane.lane as usize, lane.offset, lane.num_heads, lane.dim]);
        let head = [1, self.layout.page_tokens, self.layout.value_bytes];
        head.into_iter()
            .chain(lanes)
            .fold(0xcbf2_9ce4_8422_2325, |hash, value| (hash ^ value as u64).wrapping_mul(0x0100_0000_01b3))
    }
}
