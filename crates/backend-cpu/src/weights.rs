//! The tensors of one rank: views into the host's mapping, or memory filled here for synthetic ones.
//!
//! [`Store`] takes tensors in any order; [`Model::resolve`] checks them against the shard plan by name and shape and gives
//! each its place. Nothing is copied but the small vectors (norms, the router's bias). The vision tower is [`vision`]'s part.

mod store;
pub(crate) mod vision;

use m3_abi::{Error, Result};
use m3_model::config::{AttentionKind, FfnKind, ModelConfig};
use m3_model::names::{Role, expected_tensors};
use m3_model::shard::{RankPlan, ShardPlan};

use crate::kernels::matrix::Matrix;
pub(crate) use store::Store;

/// Gate, up and down projection of a SwiGLU MLP (or of this rank's part of it).
#[derive(Clone, Copy)]
pub(crate) struct Mlp {
    pub(crate) gate: Matrix,
    pub(crate) up: Matrix,
    pub(crate) down: Matrix,
}

pub(crate) struct Indexer {
    pub(crate) query: Matrix,
    pub(crate) key: Matrix,
    /// `1 + w`, as all norms here.
    pub(crate) query_norm: Vec<f32>,
    pub(crate) key_norm: Vec<f32>,
}

pub(crate) struct Attention {
    pub(crate) query: Matrix,
    pub(crate) key: Matrix,
    pub(crate) value: Matrix,
    pub(crate) out: Matrix,
    pub(crate) query_norm: Vec<f32>,
    pub(crate) key_norm: Vec<f32>,
    /// Sparse layers only.
    pub(crate) indexer: Option<Indexer>,
}

pub(crate) enum Ffn {
    Dense(Mlp),
    Moe { router: Matrix, bias: Vec<f32>, shared: Mlp, experts: Vec<Mlp> },
}

pub(crate) struct Layer {
    pub(crate) input_norm: Vec<f32>,
    pub(crate) attention: Attention,
    pub(crate) post_norm: Vec<f32>,
    pub(crate) ffn: Ffn,
}

/// Everything of one rank, placed.
pub(crate) struct Model {
    pub(crate) plan: RankPlan,
    pub(crate) embedding: Matrix,
    pub(crate) layers: Vec<Layer>,
    pub(crate) norm: Vec<f32>,
    pub(crate) head: Matrix,
    /// Keeps synthetic tensors alive and says how many bytes weights take.
    pub(crate) store: Store,
}

impl Model {
    /// Places the tensors of `store`.
    ///
    /// # Errors
    /// Unsupported with every missing or misshapen tensor.
    pub(crate) fn resolve(
        config: &ModelConfig,
        plan: &ShardPlan,
        rank: usize,
        store: Store,
    ) -> Result<Model> {
        check(config, plan, rank, &store)?;
        let rank_plan = plan.rank(rank).map_err(|error| Error::Unsupported(error.to_string()))?.clone();
        let text = &config.text;
        let layers = (0..text.layers.len()).map(|layer| {
            let prefix = format!("language_model.model.layers.{layer}");
            Ok(Layer {
                input_norm: store.gain(&format!("{prefix}.input_layernorm"))?,
                attention: attention(&store, &prefix, text.layers[layer].attention)?,
                post_norm: store.gain(&format!("{prefix}.post_attention_layernorm"))?,
                ffn: match text.layers[layer].ffn {
                    FfnKind::Dense => Ffn::Dense(mlp(&store, &format!("{prefix}.mlp"))?),
                    FfnKind::Moe => moe(&store, &format!("{prefix}.block_sparse_moe"), &rank_plan)?,
                },
            })
        });
        Ok(Model {
            layers: layers.collect::<Result<_>>()?,
            embedding: store.matrix("language_model.model.embed_tokens.weight")?,
            norm: store.gain("language_model.model.norm")?,
            head: store.matrix("language_model.lm_head.weight")?,
            plan: rank_plan,
            store,
        })
    }
}

/// Every tensor the rank's part of the model needs, with its shape.
fn check(config: &ModelConfig, plan: &ShardPlan, rank: usize, store: &Store) -> Result<()> {
    let mut problems = Vec::new();
    for spec in expected_tensors(config).iter().filter(|spec| spec.role != Role::Vision) {
        let Some(cut) = plan.part(rank, spec) else { continue };
        let rows = (cut.rows.end - cut.rows.start) as usize;
        let cols = match (&cut.columns, spec.shape.get(1)) {
            (Some(columns), _) => (columns.end - columns.start) as usize,
            (None, Some(&columns)) => columns as usize,
            (None, None) => 0,
        };
        // A vector is a matrix of one row here.
        let wanted = if cols == 0 { (1, rows) } else { (rows, cols) };
        match store.find(&spec.name) {
            None => problems.push(format!("{} is missing", spec.name)),
            Some(found) if (found.rows(), found.cols()) != wanted => {
                let (rows, cols) = (found.rows(), found.cols());
                problems.push(format!("{} is {rows} x {cols}, not {} x {}", spec.name, wanted.0, wanted.1));
            }
            Some(_) => {}
        }
    }
    if problems.is_empty() {
        return Ok(());
    }
    let shown = problems[..problems.len().min(10)].join("; ");
    Err(Error::Unsupported(format!("rank {rank}: {} tensors cannot be used: {shown}", problems.len())))
}

fn mlp(store: &Store, prefix: &str) -> Result<Mlp> {
    Ok(Mlp {
        gate: store.matrix(&format!("{prefix}.gate_proj.weight"))?,
        up: store.matrix(&format!("{prefix}.up_proj.weight"))?,
        down: store.matrix(&format!("{prefix}.down_proj.weight"))?,
    })
}

fn attention(store: &Store, layer: &str, kind: AttentionKind) -> Result<Attention> {
    let weight = |name: &str| store.matrix(&format!("{layer}.self_attn.{name}.weight"));
    let gain = |name: &str| store.gain(&format!("{layer}.self_attn.{name}"));
    let indexer = match kind {
        AttentionKind::Dense => None,
        AttentionKind::Sparse => Some(Indexer {
            query: weight("index_q_proj")?,
            key: weight("index_k_proj")?,
            query_norm: gain("index_q_norm")?,
            key_norm: gain("index_k_norm")?,
        }),
    };
    Ok(Attention {
        query: weight("q_proj")?,
        key: weight("k_proj")?,
        value: weight("v_proj")?,
        out: weight("o_proj")?,
        query_norm: gain("q_norm")?,
        key_norm: gain("k_norm")?,
        indexer,
    })
}

fn moe(store: &Store, prefix: &str, plan: &RankPlan) -> Result<Ffn> {
    let experts = plan.experts.clone().map(|expert| {
        let weight = |name: &str| store.matrix(&format!("{prefix}.experts.{expert}.{name}.weight"));
        Ok(Mlp { gate: weight("w1")?, up: weight("w3")?, down: weight("w2")? })
    });
    Ok(Ffn::Moe {
        router: store.matrix(&format!("{prefix}.gate.weight"))?,
        bias: store.vector(&format!("{prefix}.e_score_correction_bias"))?,
        shared: mlp(store, &format!("{prefix}.shared_experts"))?,
        experts: experts.collect::<Result<_>>()?,
    })
}
