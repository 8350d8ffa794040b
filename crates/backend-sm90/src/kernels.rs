//! Launch stubs of every kernel in `kernels/manifest.toml`. Generated: do not edit.
//!
//! This file is the lock of the kernels' arguments: `cargo xtask build --backend sm90` fails when it would
//! write another one, and writes it with `--bless`. Which kernel is launched when is not decided here.

use m3_gpu::arguments::ArgumentList;
use m3_gpu::kernels::{Contract, KernelSet, Loader, Queue};
use m3_gpu::launch::{DevicePointer, LaunchError, Launcher};
use m3_gpu::pack::Pack;

/// The target whose packs fit these stubs.
pub const TARGET: &str = "sm90";

/// The tools that a pack must have been made with.
pub const TOOLCHAIN: &[(&str, &str)] = &[
    ("nvidia-cuda-cccl", "13.0.85"),
    ("nvidia-cuda-crt", "13.0.88"),
    ("nvidia-cuda-nvcc", "13.0.88"),
    ("nvidia-cuda-runtime", "13.0.96"),
    ("nvidia-nvvm", "13.0.88"),
    ("triton", "3.9.0"),
];

/// What each stub expects of a pack, for `m3_gpu::kernels::check`.
pub const CONTRACTS: &[Contract] = &[ScaleAdd::CONTRACT];

/// Every kernel, loaded for one shape on one device.
#[derive(Clone, Debug)]
pub struct Kernels {
    pub scale_add: ScaleAdd,
}

impl Kernels {
    /// Loads what the pack holds for a shape; `shape` is what `Pack::covers` answered.
    pub fn load(launcher: &dyn Launcher, pack: &Pack<'_>, shape: usize) -> Result<Self, LaunchError> {
        let mut loader = Loader::new(launcher, pack, shape)?;
        Ok(Kernels { scale_add: ScaleAdd(KernelSet::load(&mut loader, ScaleAdd::CONTRACT)?) })
    }
}

/// Arguments of [`ScaleAdd`].
#[derive(Clone, Copy, Debug)]
pub struct ScaleAddArguments {
    /// `*bf16`, a multiple of 16.
    pub x: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub y: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub out: DevicePointer,
    /// `i32`.
    pub count: i32,
    /// `f32`.
    pub factor: f32,
}

/// `kernels/selfcheck/scale_add.py`, function `scale_add`.
#[derive(Clone, Debug)]
pub struct ScaleAdd(KernelSet);

impl ScaleAdd {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "scale_add",
        text: "scale_add(x: *bf16 @16, y: *bf16 @16, out: *bf16 @16, count: i32, factor: f32)",
        variants: &[],
    };

    /// Compiled in.
    pub const BLOCK: u32 = 1024;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &ScaleAddArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("scale_add");
        list.pointer("x", arguments.x, 16)?;
        list.pointer("y", arguments.y, 16)?;
        list.pointer("out", arguments.out, 16)?;
        list.i32("count", arguments.count, 1)?;
        list.f32(arguments.factor)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}
