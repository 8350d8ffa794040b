//! Tensors of the bundled model land in the rows of their fused matrices.

use m3_abi::types::{FORMAT_BF16, FORMAT_F32, FORMAT_MXFP8};
use m3_gpu::fake::{FakeDevice, Progress};
use m3_model::config::ModelConfig;
use m3_model::names::{Role, TensorSpec, expected_tensors};
use m3_model::shard::ShardPlan;

use super::super::place::Ffn;
use super::*;

const NANO: &[u8] = include_bytes!("../../../../../models/m3-nano/config.json");

fn nano() -> ModelConfig {
    ModelConfig::from_json(NANO).unwrap().config
}

fn loading(config: &ModelConfig, tp: usize, rank: usize) -> (Device, ShardPlan, Loading) {
    let device = FakeDevice::new(1 << 30, Progress::Eager).device();
    let plan = ShardPlan::new(config, tp, 1).unwrap();
    let weights = WeightPlan::new(config, &plan, rank).unwrap();
    let loading = Loading::new(&device, weights).unwrap();
    (device, plan, loading)
}

/// Never asked here.
struct NoFill;

impl Synthesise for NoFill {
    fn fill(&self, _: &Stream, _: Region, _: Format, _: f32, _: u64) -> Result<()> {
        Err(Error::Fatal("filled".to_owned()))
    }
}

/// Bytes that tell tensors and places apart.
fn bytes_of(index: usize, len: u64) -> Vec<u8> {
    (0..len).map(|byte| (byte as usize * 13 + byte as usize / 251 + index * 57) as u8).collect()
}

fn view<'a>(spec: &'a TensorSpec, shape: &'a [u64], strides: &'a [u64], data: *const u8) -> TensorView<'a> {
    TensorView {
        name: &spec.name,
        format: spec.format.abi(),
        shape,
        strides,
        data,
        scale: std::ptr::null(),
        scale_stride: 0,
        group_offset: 0,
        seed: 0,
    }
}

/// Loads everything as a checkpoint's parts of rank `rank` of `tp`.
fn load_all(tp: usize, rank: usize) -> (Device, Weights, Vec<(TensorSpec, Vec<u8>)>) {
    let config = nano();
    let (device, plan, mut loading) = loading(&config, tp, rank);
    let specs = expected_tensors(&config).into_iter().filter(|spec| spec.role != Role::Vision);
    let tensors: Vec<_> =
        specs.enumerate().map(|(index, spec)| (bytes_of(index, spec.value_bytes()), spec)).collect();
    for (bytes, spec) in &tensors {
        let Some(cut) = plan.part(rank, spec) else { continue };
        let row = spec.shape.get(1).copied().unwrap_or(1);
        let columns = cut.columns.clone().unwrap_or(0..row);
        let mut shape = vec![cut.rows.end - cut.rows.start];
        let mut strides = vec![1];
        if spec.shape.len() == 2 {
            shape.push(columns.end - columns.start);
            strides = vec![row, 1];
        }
        let first = (cut.rows.start * row + columns.start) as usize * spec.format.value_bytes();
        loading.load(&view(spec, &shape, &strides, bytes[first..].as_ptr()), &NoFill).unwrap();
    }
    let (weights, _) = loading.finish().unwrap();
    (device, weights, tensors.into_iter().map(|(bytes, spec)| (spec, bytes)).collect())
}

fn on_device(device: &Device, pointer: m3_gpu::launch::DevicePointer, bytes: usize) -> Vec<u8> {
    let region = Region { pointer, bytes: bytes as u64 };
    device.stream().unwrap().download_values(region).unwrap()
}

fn tensor<'a>(tensors: &'a [(TensorSpec, Vec<u8>)], name: &str) -> &'a [u8] {
    let name = format!("language_model.model.layers.1.{name}.weight");
    &tensors.iter().find(|(spec, _)| spec.name == name).unwrap().1
}

