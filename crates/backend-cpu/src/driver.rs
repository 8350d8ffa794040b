//! The one driver of this crate: what the machine can do, and instances on it.

use m3_abi::types::{
    DTYPE_BF16, DTYPE_F32, FORMAT_BF16, FORMAT_F32, FORMAT_MXFP8, PROBE_ENCODES, PROBE_KEEP_MAPPED,
    QUANT_WEIGHT_ONLY,
};
use m3_abi::{Backend, Driver, OpenRequest, ProbeReport, ProbeRequest, Result};

use crate::backend::{self, CpuBackend};
use crate::kernels::{Isa, Kernels};
use crate::{group, machine};

/// `auto` prefers any accelerator to this.
const SCORE: u32 = 10;

/// Opens ranks on this machine's CPU.
#[derive(Clone, Copy, Debug)]
pub struct CpuDriver {
    kernels: Kernels,
}

/// The driver with the best kernels of this machine.
pub fn driver() -> &'static dyn Driver {
    static DRIVER: std::sync::LazyLock<CpuDriver> = std::sync::LazyLock::new(CpuDriver::detect);
    &*DRIVER
}

impl Default for CpuDriver {
    fn default() -> Self {
        CpuDriver::detect()
    }
}

impl CpuDriver {
    /// The best kernels of this machine.
    pub fn detect() -> CpuDriver {
        CpuDriver { kernels: Kernels::detect() }
    }

    /// Kernels of a given family, `None` when this machine cannot run it.
    pub fn with_isa(isa: Isa) -> Option<CpuDriver> {
        Kernels::of(isa).map(|kernels| CpuDriver { kernels })
    }

    fn paths(&self) -> String {
        let isa = self.kernels.isa().name();
        let gemm = match self.kernels.isa() {
            Isa::Avx512Bf16 => "bf16 dot product on bf16 and MXFP8 weights in place",
            _ => "bf16 and MXFP8 weights widened to f32 in registers",
        };
        let lines = [
            ("embed", "rows of the mapped table".to_owned()),
            ("attention_in", format!("{isa}: {gemm}; f32 norms and rotation")),
            ("select_blocks", format!("{isa}: pages of index keys against tiles of tokens")),
            ("attend", format!("{isa}: running softmax over pages, all or the chosen ones")),
            ("attention_out", format!("{isa}: {gemm}")),
            ("dense_ffn", format!("{isa}: {gemm}")),
            ("moe_ffn", format!("{isa}: f32 router; routed experts only, tokens grouped by expert")),
            ("logits", format!("{isa}: {gemm}")),
            ("sample", "scalar, as specified".to_owned()),
            ("encode", format!("{isa}: {gemm}; attention of a segment as two products per head")),
        ];
        lines.map(|(op, path)| format!("{op}: {path}")).join("\n")
    }
}

impl Driver for CpuDriver {
    fn name(&self) -> &str {
        "cpu"
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    fn probe(&self, request: &ProbeRequest) -> Result<ProbeReport> {
        if !request.config.is_empty() {
            backend::plan(&request.config, request.tp, request.ep)?;
        }
        let memory = machine::memory();
        Ok(ProbeReport {
            score: SCORE,
            num_devices: 1,
            weight_formats: FORMAT_F32 | FORMAT_BF16 | FORMAT_MXFP8,
            dtypes: DTYPE_F32 | DTYPE_BF16,
            kv_dtypes: DTYPE_F32 | DTYPE_BF16,
            quant_mode: QUANT_WEIGHT_ONLY,
            flags: PROBE_KEEP_MAPPED | PROBE_ENCODES,
            memory_total_bytes: memory.total_bytes,
            memory_free_bytes: memory.available_bytes,
            device: machine::cpu_name(),
            arch: self.kernels.isa().name().to_owned(),
            paths: self.paths(),
        })
    }

    fn comm_id(&self) -> Result<Vec<u8>> {
        Ok(group::new_comm_id())
    }

    fn open(&self, request: &OpenRequest) -> Result<Box<dyn Backend>> {
        Ok(Box::new(CpuBackend::open(request, self.kernels)?))
    }
}
