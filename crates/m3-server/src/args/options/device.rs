//! Which device computes, how the model is laid over it, and the limits of the engine on top.

use std::path::PathBuf;

use m3_abi::types::{DTYPE_BF16, DTYPE_F32, DTYPE_FP8_E4M3};

use super::values::{bad, conflict, count, optional};
use crate::args::numbers::parse_bytes;
use crate::args::{ArgError, Parsed};

/// Which device and how the model is laid over it.
#[derive(Clone, Debug)]
pub struct BackendOptions {
    /// `auto`, a name or a path.
    pub backend: String,
    pub dir: Option<PathBuf>,
    /// 0 = the checkpoint's.
    pub dtype: u32,
    /// 0 = as `dtype`.
    pub kv_dtype: u32,
    pub tp: u32,
    pub ep: u32,
    /// Only this rank is loaded (measurements).
    pub solo: Option<u32>,
    pub threads: u32,
    /// 0 = the backend decides.
    pub page_memory_bytes: u64,
    /// Share of a device's memory for weights and pages; `None` = not said.
    pub memory_share: Option<f64>,
}

/// Limits of the engine. `None` = decided at load.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    pub context: Option<usize>,
    pub max_running: Option<usize>,
    pub max_queued: usize,
    pub max_step_tokens: Option<usize>,
    pub page_tokens: Option<usize>,
    pub prefix_cache: bool,
    /// Device bytes for encoded images and videos.
    pub media_cache_bytes: Option<u64>,
}

impl BackendOptions {
    /// Also for `m3 backends`, which only looks at `backend` and `dir`.
    pub fn read(parsed: &Parsed) -> Result<Self, ArgError> {
        let tp = count(parsed, "tp", 1, 1024)?.unwrap_or(1) as u32;
        let ep = count(parsed, "ep", 1, 1024)?.map(|ep| ep as u32);
        if let Some(ep) = ep.filter(|ep| *ep != tp && parsed.has("enable-expert-parallel")) {
            let reason = "the switch means as many expert-parallel groups as --tp";
            return Err(conflict("--enable-expert-parallel", &format!("--ep {ep}"), reason));
        }
        let ep = ep.unwrap_or(if parsed.has("enable-expert-parallel") { tp } else { 1 });
        if !tp.is_multiple_of(ep) {
            return Err(bad("ep", &ep.to_string(), &format!("a divisor of --tp, which is {tp}")));
        }
        Ok(BackendOptions {
            backend: parsed.value("backend").unwrap_or("auto").to_owned(),
            dir: parsed.value("backend-dir").map(PathBuf::from),
            dtype: dtype(parsed, "dtype")?,
            kv_dtype: dtype(parsed, "kv-cache-dtype")?,
            tp,
            ep,
            solo: count(parsed, "solo-rank", 0, u64::from(tp) - 1)?.map(|rank| rank as u32),
            threads: count(parsed, "threads", 0, 4096)?.unwrap_or(0) as u32,
            page_memory_bytes: bytes(parsed, "kv-cache-memory-bytes")?.unwrap_or(0),
            memory_share: share(parsed)?,
        })
    }
}

impl EngineOptions {
    pub(super) fn read(parsed: &Parsed) -> Result<Self, ArgError> {
        const MOST: u64 = 1 << 31;
        let size =
            |name, least, most| count(parsed, name, least, most).map(|size| size.map(|size| size as usize));
        Ok(EngineOptions {
            context: size("context-length", 1, MOST)?,
            max_running: size("max-running-requests", 1, 65_536)?,
            max_queued: size("max-queued-requests", 0, MOST)?.unwrap_or(1024),
            max_step_tokens: size("chunked-prefill-size", 1, 1 << 24)?,
            page_tokens: size("page-size", 1, 1 << 16)?,
            prefix_cache: prefix_cache(parsed)?,
            media_cache_bytes: bytes(parsed, "media-cache-bytes")?,
        })
    }
}

fn bytes(parsed: &Parsed, name: &str) -> Result<Option<u64>, ArgError> {
    let read = |text: &str| parse_bytes(text).ok_or_else(|| bad(name, text, "bytes, such as 4G or 512M"));
    parsed.value(name).map(read).transpose()
}

fn prefix_cache(parsed: &Parsed) -> Result<bool, ArgError> {
    let (on, off) = ("enable-prefix-caching", "disable-radix-cache");
    match (parsed.has(on) || parsed.off.contains(off), parsed.has(off) || parsed.off.contains(on)) {
        (true, true) => {
            let typed = |name: &str| format!("--{name}{}", if parsed.has(name) { "" } else { "=false" });
            Err(conflict(&typed(off), &typed(on), "one turns the prefix cache off, the other on"))
        }
        (_, off) => Ok(!off),
    }
}

fn share(parsed: &Parsed) -> Result<Option<f64>, ArgError> {
    const EXPECTED: &str = "a number above 0, up to 1";
    let share: Option<f64> = optional(parsed, "mem-fraction-static", EXPECTED)?;
    match share {
        Some(share) if !(share > 0.0 && share <= 1.0) => {
            Err(bad("mem-fraction-static", &share.to_string(), EXPECTED))
        }
        Some(_) if parsed.has("kv-cache-memory-bytes") => Err(conflict(
            "--mem-fraction-static",
            "--kv-cache-memory-bytes",
            "each decides how much memory the pages get",
        )),
        share => Ok(share),
    }
}

fn dtype(parsed: &Parsed, name: &str) -> Result<u32, ArgError> {
    let Some(text) = parsed.value(name) else { return Ok(0) };
    let fp8 = name == "kv-cache-dtype";
    match text {
        "auto" => Ok(0),
        "bfloat16" | "bf16" => Ok(DTYPE_BF16),
        "float32" | "float" | "f32" => Ok(DTYPE_F32),
        "fp8" | "fp8_e4m3" if fp8 => Ok(DTYPE_FP8_E4M3),
        _ if fp8 => Err(bad(name, text, "auto, bfloat16, float32 or fp8")),
        _ => Err(bad(name, text, "auto, bfloat16 or float32")),
    }
}
