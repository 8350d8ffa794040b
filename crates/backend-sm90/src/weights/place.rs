//! Where every tensor of the checkpoint goes on the device: fused matrices, stacked experts, one arena.
//!
//! Queries, keys, values and the index projections of a layer are rows of one matrix, gate and up of another, and all
//! experts' of a third, so that one launch reads them in one pass. Known from the config alone, before anything is loaded,
//! so that each tensor can be copied to its place as it comes. No byte is moved here.

use std::collections::HashMap;

use m3_abi::{Error, Result};
use m3_gpu::arena::{ArenaPlan, PieceId};
use m3_model::config::{AttentionKind, FfnKind, ModelConfig};
use m3_model::formats::{Format, MX_GROUP};
use m3_model::names::{Role, TensorSpec, expected_tensors};
use m3_model::shard::{Cut, ShardPlan};

/// A matrix on the device; a vector is a matrix of one row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MatrixPlan {
    pub(crate) format: Format,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) values: PieceId,
    /// MXFP8 only: `[rows, columns / 32]` bytes.
    pub(crate) scales: Option<PieceId>,
}

/// Index into [`WeightPlan::matrices`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MatrixId(pub(crate) usize);

/// The place of one tensor's part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) matrix: MatrixId,
    pub(crate) first_row: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexNorms<T> {
    pub(crate) query: T,
    pub(crate) key: T,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Mlp<T> {
    /// `[2 * width, hidden]`, all gate rows first (per expert, when stacked).
    pub(crate) gate_up: T,
    /// `[hidden, width]`, per expert when stacked.
    pub(crate) down: T,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Ffn<T> {
    Dense(Mlp<T>),
    /// The shared expert stands behind the routed ones in both stacks.
    Moe {
        router: T,
        bias: T,
        experts: Mlp<T>,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Layer<T> {
    pub(crate) input_norm: T,
    /// Queries, keys, values, then index queries and index key on sparse layers.
    pub(crate) projection: T,
    pub(crate) query_norm: T,
    pub(crate) key_norm: T,
    /// Sparse layers only.
    pub(crate) index_norms: Option<IndexNorms<T>>,
    pub(crate) out: T,
    pub(crate) post_norm: T,
    pub(crate) ffn: Ffn<T>,
}

/// Everything of one rank.
#[derive(Clone, Debug)]
pub(crate) struct Model<T> {
    pub(crate) embedding: T,
    pub(crate) layers: Vec<Layer<T>>,
    pub(crate) norm: T,
    pub(crate) head: T,
}

/// Places of a rank's tensors, and the arena that they fill.
#[derive(Debug)]
pub(crate) struct WeightPlan {
    pub(crate) matrices: Vec<MatrixPlan>,
    pub(crate) places: HashMap<String, Place>,
    pub(crate) model: Model<MatrixId>,
    pub(crate) arena: ArenaPlan,
}

impl WeightPlan {
    /// # Errors
    /// Tensors that one fused matrix cannot hold together, by name.
    pub(crate) fn new(config: &ModelConfig, plan: &ShardPlan, rank: usize) -> Result<WeightPlan> {
        let parts = expected_tensors(config)
            .into_iter()
            .filter(|spec| spec.role != Role::Vision)
            .filter_map(|spec| Some((spec.name.clone(), (plan.part(rank, &spec)?, spec))))
            .collect();
        let mut builder = Builder {
            parts,
            matrices: Vec::new(),
            places: HashMap::new(),
            arena: ArenaPlan::new(),
            experts: plan.rank(rank).map_err(|error| Error::Unsupported(error.to_string()))?.experts.clone(),
        };
        let layers = config.text.layers.iter().enumerate().map(|(index, kinds)| {
            let prefix = format!("language_model.model.layers.{index}");
            builder.layer(&prefix, kinds.attention, kinds.ffn)
        });
        let layers = layers.collect::<Result<_>>()?;
        let model = Model {
            embedding: builder.single("language_model.model.embed_tokens.weight")?,
            layers,
            norm: builder.single("language_model.model.norm.weight")?,
            head: builder.single("language_model.lm_head.weight")?,
        };
        Ok(WeightPlan { matrices: builder.matrices, places: builder.places, model, arena: builder.arena })
    }
}

struct Builder {
    /// This rank's tensors by name.
    parts: HashMap<String, (Cut, TensorSpec)>,
    matrices: Vec<MatrixPlan>,
    places: HashMap<String, Place>,
    arena: ArenaPlan,
    experts: std::ops::Range<usize>,
}

impl Builder {
    fn layer(&mut self, prefix: &str, attention: AttentionKind, ffn: FfnKind) -> Result<Layer<MatrixId>> {
        let weight = |name: &str| format!("{prefix}.self_attn.{name}.weight");
        let is_sparse = attention == AttentionKind::Sparse;
        let mut projections = vec![weight("q_proj"), weight("k_proj"), weight("v_proj")];
        if is_sparse {
            projections.extend([weight("index_q_proj"), weight("index_k_proj")]);
        }
        let index_norms = is_sparse.then(|| {
            Ok::<_, Error>(IndexNorms {
                query: self.single(&weight("index_q_norm"))?,
                key: self.single(&weight("index_k_norm"))?,
            })
        });
        Ok(Layer {
            index_norms: index_norms.transpose()?,
            input_norm: self.single(&format!("{prefix}.input_layernorm.weight"))?,
            projection: self.fused(&format!("{prefix}.projection"), &projections)?,
            query_norm: self.single(&weight("q_norm"))?,
            key_norm: self.single(&weight("k_norm"))?,
            out: self.single(&weight("o_proj"))?,
            post_norm: self.single(&format!("{prefix}.post_attention_layernorm.weight"))?,
            ffn: match ffn {
                FfnKind::Dense => Ffn::Dense(self.mlp(&format!("{prefix}.mlp"))?),
                FfnKind::Moe => self.moe(&format!("{prefix}.block_sparse_moe"))?,
            },
        })
    }

    fn mlp(&mut self, prefix: &str) -> Result<Mlp<MatrixId>> {
        let gate_up = [format!("{prefix}.gate_proj.weight"), format!("{prefix}.up_proj.weight")];
        Ok(Mlp {
            gate_up: self.fused(&format!("{prefix}.gate_up"), &gate_up)?,
            down: self.single(&format!("{prefix}.down_proj.weight"))?,
        })
    }

    fn moe(&mut self, prefix: &str) -> Result<Ffn<MatrixId>> {
        let weight = |expert, name| format!("{prefix}.experts.{expert}.{name}.weight");
        let shared = |name: &str| format!("{prefix}.shared_experts.{name}.weight");
        let gate_up = self.experts.clone().flat_map(|expert| [weight(expert, "w1"), weight(expert, "w3")]);
        let gate_up: Vec<_> = gate_up.chain([shared("gate_proj"), shared("up_proj")]).collect();
        let down = self.experts.clone().map(|expert| weight(expert, "w2"));
        let down: Vec<_> = down.chain([shared("down_proj")]).collect();
        self.equal_rows(&gate_up)?;
        Ok(Ffn::Moe {
            router: self.single(&format!("{prefix}.gate.weight"))?,
            bias: self.single(&format!("{prefix}.e_score_correction_bias"))?,
            experts: Mlp {
                gate_up: self.fused(&format!("{prefix}.experts.gate_up"), &gate_up)?,
                down: self.fused(&format!("{prefix}.experts.down"), &down)?,
            },
        })
    }

    /// Experts of one stack are equally large, the shared one too.
    fn equal_rows(&self, tensors: &[String]) -> Result<()> {
        let first = self.part(&tensors[0])?.0;
        for tensor in tensors {
            let rows = self.part(tensor)?.0;
            if rows != first {
                let name = &tensors[0];
                return Err(Error::Unsupported(format!(
                    "tensor {tensor} has {rows} rows on this rank and {name} {first}: the sm90 backend stacks the shared \
                     expert with the routed ones, so expert groups (ep) are not built"
                )));
            }
        }
        Ok(())
    }

    fn single(&mut self, name: &str) -> Result<MatrixId> {
        self.fused(name, &[name.to_owned()])
    }

    /// One matrix of the tensors' rows, one below the other.
    fn fused(&mut self, name: &str, tensors: &[String]) -> Result<MatrixId> {
        let id = MatrixId(self.matrices.len());
        let mut kind: Option<(Format, usize, String)> = None;
        let mut end = 0;
        for tensor in tensors {
            let (rows, columns, format) = self.part(tensor)?;
            match &kind {
                None => kind = Some((format, columns, tensor.clone())),
                Some((first_format, first_columns, first)) => {
                    if (*first_format, *first_columns) != (format, columns) {
                        return Err(Error::Unsupported(format!(
                            "tensors {first} ({first_format}, {first_columns} columns) and {tensor} ({format}, {columns} \
                             columns) cannot share a matrix"
                        )));
                    }
                }
            }
            let place = Place { matrix: id, first_row: end, rows, columns };
            self.places.insert(tensor.clone(), place);
            end += rows;
        }
        let Some((format, columns, _)) = kind else {
            return Err(Error::Unsupported(format!("matrix {name} has no tensors on this rank")));
        };
        let bytes = (end * columns * format.value_bytes()) as u64;
        let values = self.arena.add(name.to_owned(), bytes);
        let scales = (format == Format::Mxfp8)
            .then(|| self.arena.add(format!("{name} scales"), (end * columns.div_ceil(MX_GROUP)) as u64));
        self.matrices.push(MatrixPlan { format, rows: end, columns, values, scales });
        Ok(id)
    }

    /// Rows, columns and format of a tensor's part.
    fn part(&self, tensor: &str) -> Result<(usize, usize, Format)> {
        let (cut, spec) = self
            .parts
            .get(tensor)
            .ok_or_else(|| Error::Unsupported(format!("the model has no tensor {tensor} on this rank")))?;
        let rows = (cut.rows.end - cut.rows.start) as usize;
        let Some(&all_columns) = spec.shape.get(1) else { return Ok((1, rows, spec.format)) };
        let columns = cut.columns.clone().unwrap_or(0..all_columns);
        let group = MX_GROUP as u64;
        if spec.format == Format::Mxfp8
            && !(columns.start.is_multiple_of(group) && columns.end.is_multiple_of(group))
        {
            let (start, end) = (columns.start, columns.end);
            return Err(Error::Unsupported(format!(
                "tensor {tensor}: columns {start}..{end} cut an MXFP8 group of {MX_GROUP}; the sm90 backend takes whole groups"
            )));
        }
        Ok((rows, (columns.end - columns.start) as usize, spec.format))
    }
}
