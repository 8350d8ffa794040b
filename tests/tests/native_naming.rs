//! A golden checkpoint renamed to the transformers-native scheme (names, fused gate and up, stacked experts) gives
//! equal logits.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use m3_abi::types::DTYPE_F32;
use m3_model::checkpoint::Checkpoint;
use m3_model::naming::Naming;
use m3_model::reference::ReferenceDriver;
use m3_tests::feed::{Row, one};
use m3_tests::golden;
use m3_tests::world::{Setup, World};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

fn read(folder: &Path) -> Tensors {
    let mut tensors = Tensors::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            let bytes = std::fs::read(path).unwrap();
            for (name, view) in SafeTensors::deserialize(&bytes).unwrap().tensors() {
                tensors.insert(name, (view.dtype(), view.shape().to_vec(), view.data().to_vec()));
            }
        }
    }
    tensors
}

/// Rows of both, one after the other.
fn stacked(parts: &[&(Dtype, Vec<usize>, Vec<u8>)]) -> (Dtype, Vec<usize>, Vec<u8>) {
    let (dtype, mut shape, _) = parts[0].clone();
    shape[0] = parts.iter().map(|part| part.1[0]).sum();
    (dtype, shape, parts.iter().flat_map(|part| part.2.clone()).collect())
}

fn rename(mut tensors: Tensors, config: &Value) -> Tensors {
    let text = &config["text_config"];
    let (layers, experts) =
        (text["num_hidden_layers"].as_u64().unwrap(), text["num_local_experts"].as_u64().unwrap());
    for layer in 0..layers {
        let prefix = format!("language_model.model.layers.{layer}");
        for mlp in [format!("{prefix}.mlp"), format!("{prefix}.block_sparse_moe.shared_experts")] {
            if let Some(gate) = tensors.remove(&format!("{mlp}.gate_proj.weight")) {
                let up = tensors.remove(&format!("{mlp}.up_proj.weight")).unwrap();
                tensors.insert(format!("{mlp}.gate_up_proj.weight"), stacked(&[&gate, &up]));
            }
        }
        let moe = format!("{prefix}.block_sparse_moe");
        let mut take = |expert, part| tensors.remove(&format!("{moe}.experts.{expert}.{part}.weight"));
        let parts: Vec<_> =
            (0..experts).map_while(|e| Some((take(e, "w1")?, take(e, "w3")?, take(e, "w2")?))).collect();
        if parts.is_empty() {
            continue;
        }
        let gate_up: Vec<_> = parts.iter().map(|(gate, up, _)| stacked(&[gate, up])).collect();
        let mut both = stacked(&gate_up.iter().collect::<Vec<_>>());
        both.1 = vec![parts.len(), gate_up[0].1[0], gate_up[0].1[1]];
        let mut down = stacked(&parts.iter().map(|(_, _, down)| down).collect::<Vec<_>>());
        down.1 = vec![parts.len(), parts[0].2.1[0], parts[0].2.1[1]];
        tensors.insert(format!("{moe}.experts.gate_up_proj"), both);
        tensors.insert(format!("{moe}.experts.down_proj"), down);
    }
    tensors.into_iter().map(|(name, tensor)| (native(&name), tensor)).collect()
}

fn native(name: &str) -> String {
    let name = name
        .replace("language_model.lm_head", "lm_head")
        .replace("language_model.model.", "model.language_model.")
        .replace("block_sparse_moe.e_score_correction_bias", "mlp.gate.e_score_correction_bias")
        .replace("block_sparse_moe", "mlp");
    ["q_proj", "k_proj", "q_norm", "k_norm"].iter().fold(name, |name, part| {
        name.replace(&format!("self_attn.index_{part}"), &format!("self_attn.indexer.{part}"))
    })
}

fn native_config(config: &Value) -> Value {
    let mut native = config.clone();
    let text = native["text_config"].as_object_mut().unwrap();
    let sparse = text.remove("sparse_attention_config").unwrap();
    let kinds = |list: Value, one: &str, zero: &str| -> Vec<Value> {
        list.as_array().unwrap().iter().map(|flag| json!(if flag == 1 { one } else { zero })).collect()
    };
    let moe = text.remove("moe_layer_freq").unwrap();
    text.insert("mlp_layer_types".into(), json!(kinds(moe, "sparse", "dense")));
    let layers = kinds(sparse["sparse_attention_freq"].clone(), "minimax_m3_sparse", "full_attention");
    text.insert("layer_types".into(), json!(layers));
    for (native, released) in [
        ("index_n_heads", "sparse_num_index_heads"),
        ("index_head_dim", "sparse_index_dim"),
        ("index_block_size", "sparse_block_size"),
        ("index_topk_blocks", "sparse_topk_blocks"),
        ("index_local_blocks", "sparse_local_block"),
    ] {
        text.insert(native.into(), sparse[released].clone());
    }
    let (theta, factor) = (text.remove("rope_theta").unwrap(), text.remove("partial_rotary_factor").unwrap());
    text.remove("rotary_dim");
    text.insert(
        "rope_parameters".into(),
        json!({"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": factor}),
    );
    text.insert("hidden_act".into(), json!("silu"));
    text.insert("model_type".into(), json!("minimax_m3_vl_text"));
    native
}

fn last_logits(folder: &Path) -> Vec<f32> {
    let checkpoint = Arc::new(Checkpoint::open(folder).unwrap());
    let mut world =
        World::open(&ReferenceDriver::default(), &checkpoint, &Setup::with_dtype(DTYPE_F32)).unwrap();
    let ids: Vec<u32> = (0..150).map(|index| (index * 37 + 11) % 400).collect();
    one(&mut world, &mut Row::new(0), &ids, ids.len()).unwrap();
    world.tap("logits").unwrap().data
}

#[test]
fn renamed_golden_gives_equal_logits() {
    let released = golden::find("ckpt/text").unwrap();
    let config: Value =
        serde_json::from_slice(&std::fs::read(released.join("config.json")).unwrap()).unwrap();
    let tensors = rename(read(&released), &config);
    let folder = tempfile::tempdir().unwrap();
    let views: Vec<_> = tensors
        .iter()
        .map(|(name, (dtype, shape, bytes))| (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap()))
        .collect();
    std::fs::write(folder.path().join("model.safetensors"), safetensors::serialize(views, None).unwrap())
        .unwrap();
    std::fs::write(folder.path().join("config.json"), native_config(&config).to_string()).unwrap();
    assert_ne!(
        Checkpoint::open(&released).unwrap().report().naming,
        Checkpoint::open(folder.path()).unwrap().report().naming
    );
    assert_eq!(Checkpoint::open(&released).unwrap().report().naming, Naming::Released);
    assert_eq!(last_logits(&released), last_logits(folder.path()));
}
