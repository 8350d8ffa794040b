//! GPUs and their datasheets, and which plugin serves each. Plain tables; the arithmetic over them is `roofline`.

/// One kind of GPU, in a node.
#[derive(Debug, PartialEq)]
pub(super) struct Hardware {
    /// As on the command line.
    pub name: &'static str,
    pub title: &'static str,
    /// The plugin, `--backend`.
    pub backend: &'static str,
    /// GPUs of a node, and how many a recipe takes when nothing is said.
    pub node: u32,
    pub usual: u32,
    /// Usable GiB.
    pub memory_gib: f64,
    /// Dense TFLOP/s.
    pub bf16: f64,
    pub fp8: f64,
    /// Dense TFLOP/s of 4-bit products; 0 = 4-bit weights are widened first.
    pub fp4: f64,
    /// TB/s of the memory.
    pub bandwidth: f64,
    /// GB/s of one GPU's links, one direction.
    pub link: f64,
    /// Sums over ranks are made in the switch.
    pub switch_sums: bool,
    /// Products take MXFP8 as it is; otherwise its codes are widened to bf16.
    pub native_mxfp8: bool,
}

/// Plugins of this version that hold kernels; the others are refused at the start.
const WITH_KERNELS: [&str; 1] = ["sm90"];

impl Hardware {
    /// Whether the plugin for it can serve.
    pub(super) fn has_kernels(&self) -> bool {
        WITH_KERNELS.contains(&self.backend)
    }
}

/// From the vendors' datasheets, dense figures.
#[rustfmt::skip]
pub(super) const HARDWARE: &[Hardware] = &[
    Hardware { name: "h100", title: "NVIDIA H100 80 GB", backend: "sm90", node: 8, usual: 8, memory_gib: 79.0, bf16: 989.0, fp8: 1979.0, fp4: 0.0, bandwidth: 3.35, link: 450.0, switch_sums: true, native_mxfp8: false },
    Hardware { name: "h200", title: "NVIDIA H200", backend: "sm90", node: 8, usual: 8, memory_gib: 139.0, bf16: 989.0, fp8: 1979.0, fp4: 0.0, bandwidth: 4.8, link: 450.0, switch_sums: true, native_mxfp8: false },
    Hardware { name: "b200", title: "NVIDIA B200", backend: "sm100", node: 8, usual: 8, memory_gib: 178.0, bf16: 2250.0, fp8: 4500.0, fp4: 9000.0, bandwidth: 8.0, link: 900.0, switch_sums: true, native_mxfp8: true },
    Hardware { name: "b300", title: "NVIDIA B300", backend: "sm100", node: 8, usual: 4, memory_gib: 268.0, bf16: 2250.0, fp8: 4500.0, fp4: 14000.0, bandwidth: 8.0, link: 900.0, switch_sums: true, native_mxfp8: true },
    Hardware { name: "gb200", title: "NVIDIA GB200", backend: "sm100", node: 4, usual: 4, memory_gib: 178.0, bf16: 2250.0, fp8: 4500.0, fp4: 9000.0, bandwidth: 8.0, link: 900.0, switch_sums: true, native_mxfp8: true },
    Hardware { name: "gb300", title: "NVIDIA GB300", backend: "sm100", node: 4, usual: 4, memory_gib: 268.0, bf16: 2250.0, fp8: 4500.0, fp4: 14000.0, bandwidth: 8.0, link: 900.0, switch_sums: true, native_mxfp8: true },
    Hardware { name: "mi300x", title: "AMD MI300X", backend: "gfx942", node: 8, usual: 8, memory_gib: 191.0, bf16: 1307.0, fp8: 2615.0, fp4: 0.0, bandwidth: 5.3, link: 448.0, switch_sums: false, native_mxfp8: false },
    Hardware { name: "mi325x", title: "AMD MI325X", backend: "gfx942", node: 8, usual: 8, memory_gib: 255.0, bf16: 1307.0, fp8: 2615.0, fp4: 0.0, bandwidth: 6.0, link: 448.0, switch_sums: false, native_mxfp8: false },
    Hardware { name: "mi350x", title: "AMD MI350X", backend: "gfx950", node: 8, usual: 8, memory_gib: 287.0, bf16: 2310.0, fp8: 4610.0, fp4: 9200.0, bandwidth: 8.0, link: 538.0, switch_sums: false, native_mxfp8: true },
    Hardware { name: "mi355x", title: "AMD MI355X", backend: "gfx950", node: 8, usual: 8, memory_gib: 287.0, bf16: 2516.0, fp8: 5033.0, fp4: 10066.0, bandwidth: 8.0, link: 538.0, switch_sums: false, native_mxfp8: true },
];

/// Weights of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weights {
    Bf16,
    Mxfp8,
    Nvfp4,
}

impl Weights {
    pub(super) const ALL: [Weights; 3] = [Weights::Bf16, Weights::Mxfp8, Weights::Nvfp4];

    /// As on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Weights::Bf16 => "bf16",
            Weights::Mxfp8 => "mxfp8",
            Weights::Nvfp4 => "nvfp4",
        }
    }

    /// Bytes of an element of a quantised matrix, its share of the scales included (one byte for 32 or 16 elements).
    pub(super) fn bytes(self) -> f64 {
        match self {
            Weights::Bf16 => 2.0,
            Weights::Mxfp8 => 1.0 + 1.0 / 32.0,
            Weights::Nvfp4 => 0.5 + 1.0 / 16.0,
        }
    }

    /// Where the published checkpoint of this kind is.
    pub(super) fn checkpoint(self) -> &'static str {
        match self {
            Weights::Bf16 => "MiniMax-M3",
            Weights::Mxfp8 => "MiniMax-M3-MXFP8",
            Weights::Nvfp4 => "MiniMax-M3-NVFP4",
        }
    }

    /// Why this program cannot load such a checkpoint; `None` when it can.
    pub(super) fn refused(self) -> Option<&'static str> {
        match self {
            Weights::Bf16 | Weights::Mxfp8 => None,
            Weights::Nvfp4 => Some("this version reads bf16 and MXFP8 checkpoints, not NVFP4"),
        }
    }
}

/// The row of this name.
pub(super) fn hardware(name: &str) -> Option<&'static Hardware> {
    HARDWARE.iter().find(|row| row.name == name)
}

/// All names.
pub(super) fn names() -> String {
    HARDWARE.iter().map(|row| row.name).collect::<Vec<_>>().join(", ")
}
