//! The check's own kernels, loaded from PTX and launched by hand.

use std::ffi::c_void;

use m3_gpu::device::Device;
use m3_gpu::error::Result;
use m3_gpu::launch::{FunctionHandle, Geometry, Launcher};
use m3_gpu::memory::Region;
use m3_gpu::stream::Stream;

const THREADS: u32 = 256;

pub(crate) struct Kernels {
    add: FunctionHandle,
    add_dependent: FunctionHandle,
    spin: FunctionHandle,
}

impl Kernels {
    pub(crate) fn load(device: &Device) -> Result<Self> {
        let module = device.load_module(include_bytes!("check.ptx"))?;
        let function = |symbol| device.function(module, symbol, 0);
        Ok(Kernels {
            add: function("add")?,
            add_dependent: function("add_dependent")?,
            spin: function("spin")?,
        })
    }

    /// Adds to every u32 of the region.
    pub(crate) fn add(&self, stream: &Stream, to: Region, amount: u32) -> Result<()> {
        Self::add_with(self.add, stream, to, amount, false)
    }

    /// The same, allowed to start before the kernel ahead has ended.
    pub(crate) fn add_dependent(&self, stream: &Stream, to: Region, amount: u32) -> Result<()> {
        Self::add_with(self.add_dependent, stream, to, amount, true)
    }

    fn add_with(
        function: FunctionHandle,
        stream: &Stream,
        to: Region,
        mut amount: u32,
        dependent: bool,
    ) -> Result<()> {
        let mut at = to.pointer.0;
        let mut count = (to.bytes / 4) as u32;
        let grid = [count.div_ceil(THREADS), 1, 1];
        let geometry = Geometry { grid, block: [THREADS, 1, 1], shared_bytes: 0, dependent };
        let mut places = [(&raw mut at).cast::<c_void>(), (&raw mut amount).cast(), (&raw mut count).cast()];
        // SAFETY: an address and two u32, as both functions take; the region holds `count` of them.
        unsafe { stream.device().launch(function, &geometry, stream.handle(), &mut places) }?;
        Ok(())
    }

    /// Keeps one processor busy for so many of its clocks.
    pub(crate) fn spin(&self, stream: &Stream, mut clocks: u64) -> Result<()> {
        let geometry = Geometry { grid: [1, 1, 1], block: [1, 1, 1], shared_bytes: 0, dependent: false };
        let mut places = [(&raw mut clocks).cast::<c_void>()];
        // SAFETY: one u64, as the function takes.
        unsafe { stream.device().launch(self.spin, &geometry, stream.handle(), &mut places) }?;
        Ok(())
    }
}
