//! From "is there a driver" to a context: every way in which a machine cannot run these kernels is a sentence.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::null_mut;
use std::sync::Mutex;

use cudarc::driver::sys::{self, CUcontext, CUdevice, CUdevice_attribute, CUresult};

use super::{Context, CudaDevice};
use crate::api::DeviceInfo;
use crate::driver::{Absence, Vendor};
use crate::error::{GpuError, Result};

/// What cubins of the pinned compiler need, as the driver counts: 1000 * major + 10 * minor.
const NEEDED: c_int = 13_000;
const NEEDED_PACKAGE: &str = "580";

/// Devices that NVIDIA's driver counts here, at least 1; refused when there is no driver or an old one.
pub fn device_count() -> Result<u32> {
    // SAFETY: opens the driver's library as every program that uses it does.
    if !unsafe { sys::is_culib_present() } {
        // Says which library could not be loaded and why.
        return match crate::driver::count(Vendor::Cuda) {
            Err(absence) => Err(absence.into()),
            Ok(_) => Err(refused("the driver's library", "could not be loaded")),
        };
    }
    let library = Vendor::Cuda.libraries()[0].to_owned();
    // SAFETY: the first call of the interface.
    let status = unsafe { sys::cuInit(0) };
    if status != CUresult::CUDA_SUCCESS {
        return Err(Absence::Failed { library, function: "cuInit", status: status as i32 }.into());
    }
    check_version()?;
    let mut count = 0;
    // SAFETY: writes a local.
    check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&raw mut count) }, 0)?;
    match u32::try_from(count) {
        Ok(count @ 1..) => Ok(count),
        _ => Err(Absence::NoDevice { library }.into()),
    }
}

fn refused(what: &str, cause: &str) -> GpuError {
    Absence::NoLibrary { names: what.to_owned(), cause: cause.to_owned() }.into()
}

fn check_version() -> Result<()> {
    let mut version = 0;
    // SAFETY: writes a local.
    check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&raw mut version) }, 0)?;
    accept_version(version, driver_package().as_deref())
}

/// Old drivers are refused with both versions.
fn accept_version(version: c_int, package: Option<&str>) -> Result<()> {
    if version >= NEEDED {
        return Ok(());
    }
    let found = match package {
        Some(package) => format!("{package} (CUDA {})", dotted(version)),
        None => format!("for CUDA {}", dotted(version)),
    };
    Err(GpuError::OldDriver { found, needed: format!("CUDA {}", dotted(NEEDED)), package: NEEDED_PACKAGE })
}

/// e.g. 13.0 of 13000.
fn dotted(version: c_int) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// The package's version, e.g. 580.65.06, where the kernel module tells.
fn driver_package() -> Option<String> {
    package_in(&std::fs::read_to_string("/proc/driver/nvidia/version").ok()?)
}

fn package_in(text: &str) -> Option<String> {
    let line = text.lines().next()?;
    let version = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    line.split_whitespace().find(version).map(str::to_owned)
}

impl CudaDevice {
    /// Device `ordinal` with its primary context.
    pub fn open(ordinal: u32) -> Result<Self> {
        let count = device_count()?;
        let index = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        if ordinal >= count {
            return Err(GpuError::NoSuchDevice { wanted: ordinal, count });
        }
        let mut device = 0;
        // SAFETY: writes a local.
        check("cuDeviceGet", unsafe { sys::cuDeviceGet(&raw mut device, index) }, ordinal)?;
        let info = describe(device, ordinal)?;
        let context = retain(device, ordinal)?;
        Ok(CudaDevice { info, device, context: Context(context), peers: Mutex::new(Vec::new()) })
    }
}

