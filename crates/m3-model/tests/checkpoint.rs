//! Opening checkpoint folders: right ones in every naming, and every fault by its name.

mod synthetic;

use std::collections::BTreeMap;

use m3_model::checkpoint::{Checkpoint, Fault, TensorData};
use m3_model::error::ModelError;
use m3_model::formats::Format;
use m3_model::names::Role;
use m3_model::naming::Naming;
use m3_testdata::golden;
use serde_json::{Value, json};
use synthetic::{
    Folder, SHARDS, Stored, Tensors, file_bytes, flat_config, load, native_config, raw_file, tensors,
    tiny_config,
};

const Q_PROJ: &str = "language_model.model.layers.1.self_attn.q_proj.weight";
const GATE: &str = "language_model.model.layers.1.block_sparse_moe.gate.weight";

fn open(folder: &Folder) -> Result<Checkpoint, ModelError> {
    Checkpoint::open(folder.path())
}

fn faults(folder: &Folder) -> Vec<Fault> {
    match open(folder) {
        Err(ModelError::Checkpoint { faults, .. }) => faults,
        Err(other) => panic!("expected file faults, got {other}"),
        Ok(_) => panic!("expected file faults, it opened"),
    }
}

/// Opens a folder whose tensors were changed and gives its faults.
fn faults_after(mxfp8: bool, change: impl FnOnce(&mut Tensors)) -> Vec<Fault> {
    let config = tiny_config(mxfp8);
    let mut tensors = tensors(&config);
    change(&mut tensors);
    faults(&Folder::new(&config, &tensors))
}

/// Every tensor of the checkpoint has exactly the bytes that `expected` holds under its released name.
fn assert_holds(checkpoint: &Checkpoint, expected: &Tensors) {
    assert_eq!(checkpoint.load_order().len(), checkpoint.specs().len());
    for spec in checkpoint.specs() {
        let tensor = checkpoint.tensor(&spec.name).expect("a tensor of the table");
        assert_eq!(tensor.spec, spec);
        assert!(tensor.data == expected[&spec.name].data, "{}", spec.name);
        let scale = expected.get(&format!("{}_scale_inv", spec.name));
        assert!(tensor.scale == scale.map(|scale| scale.data.as_slice()), "{}", spec.name);
        assert_eq!(tensor.scale_stride, scale.map_or(0, |scale| scale.shape[1]));
    }
}

#[test]
fn released_names_open_in_both_formats() {
    for mxfp8 in [false, true] {
        let config = tiny_config(mxfp8);
        let tensors = tensors(&config);
        let folder = Folder::new(&config, &tensors);
        let checkpoint = open(&folder).expect("a sound folder");
        assert_holds(&checkpoint, &tensors);
        assert_eq!(checkpoint.config(), &load(&config));
        assert_eq!(checkpoint.config_json(), config.to_string().as_bytes());
        let report = checkpoint.report();
        assert_eq!((report.naming, report.text_only), (Naming::Released, false));
        assert_eq!(report.num_stored_tensors, tensors.len());
        let bytes: usize = tensors.values().map(|stored| stored.data.len()).sum();
        assert_eq!((report.tensor_bytes, checkpoint.load_bytes()), (bytes as u64, bytes as u64));
        assert_eq!((report.files.len(), report.num_claimed_mtp_modules), (2, 7));
        assert_eq!(checkpoint.load_order().map(|tensor| tensor.bytes()).sum::<u64>(), bytes as u64);
        assert!(matches!(checkpoint.tensor("nope"), Err(ModelError::UnknownTensor(_))));
    }
}

#[test]
fn loading_order_follows_the_files() {
    let config = tiny_config(true);
    let folder = Folder::new(&config, &tensors(&config));
    let checkpoint = open(&folder).expect("a sound folder");
    let starts: Vec<*const u8> = checkpoint.load_order().map(|tensor| tensor.data.as_ptr()).collect();
    let falls = starts.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert!(falls <= 1, "addresses fall {falls} times over two files");
}

