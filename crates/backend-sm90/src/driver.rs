//! The one driver of this crate: whether this machine and this plugin can serve a model, and instances that do.
//!
//! Everything that stands in the way is said at once, as sentences: no driver or an old one, another GPU, no kernels, a
//! shape that no kernel was compiled for.

use m3_abi::types::{
    DTYPE_BF16, FORMAT_BF16, FORMAT_F32, FORMAT_MXFP8, OPEN_SOLO, OPEN_TAPS, QUANT_WEIGHT_ONLY,
};
use m3_abi::{Backend, Driver, Error, OpenRequest, ProbeReport, ProbeRequest, Result};
use m3_gpu::cuda;
use m3_gpu::device::{Device, DeviceInfo};
use m3_gpu::kernels::{check, check_toolchain};
use m3_gpu::pack::Pack;
use m3_model::config::ModelConfig;
use m3_model::shard::ShardPlan;

use crate::backend::Sm90Backend;
use crate::dims::Dims;
use crate::kernels::{CONTRACTS, MoeUpBf16Variant, RouterChoose, SelectBlocksVariant, TARGET, TOOLCHAIN};

/// Any GPU goes before the CPU.
const SCORE: u32 = 100;
/// Hopper.
const CAPABILITY: (u32, u32) = (9, 0);

/// Opens ranks on this machine's Hopper GPUs.
#[derive(Clone, Copy, Debug)]
pub struct Sm90Driver {
    /// The kernel pack; no bytes when none was built in.
    pub pack: &'static [u8],
}

impl Sm90Driver {
    /// The kernels that were built in.
    fn pack(&self) -> Result<Pack<'static>> {
        let pack = Pack::read(self.pack, TARGET).map_err(unsupported)?;
        check_toolchain(&pack, TOOLCHAIN, TARGET).map_err(unsupported)?;
        check(&pack, CONTRACTS, TARGET).map_err(unsupported)?;
        Ok(pack)
    }
}

fn unsupported(reason: impl std::fmt::Display) -> Error {
    Error::Unsupported(reason.to_string())
}

/// Number of devices and what the given one is.
fn hopper(ordinal: u32) -> Result<(u32, Device)> {
    let count = cuda::device_count()?;
    let device = Device::cuda(ordinal)?;
    is_hopper(device.info())?;
    Ok((count, device))
}

fn is_hopper(info: &DeviceInfo) -> Result<()> {
    if info.capability == CAPABILITY {
        return Ok(());
    }
    let (name, arch) = (&info.name, &info.arch);
    Err(unsupported(format!(
        "device {} is {name} ({arch}); these kernels are for Hopper (sm_90)",
        info.ordinal
    )))
}

/// A model and its cut, or why not.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) config: ModelConfig,
    pub(crate) shards: ShardPlan,
}

impl Plan {
    pub(crate) fn new(config: &[u8], tp: u32, ep: u32) -> Result<Plan> {
        let config = ModelConfig::from_json(config).map_err(unsupported)?.config;
        let (tp, ep) = (tp.max(1) as usize, ep.max(1) as usize);
        let shards = ShardPlan::new(&config, tp, ep).map_err(unsupported)?;
        let plan = Plan { config, shards };
        refuse_sizes(&plan.dims(0)?)?;
        Ok(plan)
    }

    pub(crate) fn dims(&self, rank: usize) -> Result<Dims> {
        Ok(Dims::new(&self.config, self.shards.rank(rank).map_err(unsupported)?))
    }
}

/// What the kernels cannot do whatever they were compiled for.
fn refuse_sizes(dims: &Dims) -> Result<()> {
    let most_experts = RouterChoose::BLOCK_E as usize;
    let per_token = MoeUpBf16Variant::Decode16.top_k() as usize;
    let reasons = [
        (dims.index_dim != dims.head_dim).then(|| {
            format!(
                "index heads of {} dims beside heads of {}: they must be equal",
                dims.index_dim, dims.head_dim
            )
        }),
        (dims.num_experts > most_experts)
            .then(|| format!("{} experts: the router takes {most_experts}", dims.num_experts)),
        (dims.experts_per_token != per_token)
            .then(|| format!("{} experts per token: only {per_token} is built", dims.experts_per_token)),
    ];
    let reasons: Vec<String> = reasons.into_iter().flatten().collect();
    if reasons.is_empty() { Ok(()) } else { Err(unsupported(reasons.join("; "))) }
}

