//! The tensor table against the published counts, parameters and bytes, and the goldens' files.

mod synthetic;

use std::collections::BTreeMap;

use m3_model::config::ModelConfig;
use m3_model::formats::Format;
use m3_model::names::{Role, TensorSpec, Totals, expected_tensors};
use m3_testdata::shared;
use serde_json::Value;
use synthetic::{flat_config, load, m3_config, native_config};

const PARAMETERS: u64 = 427_040_140_160;
const BF16: Totals = Totals { tensors: 23_416, parameters: PARAMETERS, bytes: 854_172_958_720 };
const MXFP8: Totals = Totals { tensors: 45_838, parameters: PARAMETERS, bytes: 443_742_085_120 };

fn totals(config: &Value) -> Totals {
    Totals::of(&expected_tensors(&load(config)))
}

#[test]
fn published_totals_come_out_for_both_builds() {
    assert_eq!(totals(&m3_config(false)), BF16);
    assert_eq!(totals(&m3_config(true)), MXFP8);
    assert_eq!(totals(&native_config(&m3_config(true))), MXFP8);
}

#[test]
fn parts_have_their_published_sizes() {
    let specs = expected_tensors(&load(&m3_config(false)));
    let vision = Totals::of(specs.iter().filter(|spec| spec.role == Role::Vision));
    assert_eq!(vision.parameters, 631_185_920 + 234_381_312);
    assert_eq!(specs.iter().filter(|spec| spec.format == Format::F32).count(), 115);
    let layer = Totals::of(specs.iter().filter(|spec| spec.layer == Some(59)));
    assert_eq!((layer.parameters + 5_000_000) / 10_000_000, 742);
    let quantised = expected_tensors(&load(&m3_config(true)));
    assert_eq!(quantised.iter().filter(|spec| spec.format == Format::Mxfp8).count(), 22_422);
}

#[test]
fn the_text_only_class_has_the_same_text_tensors() {
    let whole = expected_tensors(&load(&m3_config(true)));
    let text: Vec<TensorSpec> = whole.into_iter().filter(|spec| spec.role != Role::Vision).collect();
    assert_eq!(expected_tensors(&load(&flat_config(&m3_config(true)))), text);
}

#[test]
fn shared_configs_reproduce_the_published_totals() {
    let Some(data) = shared("configs") else { return };
    for (file, expected) in [
        ("reconstructed--MiniMax-M3_config.json", BF16),
        ("reconstructed--MiniMax-M3-MXFP8_config.json", MXFP8),
        ("native_shape_example_config.json", BF16),
    ] {
        let bytes = std::fs::read(data.join("configs").join(file)).expect("a shared config");
        let loaded = ModelConfig::from_json(&bytes).expect("a config that can be served");
        assert_eq!(loaded.unknown_keys, Vec::<String>::new(), "{file}");
        assert_eq!(Totals::of(&expected_tensors(&loaded.config)), expected, "{file}");
    }
}

/// The flat derivative states everything, so it is loaded as the text-only class, not refused.
#[test]
fn the_flat_derivative_is_the_text_part_of_the_released_model() {
    let Some(data) = shared("configs") else { return };
    let bytes =
        std::fs::read(data.join("configs/MiniMaxAI--MiniMax-M3_config.json")).expect("a shared config");
    let flat = ModelConfig::from_json(&bytes).expect("a config that can be served").config;
    assert_eq!(flat.text, load(&m3_config(false)).text);
    assert_eq!(flat.vision, None);
}

/// Row by row: name pattern, shape, count and both dtypes.
#[test]
fn the_shared_tensor_table_is_matched_row_by_row() {
    let Some(data) = shared("tensor_table.json") else { return };
    let table: Value =
        serde_json::from_slice(&std::fs::read(data.join("tensor_table.json")).expect("the shared table"))
            .expect("JSON");
    for (mxfp8, dtype) in [(false, "dtype_bf16_build"), (true, "mxfp8")] {
        let mut patterns: BTreeMap<String, (Vec<u64>, String, u64)> = BTreeMap::new();
        for spec in expected_tensors(&load(&m3_config(mxfp8))) {
            let stored =
                if spec.format == Format::Mxfp8 { "F8_E4M3".into() } else { spec.format.to_string() };
            let entry = patterns.entry(pattern(&spec.name)).or_insert((spec.shape, stored, 0));
            entry.2 += 1;
        }
        let rows = table["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), patterns.len());
        for row in rows {
            let name = row["pattern"].as_str().expect("a pattern");
            let stored = if mxfp8 { &row[dtype]["dtype"] } else { &row[dtype] };
            let shape: Vec<u64> = serde_json::from_value(row["shape"].clone()).expect("a shape");
            let expected =
                (shape, stored.as_str().expect("a dtype").to_owned(), row["count"].as_u64().expect("n"));
            assert_eq!(patterns.get(name), Some(&expected), "{name}");
        }
    }
}

/// Layer numbers to `{i}`, expert numbers to `{e}`.
fn pattern(name: &str) -> String {
    let mut previous = "";
    let parts = name.split('.').map(|part| {
        let placeholder = if previous == "experts" { "{e}" } else { "{i}" };
        previous = part;
        if part.parse::<u32>().is_ok() { placeholder } else { part }
    });
    parts.collect::<Vec<_>>().join(".")
}
