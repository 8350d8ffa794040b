//! The quantised modes: bytes and single linears exactly, whole layers closely, whole prompts statistically.

use m3_model::reference::fp8::{self, e4m3_byte, e4m3_to_f32};
use m3_model::reference::linear::Linear;
use m3_model::reference::weights::{Ffn, Weights};
use m3_model::reference::{QuantMode, ReferenceModel};

use super::answers::{argmax, relative_rms};
use super::golden::{Golden, case};
use super::run::Run;

const MODES: [(QuantMode, &str); 3] =
    [(QuantMode::WeightOnly, "w8a16"), (QuantMode::W8A8, "w8a8"), (QuantMode::BlockFp8, "blockfp8")];
const LINEARS: [&str; 14] = [
    "0.self_attn.q_proj",
    "0.self_attn.k_proj",
    "0.self_attn.v_proj",
    "0.self_attn.o_proj",
    "1.mlp.gate_proj",
    "1.mlp.up_proj",
    "1.mlp.down_proj",
    "3.self_attn.o_proj",
    "3.self_attn.index_q_proj",
    "3.self_attn.index_k_proj",
    "3.block_sparse_moe.shared_experts.down_proj",
    "4.block_sparse_moe.experts.5.w1",
    "4.block_sparse_moe.experts.5.w3",
    "4.block_sparse_moe.experts.5.w2",
];

fn linear<'a>(weights: &'a Weights, name: &str) -> &'a Linear {
    let (layer, rest) = name.split_once('.').unwrap();
    let layer = &weights.layers[layer.parse::<usize>().unwrap()];
    let (mlp, moe) = match &layer.ffn {
        Ffn::Dense(mlp) => (Some(mlp), None),
        Ffn::Moe(moe) => (None, Some(moe)),
    };
    match rest {
        "self_attn.q_proj" => &layer.attention.query,
        "self_attn.k_proj" => &layer.attention.key,
        "self_attn.v_proj" => &layer.attention.value,
        "self_attn.o_proj" => &layer.attention.output,
        "self_attn.index_q_proj" => &layer.attention.index.as_ref().unwrap().query,
        "self_attn.index_k_proj" => &layer.attention.index.as_ref().unwrap().key,
        "mlp.gate_proj" => &mlp.unwrap().gate,
        "mlp.up_proj" => &mlp.unwrap().up,
        "mlp.down_proj" => &mlp.unwrap().down,
        "block_sparse_moe.shared_experts.down_proj" => &moe.unwrap().shared.down,
        "block_sparse_moe.experts.5.w1" => &moe.unwrap().experts[5].gate,
        "block_sparse_moe.experts.5.w3" => &moe.unwrap().experts[5].up,
        "block_sparse_moe.experts.5.w2" => &moe.unwrap().experts[5].down,
        other => panic!("no linear {other}"),
    }
}

#[test]
fn single_linears() {
    let Some((folder, golden)) = case("real128", "quant_units") else { return };
    for (mode, suffix) in MODES {
        let mut run = Run::open(&folder, mode, 1);
        let model: &ReferenceModel = run.backend.model().unwrap();
        for name in LINEARS {
            let outputs = linear(&model.weights, name).apply(&golden.array(&format!("{name}.x")).values);
            let error = relative_rms(&outputs, &golden.array(&format!("{name}.{suffix}")).values);
            assert!(error < 1e-5, "{name}.{suffix}: relative rms {error}");
        }
    }
}

#[test]
fn activation_bytes_and_scales() {
    let Some((_, golden)) = case("real128", "quant_units") else { return };
    for name in LINEARS {
        let inputs = golden.array(&format!("{name}.x"));
        check_mx_bytes(&golden, name, &inputs.values, inputs.shape[1]);
        check_block_bytes(&golden, name, &inputs.values, inputs.shape[1]);
    }
}

fn check_mx_bytes(golden: &Golden, name: &str, inputs: &[f32], columns: usize) {
    let bytes = golden.array(&format!("{name}.x_mx")).values;
    let scales = golden.array(&format!("{name}.x_mx_scale")).values;
    for (row, inputs) in inputs.chunks(columns).enumerate() {
        let mut quantized = inputs.to_vec();
        fp8::quantize_mx(&mut quantized);
        for (group, inputs) in inputs.chunks(fp8::MX_GROUP).enumerate() {
            let max = inputs.iter().fold(0.0f32, |max, value| max.max(value.abs()));
            let scale = scales[row * columns / fp8::MX_GROUP + group];
            assert_eq!(
                f32::from(fp8::mx_scale_byte(max)),
                scale,
                "{name}.x_mx_scale row {row} group {group}"
            );
        }
        for (column, &value) in quantized.iter().enumerate() {
            let scale = scales[(row * columns + column) / fp8::MX_GROUP];
            let expected = e4m3_to_f32(bytes[row * columns + column] as u8) * fp8::ue8m0_to_f32(scale as u8);
            assert_eq!(value, expected, "{name}.x_mx row {row} column {column}");
        }
    }
}