/// `weight_scale`, as another engine renames it, and the exponent dtype, as another library stores it.
#[test]
fn both_spellings_and_dtypes_of_scales_open() {
    let config = tiny_config(true);
    let original = tensors(&config);
    let rename = |name: &str| name.strip_suffix("_inv").unwrap_or(name).to_owned();
    let renamed = original.iter().map(|(name, stored)| {
        let dtype = if name.ends_with("_scale_inv") { "F8_E8M0" } else { stored.dtype };
        (rename(name), Stored { dtype, ..stored.clone() })
    });
    let folder = Folder::new(&config, &renamed.collect());
    assert_holds(&open(&folder).expect("a sound folder"), &original);
}

/// The native names, made from the documented rules and not with the code under test.
fn native(tensors: &Tensors, experts: usize, model: &str) -> Tensors {
    let mut native = Tensors::new();
    let mut fused: BTreeMap<String, BTreeMap<(usize, usize), &Stored>> = BTreeMap::new();
    for (name, stored) in tensors {
        let scale = if name.ends_with("_scale_inv") { "_scale_inv" } else { "" };
        let base = name.strip_suffix("_scale_inv").unwrap_or(name);
        let base = base
            .replace("language_model.lm_head", "lm_head")
            .replace("language_model.model.", model)
            .replace("vision_tower.vision_model.", "model.vision_tower.")
            .replace("patch_merge_mlp.linear_", "model.multi_modal_projector.merge_linear_")
            .replace("embeddings.patch_embedding", "embeddings.proj")
            .replace("encoder.layers", "layers")
            .replace("block_sparse_moe.e_score", "mlp.gate.e_score")
            .replace("block_sparse_moe", "mlp")
            .replace("index_q_", "indexer.q_")
            .replace("index_k_", "indexer.k_");
        let base = if base.starts_with("multi_modal") { format!("model.{base}") } else { base };
        let parts: Vec<&str> = base.split('.').collect();
        if let Some(at) = parts.iter().position(|part| *part == "experts") {
            let expert: usize = parts[at + 1].parse().expect("an expert number");
            let (target, half) = match parts[at + 2] {
                "w1" => ("gate_up_proj", 0),
                "w3" => ("gate_up_proj", 1),
                _ => ("down_proj", 0),
            };
            let key = format!("{}.{target}{scale}", parts[..=at].join("."));
            fused.entry(key).or_default().insert((expert, half), stored);
        } else if base.ends_with(".gate_proj.weight") || base.ends_with(".up_proj.weight") {
            let half = usize::from(base.ends_with(".up_proj.weight"));
            let key = base.replace(".gate_proj.", ".gate_up_proj.").replace(".up_proj.", ".gate_up_proj.");
            fused.entry(key + scale).or_default().insert((0, half), stored);
        } else {
            native.insert(base + scale, stored.clone());
        }
    }
    for (name, parts) in fused {
        let one = parts.values().next().expect("parts");
        let (rows, columns) = (parts.len() as u64 * one.shape[0], one.shape[1]);
        let stacked = name.contains(".experts.");
        let shape =
            if stacked { vec![experts as u64, rows / experts as u64, columns] } else { vec![rows, columns] };
        let data = parts.values().flat_map(|part| part.data.clone()).collect();
        native.insert(name, Stored { dtype: one.dtype, shape, data });
    }
    native
}

#[test]
fn native_names_open_as_views_of_fused_and_stacked_tensors() {
    for mxfp8 in [false, true] {
        let config = tiny_config(mxfp8);
        let original = tensors(&config);
        let folder = Folder::new(&native_config(&config), &native(&original, 4, "model.language_model."));
        let checkpoint = open(&folder).expect("a sound folder");
        assert_eq!(checkpoint.report().naming, Naming::Native);
        assert_eq!(checkpoint.report().extra_tensors, Vec::<String>::new());
        assert_holds(&checkpoint, &original);
    }
}

