//! [`Api`] over NVIDIA's driver interface, through `cudarc`'s run-time loaded bindings.
//!
//! Every call first makes this device's primary context current on its thread, so that calls may come from any. Opening
//! and the refusals of [`open`] come before all else: the bindings panic when the library or a function is missing.

mod open;
mod tensor_map;

use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys::{
    self, CUcontext, CUevent, CUfunction, CUgraph, CUgraphExec, CUmodule, CUresult, CUstream,
};

use crate::api::{Api, DeviceInfo, EventHandle, GraphHandle, GraphUpdate, MemoryState, RecordingHandle};
use crate::error::{GpuError, Result};
use crate::launch::{DevicePointer, FunctionHandle, Geometry, LaunchError, ModuleHandle, StreamHandle};
use crate::launch::{TensorMap, TensorMapRequest};

pub use open::device_count;

/// Shared memory that a block may use without asking.
const PLAIN_SHARED_BYTES: u32 = 48 << 10;

/// One NVIDIA GPU.
#[derive(Debug)]
pub struct CudaDevice {
    info: DeviceInfo,
    device: sys::CUdevice,
    context: Context,
    /// Devices whose primary contexts this one keeps, to reach their memory.
    peers: Mutex<Vec<sys::CUdevice>>,
}

#[derive(Clone, Copy, Debug)]
struct Context(CUcontext);

// SAFETY: the driver allows a context to be current on any number of threads.
unsafe impl Send for Context {}
// SAFETY: as above; the pointer is never changed.
unsafe impl Sync for Context {}

impl CudaDevice {
    /// The driver's answer as a result.
    fn check(&self, function: &'static str, status: CUresult) -> Result<()> {
        open::check(function, status, self.info.ordinal)
    }

    /// Makes the context current on this thread.
    fn enter(&self) -> Result<()> {
        // SAFETY: the context is retained as long as `self` lives.
        self.check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.context.0) })
    }

    /// `done` or `not ready` as a yes or no.
    fn ready(&self, function: &'static str, status: CUresult) -> Result<bool> {
        match status {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            status => self.check(function, status).map(|()| true),
        }
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        let peers = self.peers.get_mut().unwrap_or_else(PoisonError::into_inner);
        for device in peers.drain(..).chain([self.device]) {
            // SAFETY: each was retained once.
            let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(device) };
        }
    }
}

fn stream(handle: StreamHandle) -> CUstream {
    handle.0 as CUstream
}

fn event(handle: EventHandle) -> CUevent {
    handle.0 as CUevent
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("64-bit addresses")
}

