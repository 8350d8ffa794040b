//! The timed steps, run on the CPU backend with a small model: the protocol is the same.

use backend_cpu::CpuDriver;
use m3_abi::Driver;
use m3_abi::types::DTYPE_F32;
use serde_json::json;

use super::*;

fn small() -> Model {
    let layers = [0, 1];
    let attention = json!({
        "use_sparse_attention": true, "sparse_index_dim": 16, "sparse_num_index_heads": 2,
        "sparse_topk_blocks": 2, "sparse_block_size": 16, "sparse_disable_index_value": layers,
        "sparse_score_type": "max", "sparse_init_block": 0, "sparse_local_block": 1,
        "sparse_attention_freq": layers,
    });
    let text = json!({
        "architectures": ["MiniMaxM3SparseForCausalLM"],
        "hidden_size": 64, "intermediate_size": 32, "dense_intermediate_size": 64,
        "shared_intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 20_032,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "use_gemma_norm": true,
        "attention_output_gate": false, "rope_theta": 5_000_000, "rotary_dim": 8,
        "partial_rotary_factor": 0.5, "hidden_act": "swigluoai", "use_qk_norm": true,
        "qk_norm_type": "per_head", "tie_word_embeddings": false, "num_local_experts": 4,
        "num_experts_per_tok": 2, "n_shared_experts": 1, "scoring_func": "sigmoid",
        "use_routing_bias": true, "moe_layer_freq": layers, "swiglu_alpha": 1.702, "swiglu_limit": 7.0,
        "routed_scaling_factor": 2.0, "sparse_attention_config": attention,
    });
    let config = json!({
        "architectures": ["MiniMaxM3SparseForConditionalGeneration"], "model_type": "minimax_m3_vl",
        "text_config": text,
    });
    Model::from_json("small".to_owned(), &config, 1).unwrap()
}

impl Opened for Box<dyn Backend> {
    fn backend(&mut self) -> &mut dyn Backend {
        &mut **self
    }
}

fn session() -> Session<Box<dyn Backend>> {
    let limits = Limits {
        max_rows: 8,
        chunk: 64,
        max_context: 1024,
        page_memory_bytes: 4 << 20,
        dtype: DTYPE_F32,
        ..Limits::default()
    };
    Session::open(|request| CpuDriver::detect().open(request), &small(), &limits).unwrap()
}

#[test]
fn every_step_is_timed_and_computes_something() {
    let mut session = session();
    assert!(session.num_pages() > 64);
    for (batch, context, steps) in [(1, 32, 20), (8, 64, 5), (3, 0, 17), (8, 512, 3)] {
        let times = session.decode(batch, context, steps).unwrap();
        assert_eq!(times.len(), steps);
        assert!(times.iter().all(|time| time.wall > 0.0));
    }
    for (tokens, cached) in [(64, 0), (200, 0), (100, 160)] {
        assert!(session.prefill(tokens, cached).unwrap().wall > 0.0);
    }
    assert_eq!(session.faults, 0, "pages that hold no numbers would show here");
}

#[test]
fn rows_own_the_pages_that_they_write_and_share_none_while_there_are_enough() {
    let session = session();
    let tables = session.tables(4, 64, 20).unwrap();
    let mut seen = tables.ids.clone();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 4 * (4 + 2));
    let many = session.tables(8, 1024, 20).unwrap();
    let own: Vec<u32> = many.ids.chunks(66).flat_map(|row| row[64..].iter().copied()).collect();
    assert_eq!(own.len(), 16);
    for page in own {
        assert_eq!(many.ids.iter().filter(|id| **id == page).count(), 1);
    }
}

#[test]
fn more_rows_than_pages_are_refused_with_both_numbers() {
    let session = session();
    let Err(error) = session.tables(100_000, 0, 16) else { panic!("was not refused") };
    assert!(error.to_string().contains("100000 pages"), "{error}");
    assert!(session.tables(1, 17, 16).is_err(), "a context that ends inside a page");
}
