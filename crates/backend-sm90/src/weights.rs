//! Weights of one rank on the device: copied to their places as `load` brings them, complete at `ready`.
//!
//! [`place`] says where; bf16 and MXFP8 stay as the bytes they are, and kernels widen MXFP8 in registers.

pub(crate) mod load;
pub(crate) mod place;

use m3_gpu::arena::Arena;
use m3_gpu::launch::DevicePointer;
use m3_model::formats::Format;

use place::{MatrixId, MatrixPlan, Mlp, Model};

/// A matrix that kernels read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Matrix {
    pub(crate) format: Format,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) values: DevicePointer,
    /// Null without scales.
    pub(crate) scales: DevicePointer,
}

/// Everything of a rank, in place.
#[derive(Debug)]
pub(crate) struct Weights {
    pub(crate) model: Model<Matrix>,
    #[expect(dead_code, reason = "keeps the memory")]
    arena: Arena,
}

impl Weights {
    fn new(matrices: &[MatrixPlan], model: &Model<MatrixId>, arena: Arena) -> Weights {
        let place = |id: &MatrixId| {
            let plan = &matrices[id.0];
            Matrix {
                format: plan.format,
                rows: plan.rows,
                columns: plan.columns,
                values: arena.region(plan.values).pointer,
                scales: plan.scales.map_or(DevicePointer::NULL, |piece| arena.region(piece).pointer),
            }
        };
        let model = model.map(&place);
        Weights { model, arena }
    }
}

impl<T> Model<T> {
    /// The same with every matrix replaced.
    fn map<U>(&self, to: &impl Fn(&T) -> U) -> Model<U> {
        Model {
            embedding: to(&self.embedding),
            layers: self.layers.iter().map(|layer| layer.map(to)).collect(),
            norm: to(&self.norm),
            head: to(&self.head),
        }
    }
}

impl<T> Mlp<T> {
    fn map<U>(&self, to: &impl Fn(&T) -> U) -> Mlp<U> {
        Mlp { gate_up: to(&self.gate_up), down: to(&self.down) }
    }
}

impl<T> place::Layer<T> {
    fn map<U>(&self, to: &impl Fn(&T) -> U) -> place::Layer<U> {
        place::Layer {
            input_norm: to(&self.input_norm),
            projection: to(&self.projection),
            query_norm: to(&self.query_norm),
            key_norm: to(&self.key_norm),
            index_norms: self
                .index_norms
                .as_ref()
                .map(|norms| place::IndexNorms { query: to(&norms.query), key: to(&norms.key) }),
            out: to(&self.out),
            post_norm: to(&self.post_norm),
            ffn: match &self.ffn {
                place::Ffn::Dense(mlp) => place::Ffn::Dense(mlp.map(to)),
                place::Ffn::Moe { router, bias, experts } => {
                    place::Ffn::Moe { router: to(router), bias: to(bias), experts: experts.map(to) }
                }
            },
        }
    }
}