// In this block every pointer that the driver writes through is a local's, and every handle is one that the driver gave
// to this device, as `Api` demands of its callers.
impl Api for CudaDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory(&self) -> Result<MemoryState> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two locals.
        self.check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) })?;
        Ok(MemoryState { free: free as u64, total: total as u64 })
    }

    fn synchronize(&self) -> Result<()> {
        self.enter()?;
        // SAFETY: a context is current.
        self.check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
    }

    fn allocate(&self, bytes: u64, what: &str) -> Result<DevicePointer> {
        self.enter()?;
        let mut pointer = 0;
        // SAFETY: writes a local.
        match unsafe { sys::cuMemAlloc_v2(&raw mut pointer, size(bytes)) } {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                let MemoryState { free, total } = self.memory()?;
                let device = self.info.ordinal;
                Err(GpuError::OutOfMemory { what: what.to_owned(), wanted: bytes, device, free, total })
            }
            status => self.check("cuMemAlloc", status).map(|()| DevicePointer(pointer)),
        }
    }

    unsafe fn free(&self, pointer: DevicePointer) {
        if self.enter().is_ok() {
            // SAFETY: the caller's promise.
            let _ = unsafe { sys::cuMemFree_v2(pointer.0) };
        }
    }

    fn allocate_pinned(&self, bytes: u64, what: &str) -> Result<*mut u8> {
        self.enter()?;
        let mut pointer = null_mut();
        // SAFETY: writes a local. The flag makes the memory pinned for every device.
        let status =
            unsafe { sys::cuMemHostAlloc(&raw mut pointer, size(bytes), sys::CU_MEMHOSTALLOC_PORTABLE) };
        match status {
            CUresult::CUDA_SUCCESS => Ok(pointer.cast()),
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => Err(GpuError::OutOfPinned {
                what: what.to_owned(),
                wanted: bytes,
                cause: open::error_name(status),
            }),
            status => self.check("cuMemHostAlloc", status).map(|()| null_mut()),
        }
    }

    unsafe fn free_pinned(&self, pointer: *mut u8) {
        if self.enter().is_ok() {
            // SAFETY: the caller's promise.
            let _ = unsafe { sys::cuMemFreeHost(pointer.cast()) };
        }
    }

    fn create_stream(&self, high_priority: bool) -> Result<StreamHandle> {
        self.enter()?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: writes two locals.
        self.check("cuCtxGetStreamPriorityRange", unsafe {
            sys::cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest)
        })?;
        let priority = if high_priority { greatest } else { least };
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        let mut handle = null_mut();
        // SAFETY: writes a local.
        self.check("cuStreamCreate", unsafe {
            sys::cuStreamCreateWithPriority(&raw mut handle, flags, priority)
        })?;
        Ok(StreamHandle(handle as u64))
    }

    fn destroy_stream(&self, handle: StreamHandle) {
        if self.enter().is_ok() {
            // SAFETY: a stream of this device, not used afterwards.
            let _ = unsafe { sys::cuStreamDestroy_v2(stream(handle)) };
        }
    }

    fn wait_stream(&self, handle: StreamHandle) -> Result<()> {
        self.enter()?;
        // SAFETY: a stream of this device.
        self.check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(stream(handle)) })
    }

    fn stream_is_idle(&self, handle: StreamHandle) -> Result<bool> {
        self.enter()?;
        // SAFETY: a stream of this device.
        self.ready("cuStreamQuery", unsafe { sys::cuStreamQuery(stream(handle)) })
    }

    fn create_event(&self, timed: bool) -> Result<EventHandle> {
        self.enter()?;
        let flags = if timed { 0 } else { sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32 };
        let mut handle = null_mut();
        // SAFETY: writes a local.
        self.check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut handle, flags) })?;
        Ok(EventHandle(handle as u64))
    }

    fn destroy_event(&self, handle: EventHandle) {
        if self.enter().is_ok() {
            // SAFETY: an event of this device, not used afterwards.
            let _ = unsafe { sys::cuEventDestroy_v2(event(handle)) };
        }
    }

    fn record_event(&self, handle: EventHandle, at: StreamHandle) -> Result<()> {
        self.enter()?;
        // SAFETY: both are of this device.
        self.check("cuEventRecord", unsafe { sys::cuEventRecord(event(handle), stream(at)) })
    }

    fn wait_event(&self, handle: EventHandle) -> Result<()> {
        self.enter()?;
        // SAFETY: an event of this device.
        self.check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(event(handle)) })
    }

    fn event_is_done(&self, handle: EventHandle) -> Result<bool> {
        self.enter()?;
        // SAFETY: an event of this device.
        self.ready("cuEventQuery", unsafe { sys::cuEventQuery(event(handle)) })
    }

    fn stream_waits_for(&self, handle: StreamHandle, for_event: EventHandle) -> Result<()> {
        self.enter()?;
        // SAFETY: a stream of this device; the event may be of another.
        self.check("cuStreamWaitEvent", unsafe {
            sys::cuStreamWaitEvent(stream(handle), event(for_event), 0)
        })
    }

    fn elapsed_ms(&self, start: EventHandle, end: EventHandle) -> Result<f32> {
        self.enter()?;
        let mut milliseconds = 0.0;
        // SAFETY: writes a local.
        self.check("cuEventElapsedTime", unsafe {
            sys::cuEventElapsedTime_v2(&raw mut milliseconds, event(start), event(end))
        })?;
        Ok(milliseconds)
    }

    unsafe fn copy_in(&self, at: StreamHandle, to: DevicePointer, from: *const u8, bytes: u64) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's promise.
        self.check("cuMemcpyHtoDAsync", unsafe {
            sys::cuMemcpyHtoDAsync_v2(to.0, from.cast(), size(bytes), stream(at))
        })
    }

    unsafe fn copy_out(&self, at: StreamHandle, to: *mut u8, from: DevicePointer, bytes: u64) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's promise.
        self.check("cuMemcpyDtoHAsync", unsafe {
            sys::cuMemcpyDtoHAsync_v2(to.cast(), from.0, size(bytes), stream(at))
        })
    }

    unsafe fn copy_within(
        &self,
        at: StreamHandle,
        to: DevicePointer,
        from: DevicePointer,
        bytes: u64,
    ) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's promise. Addresses of all devices are in one space, so this also copies between peers.
        self.check("cuMemcpyAsync", unsafe { sys::cuMemcpyAsync(to.0, from.0, size(bytes), stream(at)) })
    }

    unsafe fn fill(&self, at: StreamHandle, to: DevicePointer, value: u8, bytes: u64) -> Result<()> {
        self.enter()?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        self.check("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(to.0, value, size(bytes), stream(at)) })
    }

    fn load_module(&self, image: &[u8]) -> Result<ModuleHandle> {
        self.enter()?;
        // A cubin says its own length; PTX text ends with a zero, so there is always one.
        let mut terminated = image.to_vec();
        terminated.push(0);
        let mut module = null_mut();
        // SAFETY: writes a local; reads `terminated`, which is a whole image.
        self.check("cuModuleLoadData", unsafe {
            sys::cuModuleLoadData(&raw mut module, terminated.as_ptr().cast())
        })?;
        Ok(ModuleHandle(module as u64))
    }

    fn unload_module(&self, module: ModuleHandle) {
        if self.enter().is_ok() {
            // SAFETY: a module of this device, not used afterwards.
            let _ = unsafe { sys::cuModuleUnload(module.0 as CUmodule) };
        }
    }

    fn function(&self, module: ModuleHandle, symbol: &str, shared_bytes: u32) -> Result<FunctionHandle> {
        self.enter()?;
        let Ok(name) = CString::new(symbol) else {
            return Err(LaunchError::Device(format!("a symbol holds a zero byte: {symbol:?}")).into());
        };
        let mut function = null_mut();
        // SAFETY: writes a local.
        let status =
            unsafe { sys::cuModuleGetFunction(&raw mut function, module.0 as CUmodule, name.as_ptr()) };
        if status == CUresult::CUDA_ERROR_NOT_FOUND {
            return Err(LaunchError::Device(format!("the loaded module has no kernel {symbol}")).into());
        }
        self.check("cuModuleGetFunction", status)?;
        // Loaded now: a lazy load inside a capture would fail it.
        // SAFETY: the function is of a live module.
        self.check("cuFuncLoad", unsafe { sys::cuFuncLoad(function) })?;
        if shared_bytes > PLAIN_SHARED_BYTES {
            let most = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: as above.
            let status = unsafe { sys::cuFuncSetAttribute(function, most, shared_bytes.cast_signed()) };
            self.check("cuFuncSetAttribute", status)?;
        }
        Ok(FunctionHandle(function as u64))
    }

    fn encode_tensor_map(&self, request: &TensorMapRequest) -> Result<TensorMap> {
        self.enter()?;
        let mut map = TensorMap([0; 16]);
        self.check("cuTensorMapEncodeTiled", tensor_map::encode(&mut map, request))?;
        Ok(map)
    }

    unsafe fn launch(
        &self,
        function: FunctionHandle,
        geometry: &Geometry,
        at: StreamHandle,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        self.enter()?;
        let mut dependent = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID_enum::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: geometry.grid[0],
            gridDimY: geometry.grid[1],
            gridDimZ: geometry.grid[2],
            blockDimX: geometry.block[0],
            blockDimY: geometry.block[1],
            blockDimZ: geometry.block[2],
            sharedMemBytes: geometry.shared_bytes,
            hStream: stream(at),
            attrs: &raw mut dependent,
            numAttrs: u32::from(geometry.dependent),
        };
        // SAFETY: the caller's promise; the values are copied before the call returns.
        self.check("cuLaunchKernelEx", unsafe {
            sys::cuLaunchKernelEx(
                &raw const config,
                function.0 as CUfunction,
                arguments.as_mut_ptr(),
                null_mut(),
            )
        })
    }

    fn begin_capture(&self, at: StreamHandle) -> Result<()> {
        self.enter()?;
        // Other threads may go on allocating and copying.
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: a stream of this device.
        self.check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(stream(at), mode) })
    }

    fn end_capture(&self, at: StreamHandle) -> Result<RecordingHandle> {
        self.enter()?;
        let mut graph = null_mut();
        // SAFETY: writes a local.
        self.check("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(stream(at), &raw mut graph) })?;
        Ok(RecordingHandle(graph as u64))
    }

    fn node_count(&self, recording: RecordingHandle) -> Result<usize> {
        self.enter()?;
        let mut count = 0;
        // SAFETY: a null array asks for the count only, written to a local.
        self.check("cuGraphGetNodes", unsafe {
            sys::cuGraphGetNodes(recording.0 as CUgraph, null_mut(), &raw mut count)
        })?;
        Ok(count)
    }

    fn destroy_recording(&self, recording: RecordingHandle) {
        if self.enter().is_ok() {
            // SAFETY: a graph of this device, not used afterwards.
            let _ = unsafe { sys::cuGraphDestroy(recording.0 as CUgraph) };
        }
    }

    fn instantiate(&self, recording: RecordingHandle) -> Result<GraphHandle> {
        self.enter()?;
        let mut graph = null_mut();
        // SAFETY: writes a local.
        self.check("cuGraphInstantiate", unsafe {
            sys::cuGraphInstantiateWithFlags(&raw mut graph, recording.0 as CUgraph, 0)
        })?;
        Ok(GraphHandle(graph as u64))
    }

    fn update_graph(&self, graph: GraphHandle, recording: RecordingHandle) -> Result<GraphUpdate> {
        self.enter()?;
        let mut result = std::mem::MaybeUninit::<sys::CUgraphExecUpdateResultInfo>::zeroed();
        // SAFETY: both handles are of this device; the result is written to a local.
        let status = unsafe {
            sys::cuGraphExecUpdate_v2(graph.0 as CUgraphExec, recording.0 as CUgraph, result.as_mut_ptr())
        };
        match status {
            CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE => Ok(GraphUpdate::Differs),
            status => self.check("cuGraphExecUpdate", status).map(|()| GraphUpdate::Updated),
        }
    }

    fn launch_graph(&self, graph: GraphHandle, at: StreamHandle) -> Result<()> {
        self.enter()?;
        // SAFETY: both handles are of this device.
        self.check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(graph.0 as CUgraphExec, stream(at)) })
    }

    fn destroy_graph(&self, graph: GraphHandle) {
        if self.enter().is_ok() {
            // SAFETY: a graph of this device, not used afterwards.
            let _ = unsafe { sys::cuGraphExecDestroy(graph.0 as CUgraphExec) };
        }
    }

    fn enable_peer(&self, peer: u32) -> Result<()> {
        let device = self.info.ordinal;
        let (other, context) = open::peer_context(self.device, device, peer)?;
        self.peers.lock().unwrap_or_else(PoisonError::into_inner).push(other);
        self.enter()?;
        // SAFETY: the peer's context is retained until `self` is dropped.
        match unsafe { sys::cuCtxEnablePeerAccess(context, 0) } {
            CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            status => self.check("cuCtxEnablePeerAccess", status),
        }
    }

    fn make_current(&self) -> Result<()> {
        self.enter()
    }
}
