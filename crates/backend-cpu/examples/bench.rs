//! Prints the benchmark of this backend alone, for work on kernels; `cargo xtask bench cpu` is the real thing.
#![allow(clippy::print_stdout, reason = "a program for a terminal")]

fn main() {
    let report = backend_cpu::bench::run(&Default::default(), &mut |what| eprintln!("{what}"));
    println!("{report:#?}");
}
