//! What a GPU is to this engine, once for both vendors. No kernels, no model.
//!
//! [`device::Device`] makes streams, events, memory; [`launch`] puts kernels onto it; [`arena`], [`staging`], [`ticket`]
//! and [`graph`] are the shapes in which a backend uses them. [`api`] is the line at which a vendor's driver, or the
//! test double, is put in.
//!
//! A step of a backend, with two of them in flight:
//!
//! ```no_run
//! use m3_gpu::arena::ArenaPlan;
//! use m3_gpu::device::Device;
//! use m3_gpu::graph::Graphs;
//! use m3_gpu::staging::{Layout, Staging};
//! use m3_gpu::ticket::Tickets;
//!
//! fn serve(steps: u32) -> m3_gpu::error::Result<()> {
//!     const ROWS: usize = 8;
//!     let device = Device::cuda(0)?; // absent or old drivers: a refusal with a sentence
//!     let stream = device.stream()?;
//!
//!     // What a step needs to know, at the same offsets in pinned memory and on the device.
//!     let mut layout = Layout::new();
//!     let positions = layout.field::<i32>("positions", ROWS);
//!     let slots = layout.field::<i64>("slots", ROWS);
//!
//!     // One allocation for the whole instance.
//!     let mut plan = ArenaPlan::new();
//!     let arrays = plan.add("step arrays", layout.bytes());
//!     let logits = plan.add("logits", 4 * 200_064 * ROWS as u64);
//!     let arena = plan.carve(&device, "arena")?;
//!     arena.poison(&stream, 0xff)?;
//!
//!     // Warm-up: one graph for each bucket of rows. Launches read the arrays by their fixed addresses.
//!     let mut graphs = Graphs::default();
//!     let record = || stream.fill(arena.region(logits), 0); // kernels.add_norm(&device, stream.handle(), ..)
//!     graphs.capture(ROWS, &stream, record)?;
//!
//!     let mut staging = Staging::new(&device, layout.bytes(), 2)?;
//!     let mut tickets = Tickets::new(&device, 2)?;
//!     let results = [device.pinned(4 * ROWS as u64, "tokens")?, device.pinned(4 * ROWS as u64, "tokens")?];
//!     for step in 0..steps {
//!         let open = tickets.begin(&stream)?; // waits for the step before the last
//!         let mut writer = staging.begin(&layout)?;
//!         writer.write(positions, &[step as i32])?;
//!         writer.pad(slots, 0, -1)?;
//!         writer.send(&stream, arena.region(arrays))?;
//!         graphs.launch(&ROWS, &stream)?;
//!         stream.download(&results[open.slot], 0, arena.region(logits).part(0, 4 * ROWS as u64)?)?;
//!         let ticket = tickets.finish(open, &stream)?;
//!         tickets.wait(ticket)?; // then read `results[open.slot]`
//!     }
//!     Ok(())
//! }
//! ```

pub mod absent;
#[allow(unsafe_code, reason = "declares the driver's calls that take raw addresses")]
pub mod api;
pub mod arena;
pub mod arguments;
#[allow(unsafe_code, reason = "calls NCCL")]
pub mod collective;
#[allow(unsafe_code, reason = "calls NVIDIA's driver")]
pub mod cuda;
#[allow(unsafe_code, reason = "hands the launcher's unsafe call on")]
pub mod device;
#[allow(unsafe_code, reason = "calls two functions of the vendor's driver library")]
pub mod driver;
pub mod error;
#[allow(unsafe_code, reason = "copies to and from memory that the caller promised")]
pub mod fake;
pub mod graph;
#[allow(unsafe_code, reason = "launches functions whose layout was compared")]
pub mod kernels;
#[allow(unsafe_code, reason = "declares the unsafe call that puts a kernel onto a device")]
pub mod launch;
#[allow(unsafe_code, reason = "owns memory that a driver gives")]
pub mod memory;
pub mod pack;
pub mod staging;
#[allow(unsafe_code, reason = "copies between regions that were checked")]
pub mod stream;
pub mod ticket;
#[allow(unsafe_code, reason = "reads mapped files that the caller keeps")]
pub mod upload;
