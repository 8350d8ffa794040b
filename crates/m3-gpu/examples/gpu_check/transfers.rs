//! What is checked, and measured on the way, of copies, uploads and collectives.

use std::time::{Duration, Instant};

use m3_gpu::collective::{Communicator, Element, Library};
use m3_gpu::device::Device;
use m3_gpu::error::Result;
use m3_gpu::stream::Stream;
use m3_gpu::upload::{Source, UploadSettings, Uploader};

use crate::Outcome;
use crate::checks::demand;

const BYTES: u64 = 1 << 30;

pub(crate) fn copies(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let [first, second] = [device.allocate(BYTES, "first")?, device.allocate(BYTES, "second")?];
    let mut host = device.pinned(BYTES, "host")?;
    let values: Vec<u64> = (0..BYTES / 8).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    host.write(0, &values)?;
    let rate = |what: &dyn Fn() -> Result<()>| -> Result<f64> {
        what()?;
        let (start, end) = (device.event(true)?, device.event(true)?);
        start.record(&stream)?;
        what()?;
        end.record(&stream)?;
        end.wait()?;
        Ok(BYTES as f64 / 1e6 / f64::from(end.since_ms(&start)?))
    };
    let up = rate(&|| stream.upload(first.region(), &host, 0))?;
    let across = rate(&|| stream.copy(second.region(), first.region()))?;
    host.write(0, &vec![0_u64; 1 << 10])?;
    let down = rate(&|| stream.download(&host, 0, second.region()))?;
    let mut back = vec![0_u64; values.len()];
    host.read(0, &mut back)?;
    demand(back == values, "bytes changed on the way")?;
    let fill = rate(&|| stream.fill(first.region(), 0))?;
    Ok(format!(
        "GB/s: {up:.1} in, {down:.1} out, {:.0} across (read and written), {fill:.0} filled",
        2.0 * across
    ))
}

/// From ordinary memory, as a mapped file with a warm page cache is.
pub(crate) fn upload(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let host: Vec<u8> = (0..2 * BYTES).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
    let memory = device.allocate(2 * BYTES, "weights")?;
    let mut said = Vec::new();
    for threads in [1, 4, 8, 16] {
        let settings = UploadSettings { threads, chunk_bytes: 8 << 20 };
        stream.fill(memory.region(), 0)?;
        stream.synchronize()?;
        let begun = Instant::now();
        let uploader = Uploader::new(device, settings)?;
        let prepared = begun.elapsed();
        // SAFETY: `host` outlives the uploader.
        unsafe { uploader.send(Source::contiguous(host.as_ptr(), 2 * BYTES), memory.region()) }?;
        let report = uploader.finish()?;
        let rate = report.bytes as f64 / 1e9 / (report.elapsed.saturating_sub(prepared)).as_secs_f64();
        said.push(format!("{threads}: {rate:.1} GB/s after {prepared:?}"));
        check_tail(&stream, memory.region(), &host)?;
    }
    // Columns of a shard, 1,000 of 4,096 bytes.
    let uploader = Uploader::new(device, UploadSettings::default())?;
    let source = Source { start: host[100..].as_ptr(), rows: 100_000, row_bytes: 1000, stride: 4096 };
    // SAFETY: as above.
    unsafe { uploader.send(source, memory.region()) }?;
    uploader.finish()?;
    let seen: Vec<u8> = stream.download_values(memory.region().part(0, source.bytes())?)?;
    let right = seen.chunks(1000).enumerate().all(|(row, seen)| *seen == host[100 + row * 4096..][..1000]);
    demand(right, "columns are not what they were")?;
    Ok(format!("threads {}", said.join(", ")))
}

/// Compares the last 64 MiB and a few bytes of every chunk.
fn check_tail(
    stream: &Stream,
    region: m3_gpu::memory::Region,
    host: &[u8],
) -> Result<(), Box<dyn std::error::Error>> {
    let tail = 64 << 20;
    let from = host.len() - tail;
    let seen: Vec<u8> = stream.download_values(region.part(from as u64, tail as u64)?)?;
    demand(seen == host[from..], "the end is not what it was")?;
    for start in (0..host.len()).step_by((8 << 20) - 64) {
        let seen: Vec<u8> = stream.download_values(region.part(start as u64, 64)?)?;
        demand(seen == host[start..start + 64], format!("bytes at {start} are not what they were"))?;
    }
    Ok(())
}

/// With one rank; more need as many devices.
pub(crate) fn collectives(device: &Device) -> Outcome {
    let library = match Library::load() {
        Ok(library) => library,
        Err(absence) => return Ok(format!("not run: {absence}")),
    };
    let stream = device.stream()?;
    let id = library.unique_id()?;
    let mut group = Communicator::join(&library, device, &id, (0, 1), Duration::from_secs(60))?;
    let memory = device.allocate(4096, "sum")?;
    stream.upload_values(memory.region(), &[1.5_f32; 1024])?;
    group.all_reduce(&stream, memory.region(), memory.region(), Element::F32)?;
    let event = device.event(false)?;
    event.record(&stream)?;
    group.wait("all-reduce", &event)?;
    let sum: Vec<f32> = stream.download_values(memory.region())?;
    demand(sum == [1.5; 1024], "a sum of one rank differs from it")?;
    Ok(format!("NCCL {}", library.version()))
}
