//! The arithmetic, a file per op; every variant gives what the scalar one gives, to rounding.
//!
//! [`Kernels`] is chosen once and passed around; nothing here knows layers, steps or ranks.

#![expect(unsafe_code, reason = "SIMD intrinsics and output pointers that tasks share by disjoint columns")]
#![expect(
    clippy::needless_range_loop,
    reason = "tiles are arrays of registers, indexed by constants once unrolled"
)]

pub mod attention;
pub mod convert;
mod gelu;
pub mod gemm;
pub mod index;
pub mod isa;
pub(crate) mod lanes;
mod layer_norm;
pub mod matrix;
mod norm;
pub(crate) mod random;
pub(crate) mod scores;
pub mod swiglu;

use std::cell::RefCell;

pub use isa::Isa;

/// The kernels of one instruction set.
#[derive(Clone, Copy, Debug)]
pub struct Kernels {
    isa: Isa,
}

impl Kernels {
    /// The best kernels of this machine.
    pub fn detect() -> Kernels {
        Kernels { isa: Isa::detect() }
    }

    /// A given family, `None` when this machine cannot run it.
    pub fn of(isa: Isa) -> Option<Kernels> {
        Isa::available().contains(&isa).then_some(Kernels { isa })
    }

    pub fn isa(&self) -> Isa {
        self.isa
    }
}

/// A pointer that tasks of one parallel loop share; each writes its own elements.
#[derive(Clone, Copy)]
pub(crate) struct SendPtr<T>(pub(crate) *mut T);

// SAFETY: whoever shares the pointer gives every task elements of its own and outlives the loop.
unsafe impl<T: Send> Send for SendPtr<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SendPtr<T> {}

impl<T> SendPtr<T> {
    /// Through a method, so that closures capture the wrapper and not the bare pointer.
    pub(crate) fn get(&self) -> *mut T {
        self.0
    }
}

macro_rules! scratch {
    ($name:ident, $cell:ident, $type:ty) => {
        thread_local! {
            static $cell: RefCell<Vec<$type>> = const { RefCell::new(Vec::new()) };
        }

        /// Lends this thread's scratch of `len` values; it grows to the largest request and stays. Not re-entrant.
        pub(crate) fn $name<R>(len: usize, work: impl FnOnce(&mut [$type]) -> R) -> R {
            $cell.with_borrow_mut(|scratch| {
                // Room to start at a cache line.
                let spare = 64 / size_of::<$type>();
                if scratch.len() < len + spare {
                    scratch.resize(len + spare, Default::default());
                }
                let start = scratch.as_ptr().align_offset(64).min(spare);
                work(&mut scratch[start..start + len])
            })
        }
    };
}

// For the tasks of an operation, which call kernels that borrow the scratch below.
scratch!(with_task_scratch, TASK_SCRATCH, f32);
scratch!(with_weight_bits, WEIGHT_BITS, u16);
// For the kernels themselves.
scratch!(with_scratch_f32, SCRATCH_F32, f32);
#[cfg(target_arch = "x86_64")]
scratch!(with_scratch_u16, SCRATCH_U16, u16);
