//! Graphs and launches on the double.
#![allow(clippy::unwrap_used, reason = "a setup that fails fails the test")]
#![allow(unsafe_code, reason = "launches kernels with raw arguments")]

use std::ffi::c_void;

use m3_gpu::api::GraphUpdate;
use m3_gpu::device::Device;
use m3_gpu::error::{GpuError, Result};
use m3_gpu::fake::{FakeDevice, Fault, Live, Progress};
use m3_gpu::graph::{Graph, Graphs};
use m3_gpu::launch::{FunctionHandle, Geometry, Launcher};
use m3_gpu::memory::Region;
use m3_gpu::stream::Stream;

/// A device with a kernel that adds its second argument to the u32 at its first.
fn adder(progress: Progress) -> (FakeDevice, Device, FunctionHandle) {
    let fake = FakeDevice::new(1 << 20, progress);
    fake.add_kernel("add", &[8, 4], |call| {
        let at = call.pointer(0);
        let sum = call.read::<u32>(at, 1)?[0] + call.argument::<u32>(1);
        call.write(at, &[sum])
    });
    let device = fake.device();
    let module = device.load_module(b"code").unwrap();
    let function = device.function(module, "add", 0).unwrap();
    (fake, device, function)
}

fn add(stream: &Stream, function: FunctionHandle, to: Region, mut amount: u32) -> Result<()> {
    let mut pointer = to.pointer.0;
    let mut places = [(&raw mut pointer).cast::<c_void>(), (&raw mut amount).cast()];
    let geometry = Geometry { grid: [1, 1, 1], block: [32, 1, 1], shared_bytes: 0, dependent: false };
    // SAFETY: an address and a u32, as the kernel was added.
    unsafe { stream.device().launch(function, &geometry, stream.handle(), &mut places) }?;
    Ok(())
}

fn value(stream: &Stream, at: Region) -> u32 {
    stream.download_values(at).unwrap()[0]
}

#[test]
fn arguments_are_copied_when_launched_and_work_runs_in_order() {
    let (fake, device, function) = adder(Progress::Lazy);
    let stream = device.stream().unwrap();
    let memory = device.allocate(4, "sum").unwrap();
    stream.fill(memory.region(), 0).unwrap();
    for amount in 1..=10 {
        add(&stream, function, memory.region(), amount).unwrap();
    }
    assert_eq!(value(&stream, memory.region()), 55);
    assert_eq!(fake.launches().len(), 10);
    assert_eq!(fake.launches()[0].symbol, "add");
}

#[test]
fn recording_runs_nothing_and_replays_run_it_all() {
    let (fake, device, function) = adder(Progress::Eager);
    let stream = device.stream().unwrap();
    let memory = device.allocate(4, "sum").unwrap();
    stream.fill(memory.region(), 0).unwrap();
    let mut graphs = Graphs::default();
    let record = || -> Result<()> {
        add(&stream, function, memory.region(), 3)?;
        add(&stream, function, memory.region(), 4)
    };
    graphs.capture(8, &stream, record).unwrap();
    assert_eq!(value(&stream, memory.region()), 0);
    for _ in 0..5 {
        assert!(graphs.launch(&8, &stream).unwrap());
    }
    assert!(!graphs.launch(&16, &stream).unwrap());
    assert_eq!(value(&stream, memory.region()), 35);
    assert_eq!(graphs.shapes().collect::<Vec<_>>(), [(&8, 2)]);
    graphs.clear();
    drop((memory, stream, device));
    assert_eq!(fake.live(), Live::default());
}

#[test]
fn an_update_takes_new_arguments_or_a_new_graph() {
    let (fake, device, function) = adder(Progress::Lazy);
    let stream = device.stream().unwrap();
    let memory = device.allocate(4, "sum").unwrap();
    stream.fill(memory.region(), 0).unwrap();
    let mut graph = Graph::capture(&stream, || add(&stream, function, memory.region(), 1)).unwrap();
    let updated = graph.update(&stream, || add(&stream, function, memory.region(), 20)).unwrap();
    assert_eq!(updated, GraphUpdate::Updated);
    graph.launch(&stream).unwrap();
    let record = || -> Result<()> {
        add(&stream, function, memory.region(), 100)?;
        stream.copy(memory.region(), memory.region())
    };
    assert_eq!(graph.update(&stream, record).unwrap(), GraphUpdate::Differs);
    assert_eq!(graph.nodes(), 2);
    graph.launch(&stream).unwrap();
    assert_eq!(value(&stream, memory.region()), 120);
    assert_eq!((fake.live().graphs, fake.live().recordings), (1, 0));
}

