//! Graphs: a stretch of stream work recorded once and replayed with one call, kept by shape.
//!
//! A recording holds addresses, so what changes from step to step has fixed places ([`crate::staging`]). What goes into a
//! graph, and for which shapes, is the backend's.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;

use crate::api::{GraphHandle, GraphUpdate, RecordingHandle};
use crate::device::Device;
use crate::error::{GpuError, Result};
use crate::stream::Stream;

/// An instantiated recording.
#[derive(Debug)]
pub struct Graph {
    device: Device,
    handle: GraphHandle,
    nodes: usize,
}

impl Graph {
    /// Records what `record` puts into `stream` (and into streams that wait for its events and are joined again) instead
    /// of running it. When `record` fails, its error is returned and the stream is usable again.
    pub fn capture<E: From<GpuError>>(
        stream: &Stream,
        record: impl FnOnce() -> Result<(), E>,
    ) -> Result<Graph, E> {
        let recording = Recording::take(stream, record)?;
        let api = stream.device().api();
        let nodes = api.node_count(recording.handle)?;
        let handle = api.instantiate(recording.handle)?;
        Ok(Graph { device: stream.device().clone(), handle, nodes })
    }

    /// Puts one run of the graph into the stream.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        self.device.api().launch_graph(self.handle, stream.handle())
    }

    /// Records again and takes the new arguments over; instantiates anew when nodes or edges differ.
    pub fn update<E: From<GpuError>>(
        &mut self,
        stream: &Stream,
        record: impl FnOnce() -> Result<(), E>,
    ) -> Result<GraphUpdate, E> {
        let recording = Recording::take(stream, record)?;
        let api = self.device.api();
        let outcome = api.update_graph(self.handle, recording.handle)?;
        if outcome == GraphUpdate::Differs {
            let fresh = api.instantiate(recording.handle)?;
            // A run of the old one may be in flight.
            self.device.synchronize()?;
            api.destroy_graph(std::mem::replace(&mut self.handle, fresh));
        }
        self.nodes = api.node_count(recording.handle)?;
        Ok(outcome)
    }

    /// Kernels, copies and fills in it.
    pub fn nodes(&self) -> usize {
        self.nodes
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let _ = self.device.synchronize();
        self.device.api().destroy_graph(self.handle);
    }
}

struct Recording<'a> {
    device: &'a Device,
    handle: RecordingHandle,
}

impl<'a> Recording<'a> {
    fn take<E: From<GpuError>>(
        stream: &'a Stream,
        record: impl FnOnce() -> Result<(), E>,
    ) -> Result<Self, E> {
        let api = stream.device().api();
        api.begin_capture(stream.handle())?;
        stream.set_capturing(true);
        let recorded = record();
        stream.set_capturing(false);
        // Ended in any case, else the stream stays unusable; a failed record explains more than a failed end.
        let ended = api.end_capture(stream.handle());
        match (recorded, ended) {
            (Ok(()), Ok(handle)) => Ok(Recording { device: stream.device(), handle }),
            (Err(error), ended) => {
                if let Ok(handle) = ended {
                    api.destroy_recording(handle);
                }
                Err(error)
            }
            (Ok(()), Err(error)) => Err(error.into()),
        }
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        self.device.api().destroy_recording(self.handle);
    }
}

/// Graphs by shape.
#[derive(Debug)]
pub struct Graphs<K> {
    by_shape: HashMap<K, Graph>,
}

impl<K> Default for Graphs<K> {
    fn default() -> Self {
        Graphs { by_shape: HashMap::new() }
    }
}

impl<K: Eq + Hash + Debug> Graphs<K> {
    /// Captures for `shape`, in place of an earlier graph.
    pub fn capture<E: From<GpuError>>(
        &mut self,
        shape: K,
        stream: &Stream,
        record: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        self.by_shape.insert(shape, Graph::capture(stream, record)?);
        Ok(())
    }

    pub fn get(&self, shape: &K) -> Option<&Graph> {
        self.by_shape.get(shape)
    }

    pub fn get_mut(&mut self, shape: &K) -> Option<&mut Graph> {
        self.by_shape.get_mut(shape)
    }

    /// Replays the graph of `shape`; false when there is none.
    pub fn launch(&self, shape: &K, stream: &Stream) -> Result<bool> {
        match self.by_shape.get(shape) {
            Some(graph) => graph.launch(stream).map(|()| true),
            None => Ok(false),
        }
    }

    /// Shapes and their numbers of nodes.
    pub fn shapes(&self) -> impl Iterator<Item = (&K, usize)> {
        self.by_shape.iter().map(|(shape, graph)| (shape, graph.nodes))
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.by_shape.clear();
    }
}
