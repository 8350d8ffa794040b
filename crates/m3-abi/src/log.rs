//! One line of log from a backend to whoever started it, across the plugin line.
//!
//! A plugin file has its own copy of this module: its sink is the callback in [`Host`]. In the host the sink is what
//! the server set. Not a logging framework: the server forwards the lines to its own.

use std::sync::OnceLock;

use crate::types::Host;

pub const ERROR: u32 = 1;
pub const WARN: u32 = 2;
pub const INFO: u32 = 3;
pub const DEBUG: u32 = 4;

type Callback = unsafe extern "C" fn(level: u32, text: *const u8, len: u64);

static SINK: OnceLock<fn(u32, &str)> = OnceLock::new();
static HOST: OnceLock<Callback> = OnceLock::new();

/// Where the lines go in this process; only the first call counts. Call before the first plugin is opened.
pub fn set_sink(sink: fn(level: u32, text: &str)) {
    let _ = SINK.set(sink);
}

/// Says a line: to the sink of this process, else to the host that queried this plugin, else to nobody.
pub fn say(level: u32, text: &str) {
    if let Some(sink) = SINK.get() {
        sink(level, text);
    } else if let Some(callback) = HOST.get() {
        // SAFETY: the host promised a callback that any thread may call until the process ends.
        unsafe { callback(level, text.as_ptr(), text.len() as u64) };
    }
}

/// Keeps the callback of the first host that queried this library; its own callback is not kept (it would loop).
pub(crate) fn attach(host: &Host) {
    if let Some(callback) = host.log
        && !std::ptr::fn_addr_eq(callback, receive as Callback)
    {
        let _ = HOST.set(callback);
    }
}

/// The callback that this process gives to plugins.
pub(crate) unsafe extern "C" fn receive(level: u32, text: *const u8, len: u64) {
    let (Some(sink), Ok(len)) = (SINK.get(), usize::try_from(len)) else { return };
    if text.is_null() {
        return;
    }
    // SAFETY: the plugin gives `len` readable bytes for the duration of this call.
    let bytes = unsafe { std::slice::from_raw_parts(text, len) };
    let line = String::from_utf8_lossy(bytes);
    // A panic must not unwind into the plugin's frames.
    let _ = std::panic::catch_unwind(|| sink(level, &line));
}
