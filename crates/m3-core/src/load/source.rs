//! Where the tensors come from: mapped files, or nowhere (shapes and a seed).

use std::sync::Arc;

use m3_model::checkpoint::Checkpoint;
use m3_model::config::ModelConfig;
use m3_model::names::{TensorSpec, expected_tensors};
use m3_model::shard::{ShardPlan, TensorCut};

use super::LoadError;

pub(super) enum Source {
    Files(Arc<Checkpoint>),
    Synthetic { config: Box<ModelConfig>, config_json: Vec<u8>, specs: Vec<TensorSpec>, seed: u64 },
}

impl Source {
    pub(super) fn synthetic(config: &ModelConfig, config_json: &[u8], seed: u64) -> Self {
        let specs = expected_tensors(config);
        Source::Synthetic { config: Box::new(config.clone()), config_json: config_json.to_vec(), specs, seed }
    }

    pub(super) fn config(&self) -> &ModelConfig {
        match self {
            Source::Files(checkpoint) => checkpoint.config(),
            Source::Synthetic { config, .. } => config,
        }
    }

    pub(super) fn config_json(&self) -> &[u8] {
        match self {
            Source::Files(checkpoint) => checkpoint.config_json(),
            Source::Synthetic { config_json, .. } => config_json,
        }
    }

    pub(super) fn specs(&self) -> Vec<&TensorSpec> {
        match self {
            Source::Files(checkpoint) => checkpoint.specs().collect(),
            Source::Synthetic { specs, .. } => specs.iter().collect(),
        }
    }

    /// Hands `rank`'s part of every tensor it holds to `load`, files in the order in which disks read ahead.
    pub(super) fn for_each_cut(
        &self,
        plan: &ShardPlan,
        rank: usize,
        mut load: impl FnMut(&TensorCut<'_>) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        match self {
            Source::Files(checkpoint) => {
                for data in checkpoint.load_order() {
                    plan.cut(rank, data)?.as_ref().map_or(Ok(()), &mut load)?;
                }
            }
            Source::Synthetic { specs, seed, .. } => {
                for (index, spec) in specs.iter().enumerate() {
                    // A seed of its own for each tensor, the same on every rank.
                    let seed = seed.wrapping_add((index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
                    plan.synthetic(rank, spec, seed)?.as_ref().map_or(Ok(()), &mut load)?;
                }
            }
        }
        Ok(())
    }
}
