//! Step arrays and tickets on the double that runs nothing until it is waited for.
#![allow(clippy::unwrap_used, reason = "a setup that fails fails the test")]

use m3_abi::Ticket;
use m3_gpu::arena::ArenaPlan;
use m3_gpu::error::GpuError;
use m3_gpu::fake::{FakeDevice, Fault, Live, Progress};
use m3_gpu::staging::{Layout, Staging};
use m3_gpu::ticket::Tickets;

fn lazy() -> FakeDevice {
    FakeDevice::new(1 << 20, Progress::Lazy)
}

#[test]
fn arrays_arrive_where_the_layout_says() {
    let fake = lazy();
    let device = fake.device();
    let stream = device.stream().unwrap();
    let mut layout = Layout::new();
    let flags = layout.field::<u8>("flags", 3);
    let positions = layout.field::<i32>("positions", 5);
    let slots = layout.field::<i64>("slots", 2);
    let memory = device.allocate(layout.bytes(), "step arrays").unwrap();
    let mut staging = Staging::new(&device, layout.bytes(), 2).unwrap();
    let mut arrays = staging.begin(&layout).unwrap();
    arrays.write(flags, &[1, 2, 3]).unwrap();
    arrays.write(positions, &[7, 8]).unwrap();
    arrays.pad(positions, 2, -1).unwrap();
    arrays.write_at(slots, 1, &[1 << 40]).unwrap();
    arrays.send(&stream, memory.region()).unwrap();
    let start = memory.region();
    assert_eq!(positions.pointer(start).0 % 16, 0);
    assert_eq!(stream.download_values::<u8>(flags.region(start).unwrap()).unwrap(), [1, 2, 3]);
    assert_eq!(stream.download_values::<i32>(positions.region(start).unwrap()).unwrap(), [7, 8, -1, -1, -1]);
    assert_eq!(stream.download_values::<i64>(slots.region(start).unwrap()).unwrap(), [0, 1 << 40]);
}

#[test]
fn too_many_elements_are_refused_by_the_arrays_name() {
    let fake = lazy();
    let device = fake.device();
    let mut layout = Layout::new();
    let positions = layout.field::<i32>("positions", 4);
    let mut staging = Staging::new(&device, layout.bytes(), 1).unwrap();
    let mut arrays = staging.begin(&layout).unwrap();
    let error = arrays.write(positions, &[0; 5]).unwrap_err();
    assert_eq!(error.to_string(), "positions: 20 bytes at offset 0 do not lie in its 16");
    assert!(arrays.write_at(positions, usize::MAX, &[0]).is_err());
    let mut larger = Layout::new();
    larger.field::<u8>("all", 17);
    assert!(staging.begin(&larger).is_err());
}

/// With fewer slots than steps in flight, a buffer is written again only after its copy has run.
#[test]
fn a_buffer_is_not_overwritten_before_it_was_copied() {
    for slots in [1, 2, 3] {
        let fake = lazy();
        let device = fake.device();
        let stream = device.stream().unwrap();
        let mut layout = Layout::new();
        let step = layout.field::<u32>("step", 4);
        let log = device.allocate(16 * layout.bytes(), "log").unwrap();
        let mut staging = Staging::new(&device, layout.bytes(), slots).unwrap();
        for number in 0..16_u32 {
            let mut arrays = staging.begin(&layout).unwrap();
            arrays.pad(step, 0, number).unwrap();
            let to = log.region().part(u64::from(number) * layout.bytes(), layout.bytes()).unwrap();
            arrays.send(&stream, to).unwrap();
        }
        let seen: Vec<u32> = stream.download_values(log.region()).unwrap();
        let expected: Vec<u32> = (0..16).flat_map(|number| [number; 4]).collect();
        assert_eq!(seen, expected, "{slots} slots");
    }
}

#[test]
fn two_steps_are_in_flight_and_finish_in_order() {
    let fake = lazy();
    let device = fake.device();
    let stream = device.stream().unwrap();
    let mut tickets = Tickets::new(&device, 2).unwrap();
    let counter = device.allocate(4, "counter").unwrap();
    let results = [device.pinned(4, "result").unwrap(), device.pinned(4, "result").unwrap()];
    assert_eq!(tickets.done().unwrap(), Ticket(0));
    let submit = |tickets: &mut Tickets, value: u8| {
        let open = tickets.begin(&stream).unwrap();
        stream.fill(counter.region(), value).unwrap();
        stream.download(&results[open.slot], 0, counter.region()).unwrap();
        tickets.finish(open, &stream).unwrap()
    };
    let read = |slot: usize| {
        let mut value = [0_u8];
        results[slot].read(0, &mut value).unwrap();
        value[0]
    };
    assert_eq!(submit(&mut tickets, 1), Ticket(1));
    assert_eq!(submit(&mut tickets, 2), Ticket(2));
    assert_eq!(tickets.in_flight(), 2);
    assert_eq!(fake.work_done(), 0, "nothing was waited for");
    tickets.wait(Ticket(1)).unwrap();
    assert_eq!((read(0), read(1)), (1, 0), "the second has not run");
    assert_eq!(submit(&mut tickets, 3), Ticket(3));
    assert_eq!(read(1), 0);
    tickets.wait(Ticket(3)).unwrap();
    assert_eq!((read(0), read(1)), (3, 2));
    assert_eq!(tickets.done().unwrap(), Ticket(3));
    assert_eq!(tickets.device_us(Ticket(1)), None, "its slot was used again");
    assert_eq!(tickets.device_us(Ticket(3)), Some(3), "fill, copy and the end's record");
}

