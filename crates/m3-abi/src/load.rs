//! From a function table to a [`Driver`]: plugin files and linked backends look the same from here on.
//!
//! Nothing that a table answers is believed unchecked: sizes, missing entries, majors, statuses, tickets, counts.
//! A plugin file is loaded with `RTLD_NOW | RTLD_LOCAL` and never unloaded: device runtimes leave threads and
//! destructors behind. Which files to load is [`crate::discover`]'s business.

mod answer;
mod file;
mod instance;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::backend::{Backend, Driver, Error, OpenRequest, ProbeReport, ProbeRequest, Result};
use crate::crossing::{self, Struct};
use crate::table::{QUERY_SYMBOL, Query, Table};
use crate::types::{Host, MAJOR, MINOR, OpenArgs, Probe, ProbeArgs, Text};
use answer::{Guarded, Sentence};

/// A backend that is part of the program; made by [`linked_backend!`](crate::linked_backend).
#[derive(Clone, Copy, Debug)]
pub struct LinkedBackend {
    pub name: &'static str,
    pub query: Query,
}

/// Where a backend came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Linked,
    File(PathBuf),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Linked => formatter.write_str("linked"),
            Origin::File(path) => write!(formatter, "{}", path.display()),
        }
    }
}

/// A table that passed the checks, as a [`Driver`].
#[derive(Clone, Debug)]
pub struct Plugin {
    table: Table,
    name: Arc<str>,
    version: String,
    origin: Origin,
}

/// What this program tells a backend about itself.
pub fn this_host() -> Host {
    let log = Some(crate::log::receive as unsafe extern "C" fn(u32, *const u8, u64));
    Host { size: size_of::<Host>() as u32, major: MAJOR, minor: MINOR, reserved: 0, log }
}

impl Plugin {
    /// Loads a file and asks it for its table. Every failure is an `Unsupported` that names the file.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_as(path, &this_host())
    }

    /// [`Plugin::open`] in the name of another host (an older or newer one, for tests of the handshake).
    pub fn open_as(path: &Path, host: &Host) -> Result<Self> {
        let refuse = |why: String| Error::Unsupported(format!("cannot load {}: {why}", path.display()));
        file::check(path).map_err(refuse)?;
        let library = open_library(path).map_err(|error| refuse(flat(&error)))?;
        // SAFETY: the symbol of this name has this type in every major.
        let query = unsafe { library.get::<Query>(QUERY_SYMBOL.as_bytes()) }.map(|symbol| *symbol);
        // Whatever its initialisers started must keep its code.
        std::mem::forget(library);
        let query = query.map_err(|error| refuse(format!("no symbol {QUERY_SYMBOL}: {}", flat(&error))))?;
        // SAFETY: by exporting the symbol the file claims to keep the rules of the header.
        unsafe { Self::queried(query, host, Origin::File(path.to_owned())) }
            .map_err(|error| refuse(error.to_string()))
    }

    /// A backend of this program, through the same table and the same checks.
    pub fn linked(backend: &LinkedBackend) -> Result<Self> {
        // SAFETY: made by `linked_backend!`, or by someone who promises the same.
        let plugin = unsafe { Self::queried(backend.query, &this_host(), Origin::Linked) }?;
        if *plugin.name != *backend.name {
            let (registered, named) = (backend.name, &plugin.name);
            return Err(Error::Unsupported(format!(
                "backend registered as {registered} calls itself {named}"
            )));
        }
        Ok(plugin)
    }

    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Minor version of the table, which may be older or newer than ours.
    pub fn minor(&self) -> u32 {
        self.table.minor
    }

    /// # Safety
    /// `query` keeps the rules of the header.
    unsafe fn queried(query: Query, host: &Host, origin: Origin) -> Result<Self> {
        let mut err = Sentence::new();
        // SAFETY: promised by the caller; both pointers live through the call.
        let pointer = unsafe { query(host, err.text()) };
        if pointer.is_null() {
            return Err(Error::Unsupported(err.or("refused without a reason")));
        }
        // Before its size is judged: another major has other sizes.
        // SAFETY: in every major a table opens with `size` and `major`.
        check_major(unsafe { (&raw const (*pointer).major).read_unaligned() })?;
        // SAFETY: a table is readable as far as its `size` says.
        let table = unsafe { crossing::read_struct(pointer) }?;
        check_table(&table)?;
        // SAFETY: strings of a table are zero-terminated and live until the process ends.
        let (name, version) = unsafe { (c_text(table.name, "name"), c_text(table.version, "version")) };
        let (name, version) = (name?, version?);
        if version.contains(char::is_control) {
            return Err(Error::Unsupported(format!(
                "the table's version {version:?} has control characters"
            )));
        }
        check_name(&name)?;
        Ok(Plugin { table, name: name.into(), version, origin })
    }

    fn says(&self, what: &str) -> String {
        format!("backend {} {what}", self.name)
    }
}

