//! Where a model is: a folder that was named, one in a hub's cache or still in the hub, or the bundled one.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::args::ModelOptions;
use crate::hub;

/// The hub's name of the model, when it is no folder here.
pub fn hub_name(options: &ModelOptions) -> Option<&str> {
    let name = options.dir.as_deref()?.to_str()?;
    (hub::is_name(name) && !Path::new(name).exists()).then_some(name)
}

/// Downloads a model that was named as a hub names it; afterwards its folder stands where its name stood.
pub fn fetch(options: &mut ModelOptions, progress: &(dyn Fn(u64, u64) + Sync)) -> anyhow::Result<()> {
    let Some(name) = hub_name(options).map(str::to_owned) else {
        if options.hub.verify {
            hub::check(&model_dir(options)?, None, &|_| {})?.good()?;
        }
        return Ok(());
    };
    options.dir = Some(hub::fetch(&options.hub, &name, progress)?);
    if options.served_names.is_empty() {
        options.served_names.push(name);
    }
    Ok(())
}

/// One that was downloaded earlier.
fn cached(options: &ModelOptions, name: &str) -> anyhow::Result<PathBuf> {
    let found = hub::Cache::new(&options.hub.cache, name).snapshot(&options.hub.revision);
    found.with_context(|| {
        format!("{name} is not in {}; m3 download {name} gets it", options.hub.cache.display())
    })
}

/// The folder that was named, or the bundled model's.
pub fn model_dir(options: &ModelOptions) -> anyhow::Result<PathBuf> {
    match &options.dir {
        Some(dir) if dir.is_dir() => Ok(dir.clone()),
        Some(dir) if hub_name(options).is_some() => cached(options, &dir.to_string_lossy()),
        Some(dir) if dir.exists() => {
            bail!("{} is a file; a model is a folder with config.json", dir.display())
        }
        Some(dir) => {
            bail!("there is no folder {}; a model of a hub is named OWNER/NAME", dir.display())
        }
        None => bundled_model(),
    }
}

/// Beside the executable, where packages put it, or in the source tree it was built in.
fn bundled_model() -> anyhow::Result<PathBuf> {
    const NAME: &str = "models/m3-nano";
    let mut places: Vec<PathBuf> = Vec::new();
    if let Some(beside) = m3_abi::discover::beside_executable() {
        // The last one is `target/debug` seen from the workspace.
        places.extend(["", "../share/m3", "../.."].map(|from| beside.join(from).join(NAME)));
    }
    // Under `cargo run` and `cargo test`, and for programs built for development, whose tree is still there.
    let at_run_time = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let built_in = cfg!(debug_assertions).then(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    places.extend(at_run_time.into_iter().chain(built_in).map(|package| package.join("../..").join(NAME)));
    let found = places.iter().find(|place| place.join("config.json").is_file());
    let looked = || places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ");
    let found =
        found.with_context(|| format!("the bundled model is not in {}; name a model folder", looked()))?;
    Ok(found.canonicalize().unwrap_or_else(|_| found.clone()))
}

/// What a folder's model is called when nobody names it.
pub(crate) fn folder_name(dir: &Path) -> String {
    let canonical = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    canonical.file_name().map_or("m3".into(), |name| name.to_string_lossy().into_owned())
}

/// The name the model will be shown under, also before it is there.
pub fn first_name(options: &ModelOptions) -> String {
    let folder = || model_dir(options).map_or("m3".into(), |dir| folder_name(&dir));
    let named = || hub_name(options).map(str::to_owned);
    options.served_names.first().cloned().or_else(named).unwrap_or_else(folder)
}
