//! What `ready` announces for the vision tower against what an encode really takes, under a counted heap. In a file of
//! its own because the counter counts for the whole process.
#![allow(clippy::unwrap_used, reason = "a test")]

use backend_cpu::CpuDriver;
use m3_abi::types::{DTYPE_BF16, DTYPE_F32, Ready};
use m3_abi::{Backend, Driver, OpenRequest, Output, TensorView};
use m3_model::checkpoint::row_major_strides;
use m3_model::config::ModelConfig;
use m3_model::names::{Role, expected_tensors};
use m3_testdata::counted::{Counted, peak};

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// A tower of M3's proportions, of WIDTH and HEADS, one layer deep, with patches of twice the side.
const CONFIG: &str = r#"{
  "architectures": ["MiniMaxM3SparseForConditionalGeneration"], "model_type": "minimax_m3_vl",
  "text_config": {
    "architectures": ["MiniMaxM3SparseForCausalLM"], "hidden_size": 1536, "intermediate_size": 64,
    "dense_intermediate_size": 64, "shared_intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 128, "vocab_size": 512,
    "max_position_embeddings": 8192, "rms_norm_eps": 1e-06, "use_gemma_norm": true,
    "attention_output_gate": false, "rope_theta": 5000000, "rotary_dim": 64, "partial_rotary_factor": 0.5,
    "hidden_act": "swigluoai", "use_qk_norm": true, "qk_norm_type": "per_head",
    "tie_word_embeddings": false, "num_local_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1,
    "scoring_func": "sigmoid", "use_routing_bias": true, "moe_layer_freq": [0, 1], "swiglu_alpha": 1.702,
    "swiglu_limit": 7.0, "routed_scaling_factor": 2.0,
    "sparse_attention_config": {
      "use_sparse_attention": true, "sparse_index_dim": 128, "sparse_num_index_heads": 1,
      "sparse_topk_blocks": 16, "sparse_block_size": 128, "sparse_disable_index_value": [0, 1],
      "sparse_score_type": "max", "sparse_init_block": 0, "sparse_local_block": 1,
      "sparse_attention_freq": [0, 1]
    }
  },
  "vision_config": {
    "model_type": "clip_vision_model", "hidden_size": WIDTH, "num_attention_heads": HEADS, "num_hidden_layers": 1,
    "intermediate_size": 1280, "patch_size": 28, "projection_dim": 1536, "position_embedding_type": "rope",
    "rope_mode": "3d", "rope_theta": 10000.0, "hidden_act": "gelu", "layer_norm_eps": 1e-05,
    "num_channels": 3, "vision_segment_max_frames": 4,
    "img_token_compression_config": {
      "image_token_compression_method": "patch_merge", "spatial_merge_size": 2, "temporal_patch_size": 2
    }
  },
  "projector_hidden_size": 1536, "projector_hidden_act": "gelu", "multimodal_projector_bias": true,
  "image_token_index": 500, "video_token_index": 501
}"#;
/// Values of a patch.
const ROW_LEN: usize = 4704;

/// What is opened: activations, context, and heads of 80 in the tower.
#[derive(Clone, Copy, Debug)]
struct Case {
    dtype: u32,
    max_context: u32,
    heads: u32,
}

fn open(case: Case, with_tower: bool) -> (Box<dyn Backend>, Ready) {
    let Case { dtype, max_context, heads } = case;
    let json = CONFIG.replace("WIDTH", &(80 * heads).to_string()).replace("HEADS", &heads.to_string());
    let config = ModelConfig::from_json(json.as_bytes()).unwrap().config;
    let request = OpenRequest {
        tp: 1,
        ep: 1,
        dtype,
        kv_dtype: dtype,
        max_rows: 1,
        max_step_tokens: 128,
        max_context,
        page_tokens: 128,
        num_threads: 2,
        page_memory_bytes: 1 << 24,
        config: json.into_bytes(),
        ..OpenRequest::default()
    };
    let mut backend = CpuDriver::detect().open(&request).unwrap();
    let specs = expected_tensors(&config);
    for (seed, spec) in specs.iter().enumerate().filter(|(_, spec)| with_tower || spec.role != Role::Vision) {
        let strides = row_major_strides(&spec.shape);
        let view = TensorView {
            name: &spec.name,
            format: spec.format.abi(),
            shape: &spec.shape,
            strides: &strides[..spec.shape.len()],
            data: std::ptr::null(),
            scale: std::ptr::null(),
            scale_stride: 0,
            group_offset: 0,
            seed: seed as u64,
        };
        backend.load(&view).unwrap();
    }
    let ready = backend.ready().unwrap();
    (backend, ready)
}

/// The announced bytes of the tower, and the most that encoding `grid` takes.
fn announced_and_taken(case: Case, grid: [u32; 3]) -> (usize, usize) {
    let text = open(case, false).1.workspace_bytes;
    let (mut backend, ready) = open(case, true);
    let announced = (ready.workspace_bytes - text) as usize;
    backend.reserve(1).unwrap();
    backend.warm(&[]).unwrap();
    let count = grid.iter().product::<u32>() as usize * ROW_LEN;
    let patches: Vec<f32> = (0..count).map(|index| ((index * 7919) % 509) as f32 / 127.0 - 2.0).collect();
    let (taken, ()) = peak(|| {
        let media = backend.encode(&patches, ROW_LEN, &[grid]).unwrap();
        backend.wait(media.ticket, &mut Output::default()).unwrap();
    });
    (announced, taken)
}

/// One test, since the counter is one. Two sizes decide: the context, and the longest segment of a video. In the narrow
/// tower the patches take most, in the wide one attention does, as in the released model.
#[test]
fn the_towers_announced_memory_is_what_an_encode_takes() {
    let cases = [
        // 640 tokens hold 2560 patches: one segment of all of them.
        (4, 640, [4, 20, 32]),
        // More tokens than the longest usual segment has: four frames of 24 x 32.
        (4, 8192, [4, 24, 32]),
        (8, 256, [1, 32, 32]),
    ];
    for dtype in [DTYPE_F32, DTYPE_BF16] {
        for (heads, max_context, grid) in cases {
            let case = Case { dtype, max_context, heads };
            let (announced, taken) = announced_and_taken(case, grid);
            println!("{case:?}, {grid:?}: {taken} of {announced} bytes");
            assert!(taken <= announced, "{case:?}, {grid:?}: {taken} bytes, more than {announced}");
            assert!(taken * 10 >= announced * 9, "{case:?}, {grid:?}: {taken} bytes, far from {announced}");
        }
    }
}