#[cfg(unix)]
fn open_library(path: &Path) -> Result<libloading::Library, libloading::Error> {
    use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
    // A bare file name would be searched for in the system's folders.
    let path = if path.components().count() == 1 { Path::new(".").join(path) } else { path.to_owned() };
    // SAFETY: initialisers of the file run; whoever names a plugin trusts it.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map(Into::into)
}

#[cfg(not(unix))]
fn open_library(path: &Path) -> Result<libloading::Library, libloading::Error> {
    // SAFETY: initialisers of the file run; whoever names a plugin trusts it.
    unsafe { libloading::Library::new(path) }
}

/// A loader's error with its cause, on one line.
fn flat(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    if let Some(source) = error.source()
        && !line.contains(&source.to_string())
    {
        line = format!("{line}: {source}");
    }
    line.replace('\n', " ")
}

fn check_major(major: u32) -> Result<()> {
    if major == MAJOR {
        return Ok(());
    }
    Err(Error::Unsupported(format!("its table has major {major}, this program speaks major {MAJOR}")))
}

/// Whether `--backend` takes this as a name.
pub(crate) fn is_name(text: &str) -> bool {
    let named = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
    !text.is_empty() && text != "auto" && text.bytes().all(named)
}

/// A backend of another name could be found, but never asked for.
fn check_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::Unsupported("the table's name is empty".to_owned()));
    }
    if !is_name(name) {
        return Err(Error::Unsupported(format!(
            "the table's name {name:?} is none that --backend takes (a-z, 0-9, _ and -, but not auto)"
        )));
    }
    Ok(())
}

fn check_table(table: &Table) -> Result<()> {
    let refuse = |sentence: String| Err(Error::Unsupported(sentence));
    let (size, ours) = (table.size as usize, size_of::<Table>());
    let (minor, newer) = (table.minor, table.minor > MINOR);
    if !newer && size > ours {
        return refuse(format!(
            "m3_table says size {size}, but a table of minor {minor} has at most {ours} bytes"
        ));
    }
    if newer && size < ours {
        return refuse(format!(
            "m3_table says size {size}, but a table of minor {minor} has at least {ours} bytes"
        ));
    }
    let mandatory = [
        ("probe", table.probe.is_some()),
        ("comm_id", table.comm_id.is_some()),
        ("open", table.open.is_some()),
        ("load", table.load.is_some()),
        ("ready", table.ready.is_some()),
        ("reserve", table.reserve.is_some()),
        ("warm", table.warm.is_some()),
        ("submit", table.submit.is_some()),
        ("wait", table.wait.is_some()),
        ("done", table.done.is_some()),
        ("close", table.close.is_some()),
    ];
    let missing: Vec<&str> = mandatory.iter().filter(|entry| !entry.1).map(|entry| entry.0).collect();
    if !missing.is_empty() {
        return refuse(format!("its table lacks the mandatory entries {}", missing.join(", ")));
    }
    Ok(())
}

/// # Safety
/// `pointer` is null or zero-terminated within its readable memory.
unsafe fn c_text(pointer: *const core::ffi::c_char, what: &str) -> Result<String> {
    const LONGEST: usize = 64;
    if pointer.is_null() {
        return Err(Error::Unsupported(format!("the table's {what} is null")));
    }
    let mut bytes = Vec::new();
    loop {
        // SAFETY: no byte before this one was the terminator (caller).
        match unsafe { *pointer.add(bytes.len()) } as u8 {
            0 => break,
            byte => bytes.push(byte),
        }
        if bytes.len() > LONGEST {
            return Err(Error::Unsupported(format!("the table's {what} is longer than {LONGEST} bytes")));
        }
    }
    String::from_utf8(bytes).map_err(|_| Error::Unsupported(format!("the table's {what} is not utf-8")))
}

const LONGEST_COMM_ID: usize = 1 << 20;

