//! From a [`Driver`] to the function table: what `m3_backend_query` of a Rust backend hands out.
//!
//! Checks everything that comes from the host before the backend sees it, and catches every panic: after one, the
//! instance answers Fatal for ever. Works the same for a plugin file and for a backend that is linked in.
//! Panics of a backend's own threads are not seen here; they must be reported by the backend.

mod entries;
mod guard;
mod optional;
mod slots;

use std::ffi::CString;
use std::sync::OnceLock;

use crate::backend::{Driver, Error, ProbeReport, ProbeRequest, Result};
use crate::crossing::{self, Struct};
use crate::table::Table;
use crate::types::{Host, MAJOR, MINOR, Probe, ProbeArgs, Text};

pub use guard::Instance;
use guard::guard;

/// Made by [`export_backend!`](crate::export_backend) and [`linked_backend!`](crate::linked_backend), a type per
/// driver, so that the entries without an instance know whose they are.
pub trait Exported: 'static {
    fn cell() -> &'static Cell;
    fn make() -> Box<dyn Driver>;
}

/// A driver and its table, made at the first query.
pub struct Cell(OnceLock<(Box<dyn Driver>, Table)>);

impl Cell {
    #[expect(clippy::new_without_default, reason = "only made in statics")]
    pub const fn new() -> Self {
        Cell(OnceLock::new())
    }
}

fn made<E: Exported>() -> &'static (Box<dyn Driver>, Table) {
    E::cell().0.get_or_init(|| {
        let driver = E::make();
        let table = table::<E>(driver.as_ref());
        (driver, table)
    })
}

fn driver<E: Exported>() -> &'static dyn Driver {
    made::<E>().0.as_ref()
}

/// Lives until the process ends, as the table's strings must.
fn forever(text: &str) -> *const core::ffi::c_char {
    let visible: Vec<u8> = text.bytes().filter(|byte| *byte != 0).collect();
    CString::new(visible).expect("zero bytes were taken out").into_raw()
}

fn table<E: Exported>(driver: &dyn Driver) -> Table {
    Table {
        size: size_of::<Table>() as u32,
        major: MAJOR,
        minor: MINOR,
        reserved: 0,
        name: forever(driver.name()),
        version: forever(driver.version()),
        probe: Some(probe::<E>),
        comm_id: Some(comm_id::<E>),
        open: Some(entries::open::<E>),
        load: Some(entries::load),
        ready: Some(entries::ready),
        reserve: Some(entries::reserve),
        warm: Some(entries::warm),
        submit: Some(entries::submit),
        wait: Some(entries::wait),
        done: Some(entries::done),
        close: Some(entries::close),
        copy_pages: Some(optional::copy_pages),
        read_pages: Some(optional::read_pages),
        write_pages: Some(optional::write_pages),
        regions: Some(optional::regions),
        encode: Some(optional::encode),
        media_free: Some(optional::media_free),
        tap: Some(optional::tap),
        trace: Some(optional::trace),
    }
}

/// The body of `m3_backend_query`: the table, or null and a sentence.
///
/// # Safety
/// `host` and `err` are as the header says: readable, writable, or null.
pub unsafe fn query<E: Exported>(host: *const Host, err: *mut Text) -> *const Table {
    let mut answer = std::ptr::null();
    let body = || {
        // SAFETY: promised by the caller.
        let host = unsafe { crossing::read_struct(host) }?;
        if host.major != MAJOR {
            let theirs = host.major;
            return Err(Error::Unsupported(format!(
                "this backend speaks major {MAJOR} of the interface, the host speaks major {theirs}"
            )));
        }
        crate::log::attach(&host);
        answer = &raw const made::<E>().1;
        Ok(())
    };
    // SAFETY: `err` is null or writable, promised by the caller.
    unsafe { guard("m3_backend_query", err, body) };
    answer
}

