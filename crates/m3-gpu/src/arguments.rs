//! The arguments of one launch: checked against the kernel's contract one by one, then laid out as the driver reads
//! them.
//!
//! Values live in fixed arrays, so a launch allocates nothing.

use std::ffi::c_void;

use crate::launch::{DevicePointer, LaunchError, MapElement, TensorMap};

/// Most parameters of a kernel, trailing pointers and the five of each matrix included.
pub const MOST_PLACES: usize = 64;
/// Most matrix arguments of a kernel.
pub const MOST_MATRICES: usize = 4;

/// A row-major matrix on the device that a kernel reads or writes through the copy engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    pub base: DevicePointer,
    pub rows: i32,
    pub columns: i32,
    /// From one row to the next, in elements.
    pub row_stride: i64,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Value(usize),
    Map(usize),
}

/// The arguments of one launch, in order.
#[derive(Clone, Debug)]
pub struct ArgumentList {
    kernel: &'static str,
    values: [u64; MOST_PLACES],
    places: [Place; MOST_PLACES],
    num_places: usize,
    /// A letter per argument, see [`ArgumentList::layout`].
    layout: [u8; MOST_PLACES],
    num_arguments: usize,
    matrices: [Option<(Matrix, MapElement)>; MOST_MATRICES],
    maps: [TensorMap; MOST_MATRICES],
}

impl ArgumentList {
    pub fn new(kernel: &'static str) -> Self {
        ArgumentList {
            kernel,
            values: [0; MOST_PLACES],
            places: [Place::Value(0); MOST_PLACES],
            num_places: 0,
            layout: [0; MOST_PLACES],
            num_arguments: 0,
            matrices: [None; MOST_MATRICES],
            maps: [TensorMap([0; 16]); MOST_MATRICES],
        }
    }

