//! A checkpoint converted to MXFP8 opens as one, and its values are those of the ceil rule.

use std::path::{Path, PathBuf};

use m3_model::checkpoint::{Checkpoint, TensorData};
use m3_model::config::Quantization;
use m3_model::convert::{Converted, to_mxfp8};
use m3_model::formats::{Format, WeightRows, dequantise_mx, quantise_mx};

fn random_model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/random/m3-nano")
}

fn rows<'a>(tensor: &TensorData<'a>) -> WeightRows<'a> {
    let (rows, columns) = (tensor.shape()[0] as usize, tensor.shape()[1] as usize);
    WeightRows {
        format: tensor.spec.format,
        data: tensor.data,
        rows,
        columns,
        row_stride: columns,
        scale: tensor.scale.unwrap_or(&[]),
        scale_stride: tensor.scale_stride as usize,
        group_offset: 0,
    }
}

fn converted(out: &Path) -> (Checkpoint, Checkpoint, Converted) {
    let source = Checkpoint::open(&random_model()).expect("our own checkpoint");
    let done = to_mxfp8(&source, out).expect("our own checkpoint");
    (source, Checkpoint::open(out).expect("our own checkpoint"), done)
}

#[test]
fn the_twin_opens_as_mxfp8_and_its_values_follow_the_ceil_rule() {
    let out = tempfile::tempdir().unwrap();
    let (source, twin, done) = converted(out.path());
    assert_eq!(twin.config().quantization, Quantization::Mxfp8);
    assert_eq!(twin.specs().len(), source.specs().len());
    assert_eq!(done.quantised + done.copied, source.specs().len());
    assert_eq!(done.bytes, twin.load_bytes());
    let mut quantised = 0;
    for spec in source.specs() {
        let (before, after) = (source.tensor(&spec.name).unwrap(), twin.tensor(&spec.name).unwrap());
        if after.spec.format != Format::Mxfp8 {
            assert_eq!(before.data, after.data, "{}", spec.name);
            continue;
        }
        quantised += 1;
        let (values, columns) = (rows(&before).to_f32(), spec.shape[1] as usize);
        let groups = columns.div_ceil(32);
        let (mut codes, mut scales) = (vec![0; values.len()], vec![0; values.len() / columns * groups]);
        quantise_mx(&values, columns, &mut codes, &mut scales);
        assert_eq!((after.data, after.scale.unwrap()), (&codes[..], &scales[..]), "{}", spec.name);
        let mut expected = vec![0.0; values.len()];
        dequantise_mx(&codes, columns, &scales, &mut expected);
        assert_eq!(rows(&after).to_f32(), expected, "{}", spec.name);
        let largest = values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        let error = values.iter().zip(&expected).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
        assert!(error <= largest / 16.0 && error > 0.0, "{}: {error} of {largest}", spec.name);
    }
    assert_eq!(quantised, done.quantised);
    assert!(quantised > 80, "only {quantised} tensors were quantised");
}

#[test]
fn tokenizer_and_template_come_along_and_the_config_says_what_was_left_out() {
    let out = tempfile::tempdir().unwrap();
    converted(out.path());
    for name in ["tokenizer.json", "chat_template.jinja", "generation_config.json"] {
        assert_eq!(
            std::fs::read(out.path().join(name)).unwrap(),
            std::fs::read(random_model().join(name)).unwrap(),
            "{name}"
        );
    }
    let config = std::fs::read_to_string(out.path().join("config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    let ignored = config["quantization_config"]["ignored_layers"].as_array().unwrap();
    assert!(ignored.iter().any(|name| name == "language_model.model.layers.1.block_sparse_moe.gate"));
    assert!(!ignored.iter().any(|name| name == "language_model.model.layers.0.block_sparse_moe.gate"));
}

#[cfg(unix)]
#[test]
fn whoever_may_read_the_twins_config_may_read_its_weights() {
    use std::os::unix::fs::PermissionsExt;
    let out = tempfile::tempdir().unwrap();
    converted(out.path());
    let rights = |name| std::fs::metadata(out.path().join(name)).unwrap().permissions().mode();
    assert_eq!(rights("model.safetensors"), rights("config.json"));
}

#[test]
fn mxfp8_sources_and_full_folders_are_refused_by_name() {
    let out = tempfile::tempdir().unwrap();
    let (source, twin, _) = converted(out.path());
    let full = to_mxfp8(&source, out.path()).unwrap_err().to_string();
    assert!(full.contains("is not empty") && full.contains(out.path().to_str().unwrap()), "{full}");
    let other = tempfile::tempdir().unwrap();
    let again = to_mxfp8(&twin, other.path()).unwrap_err().to_string();
    assert!(again.contains("is MXFP8 already"), "{again}");
}
