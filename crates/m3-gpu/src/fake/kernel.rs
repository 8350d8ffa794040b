//! Kernels of the double: closures by symbol, called with the argument values that the launch copied.

use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::fmt::{Debug, Formatter};
use std::sync::Arc;

use bytemuck::{AnyBitPattern, NoUninit};

use super::memory::{BadAddress, Memory};
use crate::error::{GpuError, Result};
use crate::launch::{DevicePointer, Geometry};

pub(super) type Body = Box<dyn Fn(&mut Call<'_>) -> Result<()> + Send + Sync>;

/// A kernel that has run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchRecord {
    pub symbol: String,
    pub geometry: Geometry,
}

/// One run of a kernel: its arguments, and the device's memory.
#[derive(Debug)]
pub struct Call<'a> {
    pub geometry: Geometry,
    pub(super) arguments: &'a [Vec<u8>],
    pub(super) memory: &'a mut Memory,
}

impl Call<'_> {
    /// Argument `index` as the type that the kernel takes.
    ///
    /// # Panics
    /// When the kernel was added with another size for it: a mistake of the test.
    pub fn argument<T: AnyBitPattern>(&self, index: usize) -> T {
        bytemuck::pod_read_unaligned(&self.arguments[index])
    }

    /// Argument `index`, an address.
    pub fn pointer(&self, index: usize) -> DevicePointer {
        DevicePointer(self.argument(index))
    }

    pub fn read<T: AnyBitPattern>(&self, at: DevicePointer, count: usize) -> Result<Vec<T>> {
        let bytes = self.memory.read(at, (count * size_of::<T>()) as u64).map_err(illegal)?;
        Ok(bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect())
    }

    pub fn write<T: NoUninit>(&mut self, at: DevicePointer, values: &[T]) -> Result<()> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        self.memory.place(at, bytes.len() as u64).map_err(illegal)?.copy_from_slice(bytes);
        Ok(())
    }
}

fn illegal(bad: BadAddress) -> GpuError {
    let name = format!("CUDA_ERROR_ILLEGAL_ADDRESS at {:#x}", bad.0);
    GpuError::Driver { function: "kernel", name, status: 700, device: 0 }
}

pub(super) struct Kernel {
    pub(super) symbol: String,
    argument_bytes: Vec<usize>,
    pub(super) body: Body,
}

impl Debug for Kernel {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.symbol)
    }
}

impl Kernel {
    /// # Safety
    /// Each place points to a value of the size that the kernel was added with.
    pub(super) unsafe fn copy_arguments(&self, places: &[*mut c_void]) -> Vec<Vec<u8>> {
        let copy = |(size, place): (&usize, &*mut c_void)| {
            let mut value = vec![0; *size];
            // SAFETY: the caller's promise.
            unsafe { place.cast::<u8>().copy_to_nonoverlapping(value.as_mut_ptr(), *size) };
            value
        };
        self.argument_bytes.iter().zip(places).map(copy).collect()
    }

    pub(super) fn takes(&self, count: usize) -> bool {
        self.argument_bytes.len() <= count
    }
}

#[derive(Debug, Default)]
pub(super) struct Kernels {
    by_symbol: HashMap<String, Arc<Kernel>>,
    by_handle: HashMap<u64, Arc<Kernel>>,
    pub(super) modules: HashSet<u64>,
    pub(super) accept_all: bool,
    /// Launches so far.
    pub(super) launches: u64,
}

impl Kernels {
    pub(super) fn add(&mut self, symbol: &str, argument_bytes: &[usize], body: Body) {
        let kernel = Kernel { symbol: symbol.to_owned(), argument_bytes: argument_bytes.to_vec(), body };
        self.by_symbol.insert(symbol.to_owned(), Arc::new(kernel));
    }

    /// Gives the kernel of this symbol a handle; false when there is none.
    pub(super) fn bind(&mut self, symbol: &str, handle: u64) -> bool {
        if self.accept_all && !self.by_symbol.contains_key(symbol) {
            self.add(symbol, &[], Box::new(|_| Ok(())));
        }
        let Some(kernel) = self.by_symbol.get(symbol) else { return false };
        self.by_handle.insert(handle, Arc::clone(kernel));
        true
    }

    pub(super) fn get(&self, handle: u64) -> Option<Arc<Kernel>> {
        self.by_handle.get(&handle).cloned()
    }
}