unsafe extern "C" fn probe<E: Exported>(args: *const ProbeArgs, out: *mut Probe, err: *mut Text) -> i32 {
    let body = || {
        // SAFETY: the host gives structs that are as long as they say.
        let (args, mut probe) = unsafe { (crossing::read_struct(args)?, crossing::read_struct(out)?) };
        // SAFETY: the host gives a span that is as long as it says, for this call.
        let config = unsafe { crossing::read_span(args.config, "config") }?.into_owned();
        let report = driver::<E>().probe(&ProbeRequest { config, tp: args.tp, ep: args.ep })?;
        fill_probe(&mut probe, &report);
        // SAFETY: `out` passed `read_struct` and is writable.
        unsafe { crossing::write_struct(out, &probe) };
        Ok(())
    };
    // SAFETY: `err` is null or writable, promised by the host.
    unsafe { guard("probe", err, body) }
}

fn fill_probe(probe: &mut Probe, report: &ProbeReport) {
    probe.score = report.score;
    probe.num_devices = report.num_devices;
    probe.weight_formats = report.weight_formats;
    probe.dtypes = report.dtypes;
    probe.kv_dtypes = report.kv_dtypes;
    probe.quant_mode = report.quant_mode;
    probe.flags = report.flags;
    probe.memory_total_bytes = report.memory_total_bytes;
    probe.memory_free_bytes = report.memory_free_bytes;
    // SAFETY: the host gives texts with as much room as they say.
    unsafe {
        crossing::fill_text(&mut probe.device, &report.device);
        crossing::fill_text(&mut probe.arch, &report.arch);
        crossing::fill_text(&mut probe.paths, &report.paths);
    }
}

unsafe extern "C" fn comm_id<E: Exported>(out: *mut Text, err: *mut Text) -> i32 {
    let body = || -> Result<()> {
        // SAFETY: null or a text of the host.
        let out = unsafe { out.as_mut() }.ok_or_else(|| guard::missing("the text for the comm id"))?;
        let bytes = driver::<E>().comm_id()?;
        // SAFETY: the host gives a text with as much room as it says.
        unsafe { crossing::fill_bytes(out, &bytes) };
        Ok(())
    };
    // SAFETY: `err` is null or writable, promised by the host.
    unsafe { guard("comm_id", err, body) }
}

const _: () = assert!(size_of::<Table>() >= <Table as Struct>::MINIMUM_BYTES);

/// Emits `m3_backend_query` for a driver: `export_backend!(CpuDriver::new());` is the whole of a plugin crate.
#[macro_export]
macro_rules! export_backend {
    ($driver:expr) => {
        #[cfg(panic = "abort")]
        ::core::compile_error!(
            "a backend must be built with panic = \"unwind\": its panics are caught at the table"
        );

        #[allow(unsafe_code, clippy::missing_safety_doc)]
        const _: () = {
            $crate::exported_driver!($driver);

            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn m3_backend_query(
                host: *const $crate::types::Host,
                err: *mut $crate::types::Text,
            ) -> *const $crate::table::Table {
                // SAFETY: the host keeps the rules of the header.
                unsafe { $crate::export::query::<Export>(host, err) }
            }
        };
    };
}

/// A [`LinkedBackend`](crate::load::LinkedBackend) for a driver that is linked into the program:
/// `pub const LINKED: LinkedBackend = linked_backend!("cpu", CpuDriver::new());`. Goes through the same table.
#[macro_export]
macro_rules! linked_backend {
    ($name:expr, $driver:expr) => {{
        $crate::exported_driver!($driver);

        #[allow(unsafe_code)]
        unsafe extern "C" fn query(
            host: *const $crate::types::Host,
            err: *mut $crate::types::Text,
        ) -> *const $crate::table::Table {
            // SAFETY: the host keeps the rules of the header.
            unsafe { $crate::export::query::<Export>(host, err) }
        }
        $crate::load::LinkedBackend { name: $name, query }
    }};
}

/// Part of the two macros above.
#[doc(hidden)]
#[macro_export]
macro_rules! exported_driver {
    ($driver:expr) => {
        struct Export;

        impl $crate::export::Exported for Export {
            fn cell() -> &'static $crate::export::Cell {
                static CELL: $crate::export::Cell = $crate::export::Cell::new();
                &CELL
            }
            fn make() -> ::std::boxed::Box<dyn $crate::Driver> {
                ::std::boxed::Box::new($driver)
            }
        }
    };
}
