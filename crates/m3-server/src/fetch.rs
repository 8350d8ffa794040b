//! `m3 download` and `m3 verify`: a model's files without serving them.
#![allow(clippy::print_stdout, reason = "a program's output")]

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::bail;

use crate::args::{ModelOptions, Parsed};
use crate::phase::PhaseCell;
use crate::progress::ProgressView;
use crate::{hub, place};

/// Downloads what is missing and prints the folder.
pub fn download(parsed: &Parsed) -> anyhow::Result<()> {
    let options = ModelOptions::read(parsed)?;
    let Some(name) = options.dir.as_deref().and_then(Path::to_str).filter(|name| hub::is_name(name)) else {
        bail!("name the model as its hub does: m3 download OWNER/NAME");
    };
    let (view, cell) = (ProgressView::default(), PhaseCell::default());
    let folder = hub::fetch(&options.hub, name, &|done, total| view.download(&cell, done, total));
    view.end();
    println!("{}", folder?.display());
    Ok(())
}

/// Hashes a model's files and says whether they are what was published.
pub fn verify(parsed: &Parsed) -> anyhow::Result<()> {
    let folder = place::model_dir(&ModelOptions::read(parsed)?)?;
    let list = parsed.value("manifest").map(Path::new);
    let (read, said) = (AtomicU64::new(0), Mutex::new(0));
    let checked = hub::check(&folder, list, &|bytes| {
        let gib = (read.fetch_add(bytes, Ordering::Relaxed) + bytes) >> 30;
        let mut said = said.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if gib > *said {
            *said = gib;
            tracing::info!("{gib} GiB read");
        }
    })?;
    let checked = checked.good()?;
    println!("{} files, {} bytes: as published", checked.files, checked.bytes);
    Ok(())
}