fn check_block_bytes(golden: &Golden, name: &str, inputs: &[f32], columns: usize) {
    let bytes = golden.array(&format!("{name}.x_fp8")).values;
    let scales = golden.array(&format!("{name}.x_fp8_scale")).values;
    for (row, inputs) in inputs.chunks(columns).enumerate() {
        let mut quantized = inputs.to_vec();
        fp8::quantize_block_activation(&mut quantized);
        for (column, &value) in quantized.iter().enumerate() {
            let scale = scales[(row * columns + column) / fp8::BLOCK];
            let byte = bytes[row * columns + column] as u8;
            assert_eq!(value, e4m3_to_f32(byte) * scale, "{name}.x_fp8 row {row} column {column}");
        }
    }
}

#[test]
fn block_weights_and_scales() {
    let Some((folder, golden)) = case("real128", "quant_units") else { return };
    let mut run = Run::open(&folder, QuantMode::WeightOnly, 1);
    let model: &ReferenceModel = run.backend.model().unwrap();
    for name in LINEARS {
        let linear = linear(&model.weights, name);
        let mut values = linear.values().to_vec();
        let scales = fp8::quantize_block_weight(&mut values, linear.num_columns());
        assert_eq!(scales, golden.array(&format!("{name}.w_fp8_scale")).values, "{name}.w_fp8_scale");
        let Some(bytes) = golden.get(&format!("{name}.w_fp8")) else { continue };
        let tiles = linear.num_columns().div_ceil(fp8::BLOCK);
        for (at, (&value, &byte)) in values.iter().zip(&bytes.values).enumerate() {
            let (row, column) = (at / linear.num_columns(), at % linear.num_columns());
            let scale = scales[row / fp8::BLOCK * tiles + column / fp8::BLOCK];
            assert_eq!(f32::from(e4m3_byte(fp8::round_to_e4m3(value / scale))), byte, "{name}.w_fp8 at {at}");
        }
    }
}

#[test]
fn whole_layers() {
    let Some((folder, golden)) = case("real128", "quant_units") else { return };
    for (mode, suffix) in MODES {
        let mut run = Run::open(&folder, mode, 1);
        let config = run.config.clone();
        let model: &ReferenceModel = run.backend.model().unwrap();
        // A value on the edge between two bytes may round the other way in f32: looser than a single linear.
        let limit = if mode == QuantMode::WeightOnly { 1e-5 } else { 3e-3 };
        let (Ffn::Dense(mlp), Ffn::Moe(moe)) = (&model.weights.layers[1].ffn, &model.weights.layers[3].ffn)
        else {
            panic!("layers 1 and 3 are dense and MoE");
        };
        let outputs = mlp.apply(&golden.array("1.mlp.x").values, &config);
        let error = relative_rms(&outputs, &golden.array(&format!("1.mlp.{suffix}")).values);
        assert!(error < limit, "1.mlp.{suffix}: relative rms {error}");

        let inputs = golden.array("3.block_sparse_moe.x").values;
        let routing = moe.route(&inputs, &config);
        let experts: Vec<f32> =
            routing.iter().flat_map(|token| &token.experts).map(|&id| id as f32).collect();
        assert_eq!(experts, golden.array("3.block_sparse_moe.experts").values);
        let outputs = moe.apply(&inputs, &routing, &config);
        let error = relative_rms(&outputs, &golden.array(&format!("3.block_sparse_moe.{suffix}")).values);
        assert!(error < limit, "3.block_sparse_moe.{suffix}: relative rms {error}");
    }
}

#[test]
fn whole_prompt() {
    let Some((folder, golden)) = case("real128", "text_300") else { return };
    let tokens = golden.ids("input_ids");
    let positions: Vec<usize> = match golden.get("positions") {
        Some(positions) => positions.values.iter().map(|&position| position as usize).collect(),
        None => (0..tokens.len()).collect(),
    };
    for (mode, suffix) in &MODES[1..] {
        let mut run = Run::open(&folder, *mode, 3);
        let logits = run.prefill(0, &tokens, tokens.len());
        let width = run.config.vocab_size;
        let found: Vec<f32> =
            positions.iter().flat_map(|&position| &logits[position * width..][..width]).copied().collect();
        let expected = golden.array(&format!("logits_{suffix}")).values;
        let error = relative_rms(&found, &expected);
        let agree =
            found.chunks(width).zip(expected.chunks(width)).filter(|(a, b)| argmax(a) == argmax(b)).count();
        let agree = agree as f64 / positions.len() as f64;
        assert!(error < 0.12, "{suffix}: relative rms {error}");
        assert!(agree > 0.80, "{suffix}: argmax agrees at {agree}");
        for layer in 3..run.config.layers.len() {
            let found = run.tap(&format!("routed.{layer}")).data;
            let expected = golden.array(&format!("experts_{suffix}.{layer}")).values;
            let count = run.config.experts_per_token;
            let differ = found.chunks(count).zip(expected.chunks(count)).filter(|(a, b)| a != b).count();
            let differ = differ as f64 / tokens.len() as f64;
            assert!(differ < 0.16, "{suffix}: expert sets of layer {layer} differ at {differ}");
        }
        // The mode does something: the plain answers are further away than f32 noise.
        let plain = relative_rms(&found, &golden.array("logits").values);
        assert!(plain > 0.02, "{suffix}: only {plain} from the unquantised answers");
    }
}
