//! `m3 convert`: a checkpoint in another format. Only the words are read here; the work is `m3_model`'s.

use std::io::Write;
use std::path::Path;

use anyhow::bail;
use m3_core::model::checkpoint::Checkpoint;
use m3_core::model::convert::to_mxfp8;

use crate::args::Parsed;

pub(super) fn run(parsed: &Parsed) -> anyhow::Result<()> {
    let [from] = &parsed.words[..] else {
        bail!("m3 convert takes one folder with a checkpoint; {} were given", parsed.words.len());
    };
    match parsed.value("to") {
        Some("mxfp8") => {}
        Some(other) => bail!("--to is \"{other}\"; expected mxfp8"),
        None => bail!("--to is missing; expected mxfp8"),
    }
    let Some(out) = parsed.value("out") else {
        bail!("--out is missing: the converted checkpoint needs a folder of its own");
    };
    let done = to_mxfp8(&Checkpoint::open(Path::new(from))?, Path::new(out))?;
    writeln!(
        std::io::stdout(),
        "{out}: {} tensors in MXFP8, {} copied, {} bytes in {} file(s)",
        done.quantised,
        done.copied,
        done.bytes,
        done.files
    )?;
    Ok(())
}