fn check_request(request: &OpenRequest, plan: &Plan) -> Result<()> {
    let limits = [
        ("max_rows", request.max_rows),
        ("max_step_tokens", request.max_step_tokens),
        ("max_context", request.max_context),
        ("page_tokens", request.page_tokens),
    ];
    if let Some((name, _)) = limits.into_iter().find(|(_, value)| *value == 0) {
        return Err(unsupported(format!("{name} is 0, at least 1 is needed")));
    }
    if request.dp > 1 || request.node > 0 {
        let (dp, node) = (request.dp, request.node);
        return Err(unsupported(format!(
            "dp {dp} on node {node}: the sm90 backend serves one replica on one node"
        )));
    }
    if request.flags & !(OPEN_SOLO | OPEN_TAPS) != 0 {
        return Err(unsupported(format!("unknown open flags {:#x}", request.flags)));
    }
    if plan.shards.tp > 1 && request.flags & OPEN_SOLO == 0 {
        return Err(unsupported(format!(
            "tp {}: collectives are not built for the sm90 backend yet; one GPU serves, or one rank alone for benchmarks",
            plan.shards.tp
        )));
    }
    for (name, dtype) in [("dtype", request.dtype), ("kv_dtype", request.kv_dtype)] {
        if dtype != DTYPE_BF16 {
            return Err(unsupported(format!("{name} bit {dtype}: the sm90 backend computes in bfloat16")));
        }
    }
    let (pages, most) =
        (request.max_context.div_ceil(request.page_tokens), SelectBlocksVariant::Few.widest());
    if pages > most {
        let context = request.max_context;
        return Err(unsupported(format!(
            "a context of {context} tokens has {pages} pages; the kernels take {most}"
        )));
    }
    Ok(())
}

const PATHS: &str = "\
embed: rows of the table; rotation angles once a step, rounded to f32 first
attention_in: fused q, k, v and index projection (wgmma), bf16 or MXFP8 widened in registers; norm, rotation and pages in one kernel
select_blocks: index scores by page (split decode, tiled prefill), best blocks by bisection
attend: paged attention, split decode; sparse prefill by blocks' token lists, dense prefill by query tiles
attention_out: wgmma, bf16 or MXFP8 widened in registers
dense_ffn: grouped products of one expert, activation fused
moe_ffn: f32 router from three bf16 products; experts grouped with the shared one, activation fused, fixed-order sum
logits: wgmma into f32
sample: on the device, exact sums, as specified
decode steps: one graph per bucket of rows";

impl Driver for Sm90Driver {
    fn name(&self) -> &str {
        "sm90"
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    fn probe(&self, request: &ProbeRequest) -> Result<ProbeReport> {
        let (pack, (num_devices, device)) = both(self.pack(), hopper(0))?;
        if !request.config.is_empty() {
            let plan = Plan::new(&request.config, request.tp, request.ep)?;
            pack.covers(&plan.dims(0)?.named()).map_err(unsupported)?;
        }
        let memory = device.memory()?;
        Ok(ProbeReport {
            score: SCORE,
            num_devices,
            weight_formats: FORMAT_F32 | FORMAT_BF16 | FORMAT_MXFP8,
            dtypes: DTYPE_BF16,
            kv_dtypes: DTYPE_BF16,
            quant_mode: QUANT_WEIGHT_ONLY,
            flags: 0,
            memory_total_bytes: memory.total,
            memory_free_bytes: memory.free,
            device: device.info().name.clone(),
            arch: pack.header.architecture.clone(),
            paths: format!("{PATHS}\n{}", pack.describe()),
        })
    }

    fn comm_id(&self) -> Result<Vec<u8>> {
        Err(unsupported("several ranks: collectives are not built for the sm90 backend yet"))
    }

    fn open(&self, request: &OpenRequest) -> Result<Box<dyn Backend>> {
        Ok(Box::new(self.open_rank(request)?))
    }
}

impl Sm90Driver {
    /// [`Driver::open`] with what only benchmarks ask for.
    pub fn open_rank(&self, request: &OpenRequest) -> Result<Sm90Backend> {
        let (pack, (_, device)) = both(self.pack(), hopper(request.device))?;
        let plan = Plan::new(&request.config, request.tp, request.ep)?;
        check_request(request, &plan)?;
        let shape = pack.covers(&plan.dims(request.rank as usize)?.named()).map_err(unsupported)?;
        Sm90Backend::open(request, plan, device, (&pack, shape))
    }
}

/// Both, or both reasons.
fn both<A, B>(first: Result<A>, second: Result<B>) -> Result<(A, B)> {
    match (first, second) {
        (Ok(first), Ok(second)) => Ok((first, second)),
        (Err(first), Err(second)) => Err(unsupported(format!("{second}; {first}"))),
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests;
