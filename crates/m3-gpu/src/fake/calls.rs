//! The driver's calls on the double: queue, run, refuse.

use std::ffi::c_void;
use std::sync::Arc;

use super::capture::Capture;
use super::queue::{Death, HostAddress, Work};
use super::{FakeDevice, Fault, Progress, State};
use crate::api::{Api, DeviceInfo, EventHandle, GraphHandle, GraphUpdate, MemoryState, RecordingHandle};
use crate::error::{GpuError, Result};
use crate::launch::{DevicePointer, FunctionHandle, Geometry, LaunchError, ModuleHandle, StreamHandle};
use crate::launch::{TensorMap, TensorMapRequest};

impl FakeDevice {
    fn alive(&self, state: &State, function: &'static str) -> Result<()> {
        if state.lost { Err(self.fail(function, "CUDA_ERROR_ILLEGAL_ADDRESS", 700)) } else { Ok(()) }
    }

    /// Records in a capture, or queues and, when eager, runs.
    fn put(&self, function: &'static str, stream: StreamHandle, work: Work) -> Result<()> {
        let mut state = self.state();
        self.alive(&state, function)?;
        if let Some(capture) = state.capture.as_mut().filter(|capture| capture.has_stream(stream.0)) {
            if matches!(work, Work::Write { .. }) {
                let what = "ordinary memory was copied in a capture".to_owned();
                capture.broken.get_or_insert(what);
            }
            capture.push(stream.0, work);
            return Ok(());
        }
        state.queues.push(stream.0, work);
        self.progress(&mut state, stream.0)
    }

    fn progress(&self, state: &mut State, stream: u64) -> Result<()> {
        match self.shared.progress {
            Progress::Eager => self.drain(state, stream),
            Progress::Lazy => Ok(()),
        }
    }

    /// Runs one piece of what `stream` waits for or holds.
    fn step(&self, state: &mut State, stream: u64) -> Result<bool> {
        let Some(runnable) = state.queues.runnable(stream) else { return Ok(false) };
        let Some(work) = state.queues.pop(runnable) else { return Ok(false) };
        let next = state.queues.clock + 1;
        if state.due(Fault::Lost { work: next }) {
            state.lost = true;
        }
        self.alive(state, "work")?;
        let State { queues, memory, .. } = state;
        queues.run(&work, memory).map(|()| true).map_err(|death| {
            state.lost = true;
            match death {
                Death::BadAddress(bad) => self.illegal(bad),
                Death::Kernel(error) => error,
            }
        })
    }

    fn drain(&self, state: &mut State, stream: u64) -> Result<()> {
        while self.step(state, stream)? {}
        Ok(())
    }

    fn drain_all(&self, state: &mut State) -> Result<()> {
        let streams: Vec<u64> = state.queues.streams.keys().copied().collect();
        streams.into_iter().try_for_each(|stream| self.drain(state, stream))
    }

