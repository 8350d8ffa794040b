//! Reading and writing the structs, arrays and texts that the other side of the line owns.
//!
//! This is where the growth rules of [`crate::types`] are kept: a struct is copied as far as both sides know it, the
//! rest reads as zero; an array of another stride is copied element by element; nothing is written past what the
//! other side says it has. Used by both sides, so host and plugin cannot disagree about a rule.

use core::mem::{align_of, size_of};
use std::borrow::Cow;

use crate::backend::{Error, Result};
use crate::table::Table;
use crate::types::*;

/// More than this is taken for a lie: no struct here is a tenth as long.
pub const LARGEST_STRUCT_BYTES: usize = 4096;

/// A struct that crosses by pointer and opens with `u32 size`.
///
/// # Safety
/// `#[repr(C)]`, first field `u32 size`, valid when all its bytes are zero.
pub unsafe trait Struct: Copy {
    /// Its name in `m3_backend.h`.
    const NAME: &'static str;
    /// Its `size` at minor 0 of this major; never changes while the major stands.
    const MINIMUM_BYTES: usize;
}

/// An element of a [`Span`].
///
/// # Safety
/// `#[repr(C)]`, no padding, valid for any bytes.
pub unsafe trait Element: Copy {
    const NAME: &'static str;
    /// Its stride at minor 0 of this major.
    const MINIMUM_BYTES: usize;
}

macro_rules! minimums {
    ($trait:ident: $($type:ty = $name:literal, $bytes:literal;)+) => {
        $(
            // SAFETY: declared `#[repr(C)]` in `types` or `table` without padding; plain integers, floats and nullable pointers.
            unsafe impl $trait for $type {
                const NAME: &'static str = $name;
                const MINIMUM_BYTES: usize = $bytes;
            }
        )+
    };
}

minimums! { Struct:
    Host = "m3_host", 24;
    Table = "m3_table", 120;
    ProbeArgs = "m3_probe_args", 40;
    Probe = "m3_probe", 120;
    OpenArgs = "m3_open_args", 128;
    Tensor = "m3_tensor", 152;
    Ready = "m3_ready", 40;
    ReserveArgs = "m3_reserve_args", 16;
    StepArgs = "m3_step_args", 280;
    OutputArgs = "m3_output_args", 72;
    EncodeArgs = "m3_encode_args", 64;
    EncodeResult = "m3_encode_result", 32;
    TapArgs = "m3_tap_args", 88;
    RegionArgs = "m3_region_args", 40;
}

minimums! { Element:
    u8 = "uint8_t", 1;
    u32 = "uint32_t", 4;
    f32 = "float", 4;
    [u32; 3] = "uint32_t[3]", 12;
    WarmShape = "m3_warm_shape", 16;
    RowBind = "m3_row_bind", 64;
    TokenBias = "m3_token_bias", 8;
    PageAppend = "m3_page_append", 16;
    Seq = "m3_seq", 40;
    MediaSpan = "m3_media_span", 24;
    Region = "m3_region", 56;
    PageCopy = "m3_page_copy", 8;
}

fn refuse<T>(sentence: String) -> Result<T> {
    Err(Error::Unsupported(sentence))
}

/// Checks a `size` field that the other side filled.
pub fn check_size<T: Struct>(size: u32) -> Result<()> {
    let (size, minimum) = (size as usize, T::MINIMUM_BYTES);
    if size < minimum {
        return refuse(format!("{} says size {size}; major {MAJOR} has at least {minimum} bytes", T::NAME));
    }
    if size > LARGEST_STRUCT_BYTES {
        return refuse(format!(
            "{} says size {size}; at most {LARGEST_STRUCT_BYTES} bytes are believed",
            T::NAME
        ));
    }
    if !size.is_multiple_of(align_of::<T>()) {
        return refuse(format!("{} says size {size}, not a multiple of {}", T::NAME, align_of::<T>()));
    }
    Ok(())
}

/// Copies a struct as far as both sides know it; fields that the other side does not have read as zero.
/// `size` stays what the other side said.
///
/// # Safety
/// `pointer` is null or points to as many readable bytes as its `size` says.
pub unsafe fn read_struct<T: Struct>(pointer: *const T) -> Result<T> {
    if pointer.is_null() {
        return refuse(format!("{} is null", T::NAME));
    }
    // SAFETY: not null, and every struct opens with `u32 size` (contract of `Struct`).
    let size = unsafe { pointer.cast::<u32>().read_unaligned() };
    check_size::<T>(size)?;
    let known = (size as usize).min(size_of::<T>());
    // SAFETY: `known` bytes are readable (caller) and writable (a local of that length); zero is valid (`Struct`).
    unsafe {
        let mut value: T = core::mem::zeroed();
        core::ptr::copy_nonoverlapping(pointer.cast::<u8>(), (&raw mut value).cast::<u8>(), known);
        Ok(value)
    }
}

