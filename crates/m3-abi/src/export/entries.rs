//! The entries that take an instance, each: check what came, call the backend, write what fits.

use std::borrow::Cow;
use std::ffi::c_void;

use super::guard::{Instance, guard, missing, on_instance};
use super::{Exported, driver};
use crate::backend::{Error, OpenRequest, Output, Result, Step, TensorView, Ticket};
use crate::crossing::{Element, fill_bytes, read_span, read_struct, write_struct};
use crate::types::{
    EncodeArgs, EncodeResult, OpenArgs, OutputArgs, Ready, Region, RegionArgs, ReserveArgs, Span, StepArgs,
    TapArgs, Tensor, Text,
};

fn refuse<T>(sentence: String) -> Result<T> {
    Err(Error::Unsupported(sentence))
}

/// # Safety
/// `pointer` is null or writable.
unsafe fn place<'a, T>(pointer: *mut T, what: &str) -> Result<&'a mut T> {
    // SAFETY: promised by the caller.
    unsafe { pointer.as_mut() }.ok_or_else(|| missing(what))
}

/// # Safety
/// `span` is null or a readable span for the duration of the call.
unsafe fn elements<'a, T: Element>(span: *const Span, what: &str) -> Result<Cow<'a, [T]>> {
    // SAFETY: promised by the caller.
    unsafe { read_span(*span.as_ref().ok_or_else(|| missing(what))?, what) }
}

pub(super) unsafe extern "C" fn open<E: Exported>(
    args: *const OpenArgs,
    out: *mut *mut c_void,
    err: *mut Text,
) -> i32 {
    let body = || {
        // SAFETY: the host gives a struct and a place that are what they say.
        let (args, out) = unsafe { (read_struct(args)?, place(out, "the place for the instance")?) };
        *out = std::ptr::null_mut();
        // SAFETY: the host gives spans that are as long as they say, for this call.
        let request = unsafe { open_request(&args) }?;
        let backend = driver::<E>().open(&request)?;
        *out = Box::into_raw(Box::new(Instance::new(backend))).cast();
        Ok(())
    };
    // SAFETY: `err` is null or writable, promised by the host.
    unsafe { guard("open", err, body) }
}

/// # Safety
/// The spans of `args` are readable.
unsafe fn open_request(args: &OpenArgs) -> Result<OpenRequest> {
    Ok(OpenRequest {
        flags: args.flags,
        rank: args.rank,
        tp: args.tp,
        ep: args.ep,
        dp: args.dp,
        node: args.node,
        device: args.device,
        dtype: args.dtype,
        kv_dtype: args.kv_dtype,
        max_rows: args.max_rows,
        max_step_tokens: args.max_step_tokens,
        max_context: args.max_context,
        page_tokens: args.page_tokens,
        max_logprobs: args.max_logprobs,
        num_threads: args.num_threads,
        page_memory_bytes: args.page_memory_bytes,
        collective_timeout_ms: args.collective_timeout_ms,
        // SAFETY: promised by the caller.
        config: unsafe { read_span(args.config, "config") }?.into_owned(),
        // SAFETY: promised by the caller.
        comm_id: unsafe { read_span(args.comm_id, "comm_id") }?.into_owned(),
    })
}

pub(super) unsafe extern "C" fn load(handle: *mut c_void, tensor: *const Tensor, err: *mut Text) -> i32 {
    // SAFETY: whole body, the host keeps the rules of the header; what can be checked is checked.
    unsafe {
        on_instance("load", handle, err, |state| {
            let tensor = read_struct(tensor)?;
            let num_dims = tensor.num_dims as usize;
            if num_dims > tensor.shape.len() {
                return refuse(format!(
                    "m3_tensor says {num_dims} dimensions; at most {} exist",
                    tensor.shape.len()
                ));
            }
            let name = read_span::<u8>(tensor.name, "tensor name")?;
            let name = std::str::from_utf8(&name)
                .map_err(|_| Error::Unsupported("a tensor name is not utf-8".to_owned()))?;
            state.backend.load(&TensorView {
                name,
                format: tensor.format,
                shape: &tensor.shape[..num_dims],
                strides: &tensor.strides[..num_dims],
                data: tensor.data,
                scale: tensor.scale,
                scale_stride: tensor.scale_stride,
                group_offset: tensor.group_offset,
                seed: tensor.seed,
            })
        })
    }
}