    /// Waiting inside a capture breaks it, as on a device.
    fn refuse_capture(&self, state: &mut State, function: &'static str, concerned: bool) -> Result<()> {
        match state.capture.as_mut().filter(|_| concerned) {
            Some(capture) => {
                capture.broken.get_or_insert(format!("{function} was called in a capture"));
                Err(self.fail(function, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", 900))
            }
            None => Ok(()),
        }
    }

    fn captured(state: &State, stream: StreamHandle) -> bool {
        state.capture.as_ref().is_some_and(|capture| capture.has_stream(stream.0))
    }
}

impl Api for FakeDevice {
    fn info(&self) -> &DeviceInfo {
        &self.shared.info
    }

    fn memory(&self) -> Result<MemoryState> {
        let state = self.state();
        Ok(MemoryState { free: state.memory.free_bytes(), total: state.memory.capacity })
    }

    fn synchronize(&self) -> Result<()> {
        let mut state = self.state();
        self.alive(&state, "synchronize")?;
        let capturing = state.capture.is_some();
        self.refuse_capture(&mut state, "synchronize", capturing)?;
        self.drain_all(&mut state)
    }

    fn allocate(&self, bytes: u64, what: &str) -> Result<DevicePointer> {
        let mut state = self.state();
        self.alive(&state, "allocate")?;
        let capturing = state.capture.is_some();
        self.refuse_capture(&mut state, "allocate", capturing)?;
        state.memory.count += 1;
        let allocation = state.memory.count;
        let pointer = match state.due(Fault::OutOfMemory { allocation }) {
            true => None,
            false => state.memory.allocate(bytes),
        };
        pointer.ok_or_else(|| GpuError::OutOfMemory {
            what: what.to_owned(),
            wanted: bytes,
            device: self.shared.info.ordinal,
            free: state.memory.free_bytes(),
            total: state.memory.capacity,
        })
    }

    unsafe fn free(&self, pointer: DevicePointer) {
        self.state().memory.free(pointer);
    }

    fn allocate_pinned(&self, bytes: u64, what: &str) -> Result<*mut u8> {
        let mut state = self.state();
        self.alive(&state, "allocate_pinned")?;
        state.pinned.count += 1;
        let allocation = state.pinned.count;
        let start = match state.due(Fault::OutOfPinned { allocation }) {
            true => None,
            false => state.pinned.allocate(bytes),
        };
        let cause = "the double was told so".to_owned();
        start.ok_or_else(|| GpuError::OutOfPinned { what: what.to_owned(), wanted: bytes, cause })
    }

    unsafe fn free_pinned(&self, pointer: *mut u8) {
        self.state().pinned.free(pointer);
    }

    fn create_stream(&self, _high_priority: bool) -> Result<StreamHandle> {
        let mut state = self.state();
        self.alive(&state, "create_stream")?;
        let handle = state.handle();
        state.queues.streams.entry(handle).or_default();
        Ok(StreamHandle(handle))
    }

    fn destroy_stream(&self, stream: StreamHandle) {
        self.state().queues.streams.remove(&stream.0);
    }

    fn wait_stream(&self, stream: StreamHandle) -> Result<()> {
        let mut state = self.state();
        self.alive(&state, "wait_stream")?;
        let captured = Self::captured(&state, stream);
        self.refuse_capture(&mut state, "wait_stream", captured)?;
        self.drain(&mut state, stream.0)
    }

    fn stream_is_idle(&self, stream: StreamHandle) -> Result<bool> {
        let mut state = self.state();
        self.alive(&state, "stream_is_idle")?;
        self.step(&mut state, stream.0)?;
        Ok(state.queues.is_idle(stream.0))
    }

    fn create_event(&self, _timed: bool) -> Result<EventHandle> {
        let mut state = self.state();
        self.alive(&state, "create_event")?;
        let handle = state.handle();
        state.queues.events.entry(handle).or_default();
        Ok(EventHandle(handle))
    }

    fn destroy_event(&self, event: EventHandle) {
        self.state().queues.events.remove(&event.0);
    }

    fn record_event(&self, event: EventHandle, stream: StreamHandle) -> Result<()> {
        let mut state = self.state();
        self.alive(&state, "record_event")?;
        if let Some(capture) = state.capture.as_mut().filter(|capture| capture.has_stream(stream.0)) {
            capture.record(event.0, stream.0);
            return Ok(());
        }
        state.queues.record(event.0, stream.0);
        self.progress(&mut state, stream.0)
    }

    fn wait_event(&self, event: EventHandle) -> Result<()> {
        let mut state = self.state();
        self.alive(&state, "wait_event")?;
        let captured = state.capture.as_ref().is_some_and(|capture| capture.has_event(event.0));
        self.refuse_capture(&mut state, "wait_event", captured)?;
        let stream = state.queues.stream_of(event.0);
        while !state.queues.is_passed(event.0) && self.step(&mut state, stream)? {}
        Ok(())
    }

    fn event_is_done(&self, event: EventHandle) -> Result<bool> {
        let mut state = self.state();
        self.alive(&state, "event_is_done")?;
        let done = state.queues.is_passed(event.0);
        if !done {
            let stream = state.queues.stream_of(event.0);
            self.step(&mut state, stream)?;
        }
        Ok(done)
    }

    fn stream_waits_for(&self, stream: StreamHandle, event: EventHandle) -> Result<()> {
        let mut state = self.state();
        self.alive(&state, "stream_waits_for")?;
        if let Some(capture) = state.capture.as_mut() {
            if capture.has_event(event.0) {
                capture.wait_for(stream.0, event.0);
                return Ok(());
            }
            if capture.has_stream(stream.0) {
                capture.broken.get_or_insert("a captured stream waits for an event from outside".to_owned());
                return Err(self.fail("stream_waits_for", "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", 905));
            }
        }
        state.queues.wait_for(stream.0, event.0);
        self.progress(&mut state, stream.0)
    }

    fn elapsed_ms(&self, start: EventHandle, end: EventHandle) -> Result<f32> {
        let state = self.state();
        self.alive(&state, "elapsed_ms")?;
        match state.queues.between(start.0, end.0) {
            Some(microseconds) => Ok(microseconds as f32 / 1000.0),
            None => Err(self.fail("elapsed_ms", "CUDA_ERROR_NOT_READY", 600)),
        }
    }

    unsafe fn copy_in(&self, at: StreamHandle, to: DevicePointer, from: *const u8, bytes: u64) -> Result<()> {
        let pinned = self.state().pinned.holds(from, bytes);
        let work = if pinned {
            Work::CopyIn { to, from: HostAddress(from.cast_mut()), bytes }
        } else {
            // SAFETY: the caller's promise.
            let values = unsafe { std::slice::from_raw_parts(from, bytes as usize) };
            Work::Write { to, values: values.into() }
        };
        self.put("copy_in", at, work)
    }

    unsafe fn copy_out(&self, at: StreamHandle, to: *mut u8, from: DevicePointer, bytes: u64) -> Result<()> {
        let pinned = self.state().pinned.holds(to, bytes);
        self.put("copy_out", at, Work::CopyOut { to: HostAddress(to), from, bytes })?;
        // Ordinary memory is written before the call returns.
        if pinned { Ok(()) } else { self.wait_stream(at) }
    }

    unsafe fn copy_within(
        &self,
        at: StreamHandle,
        to: DevicePointer,
        from: DevicePointer,
        bytes: u64,
    ) -> Result<()> {
        self.put("copy_within", at, Work::CopyWithin { to, from, bytes })
    }

    unsafe fn fill(&self, at: StreamHandle, to: DevicePointer, value: u8, bytes: u64) -> Result<()> {
        self.put("fill", at, Work::Fill { to, value, bytes })
    }

    fn load_module(&self, _image: &[u8]) -> Result<ModuleHandle> {
        let mut state = self.state();
        self.alive(&state, "load_module")?;
        let handle = state.handle();
        state.kernels.modules.insert(handle);
        Ok(ModuleHandle(handle))
    }

    fn unload_module(&self, module: ModuleHandle) {
        self.state().kernels.modules.remove(&module.0);
    }

    fn function(&self, module: ModuleHandle, symbol: &str, shared_bytes: u32) -> Result<FunctionHandle> {
        let mut state = self.state();
        self.alive(&state, "function")?;
        if !state.kernels.modules.contains(&module.0) {
            return Err(self.fail("function", "CUDA_ERROR_INVALID_HANDLE", 400));
        }
        if shared_bytes > self.shared.info.shared_bytes {
            return Err(self.fail("function", "CUDA_ERROR_INVALID_VALUE", 1));
        }
        let handle = state.handle();
        if state.kernels.bind(symbol, handle) {
            return Ok(FunctionHandle(handle));
        }
        Err(LaunchError::Device(format!("the loaded module has no kernel {symbol}")).into())
    }

    fn encode_tensor_map(&self, request: &TensorMapRequest) -> Result<TensorMap> {
        if !request.base.0.is_multiple_of(16) || !request.row_bytes.is_multiple_of(16) || request.swizzle > 3
        {
            return Err(self.fail("encode_tensor_map", "CUDA_ERROR_INVALID_VALUE", 1));
        }
        let mut map = TensorMap([0; 16]);
        map.0[..4].copy_from_slice(&[request.base.0, request.rows, request.columns, request.row_bytes]);
        Ok(map)
    }

    unsafe fn launch(
        &self,
        function: FunctionHandle,
        geometry: &Geometry,
        stream: StreamHandle,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        let mut state = self.state();
        state.kernels.launches += 1;
        let launch = state.kernels.launches;
        if state.due(Fault::Launch { launch }) {
            return Err(self.fail("launch", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", 701));
        }
        let Some(kernel) = state.kernels.get(function.0).filter(|kernel| kernel.takes(arguments.len()))
        else {
            return Err(self.fail("launch", "CUDA_ERROR_INVALID_VALUE", 1));
        };
        drop(state);
        // SAFETY: the caller's promise, with the sizes that the kernel was added with.
        let arguments: Arc<[Vec<u8>]> = unsafe { kernel.copy_arguments(arguments) }.into();
        self.put("launch", stream, Work::Launch { kernel, geometry: *geometry, arguments })
    }

    fn begin_capture(&self, stream: StreamHandle) -> Result<()> {
        let mut state = self.state();
        self.alive(&state, "begin_capture")?;
        if state.capture.is_some() {
            return Err(self.fail("begin_capture", "CUDA_ERROR_ILLEGAL_STATE", 401));
        }
        state.capture = Some(Capture::new(stream.0));
        Ok(())
    }

    fn end_capture(&self, stream: StreamHandle) -> Result<RecordingHandle> {
        let mut state = self.state();
        self.alive(&state, "end_capture")?;
        let Some(capture) = state.capture.take().filter(|capture| capture.origin == stream.0) else {
            return Err(self.fail("end_capture", "CUDA_ERROR_ILLEGAL_STATE", 401));
        };
        if let Some(cause) = capture.broken {
            let device = self.shared.info.ordinal;
            return Err(GpuError::Capture { function: "end_capture", device, cause });
        }
        if !capture.is_joined() {
            return Err(self.fail("end_capture", "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", 904));
        }
        let handle = state.handle();
        state.recordings.insert(handle, capture.work.into());
        Ok(RecordingHandle(handle))
    }

    fn node_count(&self, recording: RecordingHandle) -> Result<usize> {
        let state = self.state();
        let work = state.recordings.get(&recording.0);
        work.map(|work| work.len()).ok_or_else(|| self.fail("node_count", "CUDA_ERROR_INVALID_HANDLE", 400))
    }

    fn destroy_recording(&self, recording: RecordingHandle) {
        self.state().recordings.remove(&recording.0);
    }

    fn instantiate(&self, recording: RecordingHandle) -> Result<GraphHandle> {
        let mut state = self.state();
        self.alive(&state, "instantiate")?;
        let Some(work) = state.recordings.get(&recording.0).cloned() else {
            return Err(self.fail("instantiate", "CUDA_ERROR_INVALID_HANDLE", 400));
        };
        let handle = state.handle();
        state.graphs.insert(handle, work);
        Ok(GraphHandle(handle))
    }

    fn update_graph(&self, graph: GraphHandle, recording: RecordingHandle) -> Result<GraphUpdate> {
        let mut state = self.state();
        self.alive(&state, "update_graph")?;
        let (Some(old), Some(new)) =
            (state.graphs.get(&graph.0).cloned(), state.recordings.get(&recording.0).cloned())
        else {
            return Err(self.fail("update_graph", "CUDA_ERROR_INVALID_HANDLE", 400));
        };
        if old.len() != new.len() || !old.iter().zip(&*new).all(|(old, new)| old.same_node(new)) {
            return Ok(GraphUpdate::Differs);
        }
        state.graphs.insert(graph.0, new);
        Ok(GraphUpdate::Updated)
    }

    fn launch_graph(&self, graph: GraphHandle, stream: StreamHandle) -> Result<()> {
        let work = self.state().graphs.get(&graph.0).cloned();
        match work {
            Some(work) => self.put("launch_graph", stream, Work::Graph(work)),
            None => Err(self.fail("launch_graph", "CUDA_ERROR_INVALID_HANDLE", 400)),
        }
    }

    fn destroy_graph(&self, graph: GraphHandle) {
        self.state().graphs.remove(&graph.0);
    }

    /// The double stands alone.
    fn enable_peer(&self, peer: u32) -> Result<()> {
        Err(GpuError::NoPeer { device: self.shared.info.ordinal, peer })
    }

    fn make_current(&self) -> Result<()> {
        Ok(())
    }
}
