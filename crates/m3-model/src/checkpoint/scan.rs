//! Looks for NaN scale bytes before serving: one would silently poison every output of its row.
//!
//! Scales are a 33rd of an MXFP8 checkpoint and are read from disk by loading anyway; threads share the tensors.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::fault::Fault;
use super::locate::Located;
use super::shards::Shards;

/// UE8M0 has one NaN.
const NAN: u8 = 0xff;

/// One fault per tensor that has a NaN scale, in table order.
pub(super) fn nan_scales(shards: &Shards, tensors: &[Located]) -> Vec<Fault> {
    let scaled: Vec<&Located> = tensors.iter().filter(|located| located.scales.is_some()).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(scaled.len()).max(1);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut found = Vec::new();
        while let Some((at, located)) = take(&next, &scaled) {
            found.extend(nan_scale(shards, located).map(|fault| (at, fault)));
        }
        found
    };
    let mut found: Vec<(usize, Fault)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut found = work();
        for worker in workers {
            found.extend(worker.join().expect("scanning bytes does not panic"));
        }
        found
    });
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, fault)| fault).collect()
}

fn take<'a>(next: &AtomicUsize, scaled: &[&'a Located]) -> Option<(usize, &'a Located)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    scaled.get(at).map(|located| (at, *located))
}

fn nan_scale(shards: &Shards, located: &Located) -> Option<Fault> {
    let run = located.scales?;
    let shard = &shards.list[run.shard];
    let bytes = shard.bytes(run.start, run.end);
    // Blocks first: a fold without early exit is vectorised, the position is only looked for when it is needed.
    let block =
        bytes.chunks(4096).position(|block| block.iter().fold(false, |any, byte| any | (*byte == NAN)))?;
    let at = (block * 4096 + bytes[block * 4096..].iter().position(|byte| *byte == NAN)?) as u64;
    let columns = located.spec.scale_columns();
    Some(Fault::NanScale {
        file: shard.file.clone(),
        tensor: located.scale_name.clone(),
        row: at / columns,
        group: at % columns,
    })
}
