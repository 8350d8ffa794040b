//! Which device plugins there are: those linked into this program and those in files. Choosing is `m3-abi`'s.

use m3_abi::discover::{Choice, Discovery, Places, beside_executable, discover};
use m3_abi::{LinkedBackend, ProbeRequest};

use crate::args::BackendOptions;

/// A backend that is part of the program. Registered at link time, so that a program can add its own (the tests add
/// the scripted one) without this crate naming it.
pub struct Linked(pub LinkedBackend);

inventory::collect!(Linked);

const CPU: LinkedBackend = m3_abi::linked_backend!("cpu", backend_cpu::CpuDriver::detect());

inventory::submit! {
    Linked(CPU)
}

/// All of them, by name.
pub fn linked() -> Vec<LinkedBackend> {
    let mut all: Vec<LinkedBackend> = inventory::iter::<Linked>().map(|linked| linked.0).collect();
    all.sort_by_key(|backend| backend.name);
    all
}

/// Looks for what `--backend` asks for and probes it with `request`.
pub fn find(options: &BackendOptions, request: &ProbeRequest) -> anyhow::Result<Discovery> {
    let choice = Choice::parse(&options.backend).map_err(anyhow::Error::msg)?;
    if let Some(dir) = options.dir.as_ref().filter(|dir| !dir.is_dir()) {
        anyhow::bail!("--backend-dir {} is no folder", dir.display());
    }
    let linked = linked();
    let places = Places { linked: &linked, beside: beside_executable(), dir: options.dir.clone() };
    Ok(discover(&choice, &places, request))
}

/// The text of `m3 backends`: each plugin with its score and paths, or why it was refused.
pub fn listing(options: &BackendOptions) -> anyhow::Result<String> {
    let request = ProbeRequest { tp: options.tp, ep: options.ep, ..ProbeRequest::default() };
    let discovery = find(options, &request)?;
    let chosen = discovery.chosen();
    let mut text = String::new();
    for candidate in &discovery.candidates {
        text.push_str(&format!("{candidate}\n"));
        if let Ok(report) = &candidate.outcome {
            let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
            let (free, total) = (gib(report.memory_free_bytes), gib(report.memory_total_bytes));
            text.push_str(&format!("  version {}, {free:.1} of {total:.1} GiB free\n", candidate.version));
            report.paths.lines().for_each(|path| text.push_str(&format!("  {path}\n")));
        }
    }
    match chosen {
        Ok((plugin, _)) => text.push_str(&format!("chosen: {}\n", m3_abi::Driver::name(plugin))),
        Err(reason) => text.push_str(&format!("{reason}\n")),
    }
    Ok(text)
}
