//! The tower against the scalar reference on seeded weights: every instruction set, both precisions, ragged segments.
//! What the goldens say is held by the conformance suites.

use std::collections::HashMap;

use m3_abi::TensorView;
use m3_model::checkpoint::row_major_strides;
use m3_model::config::ModelConfig;
use m3_model::names::{Role, expected_tensors};
use m3_model::reference::tensor::Tensor;
use m3_model::reference::vision::encode;
use m3_model::reference::vision_weights::VisionWeights;
use m3_model::taps::TapPoint;

use super::{Encoder, groups};
use crate::buffer::Precision;
use crate::kernels::convert::{bf16_to_f32, f32_to_bf16};
use crate::kernels::random::Random;
use crate::kernels::{Isa, Kernels};
use crate::taps::Recorder;
use crate::weights::Store;
use crate::weights::vision::Vision;

#[test]
fn segments_gather_until_the_products_are_large() {
    let one = |range: std::ops::Range<usize>| vec![range];
    assert_eq!(groups(vec![0..4, 4..2048, 2048..2052]), [vec![0..4, 4..2048], one(2048..2052)]);
    assert_eq!(groups(vec![0..9000, 9000..9004]), [one(0..9000), one(9000..9004)]);
}

/// A small tower: heads of 20 dims, merge 2, segments of at most two frames.
fn config() -> ModelConfig {
    let json = r#"{
        "architectures": ["MiniMaxM3SparseForConditionalGeneration"], "model_type": "minimax_m3_vl",
        "text_config": {
            "architectures": ["MiniMaxM3SparseForCausalLM"], "hidden_size": 64, "intermediate_size": 32,
            "dense_intermediate_size": 32, "shared_intermediate_size": 32, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 64,
            "max_position_embeddings": 8192, "rms_norm_eps": 1e-06, "use_gemma_norm": true,
            "attention_output_gate": false, "rope_theta": 5000000, "rotary_dim": 16,
            "partial_rotary_factor": 0.5, "hidden_act": "swigluoai", "use_qk_norm": true,
            "qk_norm_type": "per_head", "tie_word_embeddings": false, "num_local_experts": 4,
            "num_experts_per_tok": 2, "n_shared_experts": 1, "scoring_func": "sigmoid",
            "use_routing_bias": true, "moe_layer_freq": [0, 1], "swiglu_alpha": 1.702, "swiglu_limit": 7.0,
            "routed_scaling_factor": 2.0,
            "sparse_attention_config": {
                "use_sparse_attention": true, "sparse_index_dim": 32, "sparse_num_index_heads": 1,
                "sparse_topk_blocks": 4, "sparse_block_size": 16, "sparse_disable_index_value": [0, 1],
                "sparse_score_type": "max", "sparse_init_block": 0, "sparse_local_block": 1,
                "sparse_attention_freq": [0, 1]
            }
        },
        "vision_config": {
            "hidden_size": 60, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 100,
            "patch_size": 4, "projection_dim": 64, "position_embedding_type": "rope", "rope_mode": "3d",
            "rope_theta": 10000.0, "hidden_act": "gelu", "layer_norm_eps": 1e-05,
            "model_type": "clip_vision_model", "num_channels": 3, "vision_segment_max_frames": 2,
            "img_token_compression_config": {
                "image_token_compression_method": "patch_merge", "spatial_merge_size": 2,
                "temporal_patch_size": 2
            }
        },
        "projector_hidden_size": 48, "projector_hidden_act": "gelu", "multimodal_projector_bias": true,
        "image_token_index": 60, "video_token_index": 61
    }"#;
    ModelConfig::from_json(json.as_bytes()).unwrap().config
}

/// Every vision tensor by name with its rows of values, exact in bf16.
fn tensors(config: &ModelConfig) -> HashMap<String, Tensor> {
    let specs = expected_tensors(config).into_iter().filter(|spec| spec.role == Role::Vision);
    let tensor = |(seed, spec): (usize, m3_model::names::TensorSpec)| {
        let count = spec.shape.iter().product::<u64>() as usize;
        let columns = if spec.shape.len() == 1 { count } else { count / spec.shape[0] as usize };
        let mut random = Random::new(seed as u64 + 1);
        let is_norm = spec.name.contains("norm") && spec.name.ends_with("weight");
        let deviation = if spec.shape.len() == 1 { 0.2 } else { 1.0 / (columns as f32).sqrt() };
        let value = |_| {
            let value = random.normal() * deviation + f32::from(u8::from(is_norm));
            bf16_to_f32(f32_to_bf16(value))
        };
        (spec.name, Tensor { values: (0..count).map(value).collect(), columns, quantized: false })
    };
    specs.enumerate().map(tensor).collect()
}

