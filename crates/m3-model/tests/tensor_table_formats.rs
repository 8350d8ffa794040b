//! Quantisation against golden bytes: activations in MXFP8 and block fp8, weights in block fp8.

use std::collections::BTreeMap;

use ::safetensors::SafeTensors;
use m3_model::checkpoint::Checkpoint;
use m3_model::formats::{bf16_to_f32, quantise_block_rows, quantise_block_weight, quantise_mx};
use m3_model::shard::ShardPlan;
use m3_testdata::golden;

type Golden = BTreeMap<String, (Vec<usize>, Vec<u8>)>;

fn quant_units() -> Option<Golden> {
    let bytes = std::fs::read(golden("golden/real128/quant_units.safetensors")?).expect("a readable file");
    let tensors = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    Some(
        tensors
            .iter()
            .map(|(name, view)| (name.to_owned(), (view.shape().to_vec(), view.data().to_vec())))
            .collect(),
    )
}

/// The linears' names and their bf16 inputs as f32 with the row length.
fn inputs(units: &Golden) -> Vec<(String, Vec<f32>, usize)> {
    units
        .iter()
        .filter(|(name, _)| name.ends_with(".x") && units.contains_key(&format!("{name}_mx")))
        .map(|(name, (shape, data))| {
            let values = data.as_chunks::<2>().0.iter().map(|bytes| bf16_to_f32(u16::from_le_bytes(*bytes)));
            (name.strip_suffix(".x").expect("an input").to_owned(), values.collect(), shape[1])
        })
        .collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[test]
fn activations_quantise_to_the_golden_bytes() {
    let Some(units) = quant_units() else { return };
    let inputs = inputs(&units);
    assert_eq!(inputs.len(), 14);
    for (name, values, columns) in inputs {
        let rows = values.len() / columns;
        let (mut codes, mut scales) = (vec![0; values.len()], vec![0; rows * columns.div_ceil(32)]);
        quantise_mx(&values, columns, &mut codes, &mut scales);
        assert!(codes == units[&format!("{name}.x_mx")].1, "{name}.x_mx");
        assert!(scales == units[&format!("{name}.x_mx_scale")].1, "{name}.x_mx_scale");
        let mut scales = vec![0.0; rows * columns.div_ceil(128)];
        quantise_block_rows(&values, columns, &mut codes, &mut scales);
        assert!(codes == units[&format!("{name}.x_fp8")].1, "{name}.x_fp8");
        assert_eq!(scales, floats(&units[&format!("{name}.x_fp8_scale")].1), "{name}.x_fp8_scale");
    }
}

#[test]
fn weights_convert_to_the_golden_block_bytes() {
    let (Some(units), Some(path)) = (quant_units(), golden("ckpt/real128")) else { return };
    let checkpoint = Checkpoint::open(&path).expect("the golden checkpoint");
    let plan = ShardPlan::new(checkpoint.config(), 1, 1).expect("one rank");
    let mut with_bytes = 0;
    for name in units.keys().filter_map(|name| name.strip_suffix(".w_fp8_scale")) {
        let tensor =
            checkpoint.tensor(&format!("language_model.model.layers.{name}.weight")).expect("a linear");
        let cut = plan.cut(0, tensor).expect("rank 0").expect("all of it");
        let block = quantise_block_weight(&cut.rows().expect("a real tensor"));
        assert_eq!(block.scales, floats(&units[&format!("{name}.w_fp8_scale")].1), "{name}.w_fp8_scale");
        if let Some((shape, codes)) = units.get(&format!("{name}.w_fp8")) {
            assert_eq!(shape, &[block.rows, block.columns]);
            assert!(&block.codes == codes, "{name}.w_fp8");
            with_bytes += 1;
        }
    }
    assert!(with_bytes >= 4, "only {with_bytes} weights have golden bytes");
}