#[test]
fn projections_and_experts_are_stacked() {
    let (device, weights, tensors) = load_all(1, 0);
    let layer = weights.model.layers[1];
    let parts = ["q_proj", "k_proj", "v_proj", "index_q_proj", "index_k_proj"];
    let wanted: Vec<u8> =
        parts.iter().flat_map(|part| tensor(&tensors, &format!("self_attn.{part}")).to_vec()).collect();
    assert!(on_device(&device, layer.projection.values, wanted.len()) == wanted);
    assert_eq!(layer.projection.rows, (4 + 2 + 2 + 2 + 1) * 128);
    let Ffn::Moe { experts, router, .. } = layer.ffn else { panic!("layer 1 has experts") };
    assert_eq!(
        (experts.gate_up.rows, experts.down.rows),
        (17 * 2 * 64, 17 * 256),
        "the shared expert comes last"
    );
    let up_of_3 = tensor(&tensors, "block_sparse_moe.experts.3.w3");
    let at = experts.gate_up.values.offset(7 * 64 * 256 * 2);
    assert!(on_device(&device, at, up_of_3.len()) == up_of_3);
    let shared = tensor(&tensors, "block_sparse_moe.shared_experts.down_proj");
    let at = experts.down.values.offset(16 * 256 * 64 * 2);
    assert!(on_device(&device, at, shared.len()) == shared);
    assert_eq!(router.format, Format::F32);
}

#[test]
fn column_cuts_arrive_as_dense_rows() {
    let (device, weights, tensors) = load_all(2, 1);
    let out = weights.model.layers[1].out;
    assert_eq!((out.rows, out.columns), (256, 256));
    let whole = tensor(&tensors, "self_attn.o_proj");
    let wanted: Vec<u8> = whole.chunks(512 * 2).flat_map(|row| row[256 * 2..].to_vec()).collect();
    assert!(on_device(&device, out.values, wanted.len()) == wanted);
}

#[test]
fn missing_doubled_and_misshapen_tensors_are_named() {
    let config = nano();
    let (_device, _plan, mut loading) = loading(&config, 1, 0);
    let specs = expected_tensors(&config);
    let norm = specs.iter().find(|spec| spec.name == "language_model.model.norm.weight").unwrap();
    let bytes = vec![0u8; 512];
    let mut load = |shape: &[u64], format: u32| {
        let view = TensorView { format, ..view(norm, shape, &[1], bytes.as_ptr()) };
        loading.load(&view, &NoFill).map_err(|error| error.to_string())
    };
    let wrong = load(&[128], FORMAT_BF16).unwrap_err();
    assert_eq!(wrong, "tensor language_model.model.norm.weight: 1 x 128, not 1 x 256");
    assert!(load(&[256], FORMAT_MXFP8).unwrap_err().contains("MXFP8 needs scales"));
    load(&[256], FORMAT_BF16).unwrap();
    assert!(load(&[256], FORMAT_BF16).unwrap_err().ends_with("loaded twice"));
    assert!(load(&[256], FORMAT_F32).is_err());
    let missing = loading.finish().unwrap_err().to_string();
    assert!(missing.contains("tensors are missing: language_model.lm_head.weight"), "{missing}");
}

#[test]
fn a_router_that_was_saved_as_bf16_is_widened() {
    let config = nano();
    let (device, _plan, mut loading) = loading(&config, 1, 0);
    let name = "language_model.model.layers.1.block_sparse_moe.e_score_correction_bias";
    let specs = expected_tensors(&config);
    let bias = specs.iter().find(|spec| spec.name == name).unwrap();
    let bits: Vec<u16> = (0..16)
        .map(|expert| (expert as f32 * 0.5).to_bits() as u16 | ((expert as f32 * 0.5).to_bits() >> 16) as u16)
        .collect();
    let view = TensorView { format: FORMAT_BF16, ..view(bias, &[16], &[1], bits.as_ptr().cast()) };
    loading.load(&view, &NoFill).unwrap();
    let place = &loading.plan.places[name];
    let at = loading.arena.region(loading.plan.matrices[place.matrix.0].values);
    let found: Vec<f32> = device.stream().unwrap().download_values(at).unwrap();
    let wanted: Vec<f32> = (0..16).map(|expert| expert as f32 * 0.5).collect();
    assert_eq!(found, wanted);
}