fn describe(device: CUdevice, ordinal: u32) -> Result<DeviceInfo> {
    let mut name = [0 as c_char; 128];
    let mut memory = 0;
    let mut version = 0;
    // SAFETY: write locals of the sizes given; the name is terminated within its length.
    let name = unsafe {
        check("cuDeviceGetName", sys::cuDeviceGetName(name.as_mut_ptr(), 127, device), ordinal)?;
        check("cuDeviceTotalMem", sys::cuDeviceTotalMem_v2(&raw mut memory, device), ordinal)?;
        check("cuDriverGetVersion", sys::cuDriverGetVersion(&raw mut version), ordinal)?;
        CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned()
    };
    let read = |which| attribute(device, which, ordinal);
    let major = read(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = read(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    Ok(DeviceInfo {
        ordinal,
        name,
        arch: format!("sm_{major}{minor}"),
        capability: (major, minor),
        processors: read(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        memory_bytes: memory as u64,
        l2_bytes: read(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.into(),
        shared_bytes: read(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        driver: dotted(version),
    })
}

fn attribute(device: CUdevice, which: CUdevice_attribute, ordinal: u32) -> Result<u32> {
    let mut value = 0;
    // SAFETY: writes a local.
    let status = unsafe { sys::cuDeviceGetAttribute(&raw mut value, which, device) };
    check("cuDeviceGetAttribute", status, ordinal)?;
    Ok(u32::try_from(value).unwrap_or(0))
}

fn retain(device: CUdevice, ordinal: u32) -> Result<CUcontext> {
    let mut context = null_mut();
    // SAFETY: writes a local.
    let status = unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, device) };
    check("cuDevicePrimaryCtxRetain", status, ordinal)?;
    Ok(context)
}

/// The retained primary context of `peer`, when `device` can reach its memory.
pub(super) fn peer_context(device: CUdevice, ordinal: u32, peer: u32) -> Result<(CUdevice, CUcontext)> {
    let count = device_count()?;
    if peer >= count {
        return Err(GpuError::NoSuchDevice { wanted: peer, count });
    }
    let (mut other, mut can) = (0, 0);
    // SAFETY: write locals.
    unsafe {
        check("cuDeviceGet", sys::cuDeviceGet(&raw mut other, peer.cast_signed()), peer)?;
        let status = sys::cuDeviceCanAccessPeer(&raw mut can, device, other);
        check("cuDeviceCanAccessPeer", status, ordinal)?;
    }
    if can == 0 {
        return Err(GpuError::NoPeer { device: ordinal, peer });
    }
    Ok((other, retain(other, peer)?))
}

/// The driver's answer as a result.
pub(super) fn check(function: &'static str, status: CUresult, device: u32) -> Result<()> {
    if status == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    Err(GpuError::Driver { function, name: error_name(status), status: status as i32, device })
}

/// e.g. `CUDA_ERROR_ILLEGAL_ADDRESS`.
pub(super) fn error_name(status: CUresult) -> String {
    let mut name = std::ptr::null();
    // SAFETY: writes a local; the text is the driver's own and static.
    unsafe {
        if sys::cuGetErrorName(status, &raw mut name) == CUresult::CUDA_SUCCESS && !name.is_null() {
            return CStr::from_ptr(name).to_string_lossy().into_owned();
        }
    }
    "an unknown error".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_driver_is_refused_with_both_versions() {
        assert_eq!(accept_version(13_000, None), Ok(()));
        assert_eq!(accept_version(13_020, None), Ok(()));
        let refusal = accept_version(12_080, Some("570.86.10")).unwrap_err();
        let said = "driver 570.86.10 (CUDA 12.8) is too old: these kernels need CUDA 13.0 or newer (driver 580 or newer)";
        assert_eq!(refusal.to_string(), said);
        assert!(refusal.is_refusal());
        let refusal = accept_version(12_080, None).unwrap_err().to_string();
        assert!(refusal.starts_with("driver for CUDA 12.8 is too old"), "{refusal}");
    }

    #[test]
    fn the_package_is_read_from_the_kernel_modules_own_line() {
        let text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\nGCC version: 12.2\n";
        assert_eq!(package_in(text).as_deref(), Some("580.159.04"));
        assert_eq!(package_in("no version"), None);
    }
}