#[test]
fn a_third_step_waits_for_the_first() {
    let fake = lazy();
    let device = fake.device();
    let stream = device.stream().unwrap();
    let mut tickets = Tickets::new(&device, 2).unwrap();
    for _ in 0..3 {
        let open = tickets.begin(&stream).unwrap();
        tickets.finish(open, &stream).unwrap();
    }
    assert_eq!(tickets.in_flight(), 2);
}

#[test]
fn polling_gets_there_without_waiting() {
    let fake = lazy();
    let device = fake.device();
    let stream = device.stream().unwrap();
    let mut tickets = Tickets::new(&device, 2).unwrap();
    let open = tickets.begin(&stream).unwrap();
    let ticket = tickets.finish(open, &stream).unwrap();
    let polls = (0..100).take_while(|_| tickets.done().unwrap() < ticket).count();
    assert!((1..100).contains(&polls), "{polls}");
}

#[test]
fn foreign_tickets_and_half_open_steps_are_errors() {
    let fake = lazy();
    let device = fake.device();
    let stream = device.stream().unwrap();
    let mut tickets = Tickets::new(&device, 2).unwrap();
    assert_eq!(tickets.wait(Ticket(1)), Err(GpuError::NoTicket { ticket: 1, newest: 0 }));
    assert_eq!(tickets.wait(Ticket(0)), Err(GpuError::NoTicket { ticket: 0, newest: 0 }));
    let open = tickets.begin(&stream).unwrap();
    assert_eq!(tickets.begin(&stream), Err(GpuError::StepOpen { step: 1, open: 1 }));
    tickets.abandon(open);
    let open = tickets.begin(&stream).unwrap();
    assert_eq!(tickets.finish(open, &stream), Ok(Ticket(1)));
}

#[test]
fn a_lost_device_is_fatal_everywhere_and_still_lets_go() {
    let fake = lazy();
    fake.inject(Fault::Lost { work: 3 });
    let device = fake.device();
    let stream = device.stream().unwrap();
    let mut plan = ArenaPlan::new();
    let piece = plan.add("piece", 64);
    let arena = plan.carve(&device, "arena").unwrap();
    let mut tickets = Tickets::new(&device, 2).unwrap();
    let open = tickets.begin(&stream).unwrap();
    stream.fill(arena.region(piece), 1).unwrap();
    stream.fill(arena.region(piece), 2).unwrap();
    let ticket = tickets.finish(open, &stream).unwrap();
    let error = tickets.wait(ticket).unwrap_err();
    assert!(error.to_string().contains("CUDA_ERROR_ILLEGAL_ADDRESS (700) on device 0"), "{error}");
    assert!(matches!(m3_abi::Error::from(error), m3_abi::Error::Fatal(_)));
    assert!(device.allocate(1, "more").is_err());
    assert!(stream.fill(arena.region(piece), 3).is_err());
    drop((arena, tickets, stream, device));
    assert_eq!(fake.live(), Live::default());
}

#[test]
fn streams_meet_at_events_only() {
    let fake = lazy();
    let device = fake.device();
    let (first, second) = (device.stream().unwrap(), device.stream().unwrap());
    let memory = device.allocate(1, "byte").unwrap();
    let event = device.event(false).unwrap();
    event.wait().unwrap();
    first.fill(memory.region(), 1).unwrap();
    event.record(&first).unwrap();
    second.wait_for(&event).unwrap();
    second.fill(memory.region(), 2).unwrap();
    second.synchronize().unwrap();
    assert_eq!(fake.peek::<u8>(memory.region().pointer, 1).unwrap(), [2], "the first fill ran before");
    assert!(event.is_done().unwrap());
    first.fill(memory.region(), 3).unwrap();
    second.synchronize().unwrap();
    assert_eq!(fake.peek::<u8>(memory.region().pointer, 1).unwrap(), [2], "nothing orders the third");
}

#[test]
fn a_pinned_allocation_that_fails_says_what_it_was_for() {
    let fake = lazy();
    fake.inject(Fault::OutOfPinned { allocation: 1 });
    let error = fake.device().pinned(1 << 12, "step arrays").unwrap_err();
    assert!(error.to_string().starts_with("step arrays needs 4096 bytes of pinned host memory"), "{error}");
}