/// Writes back a struct that [`read_struct`] read, as far as the other side has room; its `size` is not touched.
///
/// # Safety
/// `pointer` passed [`read_struct`] and is writable for as many bytes as its `size` says.
pub unsafe fn write_struct<T: Struct>(pointer: *mut T, value: &T) {
    // SAFETY: `read_struct` has read this field.
    let size = unsafe { pointer.cast::<u32>().read_unaligned() } as usize;
    let known = size.min(size_of::<T>());
    let skip = size_of::<u32>();
    // SAFETY: `known` bytes are writable (caller) and readable (`value`).
    unsafe {
        let from = core::ptr::from_ref(value).cast::<u8>().add(skip);
        core::ptr::copy_nonoverlapping(from, pointer.cast::<u8>().add(skip), known - skip);
    }
}

/// The elements of a span: borrowed when the strides agree, else copied as far as both sides know them.
///
/// # Safety
/// `data` is null or points to `count * stride` readable bytes that stay so for `'a`.
pub unsafe fn read_span<'a, T: Element>(span: Span, what: &str) -> Result<Cow<'a, [T]>> {
    if span.count == 0 {
        return Ok(Cow::Borrowed(&[]));
    }
    let Span { data, count, stride } = span;
    if data.is_null() {
        return refuse(format!("{what} is null but says {count} elements"));
    }
    if stride < T::MINIMUM_BYTES as u64 {
        let (name, least) = (T::NAME, T::MINIMUM_BYTES);
        return refuse(format!(
            "{what} says stride {stride}; {name} has at least {least} bytes in major {MAJOR}"
        ));
    }
    if count.checked_mul(stride).is_none_or(|bytes| bytes > isize::MAX as u64) {
        return refuse(format!("{what} says {count} elements of {stride} bytes, more than memory can hold"));
    }
    let (count, stride) = (count as usize, stride as usize);
    if stride == size_of::<T>() && data.cast::<T>().is_aligned() {
        // SAFETY: aligned, not null, readable for `'a` (caller), below `isize::MAX`, any bytes are valid (`Element`).
        return Ok(Cow::Borrowed(unsafe { core::slice::from_raw_parts(data.cast(), count) }));
    }
    let known = stride.min(size_of::<T>());
    let elements = (0..count).map(|index| {
        // SAFETY: element `index` lies inside the readable bytes; zero and any other bytes are valid (`Element`).
        unsafe {
            let mut element: T = core::mem::zeroed();
            let from = data.cast::<u8>().add(index * stride);
            core::ptr::copy_nonoverlapping(from, (&raw mut element).cast::<u8>(), known);
            element
        }
    });
    Ok(Cow::Owned(elements.collect()))
}

/// A span over our own memory.
pub fn span_of<T: Element>(slice: &[T]) -> Span {
    Span { data: slice.as_ptr().cast(), count: slice.len() as u64, stride: size_of::<T>() as u64 }
}

/// A text over our own memory, empty.
pub fn text_of(buffer: &mut [u8]) -> Text {
    Text { data: buffer.as_mut_ptr(), capacity: buffer.len() as u64, len: 0 }
}

/// Writes a text as far as it fits (never half a character of a sentence); `len` is set to the full length.
///
/// # Safety
/// `text.data` is null or writable for `text.capacity` bytes.
pub unsafe fn fill_text(text: &mut Text, sentence: &str) {
    text.len = sentence.len() as u64;
    if text.data.is_null() {
        return;
    }
    let mut fits = sentence.len().min(usize::try_from(text.capacity).unwrap_or(usize::MAX));
    while !sentence.is_char_boundary(fits) {
        fits -= 1;
    }
    // SAFETY: `fits` is at most `capacity`, which is writable (caller).
    unsafe { core::ptr::copy_nonoverlapping(sentence.as_ptr(), text.data, fits) };
}

/// Writes bytes only when all fit; `len` is set in any case, so that the caller can come back with more room.
///
/// # Safety
/// `text.data` is null or writable for `text.capacity` bytes.
pub unsafe fn fill_bytes(text: &mut Text, bytes: &[u8]) {
    text.len = bytes.len() as u64;
    if text.data.is_null() || text.len > text.capacity {
        return;
    }
    // SAFETY: `len` is at most `capacity`, which is writable (caller).
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), text.data, bytes.len()) };
}

/// What the other side wrote into `buffer`, fit to be shown: up to the first zero byte, without a character that the
/// end of the buffer cut, other control characters than line ends as spaces. A `len` beyond the buffer only means that
/// the text was cut.
pub fn text_in(buffer: &[u8], text: &Text) -> String {
    let written = usize::try_from(text.len).unwrap_or(usize::MAX).min(buffer.len());
    let bytes = buffer[..written].split(|byte| *byte == 0).next().unwrap_or_default();
    let whole = match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => &bytes[..error.valid_up_to()],
        _ => bytes,
    };
    let shown = |character: char| match character {
        '\n' => '\n',
        other if other.is_control() => ' ',
        other => other,
    };
    String::from_utf8_lossy(whole)
        .trim_matches(|c: char| c.is_whitespace() || c.is_control())
        .chars()
        .map(shown)
        .collect()
}

/// [`text_in`] on one line, as names and sentences are.
pub fn line_in(buffer: &[u8], text: &Text) -> String {
    text_in(buffer, text).replace('\n', " ")
}

#[cfg(test)]
mod tests;