#[test]
fn a_side_stream_takes_part_when_it_is_forked_and_joined() {
    let (_fake, device, function) = adder(Progress::Lazy);
    let (stream, side) = (device.stream().unwrap(), device.stream().unwrap());
    let (fork, join) = (device.event(false).unwrap(), device.event(false).unwrap());
    let memory = device.allocate(4, "sum").unwrap();
    stream.fill(memory.region(), 0).unwrap();
    let fork_and_join = |joined: bool| -> Result<()> {
        fork.record(&stream)?;
        side.wait_for(&fork)?;
        add(&side, function, memory.region(), 5)?;
        if joined {
            join.record(&side)?;
            stream.wait_for(&join)?;
        }
        Ok(())
    };
    let graph = Graph::capture(&stream, || fork_and_join(true)).unwrap();
    graph.launch(&stream).unwrap();
    assert_eq!(value(&stream, memory.region()), 5);
    let error = Graph::capture(&stream, || fork_and_join(false)).unwrap_err();
    assert!(error.to_string().contains("UNJOINED"), "{error}");
    assert_eq!(value(&stream, memory.region()), 5, "the stream is usable again");
}

#[test]
fn what_a_graph_cannot_hold_is_refused_while_recording() {
    let (_fake, device, function) = adder(Progress::Lazy);
    let stream = device.stream().unwrap();
    let memory = device.allocate(4, "sum").unwrap();
    let bad: [&dyn Fn() -> Result<()>; 4] = [
        &|| stream.synchronize(),
        &|| stream.upload_values(memory.region(), &[1_u32]),
        &|| stream.download_values::<u32>(memory.region()).map(drop),
        &|| device.allocate(1, "more").map(drop),
    ];
    for record in bad {
        assert!(Graph::capture(&stream, record).is_err());
        stream.fill(memory.region(), 0).unwrap();
        add(&stream, function, memory.region(), 1).unwrap();
        assert_eq!(value(&stream, memory.region()), 1, "the stream is usable again");
    }
}

#[test]
fn the_recorders_own_error_comes_through() {
    let (_fake, device, _) = adder(Progress::Lazy);
    let stream = device.stream().unwrap();
    let refuse = || Err(GpuError::Source("no shape".to_owned()));
    assert_eq!(Graph::capture(&stream, refuse).map(drop), Err(GpuError::Source("no shape".to_owned())));
}

#[test]
fn a_refused_launch_is_an_error_and_the_next_one_works() {
    let (fake, device, function) = adder(Progress::Lazy);
    fake.inject(Fault::Launch { launch: 2 });
    let stream = device.stream().unwrap();
    let memory = device.allocate(4, "sum").unwrap();
    stream.fill(memory.region(), 0).unwrap();
    add(&stream, function, memory.region(), 1).unwrap();
    let error = add(&stream, function, memory.region(), 1).unwrap_err();
    assert!(error.to_string().contains("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"), "{error}");
    add(&stream, function, memory.region(), 1).unwrap();
    assert_eq!(value(&stream, memory.region()), 2);
}

#[test]
fn a_kernel_that_leaves_its_memory_kills_the_device() {
    let (_fake, device, function) = adder(Progress::Lazy);
    let stream = device.stream().unwrap();
    let memory = device.allocate(4, "sum").unwrap();
    let past = Region { pointer: memory.region().pointer.offset(4), bytes: 4 };
    add(&stream, function, past, 1).unwrap();
    assert!(stream.synchronize().unwrap_err().to_string().contains("ILLEGAL_ADDRESS"));
    assert!(stream.fill(memory.region(), 0).is_err());
}

#[test]
fn a_missing_kernel_is_named() {
    let (fake, device, _) = adder(Progress::Lazy);
    let module = device.load_module(b"code").unwrap();
    let error = device.function(module, "subtract", 0).unwrap_err();
    assert!(error.to_string().contains("subtract"), "{error}");
    fake.accept_all_kernels();
    assert!(device.function(module, "subtract", 0).is_ok());
    assert!(device.function(module, "add", 300 << 10).is_err(), "more shared memory than a block may have");
}
