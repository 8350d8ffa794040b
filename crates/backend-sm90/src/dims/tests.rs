//! The shapes of the kernels' manifest are those of the models that they are named after.

use serde_json::{Value, json};

use super::*;
use crate::driver::Plan;
use crate::kernels::SHAPES;

const NANO: &str = include_str!("../../../../models/m3-nano/config.json");
const CHECKPOINTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/golden/ckpt");

/// The released model's numbers in the bundled one's words.
fn m3() -> String {
    let mut config: Value = serde_json::from_str(NANO).unwrap();
    config["projector_hidden_size"] = json!(6144);
    config["vision_config"]["projection_dim"] = json!(6144);
    let numbers = json!({
        "hidden_size": 6144, "vocab_size": 200_064, "num_attention_heads": 64, "num_key_value_heads": 4,
        "dense_intermediate_size": 12_288, "intermediate_size": 3072, "shared_intermediate_size": 3072,
        "num_local_experts": 128,
    });
    let text = config["text_config"].as_object_mut().unwrap();
    text.extend(numbers.as_object().unwrap().clone());
    let sparse = text["sparse_attention_config"].as_object_mut().unwrap();
    sparse.insert("sparse_num_index_heads".to_owned(), json!(4));
    sparse.insert("sparse_topk_blocks".to_owned(), json!(16));
    config.to_string()
}

/// Config and ranks of a shape's model.
fn model(shape: &str) -> (String, u32) {
    let (name, ranks) = shape.rsplit_once(" TP").unwrap();
    let config = match name {
        "M3" => m3(),
        "m3-nano" => NANO.to_owned(),
        _ => std::fs::read_to_string(format!("{CHECKPOINTS}/{name}/config.json")).unwrap(),
    };
    (config, ranks.parse().unwrap())
}

#[test]
fn every_rank_of_every_shapes_model_has_its_dims() {
    for (shape, dims) in SHAPES {
        let (config, ranks) = model(shape);
        let plan = Plan::new(config.as_bytes(), ranks, 1).unwrap();
        let expected: pack::Dims = dims.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        for rank in 0..ranks as usize {
            assert_eq!(plan.dims(rank).unwrap().named(), expected, "rank {rank} of {shape}");
        }
    }
    assert!(SHAPES.len() >= 11, "the manifest lost shapes");
}
