//! A device as backends hold it: cheap to clone, frees what was made from it when the last clone is gone.
//!
//! It makes streams, events, memory and functions; it runs nothing by itself. Which vendor is behind it is known only
//! to [`crate::api::Api`]'s implementations.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use crate::api::Api;
pub use crate::api::{DeviceInfo, MemoryState};
use crate::error::Result;
use crate::launch::{FunctionHandle, Geometry, LaunchError, Launcher, ModuleHandle, StreamHandle};
use crate::launch::{TensorMap, TensorMapRequest};
use crate::memory::{DeviceMemory, Pinned};
use crate::stream::{Event, Stream};

/// One GPU and its context.
#[derive(Clone, Debug)]
pub struct Device {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    api: Box<dyn Api>,
    /// Loaded by [`Launcher::load_module`], unloaded with the device.
    modules: Mutex<Vec<ModuleHandle>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let modules = self.modules.get_mut().unwrap_or_else(PoisonError::into_inner);
        for module in modules.drain(..) {
            self.api.unload_module(module);
        }
    }
}

impl Device {
    /// Over any implementation of the driver's calls.
    pub fn new(api: Box<dyn Api>) -> Self {
        Device { inner: Arc::new(Inner { api, modules: Mutex::new(Vec::new()) }) }
    }

    /// NVIDIA's device `ordinal`, with its primary context. Refuses absent and old drivers with a sentence.
    pub fn cuda(ordinal: u32) -> Result<Self> {
        Ok(Self::new(Box::new(crate::cuda::CudaDevice::open(ordinal)?)))
    }

    pub fn info(&self) -> &DeviceInfo {
        self.inner.api.info()
    }

    /// Free and total bytes now.
    pub fn memory(&self) -> Result<MemoryState> {
        self.inner.api.memory()
    }

    /// Blocks until everything on the device has run.
    pub fn synchronize(&self) -> Result<()> {
        self.inner.api.synchronize()
    }

    /// A stream that runs beside all others.
    pub fn stream(&self) -> Result<Stream> {
        Stream::new(self, false)
    }

    /// A stream whose work goes before that of [`Device::stream`]s.
    pub fn urgent_stream(&self) -> Result<Stream> {
        Stream::new(self, true)
    }

    /// An event that can be waited for; with `timed`, also measured against another.
    pub fn event(&self, timed: bool) -> Result<Event> {
        Event::new(self, timed)
    }

    /// Device memory with undefined contents, freed when dropped. `what` names it in errors.
    pub fn allocate(&self, bytes: u64, what: &str) -> Result<DeviceMemory> {
        DeviceMemory::new(self, bytes, what)
    }

    /// Zeroed page-locked host memory, freed when dropped. `what` names it in errors.
    pub fn pinned(&self, bytes: u64, what: &str) -> Result<Pinned> {
        Pinned::new(self, bytes, what)
    }

    /// Lets kernels and copies here reach the memory of device `peer`.
    pub fn enable_peer(&self, peer: u32) -> Result<()> {
        self.inner.api.enable_peer(peer)
    }

    /// For libraries that look for a current context on the calling thread.
    pub fn make_current(&self) -> Result<()> {
        self.inner.api.make_current()
    }

    pub(crate) fn api(&self) -> &dyn Api {
        &*self.inner.api
    }
}

fn said(error: crate::error::GpuError) -> LaunchError {
    match error {
        crate::error::GpuError::Launch(error) => error,
        other => LaunchError::Device(other.to_string()),
    }
}

impl Launcher for Device {
    fn load_module(&self, image: &[u8]) -> Result<ModuleHandle, LaunchError> {
        let module = self.api().load_module(image).map_err(said)?;
        self.inner.modules.lock().unwrap_or_else(PoisonError::into_inner).push(module);
        Ok(module)
    }

    fn function(
        &self,
        module: ModuleHandle,
        symbol: &str,
        shared_bytes: u32,
    ) -> Result<FunctionHandle, LaunchError> {
        self.api().function(module, symbol, shared_bytes).map_err(said)
    }

    fn encode_tensor_map(&self, request: &TensorMapRequest) -> Result<TensorMap, LaunchError> {
        self.api().encode_tensor_map(request).map_err(said)
    }

    unsafe fn launch(
        &self,
        function: FunctionHandle,
        geometry: &Geometry,
        stream: StreamHandle,
        arguments: &mut [*mut c_void],
    ) -> Result<(), LaunchError> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.api().launch(function, geometry, stream, arguments) }.map_err(said)
    }
}