#[test]
fn a_fused_tensor_of_the_wrong_shape_is_named_once() {
    let config = tiny_config(false);
    let mut native = native(&tensors(&config), 4, "model.language_model.");
    let name = "model.language_model.layers.2.mlp.experts.gate_up_proj";
    native.get_mut(name).expect("stacked experts").shape = vec![2, 128, 64];
    let found = faults(&Folder::new(&native_config(&config), &native));
    let [Fault::Shape { tensor, expected, found, .. }] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(
        (tensor.as_str(), expected.as_slice(), found.as_slice()),
        (name, &[4, 64, 64][..], &[2, 128, 64][..])
    );
}

#[test]
fn the_text_only_class_opens_without_prefix() {
    let released = tiny_config(true);
    let mut text = tensors(&released);
    text.retain(|name, _| name.starts_with("language_model."));
    let strip = |name: &String| name.strip_prefix("language_model.").expect("a text name").to_owned();
    let plain: Tensors = text.iter().map(|(name, stored)| (strip(name), stored.clone())).collect();
    let checkpoint_folder = Folder::new(&flat_config(&released), &plain);
    let checkpoint = open(&checkpoint_folder).expect("a sound folder");
    assert_eq!((checkpoint.report().naming, checkpoint.report().text_only), (Naming::ReleasedTextOnly, true));
    assert_holds(&checkpoint, &text);
    let native_folder = Folder::new(&flat_config(&released), &native(&text, 4, "model."));
    let checkpoint = open(&native_folder).expect("a sound folder");
    assert_eq!(checkpoint.report().naming, Naming::NativeTextOnly);
    assert_holds(&checkpoint, &text);
}

#[test]
fn without_vision_tensors_it_is_a_text_model() {
    let config = tiny_config(false);
    let mut text = tensors(&config);
    text.retain(|name, _| name.starts_with("language_model."));
    let folder = Folder::new(&config, &text);
    let checkpoint = open(&folder).expect("a sound folder");
    assert!(checkpoint.report().text_only);
    assert_eq!(checkpoint.config().vision, None);
    let seen_by_backends: Value = serde_json::from_slice(checkpoint.config_json()).expect("JSON");
    assert_eq!(&load(&seen_by_backends), checkpoint.config());
    assert_holds(&checkpoint, &text);
}

#[test]
fn some_vision_tensors_are_refused() {
    let found = faults_after(false, |tensors| {
        tensors.remove("patch_merge_mlp.linear_2.bias");
        tensors.remove("vision_tower.vision_model.pre_layrnorm.weight");
    });
    let [Fault::PartialVision { found, expected, first_missing }] = found.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!(
        (found + 2, first_missing.as_str()),
        (*expected, "vision_tower.vision_model.pre_layrnorm.weight")
    );
}

#[test]
fn the_router_and_patch_embedding_may_be_bf16() {
    let config = tiny_config(true);
    let mut tensors = tensors(&config);
    let mut halved = 0;
    for stored in tensors.values_mut().filter(|stored| stored.dtype == "F32") {
        *stored =
            Stored { dtype: "BF16", data: stored.data[..stored.data.len() / 2].to_vec(), ..stored.clone() };
        halved += 1;
    }
    assert_eq!(halved, 5);
    let folder = Folder::new(&config, &tensors);
    let checkpoint = open(&folder).expect("a sound folder");
    assert_eq!(checkpoint.tensor(GATE).expect("the router").spec.format, Format::Bf16);
    assert_holds(&checkpoint, &tensors);
}

