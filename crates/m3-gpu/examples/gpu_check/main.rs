//! Does this crate do on a real device what its tests demand of the double? `gpu_check [DEVICE]`
//!
//! One line a check, `ok` or `FAILED`, the exit status counts the failures. No model, no kernels of ours: a few tiny ones in
//! PTX. The last check kills the context on purpose.
#![allow(unsafe_code, reason = "launches kernels with raw arguments")]
#![allow(clippy::print_stdout, reason = "a program for people")]

mod checks;
mod kernels;
mod transfers;

use std::process::ExitCode;
use std::time::Instant;

use m3_gpu::device::Device;

pub(crate) type Outcome = Result<String, Box<dyn std::error::Error>>;

type Check = fn(&Device) -> Outcome;

fn main() -> ExitCode {
    let ordinal = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    let device = match Device::cuda(ordinal) {
        Ok(device) => device,
        Err(refusal) => {
            println!("FAILED open: {refusal}");
            return ExitCode::FAILURE;
        }
    };
    println!("{:?}", device.info());
    let checks: [(&str, Check); 16] = [
        ("arena", checks::arena),
        ("out of memory", checks::out_of_memory),
        ("launch", checks::launch),
        ("dependent launch", checks::dependent_launch),
        ("streams beside each other", checks::side_by_side),
        ("events order streams", checks::events),
        ("graph", checks::graph),
        ("graph with a side stream", checks::forked_graph),
        ("graph refuses", checks::refusals_in_graph),
        ("step arrays", checks::step_arrays),
        ("tickets", checks::tickets),
        ("tensor map", checks::tensor_map),
        ("copies", transfers::copies),
        ("upload", transfers::upload),
        ("collectives", transfers::collectives),
        ("a fault is fatal", checks::fault),
    ];
    let mut failures = 0;
    for (name, check) in checks {
        let begun = Instant::now();
        let outcome = check(&device);
        let ms = begun.elapsed().as_millis();
        match outcome {
            Ok(detail) => println!("ok     {name}: {detail} [{ms} ms]"),
            Err(error) => {
                failures += 1;
                println!("FAILED {name}: {error} [{ms} ms]");
            }
        }
    }
    println!("{failures} failures");
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
