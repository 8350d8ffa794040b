//! The function table of a backend and the one symbol that hands it out.
//!
//! Every entry answers one `STATUS_*` and takes, last, a caller-allocated [`Text`] for the sentence that goes with
//! a status other than OK (it may be null). An instance is an opaque pointer made by `open` and ended by `close`.
//! Entries up to `close` are mandatory; a null entry after it means "cannot". New entries are only appended.

use core::ffi::{c_char, c_void};

use crate::types::{
    EncodeArgs, EncodeResult, Host, OpenArgs, OutputArgs, Probe, ProbeArgs, Ready, RegionArgs, ReserveArgs,
    Span, StepArgs, TapArgs, Tensor, Text,
};

/// The only symbol that a plugin exports: `m3_backend_query(host, err) -> table`, null when refused.
pub const QUERY_SYMBOL: &str = "m3_backend_query";

/// Signature of [`QUERY_SYMBOL`]. The table and its strings live until the process ends.
pub type Query = unsafe extern "C" fn(host: *const Host, err: *mut Text) -> *const Table;

pub type ProbeFn = unsafe extern "C" fn(*const ProbeArgs, *mut Probe, *mut Text) -> i32;
pub type CommIdFn = unsafe extern "C" fn(*mut Text, *mut Text) -> i32;
pub type OpenFn = unsafe extern "C" fn(*const OpenArgs, *mut *mut c_void, *mut Text) -> i32;
pub type LoadFn = unsafe extern "C" fn(*mut c_void, *const Tensor, *mut Text) -> i32;
pub type ReadyFn = unsafe extern "C" fn(*mut c_void, *mut Ready, *mut Text) -> i32;
pub type ReserveFn = unsafe extern "C" fn(*mut c_void, *const ReserveArgs, *mut Text) -> i32;
pub type WarmFn = unsafe extern "C" fn(*mut c_void, *const Span, *mut Text) -> i32;
pub type SubmitFn = unsafe extern "C" fn(*mut c_void, *const StepArgs, *mut u64, *mut Text) -> i32;
pub type WaitFn = unsafe extern "C" fn(*mut c_void, u64, *mut OutputArgs, *mut Text) -> i32;
pub type DoneFn = unsafe extern "C" fn(*mut c_void, *mut u64, *mut Text) -> i32;
pub type CloseFn = unsafe extern "C" fn(*mut c_void, *mut Text) -> i32;
pub type CopyPagesFn = unsafe extern "C" fn(*mut c_void, *const Span, *mut Text) -> i32;
pub type ReadPagesFn = unsafe extern "C" fn(*mut c_void, *const Span, *mut Text, *mut Text) -> i32;
pub type WritePagesFn = unsafe extern "C" fn(*mut c_void, *const Span, *const Span, *mut Text) -> i32;
pub type RegionsFn = unsafe extern "C" fn(*mut c_void, *mut RegionArgs, *mut Text) -> i32;
pub type EncodeFn = unsafe extern "C" fn(*mut c_void, *const EncodeArgs, *mut EncodeResult, *mut Text) -> i32;
pub type MediaFreeFn = unsafe extern "C" fn(*mut c_void, u64, *mut Text) -> i32;
pub type TapFn = unsafe extern "C" fn(*mut c_void, *mut TapArgs, *mut Text) -> i32;
pub type TraceFn = unsafe extern "C" fn(*mut c_void, u32, *mut Text) -> i32;

/// What a backend is: its name and its entries. Immutable once handed out.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Table {
    pub size: u32,
    pub major: u32,
    pub minor: u32,
    pub reserved: u32,
    /// Zero-terminated UTF-8, 1 to 64 bytes, as `--backend` takes it.
    pub name: *const c_char,
    /// Zero-terminated UTF-8, at most 64 bytes.
    pub version: *const c_char,
    pub probe: Option<ProbeFn>,
    /// Bytes that rank 0 makes, written into the first text.
    pub comm_id: Option<CommIdFn>,
    pub open: Option<OpenFn>,
    pub load: Option<LoadFn>,
    pub ready: Option<ReadyFn>,
    pub reserve: Option<ReserveFn>,
    /// Takes a span of [`crate::types::WarmShape`].
    pub warm: Option<WarmFn>,
    pub submit: Option<SubmitFn>,
    pub wait: Option<WaitFn>,
    pub done: Option<DoneFn>,
    /// The instance is gone afterwards, whatever the status.
    pub close: Option<CloseFn>,
    /// Takes a span of [`crate::types::PageCopy`].
    pub copy_pages: Option<CopyPagesFn>,
    /// Takes a span of `u32`; when the bytes do not fit, sets `len` and writes nothing.
    pub read_pages: Option<ReadPagesFn>,
    /// Takes a span of `u32` and a span of bytes.
    pub write_pages: Option<WritePagesFn>,
    pub regions: Option<RegionsFn>,
    pub encode: Option<EncodeFn>,
    pub media_free: Option<MediaFreeFn>,
    pub tap: Option<TapFn>,
    /// 1 begins, 0 ends.
    pub trace: Option<TraceFn>,
}

// SAFETY: a table is immutable after it is handed out and its strings live until the process ends.
unsafe impl Send for Table {}
// SAFETY: as above; entries may be called from any thread (calls on one instance are never concurrent).
unsafe impl Sync for Table {}
