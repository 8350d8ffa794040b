//! K, V and index-K of all pages, kept in the canonical order itself: the plainest layout there is.

use m3_abi::Error;
use m3_abi::types::DTYPE_BF16;

use crate::pages::{Lane, LanePlace, PageLayout};

use super::fp8::round_to_bf16;
use super::msa::Blocks;

/// Page memory. Values are `f32` in memory; with a bf16 KV dtype they are rounded when written.
#[derive(Clone, Debug)]
pub struct PageStore {
    layout: PageLayout,
    /// Values are bf16, otherwise `f32`.
    bf16: bool,
    values: Vec<f32>,
}

impl PageStore {
    /// `kv_dtype` is `DTYPE_F32` or `DTYPE_BF16`, as the layout was made with.
    pub fn new(layout: PageLayout, kv_dtype: u32, num_pages: usize) -> Self {
        let values = vec![0.0; num_pages * layout.page_values];
        PageStore { layout, bf16: kv_dtype == DTYPE_BF16, values }
    }

    pub fn num_pages(&self) -> usize {
        self.values.len() / self.layout.page_values
    }

    fn place(&self, layer: usize, lane: Lane) -> LanePlace {
        *self.layout.lane(layer, lane).expect("the layout has a lane for everything the layer computes")
    }

    /// Writes the heads of one token, [heads, dim], to its slot.
    pub fn write(&mut self, slot: u64, layer: usize, lane: Lane, heads: &[f32]) {
        let place = self.place(layer, lane);
        let page_tokens = self.layout.page_tokens as u64;
        let (page, token) = ((slot / page_tokens) as usize, (slot % page_tokens) as usize);
        for (head, values) in heads.chunks(place.dim).enumerate() {
            let at = page * self.layout.page_values + self.layout.value_offset(&place, head, token);
            for (to, &from) in self.values[at..at + place.dim].iter_mut().zip(values) {
                *to = if self.bf16 { round_to_bf16(from) } else { from };
            }
        }
    }

    /// One head of one lane of a sequence, block by block (a page is a block).
    pub fn blocks<'a>(&'a self, layer: usize, lane: Lane, head: usize, pages: &'a [u32]) -> HeadBlocks<'a> {
        let place = self.place(layer, lane);
        let offset = self.layout.value_offset(&place, head, 0);
        HeadBlocks { store: self, pages, offset, len: self.layout.page_tokens * place.dim }
    }

    pub fn copy(&mut self, from: u32, to: u32) -> Result<(), Error> {
        let (from, to) = (self.range(from)?, self.range(to)?);
        self.values.copy_within(from, to.start);
        Ok(())
    }

    /// Canonical bytes of pages in the KV dtype, little-endian, appended to `bytes`.
    pub fn read(&self, pages: &[u32], bytes: &mut Vec<u8>) -> Result<(), Error> {
        for &page in pages {
            for &value in &self.values[self.range(page)?] {
                if self.bf16 {
                    bytes.extend(half::bf16::from_f32(value).to_le_bytes());
                } else {
                    bytes.extend(value.to_le_bytes());
                }
            }
        }
        Ok(())
    }

    pub fn write_bytes(&mut self, pages: &[u32], bytes: &[u8]) -> Result<(), Error> {
        let page_bytes = self.layout.page_bytes();
        if bytes.len() != pages.len() * page_bytes {
            let (len, count) = (bytes.len(), pages.len());
            return Err(Error::Fatal(format!("{len} bytes are not {count} pages of {page_bytes}")));
        }
        for (&page, bytes) in pages.iter().zip(bytes.chunks(page_bytes)) {
            let range = self.range(page)?;
            for (value, bytes) in self.values[range].iter_mut().zip(bytes.chunks(self.layout.value_bytes)) {
                *value = match *bytes {
                    [low, high] => half::bf16::from_le_bytes([low, high]).to_f32(),
                    [a, b, c, d] => f32::from_le_bytes([a, b, c, d]),
                    _ => return Err(Error::Fatal(format!("values of {} bytes", bytes.len()))),
                };
            }
        }
        Ok(())
    }

    fn range(&self, page: u32) -> Result<std::ops::Range<usize>, Error> {
        let num_pages = self.num_pages();
        if page as usize >= num_pages {
            return Err(Error::Fatal(format!("page {page} is beyond the {num_pages} reserved pages")));
        }
        let start = page as usize * self.layout.page_values;
        Ok(start..start + self.layout.page_values)
    }
}

/// See [`PageStore::blocks`].
pub struct HeadBlocks<'a> {
    store: &'a PageStore,
    pages: &'a [u32],
    /// Of the head inside a page, in values.
    offset: usize,
    len: usize,
}

impl Blocks for HeadBlocks<'_> {
    fn block(&self, block: usize) -> &[f32] {
        let at = self.pages[block] as usize * self.store.layout.page_values + self.offset;
        &self.store.values[at..at + self.len]
    }
}
