//! The entries that a backend may lack: pages, media, taps, traces. A Rust backend's table has them all; what the trait
//! does not implement answers Unsupported.

use std::ffi::c_void;

use super::entries::{elements, place, refuse};
use super::guard::on_instance;
use super::slots::room;
use crate::crossing::{Element, fill_bytes, read_span, read_struct, write_struct};
use crate::types::{EncodeArgs, EncodeResult, Region, RegionArgs, Span, TapArgs, Text};

pub(super) unsafe extern "C" fn copy_pages(handle: *mut c_void, copies: *const Span, err: *mut Text) -> i32 {
    // SAFETY: whole body, the host keeps the rules of the header; what can be checked is checked.
    unsafe {
        on_instance("copy_pages", handle, err, |state| {
            let copies = elements(copies, "page copies")?;
            state.backend.copy_pages(&copies)
        })
    }
}

pub(super) unsafe extern "C" fn read_pages(
    handle: *mut c_void,
    pages: *const Span,
    out: *mut Text,
    err: *mut Text,
) -> i32 {
    // SAFETY: whole body, the host keeps the rules of the header; what can be checked is checked.
    unsafe {
        on_instance("read_pages", handle, err, |state| {
            let pages = elements(pages, "pages")?;
            let out = place(out, "the room for the bytes")?;
            let mut bytes = Vec::new();
            state.backend.read_pages(&pages, &mut bytes)?;
            fill_bytes(out, &bytes);
            Ok(())
        })
    }
}

pub(super) unsafe extern "C" fn write_pages(
    handle: *mut c_void,
    pages: *const Span,
    bytes: *const Span,
    err: *mut Text,
) -> i32 {
    // SAFETY: whole body, the host keeps the rules of the header; what can be checked is checked.
    unsafe {
        on_instance("write_pages", handle, err, |state| {
            let (pages, bytes) = (elements(pages, "pages")?, elements(bytes, "page bytes")?);
            state.backend.write_pages(&pages, &bytes)
        })
    }
}

pub(super) unsafe extern "C" fn regions(handle: *mut c_void, out: *mut RegionArgs, err: *mut Text) -> i32 {
    // SAFETY: whole body, the host keeps the rules of the header; what can be checked is checked.
    unsafe {
        on_instance("regions", handle, err, |state| {
            let mut args = read_struct(out)?;
            if args.capacity > 0 && args.data.is_null() {
                return refuse(format!("regions is null but has room for {}", args.capacity));
            }
            if args.capacity > 0 && args.stride < Region::MINIMUM_BYTES as u64 {
                let (stride, least) = (args.stride, Region::MINIMUM_BYTES);
                return refuse(format!("regions says stride {stride}; m3_region has at least {least} bytes"));
            }
            let found = state.backend.regions()?;
            args.count = found.len() as u64;
            let stride = args.stride as usize;
            for (index, region) in found.iter().enumerate().take(args.capacity as usize) {
                let to = args.data.cast::<u8>().add(index * stride);
                let known = stride.min(size_of::<Region>());
                std::ptr::copy_nonoverlapping(std::ptr::from_ref(region).cast::<u8>(), to, known);
            }
            write_struct(out, &args);
            Ok(())
        })
    }
}

pub(super) unsafe extern "C" fn encode(
    handle: *mut c_void,
    args: *const EncodeArgs,
    out: *mut EncodeResult,
    err: *mut Text,
) -> i32 {
    // SAFETY: whole body, the host keeps the rules of the header; what can be checked is checked.
    unsafe {
        on_instance("encode", handle, err, |state| {
            let (args, mut result) = (read_struct(args)?, read_struct(out)?);
            // One patch is `row_len` values: the span's elements are the values.
            let patches = read_span::<f32>(args.patches, "patches")?;
            let grids = read_span::<[u32; 3]>(args.grids, "grids")?;
            let row_len = args.row_len as usize;
            if row_len == 0 || patches.len() % row_len != 0 {
                return refuse(format!("{} patch values are not rows of {row_len}", patches.len()));
            }
            let media = state.backend.encode(&patches, row_len, &grids)?;
            result.num_rows = media.num_rows;
            result.handle = media.handle;
            result.ticket = media.ticket.0;
            result.bytes = media.bytes;
            write_struct(out, &result);
            Ok(())
        })
    }
}

pub(super) unsafe extern "C" fn media_free(handle: *mut c_void, media: u64, err: *mut Text) -> i32 {
    // SAFETY: the host keeps the rules of the header.
    unsafe { on_instance("media_free", handle, err, |state| state.backend.media_free(media)) }
}

pub(super) unsafe extern "C" fn tap(handle: *mut c_void, out: *mut TapArgs, err: *mut Text) -> i32 {
    // SAFETY: whole body, the host keeps the rules of the header; what can be checked is checked.
    unsafe {
        on_instance("tap", handle, err, |state| {
            let mut args = read_struct(out)?;
            let name = read_span::<u8>(args.name, "tap name")?;
            let tap = state.backend.tap(&String::from_utf8_lossy(&name))?;
            let (dims, most) = (tap.shape.len(), args.shape.len());
            if dims > most {
                return refuse(format!("tap has {dims} dimensions; at most {most} cross"));
            }
            args.num_dims = dims as u32;
            args.shape = [0; 5];
            args.shape[..dims].copy_from_slice(&tap.shape);
            if args.capacity >= tap.data.len() as u64 {
                room(args.data, tap.data.len(), "tap data")?.copy_from_slice(&tap.data);
            }
            write_struct(out, &args);
            Ok(())
        })
    }
}

pub(super) unsafe extern "C" fn trace(handle: *mut c_void, begin: u32, err: *mut Text) -> i32 {
    // SAFETY: the host keeps the rules of the header.
    unsafe { on_instance("trace", handle, err, |state| state.backend.trace(begin != 0)) }
}
