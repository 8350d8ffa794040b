//! Pages through canonical order, on the double of a device.

use m3_abi::types::DTYPE_BF16;
use m3_gpu::fake::{FakeDevice, Progress};
use m3_model::config::ModelConfig;

use super::*;

const NANO: &[u8] = include_bytes!("../../../../models/m3-nano/config.json");

fn pages() -> (Device, Stream, Pages) {
    let device = FakeDevice::new(1 << 30, Progress::Lazy).device();
    let stream = device.stream().unwrap();
    let text = ModelConfig::from_json(NANO).unwrap().config.text;
    let layout = PageLayout::new(&text, 1, DTYPE_BF16, text.sparse.block_size).unwrap();
    let pages = Pages::new(&device, &stream, layout, 5).unwrap();
    (device, stream, pages)
}

/// Distinct bytes for a page.
fn canonical(pages: &Pages, seed: u8) -> Vec<u8> {
    (0..pages.layout.page_bytes())
        .map(|byte| (byte / 7) as u8 ^ (byte as u8).wrapping_mul(31) ^ seed)
        .collect()
}

#[test]
fn pages_come_back_as_they_were_written() {
    let (_device, stream, mut pages) = pages();
    let bytes = [canonical(&pages, 1), canonical(&pages, 2)].concat();
    pages.write(&stream, &[3, 0], &bytes).unwrap();
    let mut back = Vec::new();
    pages.read(&stream, &[0, 3], &mut back).unwrap();
    let half = bytes.len() / 2;
    assert!(back[..half] == bytes[half..] && back[half..] == bytes[..half]);
    back.clear();
    pages.read(&stream, &[1], &mut back).unwrap();
    assert!(back.iter().all(|&byte| byte == 0xff), "a page that nobody wrote is NaN");
}

#[test]
fn copies_run_in_order() {
    let (_device, stream, mut pages) = pages();
    let bytes = canonical(&pages, 9);
    pages.write(&stream, &[2], &bytes).unwrap();
    let copies = [PageCopy { from: 2, to: 4 }, PageCopy { from: 4, to: 1 }, PageCopy { from: 1, to: 1 }];
    pages.copy(&stream, &copies).unwrap();
    let mut back = Vec::new();
    pages.read(&stream, &[1], &mut back).unwrap();
    assert!(back == bytes);
}

#[test]
fn lanes_lie_where_kernels_look() {
    let (_device, stream, mut pages) = pages();
    let bytes = canonical(&pages, 5);
    pages.write(&stream, &[4], &bytes).unwrap();
    let place = *pages.layout.lane(2, Lane::V).unwrap();
    let page_values = place.num_heads * 128 * place.dim;
    let (head, token) = (1, 77);
    let value = 4 * page_values + (head * 128 + token) * place.dim;
    let at = Region { pointer: pages.layer(2).values.offset(value as u64 * 2), bytes: place.dim as u64 * 2 };
    let found: Vec<u8> = stream.download_values(at).unwrap();
    let start = pages.layout.value_offset(&place, head, token) * 2;
    assert_eq!(found, bytes[start..start + place.dim * 2]);
    assert_eq!(pages.layer(0).index_keys, DevicePointer::NULL, "layer 0 is dense");
    assert_ne!(pages.layer(1).index_keys, DevicePointer::NULL);
}

#[test]
fn wrong_pages_and_lengths_are_refused_before_anything_moves() {
    let (_device, stream, mut pages) = pages();
    let bytes = canonical(&pages, 1);
    let refusal = pages.write(&stream, &[5], &bytes).unwrap_err().to_string();
    assert_eq!(refusal, "page 5 is beyond the 5 reserved pages");
    let refusal = pages.write(&stream, &[0, 1], &bytes).unwrap_err().to_string();
    assert!(refusal.contains("bytes for 2 pages"), "{refusal}");
    assert!(pages.copy(&stream, &[PageCopy { from: 0, to: 9 }]).is_err());
}

#[test]
fn regions_say_what_a_transfer_engine_needs() {
    let (_device, _stream, pages) = pages();
    let regions = pages.regions(3);
    assert_eq!(regions.len(), 7 * 2 + 6, "K and V of seven layers, index keys of six");
    assert!(regions.iter().all(|region| region.device == 3 && region.memory_kind == 1));
    assert!(regions.iter().all(|region| region.len_bytes == 5 * region.page_stride_bytes));
    assert_eq!(regions.iter().map(|region| region.lanes).max(), Some(4));
}
