//! Project tasks: `cargo xtask TASK`. What CI runs is `cargo xtask ci`, nothing else.

#![recursion_limit = "256"]
#![allow(clippy::print_stdout, reason = "a command-line tool talks on standard output")]

mod abi;
mod bench;
mod build;
mod check;
mod clients;
mod conformance;
mod dist;
mod goldens;
mod kernels;
mod nano;
mod pictures;
mod process;
mod python;
mod sbom;
mod test;
mod tidy;
mod ui;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Tasks of the M3 workspace")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// What CI does: `check`, then `test`.
    Ci,
    /// Format, lints, tidy, the bundled model, goldens, the C header, licences.
    Check,
    /// Set up what the tests need and run them all, the OpenAI client included.
    Test {
        /// Only the Rust tests.
        #[arg(long)]
        no_python: bool,
    },
    /// Only the clients: Python, JavaScript, made-up requests for every described route. Needs a built workspace.
    Clients,
    /// Only the web page, in headless Chromium. Builds the server first.
    Ui,
    /// Sizes, names, file heads and the dependency rules of ARCHITECTURE.md.
    Tidy,
    /// Compile the C header as C and C++ and compare its offsets with the Rust structs and the committed lock.
    Abi {
        /// Write the lock instead of comparing with it.
        #[arg(long)]
        bless: bool,
    },
    /// Compare a backend with the goldens and the scalar reference.
    Conformance {
        /// A plugin file, or a name such as `cpu`.
        #[arg(long)]
        backend: String,
        /// Only checks whose name holds this text; may be given several times.
        #[arg(long)]
        only: Vec<String>,
    },
    /// Build one backend as a plugin beside the `m3` binary.
    Build {
        #[arg(long)]
        backend: String,
        #[arg(long)]
        release: bool,
        /// Accept changed kernel arguments: write the launch stubs instead of comparing with them.
        #[arg(long)]
        bless: bool,
        /// Only the launch stubs, from the manifest: compiles no kernel and no plugin.
        #[arg(long, conflicts_with = "pack")]
        stubs: bool,
        /// Only the kernel pack and the launch stubs: builds no plugin.
        #[arg(long)]
        pack: bool,
    },
    /// Run the kernels' own tests in Triton's interpreter, in the pinned environment.
    Kernels,
    /// List the committed goldens and compare them with the shared originals when those are there.
    Goldens,
    /// Measure this machine and a backend on it, and record JSON under `bench/`.
    Bench {
        /// `cpu`, `tokenizer` or `server`
        what: String,
    },
    /// Packages (`.tar.zst` and Debian's) of the server and of each backend, tried in a fresh root.
    Dist {
        /// Backends to make packages of; may be given several times.
        #[arg(long, num_args = 1..)]
        backend: Vec<String>,
        /// From a development build: quick, for trying the packages, not for handing out.
        #[arg(long)]
        debug: bool,
    },
    /// What a test does for seconds, for hours.
    Soak {
        /// `simulation`: the engine, for as many worlds of a hundred random requests each; `fuzz`: made-up input; `load`: a
        /// server under load and faults, recorded in `bench/load.json`.
        #[arg(default_value = "simulation")]
        what: String,
        #[arg(long, default_value_t = 10_000)]
        worlds: u64,
        /// Of `fuzz`.
        #[arg(long, default_value_t = 1.0)]
        hours: f64,
        /// Of `fuzz`: the seed of the first round; otherwise one is drawn and printed.
        #[arg(long)]
        seed: Option<u64>,
        /// Of `fuzz`: only this target.
        #[arg(long)]
        target: Option<String>,
    },
    /// Remake the corpus of odd pictures and what the pinned Pillow sees in them.
    Pictures,
    /// List every crate of the programs with its licence and checksum, as CycloneDX JSON.
    Sbom {
        /// Write it there instead of printing it.
        #[arg(long)]
        out: Option<PathBuf>,
    },
    /// Remake the table of resized pictures that resizing is held to, with the pinned torch and Pillow (3 GB).
    ResizeOracle,
    /// Remake the tests' random miniature, or measure the bundled one.
    Nano {
        /// Only compare with the committed files.
        #[arg(long)]
        check: bool,
        #[command(subcommand)]
        task: Option<NanoTask>,
    },
}

#[derive(Subcommand)]
enum NanoTask {
    /// The table of the model card, through `m3 serve`.
    Eval(nano::eval::Arguments),
}

/// The workspace's folder.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_owned()
}

fn main() -> ExitCode {
    // Not `Result`: a check that fails is no bug of this program, and its backtrace helps nobody.
    match run(Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    let root = root();
    match task {
        Task::Ci => check::run(&root).and_then(|()| test::run(&root, true)),
        Task::Check => check::run(&root),
        Task::Test { no_python } => test::run(&root, !no_python),
        Task::Clients => clients::test(&root),
        Task::Ui => ui::build_and_test(&root),
        Task::Tidy => tidy::run(&root),
        Task::Abi { bless } => abi::run(&root, bless),
        Task::Conformance { backend, only } => conformance::run(&root, &backend, &only),
        Task::Build { backend, bless, stubs: true, .. } => {
            kernels::stubs(&root, build::with_kernels(&backend)?, bless)
        }
        Task::Build { backend, bless, pack: true, .. } => {
            kernels::build(&root, build::with_kernels(&backend)?, bless).map(|_| ())
        }
        Task::Build { backend, release, bless, .. } => build::run(&root, &backend, release, bless),
        Task::Kernels => kernels::test(&root),
        Task::Goldens => goldens::run(&root),
        Task::Bench { what } => bench::run(&root, &what),
        Task::Dist { backend, debug } => dist::run(&root, &dist::Wanted { backends: backend, debug }),
        Task::Pictures => pictures::run(&root),
        Task::Soak { what, worlds, .. } if what == "simulation" => test::soak(&root, worlds),
        Task::Soak { what, .. } if what == "load" => test::soak_load(&root),
        Task::Soak { what, hours, seed, target, .. } => test::soak_fuzz(&root, &what, hours, seed, target),
        Task::Sbom { out } => sbom::run(&root, out.as_deref()),
        Task::ResizeOracle => pictures::resize_oracle(&root),
        Task::Nano { task: Some(NanoTask::Eval(arguments)), .. } => nano::eval::evaluate(&root, &arguments),
        Task::Nano { check, task: None } => nano::run(&root, check),
    }
}