#[test]
fn wrong_shapes_dtypes_and_scales_are_all_named() {
    let found = faults_after(true, |tensors| {
        tensors.get_mut(Q_PROJ).expect("q_proj").shape = vec![64, 128];
        let norm = tensors.get_mut("language_model.model.norm.weight").expect("a norm");
        *norm = Stored { dtype: "F16", ..norm.clone() };
        tensors.remove("language_model.model.layers.0.mlp.up_proj.weight_scale_inv");
        let down = "language_model.model.layers.0.mlp.down_proj.weight";
        tensors.get_mut(&format!("{down}_scale_inv")).expect("scales").shape = vec![3, 64];
        let gate = "language_model.model.layers.0.mlp.gate_proj.weight";
        let scales = tensors[&format!("{gate}_scale_inv")].clone();
        tensors.insert(format!("{gate}_scale"), scales);
    });
    let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
    for line in [
        "q_proj.weight has shape [64, 128], the config needs [128, 64]",
        "language_model.model.norm.weight is F16, the config needs BF16",
        "up_proj.weight has no scales",
        "down_proj.weight_scale_inv has shape [3, 64], the config needs [64, 3]",
        "gate_proj.weight has its scales twice",
    ] {
        assert!(lines.iter().any(|found| found.contains(line)), "{line} in {lines:#?}");
    }
    assert_eq!(lines.len(), 5, "{lines:#?}");
    assert!(lines.iter().any(|line| line.starts_with("model-0000")), "the file is named: {lines:#?}");
}

#[test]
fn bf16_tensors_under_an_mxfp8_config_are_refused() {
    let folder = Folder::new(&tiny_config(true), &tensors(&tiny_config(false)));
    let found = faults(&folder);
    assert!(
        found.iter().all(|fault| fault.to_string().contains("is BF16, the config needs F8_E4M3")),
        "{found:?}"
    );
    let folder = Folder::new(&tiny_config(false), &tensors(&tiny_config(true)));
    let found = faults(&folder);
    assert!(
        found.iter().all(|fault| fault.to_string().contains("is F8_E4M3, the config needs BF16")),
        "{found:?}"
    );
}

#[test]
fn nan_scales_are_refused_by_tensor_and_place() {
    let found = faults_after(true, |tensors| {
        let scales = tensors.get_mut(&format!("{Q_PROJ}_scale_inv")).expect("scales");
        scales.data[2 * 5 + 1] = 255;
    });
    let [Fault::NanScale { tensor, row, group, file }] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((tensor.as_str(), *row, *group), (format!("{Q_PROJ}_scale_inv").as_str(), 5, 1));
    assert!(SHARDS.contains(&file.as_str()));
}

#[test]
fn a_tensor_in_two_files_or_twice_in_one_is_refused() {
    let config = tiny_config(false);
    let tensors = tensors(&config);
    let folder = Folder::new(&config, &tensors);
    folder.write("zz.safetensors", &file_bytes([(&GATE.to_owned(), &tensors[GATE])]));
    let found = faults(&folder);
    let [Fault::Duplicate { tensor, second, .. }] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((tensor.as_str(), second.as_str()), (GATE, "zz.safetensors"));
    let entry = r#""a":{"dtype":"U8","shape":[1],"data_offsets":"#;
    folder.write("zz.safetensors", &raw_file(&format!("{{{entry}[0,1]}},{entry}[1,2]}}}}"), &[1, 2]));
    assert_eq!(
        faults(&folder),
        [Fault::DuplicateInFile { file: "zz.safetensors".to_owned(), tensor: "a".to_owned() }]
    );
}

/// Public fault M2: a shard that lost its end must not be mapped, at any length.
#[test]
fn m2_truncated_shards_are_refused_before_mapping() {
    let config = tiny_config(true);
    let folder = Folder::new(&config, &tensors(&config));
    let whole = folder.read(SHARDS[1]);
    for kept in [0, 7, 8, 100, whole.len() / 2, whole.len() - 1] {
        folder.write(SHARDS[1], &whole[..kept]);
        let found = faults(&folder);
        let named = found.iter().all(|fault| {
            matches!(fault, Fault::TooShort { file, .. } | Fault::HeaderTruncated { file, .. }
                | Fault::Truncated { file, .. } if file == SHARDS[1])
        });
        assert!(named && found.len() == 1, "{kept} of {}: {found:?}", whole.len());
    }
}