/// The same tensors as a mapped file would lend them: bf16, the patch embedding f32.
struct File {
    bits: HashMap<String, Vec<u16>>,
    tensors: HashMap<String, Tensor>,
}

impl File {
    fn new(config: &ModelConfig) -> File {
        let tensors = tensors(config);
        let bits = tensors.iter().map(|(name, tensor)| {
            (name.clone(), tensor.values.iter().map(|&value| f32_to_bf16(value)).collect())
        });
        File { bits: bits.collect(), tensors }
    }

    fn load(&self, config: &ModelConfig, without: &str) -> Store {
        let mut store = Store::new(true);
        for spec in expected_tensors(config).iter().filter(|spec| spec.role == Role::Vision) {
            if spec.name == without {
                continue;
            }
            let is_f32 = spec.format == m3_model::formats::Format::F32;
            let bits = self.bits[&spec.name].as_ptr().cast::<u8>();
            let values = self.tensors[&spec.name].values.as_ptr().cast::<u8>();
            let strides = row_major_strides(&spec.shape);
            let view = TensorView {
                name: &spec.name,
                format: spec.format.abi(),
                shape: &spec.shape,
                strides: &strides[..spec.shape.len()],
                data: if is_f32 { values } else { bits },
                scale: std::ptr::null(),
                scale_stride: 0,
                group_offset: 0,
                seed: 0,
            };
            store.insert(&view).unwrap();
        }
        store
    }
}

const GRIDS: [[u32; 3]; 3] = [[1, 4, 6], [5, 6, 8], [1, 2, 2]];

#[test]
fn every_isa_and_precision_follows_the_reference() {
    let config = config();
    let vision = config.vision.clone().unwrap();
    let (file, mut random) = (File::new(&config), Random::new(99));
    let num_patches = 24 + 240 + 4;
    let patches: Vec<f32> = (0..num_patches * vision.row_len()).map(|_| random.normal()).collect();
    let weights = VisionWeights::assemble(&vision, 64, &mut file.tensors.clone()).unwrap().unwrap();
    let wanted = encode(&vision, &weights, &patches, &GRIDS);
    assert_eq!(wanted.features.len(), num_patches / 4 * 64);
    for isa in Isa::available() {
        for (precision, most) in [(Precision::F32, 1e-5), (Precision::Bf16, 0.02)] {
            let store = file.load(&config, "");
            let vision = Vision::resolve(&config, precision, &store).unwrap().unwrap();
            let encoder = Encoder { kernels: Kernels::of(isa).unwrap(), precision, vision };
            let mut taps = Recorder::new(true);
            let found = encoder.encode(&patches, &GRIDS, &mut taps);
            let off = relative_rms(&found, &wanted.features);
            assert!(off < most, "{isa:?} {precision:?}: features are {off} off");
            let taps = taps.take().unwrap();
            assert_eq!(taps[&TapPoint::Features].data, found);
            let off = relative_rms(&taps[&TapPoint::TowerOut].data, &wanted.tower_out);
            assert!(off < most, "{isa:?} {precision:?}: the tower is {off} off");
        }
    }
}

fn relative_rms(found: &[f32], wanted: &[f32]) -> f64 {
    assert_eq!(found.len(), wanted.len());
    let square = |value: f32| f64::from(value).powi(2);
    let error: f64 = found.iter().zip(wanted).map(|(found, wanted)| square(found - wanted)).sum();
    (error / wanted.iter().map(|&value| square(value)).sum::<f64>()).sqrt()
}

#[test]
fn a_tower_that_lacks_a_tensor_is_refused_and_no_tower_is_none() {
    let config = config();
    let file = File::new(&config);
    let store = file.load(&config, "patch_merge_mlp.linear_2.bias");
    let error = Vision::resolve(&config, Precision::F32, &store).map(|_| ()).unwrap_err().to_string();
    assert_eq!(error, "1 vision tensors cannot be used: patch_merge_mlp.linear_2.bias is missing");
    assert!(Vision::resolve(&config, Precision::F32, &Store::new(true)).unwrap().is_none());
}
