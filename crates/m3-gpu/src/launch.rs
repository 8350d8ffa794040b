//! What a launch needs from a device: modules from bytes, functions from modules, a call with raw argument places.
//!
//! The device side implements [`Launcher`]; nothing but the generated stubs' runtime calls its unsafe function. No kernel is
//! known here: which there are, and what each takes, stands in a backend's generated `kernels.rs`.

use std::ffi::c_void;

/// An address on the device; 0 is null.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct DevicePointer(pub u64);

impl DevicePointer {
    pub const NULL: DevicePointer = DevicePointer(0);

    /// This address and `bytes` more.
    #[must_use]
    pub fn offset(self, bytes: u64) -> Self {
        DevicePointer(self.0 + bytes)
    }
}

/// `CUmodule` or `hipModule_t`, kept by the launcher until it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct ModuleHandle(pub u64);

/// `CUfunction` or `hipFunction_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct FunctionHandle(pub u64);

/// `CUstream` or `hipStream_t`; 0 is the default stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct StreamHandle(pub u64);

/// How many blocks of how many threads, and what each block may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// May start before the kernel ahead of it in the stream has ended (programmatic dependent launch): the kernel
    /// itself waits where it must.
    pub dependent: bool,
}

/// Element type of a [`TensorMapRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapElement {
    U8,
    Bf16,
    F32,
}

impl MapElement {
    pub fn bytes(self) -> u64 {
        match self {
            MapElement::U8 => 1,
            MapElement::Bf16 => 2,
            MapElement::F32 => 4,
        }
    }
}

/// A row-major matrix to be read or written in boxes by the copy engine (`cuTensorMapEncodeTiled`, rank 2, no
/// interleave, 128-byte L2 promotion, zeros outside).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMapRequest {
    pub base: DevicePointer,
    pub element: MapElement,
    pub rows: u64,
    pub columns: u64,
    /// From one row to the next, a multiple of 16.
    pub row_bytes: u64,
    /// Box of one copy, in elements.
    pub box_rows: u32,
    pub box_columns: u32,
    /// 0 = none, 1 = 32 bytes, 2 = 64 bytes, 3 = 128 bytes.
    pub swizzle: u32,
}

/// The 128 bytes that the copy engine reads (`CUtensorMap`).
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct TensorMap(pub [u64; 16]);

/// Why a kernel was not launched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    #[error("kernel {kernel}: argument {argument} is null")]
    Null { kernel: &'static str, argument: &'static str },
    #[error("kernel {kernel}: argument {argument} is {value}, not a multiple of {multiple}")]
    Multiple { kernel: &'static str, argument: &'static str, value: i128, multiple: u64 },
    #[error("kernel {kernel}: grid axis {axis} is {value}; it takes 1 to {most}")]
    Grid { kernel: &'static str, axis: usize, value: u32, most: u32 },
    #[error("kernel {kernel} has no variant {variant} for this shape")]
    NoVariant { kernel: &'static str, variant: String },
    #[error("kernel {kernel}: {sentence}")]
    Pack { kernel: String, sentence: String },
    /// The driver's own words.
    #[error("{0}")]
    Device(String),
}

/// A device that runs kernels.
pub trait Launcher {
    /// Loads a cubin or code object; it stays loaded as long as the launcher.
    fn load_module(&self, image: &[u8]) -> Result<ModuleHandle, LaunchError>;

    /// The function of this symbol, allowed to use so much dynamic shared memory (above 48 KiB needs an attribute).
    fn function(
        &self,
        module: ModuleHandle,
        symbol: &str,
        shared_bytes: u32,
    ) -> Result<FunctionHandle, LaunchError>;

    /// Describes a matrix to the copy engine. Devices without one refuse.
    fn encode_tensor_map(&self, request: &TensorMapRequest) -> Result<TensorMap, LaunchError>;

    /// Puts a launch into the stream (or the graph that it captures) and returns at once. The argument values are
    /// copied before it returns.
    ///
    /// # Safety
    /// `function` is of a module of this launcher; `arguments` has one place per parameter of the function, in order,
    /// each pointing to a value of the parameter's size and alignment.
    unsafe fn launch(
        &self,
        function: FunctionHandle,
        geometry: &Geometry,
        stream: StreamHandle,
        arguments: &mut [*mut c_void],
    ) -> Result<(), LaunchError>;
}