impl Driver for Plugin {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn probe(&self, request: &ProbeRequest) -> Result<ProbeReport> {
        let mut err = Sentence::new();
        let (mut device, mut arch, mut paths) = ([0; 256], [0; 64], vec![0; 16 << 10]);
        let args = ProbeArgs {
            size: size_of::<ProbeArgs>() as u32,
            tp: request.tp,
            ep: request.ep,
            reserved: 0,
            config: crossing::span_of(&request.config),
        };
        let mut out = Guarded::<Probe>::new();
        out.value.device = crossing::text_of(&mut device);
        out.value.arch = crossing::text_of(&mut arch);
        out.value.paths = crossing::text_of(&mut paths);
        let probe = self.table.probe.expect("mandatory, checked when loaded");
        // SAFETY: the table keeps the rules of the header; all pointers live through the call.
        let status = unsafe { probe(&args, out.pointer(), err.text()) };
        err.outcome(&self.name, "probe", status)?;
        out.check(&self.name, "probe")?;
        let probe = out.value;
        if probe.score == 0 {
            return Err(Error::Unsupported(self.says("answered score 0 (unusable) without a reason")));
        }
        Ok(ProbeReport {
            score: probe.score,
            num_devices: probe.num_devices,
            weight_formats: probe.weight_formats,
            dtypes: probe.dtypes,
            kv_dtypes: probe.kv_dtypes,
            quant_mode: probe.quant_mode,
            flags: probe.flags,
            memory_total_bytes: probe.memory_total_bytes,
            memory_free_bytes: probe.memory_free_bytes,
            device: crossing::line_in(&device, &probe.device),
            arch: crossing::line_in(&arch, &probe.arch),
            paths: crossing::text_in(&paths, &probe.paths),
        })
    }

    fn comm_id(&self) -> Result<Vec<u8>> {
        let comm_id = self.table.comm_id.expect("mandatory, checked when loaded");
        let mut bytes = vec![0; 4096];
        loop {
            let mut err = Sentence::new();
            let mut text = crossing::text_of(&mut bytes);
            // SAFETY: the table keeps the rules of the header; all pointers live through the call.
            let status = unsafe { comm_id(&mut text, err.text()) };
            err.outcome(&self.name, "comm_id", status)?;
            let len = usize::try_from(text.len).unwrap_or(usize::MAX);
            if len > LONGEST_COMM_ID {
                let sentence = format!("made a comm id of {len} bytes; at most {LONGEST_COMM_ID} are taken");
                return Err(Error::Fatal(self.says(&sentence)));
            }
            let fits = len <= bytes.len();
            bytes.resize(len, 0);
            if fits {
                return Ok(bytes);
            }
        }
    }

    fn open(&self, request: &OpenRequest) -> Result<Box<dyn Backend>> {
        let mut err = Sentence::new();
        let args = open_args(request);
        let mut handle = std::ptr::null_mut();
        let open = self.table.open.expect("mandatory, checked when loaded");
        // SAFETY: the table keeps the rules of the header; all pointers live through the call.
        let status = unsafe { open(&args, &mut handle, err.text()) };
        err.outcome(&self.name, "open", status)?;
        if handle.is_null() {
            return Err(Error::Fatal(self.says("opened an instance but gave null for it")));
        }
        Ok(Box::new(instance::Instance::new(self.table, self.name.clone(), handle)))
    }
}

fn open_args(request: &OpenRequest) -> OpenArgs {
    OpenArgs {
        size: size_of::<OpenArgs>() as u32,
        flags: request.flags,
        rank: request.rank,
        tp: request.tp,
        ep: request.ep,
        dp: request.dp,
        node: request.node,
        device: request.device,
        dtype: request.dtype,
        kv_dtype: request.kv_dtype,
        max_rows: request.max_rows,
        max_step_tokens: request.max_step_tokens,
        max_context: request.max_context,
        page_tokens: request.page_tokens,
        max_logprobs: request.max_logprobs,
        num_threads: request.num_threads,
        page_memory_bytes: request.page_memory_bytes,
        collective_timeout_ms: request.collective_timeout_ms,
        config: crossing::span_of(&request.config),
        comm_id: crossing::span_of(&request.comm_id),
    }
}

const _: () = assert!(size_of::<Text>() == 24 && <Table as Struct>::MINIMUM_BYTES == 120);