/// Public fault M3: bytes after the last tensor are refused, as holes are.
#[test]
fn m3_trailing_bytes_are_refused() {
    let config = tiny_config(true);
    let folder = Folder::new(&config, &tensors(&config));
    let mut padded = folder.read(SHARDS[0]);
    let expected = padded.len() as u64;
    padded.extend([0; 8]);
    folder.write(SHARDS[0], &padded);
    let file = SHARDS[0].to_owned();
    let found = faults(&folder);
    assert_eq!(found, [Fault::Trailing { file, expected, file_bytes: expected + 8 }]);
    assert!(found[0].to_string().contains("has 8 bytes after its last tensor"), "{}", found[0]);
}

/// Public fault M5: the index's total is a claim; the sum of the headers is what counts.
#[test]
fn m5_the_index_total_is_not_trusted() {
    let config = tiny_config(false);
    let tensors = tensors(&config);
    let folder = Folder::new(&config, &tensors);
    write_index(&folder, 869_157_697_024, |_, _| {});
    let checkpoint = open(&folder).expect("a wrong total is no fault");
    let bytes: usize = tensors.values().map(|stored| stored.data.len()).sum();
    assert_eq!(checkpoint.report().index_total_bytes, Some(869_157_697_024));
    assert_eq!(checkpoint.report().tensor_bytes, bytes as u64);
}

/// Writes an index that is right but for `change`.
fn write_index(folder: &Folder, total: u64, change: impl FnOnce(&mut BTreeMap<String, String>, &Checkpoint)) {
    let mut map = BTreeMap::new();
    let checkpoint = open(folder).expect("a sound folder");
    for file in SHARDS {
        let bytes = folder.read(file);
        let len = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
        let header: BTreeMap<String, Value> = serde_json::from_slice(&bytes[8..8 + len]).expect("a header");
        map.extend(header.into_keys().map(|name| (name, file.to_owned())));
    }
    change(&mut map, &checkpoint);
    let index = json!({"metadata": {"total_size": total}, "weight_map": map});
    folder.write("model.safetensors.index.json", index.to_string().as_bytes());
}

#[test]
fn an_index_that_promises_what_is_not_there_is_refused() {
    let config = tiny_config(false);
    let folder = Folder::new(&config, &tensors(&config));
    write_index(&folder, 1, |map, _| {
        map.insert("ghost".to_owned(), SHARDS[0].to_owned());
        map.insert("other".to_owned(), "model-00003-of-00003.safetensors".to_owned());
        let swapped = if map[GATE] == SHARDS[0] { SHARDS[1] } else { SHARDS[0] };
        map.insert(GATE.to_owned(), swapped.to_owned());
    });
    let lines: Vec<String> = faults(&folder).iter().map(ToString::to_string).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(
        lines[0].contains("lists the file model-00003-of-00003.safetensors, which is not there"),
        "{lines:?}"
    );
    assert!(lines[1].contains("ghost is in") && lines[1].ends_with("it is nowhere"), "{lines:?}");
    assert!(lines[2].contains(GATE) && lines[2].contains("it is in model-"), "{lines:?}");
}

#[test]
fn tensors_outside_the_index_are_reported() {
    let config = tiny_config(false);
    let folder = Folder::new(&config, &tensors(&config));
    write_index(&folder, 1, |map, _| {
        map.remove(GATE);
    });
    let checkpoint = open(&folder).expect("the headers have it");
    assert_eq!(checkpoint.report().unindexed_tensors, [GATE]);
}

#[cfg(unix)]
#[test]
fn a_pipe_or_folder_in_place_of_a_shard_is_refused_at_once() {
    let config = tiny_config(false);
    for command in ["mkfifo", "mkdir"] {
        let folder = Folder::new(&config, &tensors(&config));
        let pipe = folder.path().join("odd.safetensors");
        assert!(std::process::Command::new(command).arg(&pipe).status().expect("runs").success());
        assert_eq!(faults(&folder), [Fault::NoFile { file: "odd.safetensors".to_owned() }], "{command}");
    }
}

