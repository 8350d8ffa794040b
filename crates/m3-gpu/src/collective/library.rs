//! `libnccl.so.2`, opened at run time: its functions and the few types that cross.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::Arc;

use crate::error::{GpuError, Result};

/// `NCCL_UNIQUE_ID_BYTES`.
pub const ID_BYTES: usize = 128;
/// The first version whose communicators need not block and take the configuration below, as NCCL counts.
const OLDEST: c_int = 21_800;
const UNDEFINED: c_int = c_int::MIN;

/// `ncclUniqueId`, passed by value.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct UniqueId([u8; ID_BYTES]);

/// `ncclResult_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Status(pub(super) c_int);

impl Status {
    pub(super) const SUCCESS: Status = Status(0);
    pub(super) const IN_PROGRESS: Status = Status(7);
}

/// `ncclConfig_t` as of 2.18, which every later one takes.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
}

impl Config {
    /// Defaults, except that calls return before they are through.
    pub(super) fn without_blocking() -> Self {
        Config {
            size: size_of::<Config>(),
            magic: 0xcafe_beef,
            version: OLDEST.cast_unsigned(),
            blocking: 0,
            cga_cluster_size: UNDEFINED,
            min_ctas: UNDEFINED,
            max_ctas: UNDEFINED,
            net_name: std::ptr::null(),
            split_share: UNDEFINED,
        }
    }
}

type Reduce =
    unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, *mut c_void, *mut c_void) -> c_int;
type Gather =
    unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, *mut c_void, *mut c_void) -> c_int;
type Join = unsafe extern "C" fn(*mut *mut c_void, c_int, UniqueId, c_int, *const Config) -> c_int;

/// The library and its functions. Never closed: it leaves threads behind.
#[derive(Debug)]
pub struct Library {
    version: c_int,
    get_unique_id: unsafe extern "C" fn(*mut UniqueId) -> c_int,
    join: Join,
    pub(super) all_reduce: Reduce,
    pub(super) all_gather: Gather,
    pub(super) get_async_error: unsafe extern "C" fn(*mut c_void, *mut c_int) -> c_int,
    get_error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    pub(super) abort: unsafe extern "C" fn(*mut c_void) -> c_int,
}

impl Library {
    /// The system's, or the file that `M3_NCCL` names.
    pub fn load() -> Result<Arc<Self>> {
        match std::env::var_os("M3_NCCL") {
            Some(path) => Self::load_from(Path::new(&path)),
            None => Self::load_from(Path::new("libnccl.so.2")),
        }
    }

    /// A file, or a name to look for as the system does.
    pub fn load_from(path: &Path) -> Result<Arc<Self>> {
        let failed = |error: libloading::Error| {
            let cause = std::error::Error::source(&error).map_or(error.to_string(), ToString::to_string);
            let advice = "several devices need NCCL; M3_NCCL may name its file";
            GpuError::Collective(format!("{} could not be loaded ({cause}): {advice}", path.display()))
        };
        // SAFETY: NCCL's initialisers run, as in every program that uses it.
        let library = unsafe { libloading::Library::new(path) }.map_err(failed)?;
        // SAFETY: the signatures are those of nccl.h; the library is never closed.
        let loaded = unsafe {
            let version = version(*library.get(c"ncclGetVersion").map_err(failed)?, path)?;
            Library {
                version,
                get_unique_id: *library.get(c"ncclGetUniqueId").map_err(failed)?,
                join: *library.get(c"ncclCommInitRankConfig").map_err(failed)?,
                all_reduce: *library.get(c"ncclAllReduce").map_err(failed)?,
                all_gather: *library.get(c"ncclAllGather").map_err(failed)?,
                get_async_error: *library.get(c"ncclCommGetAsyncError").map_err(failed)?,
                get_error_string: *library.get(c"ncclGetErrorString").map_err(failed)?,
                abort: *library.get(c"ncclCommAbort").map_err(failed)?,
            }
        };
        std::mem::forget(library);
        Ok(Arc::new(loaded))
    }

    /// e.g. "2.27.7".
    pub fn version(&self) -> String {
        dotted(self.version)
    }

    /// What rank 0 makes and every rank is given.
    pub fn unique_id(&self) -> Result<Vec<u8>> {
        let mut id = UniqueId([0; ID_BYTES]);
        // SAFETY: writes a local.
        match Status(unsafe { (self.get_unique_id)(&raw mut id) }) {
            Status::SUCCESS => Ok(id.0.to_vec()),
            status => Err(GpuError::Collective(format!("an id for a group: {}", self.describe(status)))),
        }
    }

    pub(super) fn join(
        &self,
        id: [u8; ID_BYTES],
        rank: u32,
        world: u32,
        config: &Config,
    ) -> (*mut c_void, c_int) {
        let mut handle = null_mut();
        // SAFETY: writes a local; the configuration is only read during the call.
        let status = unsafe {
            (self.join)(&raw mut handle, world.cast_signed(), UniqueId(id), rank.cast_signed(), config)
        };
        (handle, status)
    }

    pub(super) fn describe(&self, status: Status) -> String {
        // SAFETY: the text is static.
        let text = unsafe {
            let text = (self.get_error_string)(status.0);
            if text.is_null() { c"unknown error" } else { CStr::from_ptr(text) }
        };
        format!("NCCL says {} ({})", text.to_string_lossy(), status.0)
    }
}

/// # Safety
/// `ask` is `ncclGetVersion`.
unsafe fn version(ask: unsafe extern "C" fn(*mut c_int) -> c_int, path: &Path) -> Result<c_int> {
    let mut version = 0;
    // SAFETY: writes a local.
    if unsafe { ask(&raw mut version) } != Status::SUCCESS.0 || version < OLDEST {
        let (found, oldest) = (dotted(version), dotted(OLDEST));
        let sentence = format!("{} is NCCL {found}; {oldest} or newer is needed", path.display());
        return Err(GpuError::Collective(sentence));
    }
    Ok(version)
}

fn dotted(version: c_int) -> String {
    format!("{}.{}.{}", version / 10_000, version % 10_000 / 100, version % 100)
}
