//! One call of sparse attention with bf16-exact inputs and answers in f64, through pages and operations as a step runs
//! them: every instruction set must choose exactly the golden blocks.

#![expect(unsafe_code, reason = "pages are filled without a step")]

use m3_abi::types::DTYPE_BF16;
use m3_model::batch::BatchSeq;
use m3_model::config::ModelConfig;
use m3_model::pages::Lane;
use m3_model::shard::ShardPlan;
use safetensors::SafeTensors;

use super::*;
use crate::kernels::Isa;
use crate::kernels::convert::bf16_to_f32;
use crate::kernels::matrix::Matrix;
use crate::pages;
use crate::weights::Store;

/// The sparse layer of the model below.
const LAYER: usize = 1;

fn read(name: &str) -> Option<Vec<u8>> {
    Some(std::fs::read(m3_testdata::golden(&format!("golden/{name}.safetensors"))?).unwrap())
}

fn config(heads: usize, kv_heads: usize, block: usize, topk: usize) -> ModelConfig {
    let json = format!(
        r#"{{
        "architectures": ["MiniMaxM3SparseForConditionalGeneration"], "model_type": "minimax_m3_vl",
        "text_config": {{
            "architectures": ["MiniMaxM3SparseForCausalLM"], "hidden_size": 64, "intermediate_size": 32,
            "dense_intermediate_size": 32, "shared_intermediate_size": 32, "num_hidden_layers": 2,
            "num_attention_heads": {heads}, "num_key_value_heads": {kv_heads}, "head_dim": 128,
            "vocab_size": 64, "max_position_embeddings": 8192, "rms_norm_eps": 1e-06,
            "use_gemma_norm": true, "attention_output_gate": false, "rope_theta": 5000000,
            "rotary_dim": 64, "partial_rotary_factor": 0.5, "hidden_act": "swigluoai",
            "use_qk_norm": true, "qk_norm_type": "per_head", "tie_word_embeddings": false,
            "num_local_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1,
            "scoring_func": "sigmoid", "use_routing_bias": true, "moe_layer_freq": [0, 1],
            "swiglu_alpha": 1.702, "swiglu_limit": 7.0, "routed_scaling_factor": 2.0,
            "sparse_attention_config": {{
                "use_sparse_attention": true, "sparse_index_dim": 128,
                "sparse_num_index_heads": {kv_heads}, "sparse_topk_blocks": {topk},
                "sparse_block_size": {block}, "sparse_disable_index_value": [0, 1],
                "sparse_score_type": "max", "sparse_init_block": 0, "sparse_local_block": 1,
                "sparse_attention_freq": [0, 1]
            }}
        }} }}"#
    );
    ModelConfig::from_json(json.as_bytes()).unwrap().config
}

/// One golden call.
struct Case {
    heads: usize,
    kv_heads: usize,
    block: usize,
    topk: usize,
    positions: Vec<u32>,
    queries: Vec<f32>,
    index_queries: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
    index_keys: Vec<f32>,
    blocks: Vec<i16>,
    out: Vec<f32>,
}

impl Case {
    fn load(bytes: &[u8], block: usize) -> Case {
        let file = SafeTensors::deserialize(bytes).unwrap();
        let data = |name: &str| file.tensor(name).unwrap().data().to_vec();
        let shape = |name: &str| file.tensor(name).unwrap().shape().to_vec();
        let bf16 = |name: &str| -> Vec<f32> {
            data(name).as_chunks::<2>().0.iter().map(|pair| bf16_to_f32(u16::from_le_bytes(*pair))).collect()
        };
        let words = |name: &str| data(name).as_chunks::<4>().0.to_vec();
        Case {
            heads: shape("q")[1],
            kv_heads: shape("k")[1],
            block,
            topk: shape("blocks")[2],
            positions: words("positions").into_iter().map(u32::from_le_bytes).collect(),
            queries: bf16("q"),
            index_queries: bf16("index_q"),
            keys: bf16("k"),
            values: bf16("v"),
            index_keys: bf16("index_k"),
            blocks: data("blocks").as_chunks::<2>().0.iter().map(|pair| i16::from_le_bytes(*pair)).collect(),
            out: words("out").into_iter().map(f32::from_le_bytes).collect(),
        }
    }

