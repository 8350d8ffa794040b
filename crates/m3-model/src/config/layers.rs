//! Reads the layer plan and the index branch's settings, under their released or native names.
//!
//! A layer list that is absent is a fault: derived configs drop them, and a guess would be another model.

use serde_json::{Value, json};

use super::section::{Section, agreed, required, short};
use super::{AttentionKind, FfnKind, LayerPlan, SparseConfig};

const MOST_LAYERS: usize = 1024;

/// One plan per layer; `sparse` is the released shape's `sparse_attention_config`.
pub(super) fn read_plan(section: &Section<'_>, sparse: &Section<'_>) -> Option<Vec<LayerPlan>> {
    let notes = section.notes;
    let key = section.name("num_hidden_layers");
    let count = required(notes, &key, &[section.whole("num_hidden_layers", 1, MOST_LAYERS)])?;
    let attention = kinds(
        count,
        (sparse, "sparse_attention_freq", &[json!(0), json!(1)]),
        (section, "layer_types", &[json!("full_attention"), json!("minimax_m3_sparse")]),
    );
    let ffn = kinds(
        count,
        (section, "moe_layer_freq", &[json!(0), json!(1)]),
        (section, "mlp_layer_types", &[json!("dense"), json!("sparse")]),
    );
    if let Some(first) = section.whole("first_k_dense_replace", 0, MOST_LAYERS)
        && ffn.as_ref().is_some_and(|ffn| ffn.iter().position(|moe| *moe).unwrap_or(count) != first)
    {
        notes.problem(section.name("first_k_dense_replace"), first, "the dense layers of moe_layer_freq");
    }
    let (attention, ffn) = (attention?, ffn?);
    check_index_values(sparse, &attention);
    let plan = |(sparse, moe): (&bool, &bool)| LayerPlan {
        attention: if *sparse { AttentionKind::Sparse } else { AttentionKind::Dense },
        ffn: if *moe { FfnKind::Moe } else { FfnKind::Dense },
    };
    Some(attention.iter().zip(&ffn).map(plan).collect())
}

/// Where a layer list stands: section, key, and the two values (first = dense).
type Place<'a, 'b> = (&'b Section<'a>, &'b str, &'b [Value; 2]);

/// One flag per layer from the released or the native list; both must agree when both are there.
fn kinds(count: usize, released: Place<'_, '_>, native: Place<'_, '_>) -> Option<Vec<bool>> {
    let notes = released.0.notes;
    let present = released.0.get(released.1).is_some() || native.0.get(native.1).is_some();
    let names = format!("{} or {}", released.0.name(released.1), native.0.name(native.1));
    if !present {
        notes.missing(&names, format!("a list of {count}; layer kinds are not guessed"));
        return None;
    }
    match (flags(count, released), flags(count, native)) {
        (Some(one), Some(other)) if one != other => {
            notes.problem(names, "two lists that differ", "one plan");
            None
        }
        (one, other) => one.or(other),
    }
}

fn flags(count: usize, (section, key, values): Place<'_, '_>) -> Option<Vec<bool>> {
    let list = section.list(key)?;
    let name = section.name(key);
    if list.len() != count {
        section.notes.problem(
            name,
            format!("a list of {}", list.len()),
            format!("{count} entries, num_hidden_layers"),
        );
        return None;
    }
    let read = |value: &Value| values.iter().position(|known| known == value).map(|kind| kind == 1);
    let flags: Option<Vec<bool>> = list.iter().map(read).collect();
    if flags.is_none() {
        let wrong = list.iter().find(|value| read(value).is_none()).map(short).unwrap_or_default();
        section.notes.problem(name, wrong, format!("{} or {}", values[0], values[1]));
    }
    flags
}

/// An index value path would add tensors and outputs that do not exist here.
fn check_index_values(sparse: &Section<'_>, attention: &[bool]) {
    let Some(disabled) = sparse.list("sparse_disable_index_value") else { return };
    let name = sparse.name("sparse_disable_index_value");
    if disabled.len() != attention.len() {
        let length = format!("a list of {}", disabled.len());
        sparse.notes.problem(name, length, format!("{} entries, num_hidden_layers", attention.len()));
        return;
    }
    let enabled = attention.iter().zip(disabled).position(|(sparse, off)| *sparse && off.as_u64() != Some(1));
    if let Some(layer) = enabled {
        let value = format!("{} at layer {layer}", short(&disabled[layer]));
        sparse.notes.problem(name, value, "1 on every sparse layer");
    }
}

/// Settings of the index branch, from `sparse` or from the native keys in `section`.
pub(super) fn read_sparse(section: &Section<'_>, sparse: &Section<'_>) -> Option<SparseConfig> {
    let notes = section.notes;
    sparse.only("use_sparse_attention", &[json!(true)]);
    sparse.only("sparse_score_type", &[json!("max")]);
    let both = |released: &str, native: &str| {
        let places = format!("{} or {}", sparse.name(released), section.name(native));
        required(notes, &places, &[sparse.head(released), section.head(native)])
    };
    let num_index_heads = both("sparse_num_index_heads", "index_n_heads");
    let index_dim = both("sparse_index_dim", "index_head_dim");
    let block_size = both("sparse_block_size", "index_block_size");
    let topk_blocks = both("sparse_topk_blocks", "index_topk_blocks");
    let blocks = |tokens: usize, extra: usize| block_size.map(|size| tokens.div_ceil(size) + extra);
    let init_tokens = sparse.whole("sparse_init_tokens", 0, 1 << 24).and_then(|tokens| blocks(tokens, 0));
    let local_tokens = sparse.whole("sparse_local_tokens", 0, 1 << 24).and_then(|tokens| blocks(tokens, 1));
    let init = sparse.whole("sparse_init_block", 0, 1 << 24);
    let init = agreed(notes, &sparse.name("sparse_init_block"), &[init, init_tokens]).unwrap_or(0);
    let local = required(
        notes,
        &format!("{} or {}", sparse.name("sparse_local_block"), section.name("index_local_blocks")),
        &[sparse.count("sparse_local_block"), section.count("index_local_blocks"), local_tokens],
    );
    Some(SparseConfig {
        num_index_heads: num_index_heads?,
        index_dim: index_dim?,
        block_size: block_size?,
        topk_blocks: topk_blocks?,
        init_blocks: init,
        local_blocks: local?,
    })
}
