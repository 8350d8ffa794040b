//! A backend together with the checkpoint whose mapped bytes it reads until it is closed.

use std::sync::Arc;

use m3_abi::types::{PageCopy, Ready, Region, WarmShape};
use m3_abi::{Backend, Media, Output, Result, Step, Tap, TensorView, Ticket};
use m3_model::checkpoint::Checkpoint;

pub(super) struct Mapped {
    /// Declared first, so that it is dropped while the mapping is still there.
    backend: Box<dyn Backend>,
    _checkpoint: Arc<Checkpoint>,
}

impl Mapped {
    pub(super) fn new(backend: Box<dyn Backend>, checkpoint: Arc<Checkpoint>) -> Self {
        Mapped { backend, _checkpoint: checkpoint }
    }
}

impl Backend for Mapped {
    fn load(&mut self, tensor: &TensorView<'_>) -> Result<()> {
        self.backend.load(tensor)
    }

    fn ready(&mut self) -> Result<Ready> {
        self.backend.ready()
    }

    fn reserve(&mut self, num_pages: u64) -> Result<()> {
        self.backend.reserve(num_pages)
    }

    fn warm(&mut self, shapes: &[WarmShape]) -> Result<()> {
        self.backend.warm(shapes)
    }

    fn submit(&mut self, step: &Step<'_>) -> Result<Ticket> {
        self.backend.submit(step)
    }

    fn wait(&mut self, ticket: Ticket, output: &mut Output) -> Result<()> {
        self.backend.wait(ticket, output)
    }

    fn done(&mut self) -> Result<Ticket> {
        self.backend.done()
    }

    fn copy_pages(&mut self, copies: &[PageCopy]) -> Result<()> {
        self.backend.copy_pages(copies)
    }

    fn read_pages(&mut self, pages: &[u32], bytes: &mut Vec<u8>) -> Result<()> {
        self.backend.read_pages(pages, bytes)
    }

    fn write_pages(&mut self, pages: &[u32], bytes: &[u8]) -> Result<()> {
        self.backend.write_pages(pages, bytes)
    }

    fn regions(&mut self) -> Result<Vec<Region>> {
        self.backend.regions()
    }

    fn encode(&mut self, patches: &[f32], row_len: usize, grids: &[[u32; 3]]) -> Result<Media> {
        self.backend.encode(patches, row_len, grids)
    }

    fn media_free(&mut self, handle: u64) -> Result<()> {
        self.backend.media_free(handle)
    }

    fn tap(&mut self, name: &str) -> Result<Tap> {
        self.backend.tap(name)
    }

    fn trace(&mut self, begin: bool) -> Result<()> {
        self.backend.trace(begin)
    }
}
