//! Is the vendor's driver library loadable, and how many devices does it count.
//!
//! Nothing is linked: the library is opened when asked for, so every backend builds and loads anywhere. It is never
//! closed again, because drivers leave threads behind. No context is made on any device here.

use libloading::Library;

/// Whose driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// NVIDIA's driver interface, `libcuda.so.1`.
    Cuda,
    /// AMD's HIP runtime, `libamdhip64.so`.
    Hip,
}

/// Why there is no device to use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Absence {
    #[error("none of {names} could be loaded ({cause})")]
    NoLibrary { names: String, cause: String },
    #[error("{library} has no function {function}")]
    NoFunction { library: String, function: &'static str },
    #[error("{function} of {library} answered error {status}")]
    Failed { library: String, function: &'static str, status: i32 },
    #[error("{library} counts 0 devices")]
    NoDevice { library: String },
}

impl Vendor {
    /// Library names, newest first.
    pub fn libraries(self) -> &'static [&'static str] {
        match self {
            Vendor::Cuda => &["libcuda.so.1"],
            Vendor::Hip => &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"],
        }
    }

    /// Called with flags 0; called with a place for the count.
    fn functions(self) -> (&'static str, &'static str) {
        match self {
            Vendor::Cuda => ("cuInit", "cuDeviceGetCount"),
            Vendor::Hip => ("hipInit", "hipGetDeviceCount"),
        }
    }
}

/// Devices that the vendor's driver counts, at least 1.
pub fn count(vendor: Vendor) -> Result<u32, Absence> {
    count_in(vendor, vendor.libraries())
}

/// [`count`] with the first loadable of these libraries (a test double, for tests).
pub fn count_in(vendor: Vendor, libraries: &[&str]) -> Result<u32, Absence> {
    let (name, library) = open(libraries)?;
    let (init, get_count) = vendor.functions();
    let failed = |function, status| Absence::Failed { library: name.clone(), function, status };
    let missing = |function| Absence::NoFunction { library: name.clone(), function };
    let mut devices = 0_i32;
    // SAFETY: both vendors document these two functions with these C signatures; the library stays open.
    let (started, counted) = unsafe {
        let init = library.get::<unsafe extern "C" fn(u32) -> i32>(init).map_err(|_| missing(init))?;
        let count = library
            .get::<unsafe extern "C" fn(*mut i32) -> i32>(get_count)
            .map_err(|_| missing(get_count))?;
        let started = init(0);
        (started, if started == 0 { count(&raw mut devices) } else { 0 })
    };
    std::mem::forget(library);
    match (started, counted, devices) {
        (0, 0, 1..) => Ok(devices.unsigned_abs()),
        (0, 0, _) => Err(Absence::NoDevice { library: name }),
        (0, status, _) => Err(failed(get_count, status)),
        (status, ..) => Err(failed(init, status)),
    }
}

fn open(libraries: &[&str]) -> Result<(String, Library), Absence> {
    let mut cause = String::new();
    for name in libraries {
        // SAFETY: initialisers of the vendor's driver run, as in every program that uses it.
        match unsafe { Library::new(*name) } {
            Ok(library) => return Ok(((*name).to_owned(), library)),
            Err(error) if cause.is_empty() => {
                cause =
                    std::error::Error::source(&error).map_or(error.to_string(), |source| source.to_string());
            }
            Err(_) => {}
        }
    }
    Err(Absence::NoLibrary { names: libraries.join(", "), cause })
}