/// Public fault M6: one tensor too many is listed, one too few refuses the folder, both by name.
#[test]
fn m6_extra_tensors_are_listed_and_missing_ones_refused() {
    let config = tiny_config(true);
    let mut tensors = tensors(&config);
    let bogus = Stored { dtype: "I64", shape: vec![1], data: vec![0; 8] };
    tensors.insert("bogus.weight".to_owned(), bogus.clone());
    tensors.insert("mtp.layers.0.eh_proj.weight".to_owned(), bogus.clone());
    tensors.insert("language_model.model.mtp.layers.0.enorm.weight".to_owned(), bogus);
    let folder = Folder::new(&config, &tensors);
    let checkpoint = open(&folder).expect("extra tensors are no fault");
    assert_eq!(checkpoint.report().extra_tensors, ["bogus.weight"]);
    assert_eq!(checkpoint.report().num_draft_tensors, 2);
    let last = tensors.remove("language_model.lm_head.weight").expect("the head");
    tensors.remove(GATE);
    let found = faults(&Folder::new(&config, &tensors));
    let unused = Fault::Unused { count: 1, first: vec!["bogus.weight".to_owned()] };
    assert_eq!(found[0], unused, "what is there under another name is the first thing to look at");
    assert_eq!(unused.to_string(), "1 stored tensor is in no place of this config: bogus.weight");
    let missing: Vec<_> = found[1..]
        .iter()
        .map(|fault| match fault {
            Fault::Missing { tensor, shape, .. } => (tensor.as_str(), shape.clone()),
            other => panic!("{other}"),
        })
        .collect();
    assert_eq!(missing, [(GATE, vec![4, 64]), ("language_model.lm_head.weight", last.shape)]);
}

#[test]
fn broken_headers_are_refused_by_file_and_tensor() {
    let config = tiny_config(false);
    let folder = Folder::new(&config, &tensors(&config));
    let check = |bytes: &[u8], expected: &str| {
        folder.write("zz.safetensors", bytes);
        let found = faults(&folder);
        assert_eq!(found.len(), 1, "{expected}: {found:?}");
        let line = found[0].to_string();
        assert!(line.contains("zz.safetensors") && line.contains(expected), "{expected}: {line}");
    };
    let entry = |name: &str, dtype: &str, shape: &str, offsets: &str| {
        format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}"#)
    };
    let file = |entries: &[String], data: &[u8]| raw_file(&format!("{{{}}}", entries.join(",")), data);
    check(&u64::MAX.to_le_bytes(), "a header of 18446744073709551615 bytes");
    check(&raw_file("{\"a\":", &[]), "a broken header");
    check(&raw_file("[]", &[]), "a broken header");
    check(&file(&[entry("a", "F99", "[1]", "[0,1]")], &[0]), "tensor a has the unknown dtype F99");
    check(
        &file(&[entry("a", "F32", "[1]", "[0,3]")], &[0; 3]),
        "tensor a spans 3 bytes, but F32 [1] takes 4",
    );
    check(&file(&[entry("a", "U8", "[1]", "[1,0]")], &[0]), "tensor a spans 0 bytes");
    let huge = "[4294967296,4294967296,4294967296]";
    check(&file(&[entry("a", "U8", huge, "[0,1]")], &[0]), "takes more than 2^64");
    check(
        &file(&[entry("a", "U8", "[1]", "[18446744073709551614,18446744073709551615]")], &[0]),
        "tensor a spans",
    );
    check(&file(&[entry("a", "U8", "[1]", "[1,2]")], &[0; 2]), "a hole");
    let pair = [entry("a", "U8", "[2]", "[0,2]"), entry("b", "U8", "[2]", "[1,3]")];
    check(&file(&pair, &[0; 3]), "inside a, which ends at");
    check(&file(&[entry("a", "U8", "[4]", "[0,4]")], &[0; 3]), "is truncated: its header describes");
    let inner = [entry("a", "U8", "[4]", "[0,4]"), entry("b", "U8", "[1]", "[1,2]")];
    check(&file(&inner, &[0; 4]), "tensor b starts at");
}

