//! The arena: everything an instance keeps on the device, planned by name, allocated once, carved into aligned regions.
//!
//! Nothing is allocated while serving. With guards, bytes between the regions hold a pattern, and a check names the
//! region behind which something was written: for tests where no memory checker runs.

use crate::device::Device;
use crate::error::{GpuError, Result};
use crate::memory::{DeviceMemory, Region};
use crate::stream::Stream;

/// What [`ArenaPlan::add`] aligns to: enough for every vector access and tensor map.
pub const ALIGNMENT: u64 = 256;
const GUARD_BYTE: u8 = 0xa5;

/// Regions that will be needed, before anything is allocated.
#[derive(Clone, Debug, Default)]
pub struct ArenaPlan {
    pieces: Vec<Piece>,
    guard: u64,
    end: u64,
}

/// One planned region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub name: String,
    /// From the start of the arena. Bytes.
    pub offset: u64,
    pub bytes: u64,
}

/// Where a planned region will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceId(usize);

impl ArenaPlan {
    pub fn new() -> Self {
        Self::default()
    }

    /// With `bytes` (rounded up to [`ALIGNMENT`]) of pattern behind every region.
    pub fn with_guards(bytes: u64) -> Self {
        ArenaPlan { guard: bytes.next_multiple_of(ALIGNMENT), ..Self::default() }
    }

    /// Plans `bytes` under a name.
    pub fn add(&mut self, name: impl Into<String>, bytes: u64) -> PieceId {
        self.add_aligned(name, bytes, ALIGNMENT)
    }

    /// [`ArenaPlan::add`] at a multiple of `alignment`, a power of two (larger than [`ALIGNMENT`], or it is that).
    pub fn add_aligned(&mut self, name: impl Into<String>, bytes: u64, alignment: u64) -> PieceId {
        let offset = self.end.next_multiple_of(alignment.max(ALIGNMENT));
        self.end = offset.saturating_add(bytes).saturating_add(self.guard);
        self.pieces.push(Piece { name: name.into(), offset, bytes });
        PieceId(self.pieces.len() - 1)
    }

    /// What the arena will take. Bytes.
    pub fn bytes(&self) -> u64 {
        self.end
    }

    /// Allocates all of it at once. `what` names the arena in errors.
    pub fn carve(self, device: &Device, what: &str) -> Result<Arena> {
        let mut names: Vec<&str> = self.pieces.iter().map(|piece| piece.name.as_str()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(GpuError::NamedTwice { what: twice[0].to_owned() });
        }
        let memory = device.allocate(self.end, what)?;
        let arena = Arena { memory, what: what.to_owned(), pieces: self.pieces, guard: self.guard };
        arena.write_guards(device)?;
        Ok(arena)
    }
}

/// Device memory in named regions; freed as a whole.
#[derive(Debug)]
pub struct Arena {
    memory: DeviceMemory,
    what: String,
    pieces: Vec<Piece>,
    guard: u64,
}

impl Arena {
    /// The region planned as `piece` in the plan that this arena was carved from.
    pub fn region(&self, piece: PieceId) -> Region {
        self.at(&self.pieces[piece.0])
    }

    /// The region of this name.
    pub fn named(&self, name: &str) -> Option<Region> {
        self.pieces.iter().find(|piece| piece.name == name).map(|piece| self.at(piece))
    }

    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    pub fn bytes(&self) -> u64 {
        self.memory.region().bytes
    }

    /// Sets every byte of every region, so that whatever is read before it is written shows (0xff: NaN).
    pub fn poison(&self, stream: &Stream, byte: u8) -> Result<()> {
        self.pieces.iter().try_for_each(|piece| stream.fill(self.at(piece), byte))
    }

    /// A table of the regions, largest first, and the whole.
    pub fn report(&self) -> String {
        let mut pieces: Vec<&Piece> = self.pieces.iter().collect();
        pieces.sort_by_key(|piece| std::cmp::Reverse(piece.bytes));
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let mut text = format!("{}: {:.2} MiB in {} regions\n", self.what, mib(self.bytes()), pieces.len());
        for piece in pieces {
            text += &format!("{:>12.2} MiB  {}\n", mib(piece.bytes), piece.name);
        }
        text
    }

    /// Names of the regions behind which something was written. Empty without guards. Waits for the stream.
    pub fn damaged(&self, stream: &Stream) -> Result<Vec<&str>> {
        let mut damaged = Vec::new();
        for piece in self.pieces.iter().filter(|_| self.guard > 0) {
            let bytes: Vec<u8> = stream.download_values(self.behind(piece))?;
            if bytes.iter().any(|byte| *byte != GUARD_BYTE) {
                damaged.push(piece.name.as_str());
            }
        }
        Ok(damaged)
    }

    fn write_guards(&self, device: &Device) -> Result<()> {
        if self.guard == 0 {
            return Ok(());
        }
        let stream = device.stream()?;
        self.pieces.iter().try_for_each(|piece| stream.fill(self.behind(piece), GUARD_BYTE))?;
        stream.synchronize()
    }

    fn behind(&self, piece: &Piece) -> Region {
        let pointer = self.memory.region().pointer.offset(piece.offset + piece.bytes);
        Region { pointer, bytes: self.guard }
    }

    fn at(&self, piece: &Piece) -> Region {
        Region { pointer: self.memory.region().pointer.offset(piece.offset), bytes: piece.bytes }
    }
}
