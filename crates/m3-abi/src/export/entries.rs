//! The mandatory entries that make or take an instance, each: check what came, call the backend, write what fits.

use std::borrow::Cow;
use std::ffi::c_void;

use super::guard::{Instance, guard, missing, on_instance};
use super::slots::Slots;
use super::{Exported, driver};
use crate::backend::{Error, OpenRequest, Result, Step, TensorView, Ticket};
use crate::crossing::{Element, read_span, read_struct, write_struct};
use crate::types::{OpenArgs, OutputArgs, Ready, ReserveArgs, Span, StepArgs, Tensor, Text};

pub(super) fn refuse<T>(sentence: String) -> Result<T> {
    Err(Error::Unsupported(sentence))
}

/// # Safety
/// `pointer` is null or writable.
pub(super) unsafe fn place<'a, T>(pointer: *mut T, what: &str) -> Result<&'a mut T> {
    // SAFETY: promised by the caller.
    unsafe { pointer.as_mut() }.ok_or_else(|| missing(what))
}

/// # Safety
/// `span` is null or a readable span for the duration of the call.
pub(super) unsafe fn elements<'a, T: Element>(span: *const Span, what: &str) -> Result<Cow<'a, [T]>> {
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
