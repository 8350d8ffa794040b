//! The arena on the double: places, refusals, poison, guards, and that everything is freed.
#![allow(clippy::unwrap_used, reason = "a setup that fails fails the test")]

use m3_gpu::arena::{ALIGNMENT, ArenaPlan};
use m3_gpu::error::GpuError;
use m3_gpu::fake::{FakeDevice, Fault, Live, Progress};

#[test]
fn regions_are_aligned_disjoint_and_named() {
    let fake = FakeDevice::new(1 << 24, Progress::Eager);
    let device = fake.device();
    let mut plan = ArenaPlan::new();
    let sizes = [1, 255, 256, 257, 0, 4096];
    let pieces: Vec<_> =
        sizes.iter().enumerate().map(|(i, bytes)| plan.add(format!("piece {i}"), *bytes)).collect();
    let huge = plan.add_aligned("huge", 100, 1 << 16);
    let arena = plan.carve(&device, "arena").unwrap();
    let mut end = 0;
    for (piece, bytes) in pieces.iter().zip(sizes) {
        let region = arena.region(*piece);
        assert_eq!(region.bytes, bytes);
        assert_eq!(region.pointer.0 % ALIGNMENT, 0);
        assert!(region.pointer.0 >= end);
        end = region.pointer.0 + bytes;
    }
    let start = arena.region(pieces[0]).pointer.0;
    assert_eq!((arena.region(huge).pointer.0 - start) % (1 << 16), 0);
    assert_eq!(arena.named("piece 3"), Some(arena.region(pieces[3])));
    assert_eq!(arena.named("nothing"), None);
    assert_eq!(fake.live().allocations, 1);
    let report = arena.report();
    assert!(report.lines().nth(1).unwrap().ends_with("piece 5"), "{report}");
    drop(arena);
    drop(device);
    assert_eq!(fake.live(), Live::default());
}

#[test]
fn what_does_not_fit_is_refused_with_every_number() {
    let fake = FakeDevice::new(1 << 20, Progress::Eager);
    let device = fake.device();
    let _taken = device.allocate(1000, "weights").unwrap();
    let mut plan = ArenaPlan::new();
    plan.add("pages", 1 << 20);
    let refusal = plan.carve(&device, "arena").unwrap_err();
    let said = "arena needs 1048576 bytes of device memory; device 0 has 1047576 of 1048576 free";
    assert_eq!(refusal.to_string(), said);
    assert!(matches!(m3_abi::Error::from(refusal), m3_abi::Error::Unsupported(_)));
}

#[test]
fn an_allocation_that_fails_leaves_nothing_behind() {
    let fake = FakeDevice::new(1 << 20, Progress::Eager);
    fake.inject(Fault::OutOfMemory { allocation: 2 });
    let device = fake.device();
    let first = device.allocate(16, "first").unwrap();
    assert!(matches!(device.allocate(16, "second"), Err(GpuError::OutOfMemory { .. })));
    let third = device.allocate(16, "third").unwrap();
    drop((first, third));
    assert_eq!(fake.live().allocations, 0);
}

#[test]
fn one_name_stands_for_one_region() {
    let fake = FakeDevice::new(1 << 20, Progress::Eager);
    let mut plan = ArenaPlan::new();
    plan.add("logits", 4);
    plan.add("logits", 8);
    let error = plan.carve(&fake.device(), "arena").unwrap_err();
    assert_eq!(error, GpuError::NamedTwice { what: "logits".to_owned() });
    assert_eq!(fake.live().allocations, 0);
}

#[test]
fn parts_outside_a_region_are_refused() {
    let fake = FakeDevice::new(1 << 20, Progress::Eager);
    let mut plan = ArenaPlan::new();
    let piece = plan.add("piece", 100);
    let arena = plan.carve(&fake.device(), "arena").unwrap();
    let region = arena.region(piece);
    assert_eq!(region.part(40, 60).unwrap().pointer.0, region.pointer.0 + 40);
    assert_eq!(region.elements::<u32>(24, 1).unwrap().bytes, 4);
    for (offset, bytes) in [(41, 60), (0, 101), (101, 0), (u64::MAX, 1), (1, u64::MAX)] {
        assert!(region.part(offset, bytes).is_err(), "{offset} {bytes}");
    }
    assert!(region.elements::<u64>(u64::MAX, 1).is_err());
}

#[test]
fn guards_name_the_region_behind_which_was_written_and_poison_does_not_touch_them() {
    let fake = FakeDevice::new(1 << 20, Progress::Lazy);
    let device = fake.device();
    let stream = device.stream().unwrap();
    let mut plan = ArenaPlan::with_guards(64);
    let pieces = ["first", "second", "third"].map(|name| plan.add(name, 100));
    let arena = plan.carve(&device, "arena").unwrap();
    arena.poison(&stream, 0xff).unwrap();
    assert_eq!(arena.damaged(&stream).unwrap(), Vec::<&str>::new());
    let poisoned: Vec<u8> = stream.download_values(arena.region(pieces[1])).unwrap();
    assert_eq!(poisoned, [0xff; 100]);
    let mut past = arena.region(pieces[1]);
    past.bytes += 1;
    stream.fill(past, 0).unwrap();
    assert_eq!(arena.damaged(&stream).unwrap(), ["second"]);
}
