//! `cargo xtask nano eval`: the table of the bundled model's card, asked through `m3 serve`. The questions and the judging
//! are in `models/training/nano/served.py`, which needs no package; this builds the server and calls it.

use crate::process::{cargo, run, target_folder};
use anyhow::Result;
use std::path::Path;

/// Shares and counts of the subset that CI runs in about a minute, on the debug build that the tests made.
const QUICK: &[&str] = &[
    "--count",
    "24",
    "--sampled",
    "24",
    "--needles",
    "4096:2",
    "--random",
    "4096:2",
    "--rows",
    "1,2,3,4,5,leaks",
    "--least",
    "0.8",
];

/// The same of the twin that `m3 convert` makes: enough to notice weights that were read wrongly.
const QUICK_TWIN: &[&str] = &["--count", "24", "--rows", "1,2,4", "--least", "0.8"];

/// What is measured.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The subset that CI runs; fails when a row falls below four in five.
    #[arg(long)]
    quick: bool,
    /// Another checkpoint, such as the MXFP8 twin.
    #[arg(long)]
    model: Option<String>,
    /// Passed on to `served.py`, after `--`: `--count 100 --rows 1,2`, say.
    #[arg(last = true)]
    rest: Vec<String>,
}

pub(crate) fn evaluate(root: &Path, arguments: &Arguments) -> Result<()> {
    if arguments.quick {
        return quick(root);
    }
    cargo(root, &["build", "--release", "--package", "m3-server", "--bin", "m3"])?;
    let rest: Vec<&str> = arguments.rest.iter().map(String::as_str).collect();
    served(root, "release/m3", arguments.model.as_deref(), &rest)
}

/// The subset, on the debug build: of the workspace as tests build it, since one package alone would be built with other
/// features of what it depends on, all over again.
pub(crate) fn quick(root: &Path) -> Result<()> {
    cargo(root, &["build", "--workspace"])?;
    served(root, "debug/m3", None, QUICK)?;
    let twin = target_folder(root).join("m3-nano-mxfp8");
    if twin.exists() {
        std::fs::remove_dir_all(&twin)?;
    }
    let twin = twin.display().to_string();
    let binary = target_folder(root).join("debug/m3").display().to_string();
    run(root, &binary, &["convert", "models/m3-nano", "--to", "mxfp8", "--out", &twin])?;
    served(root, "debug/m3", Some(&twin), QUICK_TWIN)
}

fn served(root: &Path, program: &str, model: Option<&str>, rest: &[&str]) -> Result<()> {
    let binary = target_folder(root).join(program).display().to_string();
    let model =
        model.map_or_else(|| root.join("models/m3-nano"), |model| root.join(model)).display().to_string();
    let fixed = ["-m", "nano.served", "--m3", &binary, "--model", &model];
    run(&root.join("models/training"), "python3", &[&fixed[..], rest].concat())
}
