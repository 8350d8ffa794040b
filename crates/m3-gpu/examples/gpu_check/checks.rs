//! What is checked of memory, streams, graphs, tickets and faults.

use std::time::Instant;

use m3_gpu::api::GraphUpdate;
use m3_gpu::arena::ArenaPlan;
use m3_gpu::device::Device;
use m3_gpu::error::{GpuError, Result};
use m3_gpu::graph::Graph;
use m3_gpu::launch::{Launcher, MapElement, TensorMapRequest};
use m3_gpu::memory::Region;
use m3_gpu::staging::{Layout, Staging};
use m3_gpu::stream::Stream;
use m3_gpu::ticket::Tickets;

use crate::Outcome;
use crate::kernels::Kernels;

/// About 5 ms of an H200's clock.
const A_WHILE: u64 = 10_000_000;
const COUNT: u64 = 100_000;

pub(crate) fn demand(holds: bool, what: impl Into<String>) -> Result<(), Box<dyn std::error::Error>> {
    if holds { Ok(()) } else { Err(what.into().into()) }
}

fn all_are(stream: &Stream, region: Region, expected: u32) -> Result<(), Box<dyn std::error::Error>> {
    let values: Vec<u32> = stream.download_values(region)?;
    match values.iter().position(|value| *value != expected) {
        None => Ok(()),
        Some(place) => Err(format!("element {place} is {}, not {expected}", values[place]).into()),
    }
}

