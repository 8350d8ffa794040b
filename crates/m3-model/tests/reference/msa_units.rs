//! Block selection and sparse attention alone, on bf16-exact inputs.

use m3_model::config::SparseConfig;
use m3_model::reference::msa::{Blocks, Place, attend, block_scores, select};
use m3_testdata::golden;

use super::answers::close;
use super::golden::{Array, Golden};

/// One head of [S, heads, dim] as blocks.
struct Head {
    values: Vec<f32>,
    block_values: usize,
}

impl Head {
    fn new(array: &Array, head: usize, block_size: usize) -> Self {
        let (num_heads, dim) = (array.shape[1], array.shape[2]);
        let mut values: Vec<f32> =
            array.values.chunks(dim).skip(head).step_by(num_heads).flatten().copied().collect();
        let block_values = block_size * dim;
        values.resize(values.len().next_multiple_of(block_values), 0.0);
        Head { values, block_values }
    }
}

impl Blocks for Head {
    fn block(&self, block: usize) -> &[f32] {
        &self.values[block * self.block_values..][..self.block_values]
    }
}

fn check(checkpoint: &str, name: &str, block_size: usize, topk_blocks: usize) {
    let Some(path) = golden(&format!("golden/{checkpoint}/{name}.safetensors")) else { return };
    let golden = Golden::read(&path);
    let [index_key, index_query, key, value, query] =
        ["index_k", "index_q", "k", "v", "q"].map(|name| golden.array(name));
    let (num_heads, dim) = (query.shape[1], query.shape[2]);
    let (num_kv_heads, index_dim) = (key.shape[1], index_query.shape[2]);
    let config = SparseConfig {
        num_index_heads: num_kv_heads,
        index_dim,
        block_size,
        topk_blocks,
        init_blocks: 0,
        local_blocks: 1,
    };
    let index_keys = Head::new(&index_key, 0, block_size);
    let mut outputs = vec![0.0; query.values.len()];
    for (token, &position) in golden.array("positions").values.iter().enumerate() {
        let place = Place { position: position as usize, block_size };
        for kv_head in 0..num_kv_heads {
            let index = &index_query.values[(token * num_kv_heads + kv_head) * index_dim..][..index_dim];
            let chosen = select(&block_scores(index, &index_keys, place.position, block_size), &config);
            let keys = Head::new(&key, kv_head, block_size);
            let values = Head::new(&value, kv_head, block_size);
            let group = num_heads / num_kv_heads;
            for head in kv_head * group..(kv_head + 1) * group {
                let at = (token * num_heads + head) * dim;
                let output = &mut outputs[at..at + dim];
                attend(&query.values[at..at + dim], &keys, &values, &chosen, place, output);
            }
        }
    }
    // The answers hold no block ids: one block chosen differently moves the output by far more than this.
    close(&outputs, &golden.array("out").values, 1e-5, |_| true)
        .unwrap_or_else(|what| panic!("{checkpoint}/{name}: {what}"));
}

#[test]
fn block_128_top_4() {
    check("long128", "msa_unit_b128_k4", 128, 4);
}

#[test]
fn block_16_top_4() {
    check("long128", "msa_unit_b16_k4", 16, 4);
}

#[test]
fn block_128_top_16_with_16_query_heads_a_group() {
    check("real128", "msa_unit_b128_k16", 128, 16);
}