pub(super) unsafe extern "C" fn ready(handle: *mut c_void, out: *mut Ready, err: *mut Text) -> i32 {
    // SAFETY: whole body, as in `load`.
    unsafe {
        on_instance("ready", handle, err, |state| {
            let theirs = read_struct(out)?;
            let ready = state.backend.ready()?;
            write_struct(out, &Ready { size: theirs.size, ..ready });
            Ok(())
        })
    }
}

pub(super) unsafe extern "C" fn reserve(
    handle: *mut c_void,
    args: *const ReserveArgs,
    err: *mut Text,
) -> i32 {
    // SAFETY: whole body, as in `load`.
    unsafe {
        on_instance("reserve", handle, err, |state| {
            let args = read_struct(args)?;
            state.backend.reserve(args.num_pages)
        })
    }
}

pub(super) unsafe extern "C" fn warm(handle: *mut c_void, shapes: *const Span, err: *mut Text) -> i32 {
    // SAFETY: whole body, as in `load`.
    unsafe {
        on_instance("warm", handle, err, |state| {
            let shapes = elements(shapes, "warm shapes")?;
            state.backend.warm(&shapes)
        })
    }
}

pub(super) unsafe extern "C" fn submit(
    handle: *mut c_void,
    args: *const StepArgs,
    ticket: *mut u64,
    err: *mut Text,
) -> i32 {
    // SAFETY: whole body, as in `load`.
    unsafe {
        on_instance("submit", handle, err, |state| {
            let args = read_struct(args)?;
            let ticket = place(ticket, "the place for the ticket")?;
            let step = Step {
                id: args.id,
                releases: &read_span(args.releases, "releases")?,
                binds: &read_span(args.binds, "binds")?,
                pages: &read_span(args.pages, "pages")?,
                page_ids: &read_span(args.page_ids, "page_ids")?,
                seqs: &read_span(args.seqs, "seqs")?,
                tokens: &read_span(args.tokens, "tokens")?,
                targets: &read_span(args.targets, "targets")?,
                masks: &read_span(args.masks, "masks")?,
                history: &read_span(args.history, "history")?,
                biases: &read_span(args.biases, "biases")?,
                media: &read_span(args.media, "media")?,
            };
            *ticket = state.backend.submit(&step)?.0;
            Ok(())
        })
    }
}

/// # Safety
/// `pointer` is null or holds `count` values.
unsafe fn room<'a, T>(pointer: *mut T, count: usize, what: &str) -> Result<&'a mut [T]> {
    if count == 0 {
        return Ok(&mut []);
    }
    if pointer.is_null() {
        return refuse(format!("{what} is null but has room for {count} values"));
    }
    // SAFETY: promised by the caller.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer, count) })
}

/// The caller's arrays of an [`OutputArgs`].
struct Slots<'a> {
    tokens: &'a mut [u32],
    logprobs: &'a mut [f32],
    faults: &'a mut [u32],
    ranks: &'a mut [u32],
    top_ids: &'a mut [u32],
    top_logprobs: &'a mut [f32],
}

