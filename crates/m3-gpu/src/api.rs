//! The calls that this engine makes of a vendor's driver, as raw handles: what CUDA implements today, HIP can
//! implement, and the test double implements on host memory.
//!
//! One implementation is one device with its context; every call may come from any thread. Lifetimes, bounds and
//! ownership are the business of the types above ([`crate::device`] and what it makes), which are what backends use.

use std::ffi::c_void;
use std::fmt::Debug;

use crate::error::Result;
use crate::launch::{DevicePointer, FunctionHandle, Geometry, ModuleHandle, StreamHandle};
use crate::launch::{TensorMap, TensorMapRequest};

/// `CUevent` or `hipEvent_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct EventHandle(pub u64);

/// A captured and instantiated graph: `CUgraphExec` or `hipGraphExec_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct GraphHandle(pub u64);

/// `CUgraph` or `hipGraph_t`: a recording that was not instantiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct RecordingHandle(pub u64);

/// What a device is. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Number of this device among the vendor's.
    pub ordinal: u32,
    /// e.g. "NVIDIA H200".
    pub name: String,
    /// e.g. "sm_90".
    pub arch: String,
    /// (9, 0) for Hopper.
    pub capability: (u32, u32),
    /// Streaming multiprocessors or compute units.
    pub processors: u32,
    pub memory_bytes: u64,
    pub l2_bytes: u64,
    /// Most shared memory (LDS) of a block, when asked for by attribute.
    pub shared_bytes: u32,
    /// What the driver says of itself, e.g. "13.0".
    pub driver: String,
}

/// Free and total bytes of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryState {
    pub free: u64,
    pub total: u64,
}

/// Did an earlier graph take the new recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphUpdate {
    Updated,
    /// The shape of the graph differs (other nodes or edges): it must be instantiated anew.
    Differs,
}

/// One device of one vendor.
///
/// # Safety of the pointers
/// Callers pass handles that this instance returned and did not yet free, addresses inside its live allocations, and
/// host addresses that stay valid until the stream has passed the copy. Functions that take raw addresses are unsafe for
/// that reason.
pub trait Api: Send + Sync + Debug {
    fn info(&self) -> &DeviceInfo;
    fn memory(&self) -> Result<MemoryState>;
    /// Blocks until the device is idle.
    fn synchronize(&self) -> Result<()>;

    /// At least 256-byte aligned, with undefined contents. `what` is for the error.
    fn allocate(&self, bytes: u64, what: &str) -> Result<DevicePointer>;
    /// # Safety
    /// Of [`Api::allocate`], freed once, and no work in flight uses it.
    unsafe fn free(&self, pointer: DevicePointer);
    /// Page-locked host memory that the device copies from and to on its own, page-aligned.
    fn allocate_pinned(&self, bytes: u64, what: &str) -> Result<*mut u8>;
    /// # Safety
    /// Of [`Api::allocate_pinned`], freed once, and no copy in flight uses it.
    unsafe fn free_pinned(&self, pointer: *mut u8);

    /// A stream that does not wait for the default stream. High-priority streams' blocks are scheduled first.
    fn create_stream(&self, high_priority: bool) -> Result<StreamHandle>;
    fn destroy_stream(&self, stream: StreamHandle);
    /// Blocks until everything in the stream has run.
    fn wait_stream(&self, stream: StreamHandle) -> Result<()>;
    /// Everything in the stream has run.
    fn stream_is_idle(&self, stream: StreamHandle) -> Result<bool>;

    fn create_event(&self, timed: bool) -> Result<EventHandle>;
    fn destroy_event(&self, event: EventHandle);
    fn record_event(&self, event: EventHandle, stream: StreamHandle) -> Result<()>;
    fn wait_event(&self, event: EventHandle) -> Result<()>;
    fn event_is_done(&self, event: EventHandle) -> Result<bool>;
    /// Work put into the stream later runs after the event.
    fn stream_waits_for(&self, stream: StreamHandle, event: EventHandle) -> Result<()>;
    /// Between two timed events that have both passed, in milliseconds.
    fn elapsed_ms(&self, start: EventHandle, end: EventHandle) -> Result<f32>;

    /// # Safety
    /// `to` has `bytes` bytes on the device; `from` stays valid and unchanged until the stream has passed the copy, unless it
    /// is not pinned (then it is read before this returns).
    unsafe fn copy_in(
        &self,
        stream: StreamHandle,
        to: DevicePointer,
        from: *const u8,
        bytes: u64,
    ) -> Result<()>;
    /// # Safety
    /// `from` has `bytes` bytes on the device; `to` stays valid and unread until the stream has passed the copy.
    unsafe fn copy_out(
        &self,
        stream: StreamHandle,
        to: *mut u8,
        from: DevicePointer,
        bytes: u64,
    ) -> Result<()>;
    /// Within a device, or between devices that may reach each other ([`Api::enable_peer`]).
    ///
    /// # Safety
    /// Both ranges lie in live allocations and do not overlap.
    unsafe fn copy_within(
        &self,
        stream: StreamHandle,
        to: DevicePointer,
        from: DevicePointer,
        bytes: u64,
    ) -> Result<()>;
    /// # Safety
    /// `to` has `bytes` bytes.
    unsafe fn fill(&self, stream: StreamHandle, to: DevicePointer, value: u8, bytes: u64) -> Result<()>;

    fn load_module(&self, image: &[u8]) -> Result<ModuleHandle>;
    fn unload_module(&self, module: ModuleHandle);
    fn function(&self, module: ModuleHandle, symbol: &str, shared_bytes: u32) -> Result<FunctionHandle>;
    fn encode_tensor_map(&self, request: &TensorMapRequest) -> Result<TensorMap>;
    /// # Safety
    /// As [`crate::launch::Launcher::launch`].
    unsafe fn launch(
        &self,
        function: FunctionHandle,
        geometry: &Geometry,
        stream: StreamHandle,
        arguments: &mut [*mut c_void],
    ) -> Result<()>;

    /// Work of this stream, and of streams that wait for its events, is recorded instead of run.
    fn begin_capture(&self, stream: StreamHandle) -> Result<()>;
    fn end_capture(&self, stream: StreamHandle) -> Result<RecordingHandle>;
    /// Nodes of a recording.
    fn node_count(&self, recording: RecordingHandle) -> Result<usize>;
    fn destroy_recording(&self, recording: RecordingHandle);
    fn instantiate(&self, recording: RecordingHandle) -> Result<GraphHandle>;
    fn update_graph(&self, graph: GraphHandle, recording: RecordingHandle) -> Result<GraphUpdate>;
    fn launch_graph(&self, graph: GraphHandle, stream: StreamHandle) -> Result<()>;
    fn destroy_graph(&self, graph: GraphHandle);

    /// Lets this device read and write the memory of another; says no rather than fail when the link is missing.
    fn enable_peer(&self, peer: u32) -> Result<()>;
    /// Makes this device's context current on the calling thread, for libraries (NCCL) that look there.
    fn make_current(&self) -> Result<()>;
}
