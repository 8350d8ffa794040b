//! How long each operation of a step takes on the device, alone: for the benchmark, never while serving.
//!
//! An operation is recorded once for every layer that has it, each with its own weights, and replayed: launches follow each
//! other as in a step's graph, and no layer finds its weights in the cache. What is computed means nothing afterwards.

use std::collections::BTreeSet;
use std::rc::Rc;

use m3_abi::Result;
use m3_gpu::error::GpuError;
use m3_gpu::graph::Graph;
use m3_gpu::stream::Stream;
use m3_model::batch::Batch;
use m3_model::config::{AttentionKind, FfnKind};
use m3_model::ops::Ops;

use crate::ops::Rank;
use crate::serving::Serving;

/// An operation, and the time of one call of it.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationTime {
    pub name: &'static str,
    /// In a step: once for each layer that has it.
    pub calls: usize,
    /// Microseconds of a call: median over replays, mean over the layers.
    pub us: f64,
}

type Call = fn(&mut Rank, usize) -> Result<()>;

/// An operation as it is recorded: name, which layers have it, how it is called.
struct Operation {
    name: &'static str,
    layers: Rc<[usize]>,
    call: Call,
}

fn operations(rank: &Rank) -> Vec<Operation> {
    let layers = &rank.config.layers;
    let having = |has: &dyn Fn(usize) -> bool| (0..layers.len()).filter(|layer| has(*layer)).collect();
    let sparse: Rc<[usize]> = having(&|layer| layers[layer].attention == AttentionKind::Sparse);
    let dense: Rc<[usize]> = having(&|layer| layers[layer].attention == AttentionKind::Dense);
    let moe: Rc<[usize]> = having(&|layer| layers[layer].ffn == FfnKind::Moe);
    let mlp: Rc<[usize]> = having(&|layer| layers[layer].ffn == FfnKind::Dense);
    let (all, once): (Rc<[usize]>, Rc<[usize]>) = (having(&|_| true), Rc::from([0]));
    let operation = |name, layers: &Rc<[usize]>, call| Operation { name, layers: layers.clone(), call };
    vec![
        operation("embed", &once, |rank, _| rank.embed(&Batch::default())),
        operation("attention_in, dense", &dense, |rank, layer| {
            rank.attention_in(layer, &Batch::default(), &mut ())
        }),
        operation("attention_in, sparse", &sparse, |rank, layer| {
            rank.attention_in(layer, &Batch::default(), &mut ())
        }),
        operation("select_blocks", &sparse, |rank, layer| rank.select_blocks(layer, &Batch::default(), &())),
        operation("attend, dense", &dense, |rank, layer| rank.attend(layer, &Batch::default(), (), None)),
        operation("attend, sparse", &sparse, |rank, layer| {
            rank.attend(layer, &Batch::default(), (), Some(()))
        }),
        operation("attention_out", &all, |rank, layer| {
            rank.attention_out(layer, &Batch::default(), (), &mut ())
        }),
        operation("dense_ffn", &mlp, |rank, layer| rank.dense_ffn(layer, &Batch::default(), &mut ())),
        operation("moe_ffn", &moe, |rank, layer| rank.moe_ffn(layer, &Batch::default(), &mut ())),
        operation("head and sample", &once, |rank, _| rank.finish()),
    ]
}

impl Serving {
    /// Experts that somebody chose in the last step that was submitted, on average over the layers that have any; 0 when none
    /// has. Runs the step once more, layer by layer; waits for what is in flight first, and rows must be bound anew before
    /// the next step.
    pub(crate) fn experts_drawn(&mut self) -> Result<f64> {
        self.rank.stream.synchronize()?;
        let (before, run) = (self.rank.run, self.last_run());
        self.rank.run = run;
        let drawn = self.rank.experts_drawn();
        self.rank.run = before;
        self.rank.has_pending = false;
        drawn
    }

    /// Times the operations of the last step that was submitted, as its graph runs them where it has one. Waits for what
    /// is in flight first; rows must be bound anew before the next step.
    pub(crate) fn time_operations(&mut self, repeats: usize) -> Result<Vec<OperationTime>> {
        self.rank.stream.synchronize()?;
        let (before, run) = (self.rank.run, self.last_run());
        self.rank.run = run;
        let times = operations(&self.rank)
            .iter()
            .filter(|operation| !operation.layers.is_empty())
            .filter(|operation| run.counts.logits > 0 || operation.name != "head and sample")
            .map(|operation| self.rank.time(operation, repeats))
            .collect();
        self.rank.run = before;
        self.rank.has_pending = false;
        times
    }
}

impl Rank {
    fn experts_drawn(&mut self) -> Result<f64> {
        let mut drawn = Vec::new();
        self.embed(&Batch::default())?;
        for layer in 0..self.config.layers.len() {
            self.layer(layer, &Batch::default(), &mut ())?;
            if self.config.layers[layer].ffn == FfnKind::Moe {
                drawn.push(distinct(&self.routed_experts()?) as f64);
            }
        }
        Ok(drawn.iter().sum::<f64>() / drawn.len().max(1) as f64)
    }

    fn time(&mut self, operation: &Operation, repeats: usize) -> Result<OperationTime> {
        // The residual stream is what a step starts with, not what the operation before made of it.
        self.embed(&Batch::default())?;
        let stream = self.stream.clone();
        let graph = Graph::capture(&stream, || {
            operation.layers.iter().try_for_each(|layer| {
                self.has_pending = true;
                (operation.call)(self, *layer)
            })
        })?;
        let mut times = (0..=repeats).map(|_| replay(&graph, &stream)).collect::<Result<Vec<f64>, _>>()?;
        // The first one loads what only this graph uses.
        times.remove(0);
        times.sort_by(f64::total_cmp);
        let whole = times.get(times.len() / 2).copied().unwrap_or(f64::NAN);
        let calls = operation.layers.len();
        Ok(OperationTime { name: operation.name, calls, us: whole / calls as f64 })
    }
}

/// How many different ones; padded rows choose -1.
fn distinct(experts: &[i32]) -> usize {
    experts.iter().filter(|expert| **expert >= 0).collect::<BTreeSet<_>>().len()
}

/// Microseconds of the device.
fn replay(graph: &Graph, stream: &Stream) -> Result<f64, GpuError> {
    let device = stream.device();
    let (start, end) = (device.event(true)?, device.event(true)?);
    start.record(stream)?;
    graph.launch(stream)?;
    end.record(stream)?;
    end.wait()?;
    Ok(f64::from(end.since_ms(&start)?) * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::distinct;

    #[test]
    fn experts_of_padded_rows_are_not_counted() {
        assert_eq!(distinct(&[3, 0, 3, 7, -1, -1]), 3);
    }
}