pub(crate) fn arena(device: &Device) -> Outcome {
    let before = device.memory()?;
    let stream = device.stream()?;
    let mut plan = ArenaPlan::with_guards(256);
    let pages = plan.add_aligned("pages", 3 << 30, 2 << 20);
    let logits = plan.add("logits", 1001);
    let arena = plan.carve(device, "arena")?;
    demand(arena.region(pages).pointer.0.is_multiple_of(2 << 20), "not aligned")?;
    arena.poison(&stream, 0xff)?;
    demand(arena.damaged(&stream)?.is_empty(), "poison touched the guards")?;
    let mut past = arena.region(logits);
    past.bytes += 1;
    stream.fill(past, 0)?;
    demand(arena.damaged(&stream)? == ["logits"], "a write past the end was not seen")?;
    drop(arena);
    let after = device.memory()?;
    demand(after.free + (64 << 20) > before.free, "memory was not given back")?;
    Ok(format!("{:.1} of {:.1} GiB free", gib(after.free), gib(after.total)))
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

pub(crate) fn out_of_memory(device: &Device) -> Outcome {
    match device.allocate(1 << 50, "too much") {
        Err(refusal @ GpuError::OutOfMemory { .. }) => Ok(refusal.to_string()),
        other => Err(format!("{other:?}").into()),
    }
}

pub(crate) fn launch(device: &Device) -> Outcome {
    let kernels = Kernels::load(device)?;
    let stream = device.urgent_stream()?;
    let memory = device.allocate(4 * COUNT, "numbers")?;
    stream.fill(memory.region(), 0)?;
    for amount in 1..=10 {
        kernels.add(&stream, memory.region(), amount)?;
    }
    all_are(&stream, memory.region(), 55)?;
    Ok(format!("10 launches over {COUNT} numbers"))
}

pub(crate) fn dependent_launch(device: &Device) -> Outcome {
    let kernels = Kernels::load(device)?;
    let stream = device.stream()?;
    let memory = device.allocate(4 * COUNT, "numbers")?;
    let time = |dependent: bool| -> Result<f32> {
        let (start, end) = (device.event(true)?, device.event(true)?);
        let record = || {
            (0..100).try_for_each(|_| match dependent {
                true => kernels.add_dependent(&stream, memory.region(), 1),
                false => kernels.add(&stream, memory.region(), 1),
            })
        };
        let graph = Graph::capture(&stream, record)?;
        graph.launch(&stream)?;
        stream.fill(memory.region(), 0)?;
        start.record(&stream)?;
        graph.launch(&stream)?;
        end.record(&stream)?;
        end.wait()?;
        end.since_ms(&start)
    };
    let plain = time(false)?;
    let dependent = time(true)?;
    all_are(&stream, memory.region(), 100)?;
    Ok(format!("{:.2} us a kernel in a graph, {:.2} us dependent", plain * 10.0, dependent * 10.0))
}

pub(crate) fn side_by_side(device: &Device) -> Outcome {
    let kernels = Kernels::load(device)?;
    let streams = [device.stream()?, device.stream()?, device.stream()?];
    let one = Instant::now();
    kernels.spin(&streams[0], A_WHILE)?;
    streams[0].synchronize()?;
    let one = one.elapsed();
    let three = Instant::now();
    streams.iter().try_for_each(|stream| kernels.spin(stream, A_WHILE))?;
    demand(!streams[0].is_idle()?, "a busy stream calls itself idle")?;
    streams.iter().try_for_each(Stream::synchronize)?;
    let three = three.elapsed();
    demand(three < one * 2, format!("one takes {one:?}, three take {three:?}"))?;
    Ok(format!("one takes {one:?}, three {three:?}"))
}

pub(crate) fn events(device: &Device) -> Outcome {
    let kernels = Kernels::load(device)?;
    let (first, second) = (device.stream()?, device.stream()?);
    let memory = device.allocate(4 * COUNT, "numbers")?;
    let (start, end) = (device.event(true)?, device.event(true)?);
    demand(start.is_done()?, "an event that was never recorded is not done")?;
    start.record(&first)?;
    kernels.spin(&first, A_WHILE)?;
    first.fill(memory.region(), 0)?;
    end.record(&first)?;
    demand(!end.is_done()?, "done before its time")?;
    second.wait_for(&end)?;
    kernels.add(&second, memory.region(), 7)?;
    all_are(&second, memory.region(), 7)?;
    demand(end.is_done()?, "not done")?;
    let ms = end.since_ms(&start)?;
    demand(ms > 1.0, format!("{ms} ms on the device"))?;
    Ok(format!("{ms:.3} ms between two"))
}

pub(crate) fn graph(device: &Device) -> Outcome {
    let kernels = Kernels::load(device)?;
    let stream = device.stream()?;
    let memory = device.allocate(4 * COUNT, "numbers")?;
    stream.fill(memory.region(), 0)?;
    let record = |amount: u32, times: u32| {
        let kernels = &kernels;
        let (stream, region) = (&stream, memory.region());
        move || (0..times).try_for_each(|_| kernels.add(stream, region, amount))
    };
    let mut graph = Graph::capture(&stream, record(1, 50))?;
    all_are(&stream, memory.region(), 0)?;
    let begun = Instant::now();
    for _ in 0..20 {
        graph.launch(&stream)?;
    }
    let submit = begun.elapsed() / 20;
    all_are(&stream, memory.region(), 1000)?;
    let same = graph.update(&stream, record(2, 50))?;
    graph.launch(&stream)?;
    let other = graph.update(&stream, record(3, 51))?;
    graph.launch(&stream)?;
    all_are(&stream, memory.region(), 1000 + 100 + 153)?;
    demand((same, other) == (GraphUpdate::Updated, GraphUpdate::Differs), format!("{same:?} {other:?}"))?;
    Ok(format!("{} nodes, {submit:?} of the host to launch 50", graph.nodes()))
}

pub(crate) fn forked_graph(device: &Device) -> Outcome {
    let kernels = Kernels::load(device)?;
    let (stream, side) = (device.stream()?, device.stream()?);
    let (fork, join) = (device.event(false)?, device.event(false)?);
    let memory = device.allocate(8 * COUNT, "numbers")?;
    let halves = [memory.region().part(0, 4 * COUNT)?, memory.region().part(4 * COUNT, 4 * COUNT)?];
    stream.fill(memory.region(), 0)?;
    let record = |joined: bool| -> Result<()> {
        fork.record(&stream)?;
        side.wait_for(&fork)?;
        kernels.add(&side, halves[1], 5)?;
        kernels.add(&stream, halves[0], 5)?;
        if joined {
            join.record(&side)?;
            stream.wait_for(&join)?;
            kernels.add(&stream, memory.region(), 1)?;
        }
        Ok(())
    };
    let graph = Graph::capture(&stream, || record(true))?;
    graph.launch(&stream)?;
    graph.launch(&stream)?;
    all_are(&stream, memory.region(), 12)?;
    let unjoined = Graph::capture(&stream, || record(false));
    let said = unjoined.map(drop).err().ok_or("a fork without a join was taken")?.to_string();
    all_are(&stream, memory.region(), 12)?;
    Ok(format!("{} nodes; without the join: {said}", graph.nodes()))
}

pub(crate) fn refusals_in_graph(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let memory = device.allocate(4 * COUNT, "numbers")?;
    let said = match Graph::capture(&stream, || stream.synchronize()) {
        Err(error) => error.to_string(),
        Ok(_) => return Err("a wait was recorded".into()),
    };
    stream.fill(memory.region(), 0)?;
    all_are(&stream, memory.region(), 0)?;
    Ok(said)
}

/// A slow device must not see a buffer that was written again too early.
pub(crate) fn step_arrays(device: &Device) -> Outcome {
    const STEPS: u32 = 32;
    let kernels = Kernels::load(device)?;
    let stream = device.stream()?;
    let mut layout = Layout::new();
    let values = layout.field::<u32>("values", 4096);
    let log = device.allocate(u64::from(STEPS) * layout.bytes(), "log")?;
    let mut staging = Staging::new(device, layout.bytes(), 2)?;
    for step in 0..STEPS {
        let mut arrays = staging.begin(&layout)?;
        arrays.pad(values, 0, step)?;
        kernels.spin(&stream, A_WHILE / 20)?;
        arrays.send(&stream, log.region().part(u64::from(step) * layout.bytes(), layout.bytes())?)?;
    }
    for step in 0..STEPS {
        all_are(&stream, log.region().part(u64::from(step) * layout.bytes(), layout.bytes())?, step)?;
    }
    Ok(format!("{STEPS} steps through 2 buffers"))
}

pub(crate) fn tickets(device: &Device) -> Outcome {
    let kernels = Kernels::load(device)?;
    let stream = device.stream()?;
    let counter = device.allocate(4, "counter")?;
    let results = [device.pinned(4, "result")?, device.pinned(4, "result")?];
    let mut tickets = Tickets::new(device, 2)?;
    stream.fill(counter.region(), 0)?;
    let mut last = None;
    for step in 1..=50_u32 {
        let open = tickets.begin(&stream)?;
        kernels.spin(&stream, A_WHILE / 50)?;
        kernels.add(&stream, counter.region(), 1)?;
        stream.download(&results[open.slot], 0, counter.region())?;
        let ticket = tickets.finish(open, &stream)?;
        if let Some(previous) = last.replace(ticket) {
            tickets.wait(previous)?;
            let mut value = [0_u32];
            results[tickets.slot_of(previous)].read(0, &mut value)?;
            demand(value[0] == step - 1, format!("step {} read {}", step - 1, value[0]))?;
        }
    }
    let last = last.ok_or("no step")?;
    tickets.wait(last)?;
    let us = tickets.device_us(last).ok_or("no time of the last step")?;
    demand(us > 50, format!("{us} us on the device"))?;
    Ok(format!("50 steps, two in flight, {us} us of the device each"))
}

pub(crate) fn tensor_map(device: &Device) -> Outcome {
    let memory = device.allocate(1 << 20, "matrix")?;
    let request = TensorMapRequest {
        base: memory.region().pointer,
        element: MapElement::Bf16,
        rows: 1024,
        columns: 512,
        row_bytes: 1024,
        box_rows: 64,
        box_columns: 64,
        swizzle: 3,
    };
    let map = device.encode_tensor_map(&request)?;
    demand(map.0.iter().any(|word| *word != 0), "the map is empty")?;
    let odd = TensorMapRequest { row_bytes: 1025, ..request };
    let refused = device.encode_tensor_map(&odd).map(drop).err().ok_or("odd rows were taken")?;
    Ok(refused.to_string())
}

/// Comes last: the context is dead afterwards.
pub(crate) fn fault(device: &Device) -> Outcome {
    let kernels = Kernels::load(device)?;
    let stream = device.stream()?;
    let nowhere = Region { pointer: m3_gpu::launch::DevicePointer(0x1000), bytes: 4 };
    kernels.add(&stream, nowhere, 1)?;
    let error = stream.synchronize().err().ok_or("a write to nowhere was taken")?;
    demand(!error.is_refusal(), "a dead device is not a refusal")?;
    demand(device.memory().is_err() || device.allocate(1, "more").is_err(), "it lives on")?;
    Ok(error.to_string())
}