    /// Every query is a sequence of its own over the same pages, which lie in reverse.
    fn batch(&self, num_pages: usize) -> Batch {
        let count = self.positions.len();
        let seq = |token: usize| BatchSeq {
            row: token as u32,
            chained: false,
            first_position: self.positions[token],
            tokens: token..token + 1,
            pages: 0..num_pages,
            logits: 0..0,
        };
        Batch {
            token_ids: vec![0; count],
            positions: self.positions.clone(),
            seq_of: (0..count as u32).collect(),
            seqs: (0..count).map(seq).collect(),
            page_table: (0..num_pages as u32).rev().collect(),
            ..Batch::default()
        }
    }

    fn ops(&self, isa: Isa) -> CpuOps {
        let config = config(self.heads, self.kv_heads, self.block, self.topk);
        let plan = ShardPlan::new(&config, 1, 1).unwrap().rank(0).unwrap().clone();
        let num_pages = (self.keys.len() / (self.kv_heads * 128)).div_ceil(self.block);
        let layout = pages::layout(&config.text, 1, DTYPE_BF16, self.block).unwrap();
        let pool = PagePool::new(layout, num_pages as u64).unwrap();
        for position in 0..self.index_keys.len() / 128 {
            let slot = (num_pages - 1 - position / self.block) * self.block + position % self.block;
            let write = |lane, head, values: &[f32], at: usize| {
                // SAFETY: one thread.
                unsafe { pool.write(LAYER, lane, head, slot as u64, &values[at * 128..][..128]) };
            };
            for head in 0..self.kv_heads {
                write(Lane::K, head, &self.keys, position * self.kv_heads + head);
                write(Lane::V, head, &self.values, position * self.kv_heads + head);
            }
            write(Lane::IndexK, 0, &self.index_keys, position);
        }
        let sizes = Sizes::new(&plan, self.positions.len(), 1);
        let mut work = Work::new(&config.text, &plan, Precision::Bf16, sizes);
        let fill = |buffer: &mut crate::buffer::Buffer, values: &[f32]| {
            let width = values.len() / self.positions.len();
            buffer.fill(self.positions.len(), width, |row, to| {
                to.copy_from_slice(&values[row * width..][..width])
            });
        };
        fill(&mut work.queries, &self.queries);
        fill(&mut work.index_queries, &self.index_queries);
        let nothing = Matrix::of_f32(&[], 0, 1);
        let store = Store::default();
        let model =
            Model { plan, embedding: nothing, layers: Vec::new(), norm: Vec::new(), head: nothing, store };
        CpuOps {
            rope: Rope::new(config.text.rope_theta, config.text.rotary_dim),
            config: config.text,
            kernels: Kernels::of(isa).unwrap(),
            precision: Precision::Bf16,
            model: Arc::new(model),
            pool: Arc::new(pool),
            peers: None,
            taps: Recorder::new(false),
            media: Default::default(),
            work,
            sampling: Default::default(),
        }
    }
}

fn check(name: &str, block: usize) {
    let Some(bytes) = read(name) else { return };
    let case = Case::load(&bytes, block);
    for isa in Isa::available() {
        let mut ops = case.ops(isa);
        let batch = case.batch(case.index_keys.len().div_ceil(128 * block));
        ops.choose_blocks(LAYER, &batch);
        let (count, heads, topk) = (case.positions.len(), case.kv_heads, case.topk);
        for token in 0..count {
            for head in 0..heads {
                let row = token * heads + head;
                let chosen = &ops.work.chosen[row * topk..][..ops.work.num_chosen[row] as usize];
                let golden = &case.blocks[(head * count + token) * topk..][..topk];
                let golden: Vec<u32> = golden.iter().filter(|&&id| id >= 0).map(|&id| id as u32).collect();
                assert_eq!(chosen, golden, "{name} {isa:?} head {head} position {}", case.positions[token]);
            }
        }
        ops.attend_pages(LAYER, &batch, true);
        for (index, (found, wanted)) in ops.work.attended.values.iter().zip(&case.out).enumerate() {
            // The output is rounded to bf16, everything before it is not.
            let tolerance = 1e-4 + wanted.abs() / 256.0;
            assert!((found - wanted).abs() <= tolerance, "{name} {isa:?} value {index}: {found} / {wanted}");
        }
    }
}

#[test]
fn blocks_of_16_tokens_are_chosen_exactly() {
    check("long128/msa_unit_b16_k4", 16);
}

#[test]
fn blocks_of_128_tokens_are_chosen_exactly() {
    check("long128/msa_unit_b128_k4", 128);
}

#[test]
fn sixteen_of_32_blocks_are_chosen_exactly() {
    check("real128/msa_unit_b128_k16", 128);
}
