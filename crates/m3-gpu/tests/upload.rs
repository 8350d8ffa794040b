//! Uploads on the double: every byte in its place, whatever the chunks, and failures that end them.
#![allow(clippy::unwrap_used, reason = "a setup that fails fails the test")]
#![allow(unsafe_code, reason = "promises that sources outlive their uploads")]

use m3_gpu::fake::{FakeDevice, Fault, Live, Progress};
use m3_gpu::upload::{Source, UploadSettings, Uploader};

fn settings(threads: usize, chunk_bytes: u64) -> UploadSettings {
    UploadSettings { threads, chunk_bytes }
}

/// Bytes that differ from place to place.
fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

#[test]
fn bytes_arrive_in_place_for_every_chunk_size_and_number_of_threads() {
    let host = pattern(10_000);
    for (threads, chunk) in [(1, 1 << 20), (1, 999), (3, 100), (4, 7), (2, 10_000)] {
        let fake = FakeDevice::new(1 << 20, Progress::Lazy);
        let device = fake.device();
        let memory = device.allocate(10_000, "weights").unwrap();
        let uploader = Uploader::new(&device, settings(threads, chunk)).unwrap();
        for part in 0..10_u64 {
            let start = host[part as usize * 1000..].as_ptr();
            let to = memory.region().part(part * 1000, 1000).unwrap();
            // SAFETY: `host` outlives the uploader.
            unsafe { uploader.send(Source::contiguous(start, 1000), to) }.unwrap();
        }
        let report = uploader.finish().unwrap();
        assert_eq!(report.bytes, 10_000);
        let seen: Vec<u8> = fake.peek(memory.region().pointer, 10_000).unwrap();
        assert!(seen == host, "{threads} threads, chunks of {chunk}");
        drop((uploader, memory, device));
        assert_eq!(fake.live(), Live::default());
    }
}

#[test]
fn columns_of_a_shard_are_gathered() {
    let host = pattern(64 * 100);
    for chunk in [5, 24, 70, 1000, 1 << 16] {
        let fake = FakeDevice::new(1 << 20, Progress::Lazy);
        let device = fake.device();
        let memory = device.allocate(64 * 24, "shard").unwrap();
        let uploader = Uploader::new(&device, settings(2, chunk)).unwrap();
        let source = Source { start: host[30..].as_ptr(), rows: 64, row_bytes: 24, stride: 100 };
        // SAFETY: `host` outlives the uploader.
        unsafe { uploader.send(source, memory.region()) }.unwrap();
        uploader.finish().unwrap();
        let expected: Vec<u8> =
            (0..64).flat_map(|row| host[row * 100 + 30..][..24].iter().copied()).collect();
        let seen: Vec<u8> = fake.peek(memory.region().pointer, 64 * 24).unwrap();
        assert!(seen == expected, "chunks of {chunk}");
    }
}

#[test]
fn a_tensor_that_does_not_fit_its_region_is_refused_and_nothing_is_written() {
    let fake = FakeDevice::new(1 << 20, Progress::Eager);
    let device = fake.device();
    let memory = device.allocate(100, "weights").unwrap();
    let uploader = Uploader::new(&device, settings(1, 64)).unwrap();
    let host = pattern(101);
    // SAFETY: `host` outlives the uploader.
    let (long, overlapping, huge) = unsafe {
        (
            uploader.send(Source::contiguous(host.as_ptr(), 101), memory.region()),
            uploader.send(Source { start: host.as_ptr(), rows: 2, row_bytes: 8, stride: 7 }, memory.region()),
            uploader.send(
                Source { start: host.as_ptr(), rows: u64::MAX, row_bytes: 8, stride: 8 },
                memory.region(),
            ),
        )
    };
    assert!(long.is_err() && overlapping.is_err() && huge.is_err());
    assert_eq!(uploader.finish().unwrap().bytes, 0);
    assert_eq!(fake.peek::<u8>(memory.region().pointer, 1).unwrap(), [0xcd]);
}

#[test]
fn a_device_lost_on_the_way_ends_the_upload_with_its_error() {
    let fake = FakeDevice::new(1 << 20, Progress::Eager);
    fake.inject(Fault::Lost { work: 5 });
    let device = fake.device();
    let memory = device.allocate(10_000, "weights").unwrap();
    let uploader = Uploader::new(&device, settings(2, 100)).unwrap();
    let host = pattern(10_000);
    // SAFETY: `host` outlives the uploader.
    let sent = unsafe { uploader.send(Source::contiguous(host.as_ptr(), 10_000), memory.region()) };
    assert!(sent.is_ok());
    let error = uploader.finish().unwrap_err();
    assert!(error.to_string().contains("ILLEGAL_ADDRESS"), "{error}");
    // SAFETY: as above.
    let again = unsafe { uploader.send(Source::contiguous(host.as_ptr(), 1), memory.region()) };
    assert_eq!(again, Err(error));
}

#[test]
fn an_uploader_dropped_in_the_middle_reads_nothing_afterwards() {
    let fake = FakeDevice::new(1 << 24, Progress::Eager);
    let device = fake.device();
    let memory = device.allocate(1 << 20, "weights").unwrap();
    let host = pattern(1 << 20);
    let uploader = Uploader::new(&device, settings(3, 64)).unwrap();
    // SAFETY: `host` outlives the uploader.
    unsafe { uploader.send(Source::contiguous(host.as_ptr(), 1 << 20), memory.region()) }.unwrap();
    drop(uploader);
    drop(host);
    drop((memory, device));
    assert_eq!(fake.live(), Live::default());
}

#[test]
fn more_can_be_sent_after_everything_has_arrived() {
    let fake = FakeDevice::new(1 << 20, Progress::Lazy);
    let device = fake.device();
    let memory = device.allocate(1000, "weights").unwrap();
    let uploader = Uploader::new(&device, settings(2, 64)).unwrap();
    for round in 1..=3_u8 {
        let host = vec![round; 1000];
        // SAFETY: `host` lives until `finish` has returned.
        unsafe { uploader.send(Source::contiguous(host.as_ptr(), 1000), memory.region()) }.unwrap();
        assert_eq!(uploader.finish().unwrap().bytes, 1000 * u64::from(round));
        drop(host);
        assert_eq!(fake.peek::<u8>(memory.region().pointer, 1000).unwrap(), vec![round; 1000]);
    }
}