/// Any changed byte of a header ends in a fault or in a checkpoint whose tensors can all be read, never in a panic.
#[test]
fn no_damaged_header_panics() {
    let config = tiny_config(true);
    let folder = Folder::new(&config, &tensors(&config));
    let whole = folder.read(SHARDS[1]);
    let header_end = 8 + u64::from_le_bytes(whole[..8].try_into().expect("8 bytes")) as usize;
    let (mut refused, mut opened) = (0, 0);
    for at in (0..8).chain((8..header_end).step_by(211)) {
        for byte in [0, b'0', b'9', b'"', b'}', 0xff] {
            let mut damaged = whole.clone();
            damaged[at] = byte;
            folder.write(SHARDS[1], &damaged);
            match open(&folder) {
                Ok(checkpoint) => {
                    let bytes: u64 = checkpoint.load_order().map(|tensor| tensor.bytes()).sum();
                    assert_eq!(bytes, checkpoint.load_bytes());
                    opened += 1;
                }
                Err(error) => {
                    assert!(error.to_string().contains("refused"), "{error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 10 * opened, "{refused} refused, {opened} opened");
}

#[test]
fn values_that_start_between_their_boundaries_are_refused() {
    let config = tiny_config(false);
    let mut tensors = tensors(&config);
    let norm = "language_model.model.norm.weight".to_owned();
    let moved = tensors.remove(&norm).expect("the norm");
    let folder = Folder::new(&config, &tensors);
    let odd = Stored { dtype: "U8", shape: vec![1], data: vec![0] };
    folder.write("zz.safetensors", &file_bytes([(&"odd".to_owned(), &odd), (&norm, &moved)]));
    let found = faults(&folder);
    let [Fault::Misaligned { tensor, align: 2, .. }] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(tensor, &norm);
}

#[test]
fn folders_without_files_are_refused() {
    let folder = Folder(tempfile::tempdir().expect("a temporary folder"));
    let message = open(&folder).expect_err("no config").to_string();
    assert!(message.starts_with("cannot read") && message.contains("config.json"), "{message}");
    folder.write("config.json", tiny_config(false).to_string().as_bytes());
    assert_eq!(faults(&folder), [Fault::NoFiles]);
    folder.write("generation_config.json", b"{\"top_p\": 7}");
    assert!(open(&folder).expect_err("a wrong file").to_string().contains("top_p: 7"));
}

#[test]
fn hidden_companion_files_are_not_shards() {
    let config = tiny_config(false);
    let folder = Folder::new(&config, &tensors(&config));
    folder.write("._model-00001-of-00002.safetensors", b"not a shard");
    assert_eq!(open(&folder).expect("a sound folder").report().files.len(), 2);
}

#[test]
fn golden_checkpoints_open() {
    let quantised = ["vl_mxfp8", "real128"];
    for name in ["text", "long16", "long128", "vl", "vl_mxfp8", "real128"] {
        let Some(path) = golden(&format!("ckpt/{name}")) else { continue };
        let checkpoint = Checkpoint::open(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        let index = std::fs::read_to_string(path.join("model.safetensors.index.json")).expect("an index");
        assert_eq!(checkpoint.report().text_only, !index.contains("vision_tower"), "{name}");
        assert_eq!(checkpoint.report().extra_tensors, Vec::<String>::new(), "{name}");
        assert_eq!(checkpoint.report().unknown_config_keys, Vec::<String>::new(), "{name}");
        let vocab = checkpoint.config().text.vocab_size as u32;
        assert_eq!(checkpoint.generation().eos_token_ids, [vocab - 1], "{name}");
        let head = |tensor: &TensorData<'_>| tensor.spec.role == Role::Head;
        assert_eq!(checkpoint.load_order().filter(head).count(), 1, "{name}");
        let query =
            checkpoint.tensor("language_model.model.layers.4.self_attn.q_proj.weight").expect("layer 4");
        let format = if quantised.contains(&name) { Format::Mxfp8 } else { Format::Bf16 };
        assert_eq!(query.spec.format, format, "{name}");
    }
}