    pub fn kernel(&self) -> &'static str {
        self.kernel
    }

    /// What was given, a letter each: `p` pointer, `i` i32, `u` u32, `l` i64, `q` u64, `f` f32, `m` matrix.
    pub fn layout(&self) -> &[u8] {
        &self.layout[..self.num_arguments]
    }

    /// An address that is not null and divides by `multiple`.
    pub fn pointer(
        &mut self,
        name: &'static str,
        value: DevicePointer,
        multiple: u64,
    ) -> Result<(), LaunchError> {
        if value == DevicePointer::NULL {
            return Err(LaunchError::Null { kernel: self.kernel, argument: name });
        }
        self.nullable_pointer(name, value, multiple)
    }

    /// An address that divides by `multiple`, or null.
    pub fn nullable_pointer(
        &mut self,
        name: &'static str,
        value: DevicePointer,
        multiple: u64,
    ) -> Result<(), LaunchError> {
        self.divides(name, i128::from(value.0), multiple)?;
        self.argument(b'p', value.0.to_ne_bytes())
    }

    pub fn i32(&mut self, name: &'static str, value: i32, multiple: u64) -> Result<(), LaunchError> {
        self.divides(name, i128::from(value), multiple)?;
        self.argument(b'i', first_bytes(value.to_ne_bytes()))
    }

    pub fn u32(&mut self, name: &'static str, value: u32, multiple: u64) -> Result<(), LaunchError> {
        self.divides(name, i128::from(value), multiple)?;
        self.argument(b'u', first_bytes(value.to_ne_bytes()))
    }

    pub fn i64(&mut self, name: &'static str, value: i64, multiple: u64) -> Result<(), LaunchError> {
        self.divides(name, i128::from(value), multiple)?;
        self.argument(b'l', value.to_ne_bytes())
    }

    pub fn u64(&mut self, name: &'static str, value: u64, multiple: u64) -> Result<(), LaunchError> {
        self.divides(name, i128::from(value), multiple)?;
        self.argument(b'q', value.to_ne_bytes())
    }

    pub fn f32(&mut self, value: f32) -> Result<(), LaunchError> {
        self.argument(b'f', first_bytes(value.to_ne_bytes()))
    }

    /// A matrix: its map, rows, columns, and both strides. The copy engine wants base and rows on 16 bytes.
    pub fn matrix(
        &mut self,
        name: &'static str,
        value: Matrix,
        element: MapElement,
    ) -> Result<(), LaunchError> {
        if value.base == DevicePointer::NULL {
            return Err(LaunchError::Null { kernel: self.kernel, argument: name });
        }
        self.divides(name, i128::from(value.base.0), 16)?;
        self.divides(name, i128::from(value.row_stride), 16 / element.bytes())?;
        if value.rows < 1 || value.columns < 1 || value.row_stride < i64::from(value.columns) {
            let sentence = format!(
                "argument {name} is {} x {} with a row stride of {}; all are positive and rows do not overlap",
                value.rows, value.columns, value.row_stride
            );
            return Err(LaunchError::Pack { kernel: self.kernel.to_owned(), sentence });
        }
        let free = self.matrices.iter().position(Option::is_none).ok_or_else(|| self.too_many())?;
        self.matrices[free] = Some((value, element));
        self.place(Place::Map(free))?;
        self.note(b'm');
        self.value(first_bytes(value.rows.to_ne_bytes()))?;
        self.value(first_bytes(value.columns.to_ne_bytes()))?;
        self.value(value.row_stride.to_ne_bytes())?;
        self.value(1_i64.to_ne_bytes())
    }

    /// A null pointer that the compiler added to the kernel's parameters.
    pub fn trailing_pointer(&mut self) -> Result<(), LaunchError> {
        self.value([0; 8])
    }

    /// The matrices, in order, for whoever encodes their maps.
    pub fn matrices(&self) -> impl Iterator<Item = (Matrix, MapElement)> + '_ {
        self.matrices.iter().map_while(|matrix| *matrix)
    }

    pub fn set_map(&mut self, index: usize, map: TensorMap) {
        self.maps[index] = map;
    }

    /// Calls `launch` with a pointer to each argument's value.
    pub fn with_pointers<T>(&mut self, launch: impl FnOnce(&mut [*mut c_void]) -> T) -> T {
        let mut pointers = [std::ptr::null_mut::<c_void>(); MOST_PLACES];
        for (pointer, place) in pointers.iter_mut().zip(&self.places[..self.num_places]) {
            *pointer = match *place {
                Place::Value(index) => (&raw mut self.values[index]).cast(),
                Place::Map(index) => (&raw mut self.maps[index]).cast(),
            };
        }
        launch(&mut pointers[..self.num_places])
    }

    fn divides(&self, name: &'static str, value: i128, multiple: u64) -> Result<(), LaunchError> {
        if value % i128::from(multiple.max(1)) == 0 {
            return Ok(());
        }
        Err(LaunchError::Multiple { kernel: self.kernel, argument: name, value, multiple })
    }

    fn argument(&mut self, letter: u8, bytes: [u8; 8]) -> Result<(), LaunchError> {
        self.value(bytes)?;
        self.note(letter);
        Ok(())
    }

    /// There are never more arguments than places, and a place was found before.
    fn note(&mut self, letter: u8) {
        self.layout[self.num_arguments] = letter;
        self.num_arguments += 1;
    }

    fn value(&mut self, bytes: [u8; 8]) -> Result<(), LaunchError> {
        let index = self.num_places;
        self.place(Place::Value(index))?;
        self.values[index] = u64::from_ne_bytes(bytes);
        Ok(())
    }

    fn place(&mut self, place: Place) -> Result<(), LaunchError> {
        let free = self.num_places;
        if free == MOST_PLACES {
            return Err(self.too_many());
        }
        self.places[free] = place;
        self.num_places += 1;
        Ok(())
    }

    fn too_many(&self) -> LaunchError {
        LaunchError::Pack {
            kernel: self.kernel.to_owned(),
            sentence: format!("more than {MOST_PLACES} parameters or {MOST_MATRICES} matrices"),
        }
    }
}

/// A 4-byte value at the address of an 8-byte place.
fn first_bytes(bytes: [u8; 4]) -> [u8; 8] {
    let mut whole = [0; 8];
    whole[..4].copy_from_slice(&bytes);
    whole
}