impl Slots<'_> {
    /// # Safety
    /// The pointers of `args` are null or have the room that `args` says.
    unsafe fn of(args: &OutputArgs) -> Result<Self> {
        let count = args.capacity as usize;
        let Some(top) = count.checked_mul(args.top_capacity as usize) else {
            return refuse(format!(
                "m3_output_args says {} alternatives for {count} slots",
                args.top_capacity
            ));
        };
        // SAFETY: promised by the caller.
        unsafe {
            Ok(Slots {
                tokens: room(args.tokens, count, "tokens")?,
                logprobs: room(args.logprobs, count, "logprobs")?,
                faults: room(args.faults, count, "faults")?,
                ranks: room(args.ranks, count, "ranks")?,
                top_ids: room(args.top_ids, top, "top_ids")?,
                top_logprobs: room(args.top_logprobs, top, "top_logprobs")?,
            })
        }
    }

    /// What the caller has, so that a rank other than 0 can leave it alone.
    fn read(&self, output: &mut Output, top_capacity: usize) {
        fn take<T: Copy>(to: &mut Vec<T>, from: &[T]) {
            to.clear();
            to.extend_from_slice(from);
        }
        take(&mut output.tokens, self.tokens);
        take(&mut output.logprobs, self.logprobs);
        take(&mut output.faults, self.faults);
        take(&mut output.ranks, self.ranks);
        take(&mut output.top_ids, self.top_ids);
        take(&mut output.top_logprobs, self.top_logprobs);
        output.top_capacity = top_capacity;
        output.device_time_us = 0;
    }

    fn write(&mut self, output: &Output) -> Result<()> {
        fn give<T: Copy>(to: &mut [T], from: &[T], what: &str) -> Result<()> {
            if from.len() != to.len() {
                let (has, room) = (from.len(), to.len());
                return Err(Error::Fatal(format!(
                    "the backend made {has} {what} where the host has room for {room}"
                )));
            }
            to.copy_from_slice(from);
            Ok(())
        }
        give(self.tokens, &output.tokens, "tokens")?;
        give(self.logprobs, &output.logprobs, "logprobs")?;
        give(self.faults, &output.faults, "faults")?;
        give(self.ranks, &output.ranks, "ranks")?;
        give(self.top_ids, &output.top_ids, "top_ids")?;
        give(self.top_logprobs, &output.top_logprobs, "top_logprobs")
    }
}

pub(super) unsafe extern "C" fn wait(
    handle: *mut c_void,
    ticket: u64,
    out: *mut OutputArgs,
    err: *mut Text,
) -> i32 {
    // SAFETY: whole body, as in `load`.
    unsafe {
        on_instance("wait", handle, err, |state| {
            let mut args = read_struct(out)?;
            let mut slots = Slots::of(&args)?;
            slots.read(&mut state.output, args.top_capacity as usize);
            state.backend.wait(Ticket(ticket), &mut state.output)?;
            slots.write(&state.output)?;
            args.device_time_us = state.output.device_time_us;
            write_struct(out, &args);
            Ok(())
        })
    }
}

pub(super) unsafe extern "C" fn done(handle: *mut c_void, ticket: *mut u64, err: *mut Text) -> i32 {
    // SAFETY: whole body, as in `load`.
    unsafe {
        on_instance("done", handle, err, |state| {
            *place(ticket, "the place for the ticket")? = state.backend.done()?.0;
            Ok(())
        })
    }
}

pub(super) unsafe extern "C" fn close(handle: *mut c_void, err: *mut Text) -> i32 {
    let body = || {
        if handle.is_null() {
            return Err(missing("the instance"));
        }
        // SAFETY: `open` made it with `Box::into_raw` and the host closes it once.
        drop(unsafe { Box::from_raw(handle.cast::<Instance>()) });
        Ok(())
    };
    // SAFETY: `err` is null or writable, promised by the host.
    unsafe { guard("close", err, body) }
}

pub(super) unsafe extern "C" fn copy_pages(handle: *mut c_void, copies: *const Span, err: *mut Text) -> i32 {
    // SAFETY: whole body, as in `load`.
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
    // SAFETY: whole body, as in `load`.
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
    // SAFETY: whole body, as in `load`.
    unsafe {
        on_instance("write_pages", handle, err, |state| {
            let (pages, bytes) = (elements(pages, "pages")?, elements(bytes, "page bytes")?);
            state.backend.write_pages(&pages, &bytes)
        })
    }
}

pub(super) unsafe extern "C" fn regions(handle: *mut c_void, out: *mut RegionArgs, err: *mut Text) -> i32 {
    // SAFETY: whole body, as in `load`.
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
    // SAFETY: whole body, as in `load`.
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
    // SAFETY: as in `load`.
    unsafe { on_instance("media_free", handle, err, |state| state.backend.media_free(media)) }
}

pub(super) unsafe extern "C" fn tap(handle: *mut c_void, out: *mut TapArgs, err: *mut Text) -> i32 {
    // SAFETY: whole body, as in `load`.
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
    // SAFETY: as in `load`.
    unsafe { on_instance("trace", handle, err, |state| state.backend.trace(begin != 0)) }
}
