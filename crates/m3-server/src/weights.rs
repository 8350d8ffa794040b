//! Where a served model's weights come from: the files of its folder, or, for measurements, its shapes alone.
//!
//! `--load-format dummy` reads `config.json` and has the backend fill the tensors from seeds: shapes that no disk holds can be
//! served, and what they say means nothing.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use m3_abi::Driver;
use m3_core::load::{LoadError, LoadOptions, LoadedModel, Progress, load_model, load_synthetic};
use m3_core::model::checkpoint::Checkpoint;
use m3_core::model::config::{GenerationConfig, ModelConfig};
use m3_core::model::names::expected_tensors;
use m3_core::model::shard::ShardPlan;

/// The same values at every start.
const SEED: u64 = 0;

/// A model before it is loaded.
#[derive(Debug)]
pub enum Weights {
    Files(Arc<Checkpoint>),
    Shapes(Box<Shapes>),
}

/// A model without tensors.
#[derive(Debug)]
pub struct Shapes {
    config: ModelConfig,
    config_json: Vec<u8>,
    generation: GenerationConfig,
    unknown_keys: Vec<String>,
}

impl Weights {
    /// Opens and checks what the folder holds.
    pub fn open(dir: &Path, dummy: bool) -> anyhow::Result<Self> {
        if !dummy {
            return Ok(Weights::Files(Arc::new(Checkpoint::open(dir)?)));
        }
        let config_json = read(&dir.join("config.json"))?;
        let loaded = ModelConfig::from_json(&config_json)?;
        let generation = dir.join("generation_config.json");
        let generation = match generation.is_file() {
            true => GenerationConfig::from_json(&read(&generation)?)?,
            false => GenerationConfig::default(),
        };
        tracing::warn!("weights are made up (--load-format dummy): what this server says means nothing");
        let (config, unknown_keys) = (loaded.config, loaded.unknown_keys);
        Ok(Weights::Shapes(Box::new(Shapes { config, config_json, generation, unknown_keys })))
    }

    pub fn config(&self) -> &ModelConfig {
        match self {
            Weights::Files(checkpoint) => checkpoint.config(),
            Weights::Shapes(shapes) => &shapes.config,
        }
    }

    /// The bytes of `config.json`.
    pub fn config_json(&self) -> &[u8] {
        match self {
            Weights::Files(checkpoint) => checkpoint.config_json(),
            Weights::Shapes(shapes) => &shapes.config_json,
        }
    }

    pub fn generation(&self) -> &GenerationConfig {
        match self {
            Weights::Files(checkpoint) => checkpoint.generation(),
            Weights::Shapes(shapes) => &shapes.generation,
        }
    }

    /// Of all tensors, over all ranks.
    pub fn bytes(&self) -> anyhow::Result<u64> {
        match self {
            Weights::Files(checkpoint) => Ok(checkpoint.load_bytes()),
            Weights::Shapes(shapes) => {
                let whole = ShardPlan::new(&shapes.config, 1, 1)?;
                Ok(whole.rank_bytes(0, &expected_tensors(&shapes.config)))
            }
        }
    }

    /// Says what of the folder is not used.
    pub fn report(&self) {
        let (unknown_keys, extra) = match self {
            Weights::Files(checkpoint) => {
                (&checkpoint.report().unknown_config_keys, &checkpoint.report().extra_tensors[..])
            }
            Weights::Shapes(shapes) => (&shapes.unknown_keys, &[][..]),
        };
        for name in unknown_keys {
            tracing::debug!("config.json has a key this engine does not know: {name}");
        }
        if let Some(first) = extra.first() {
            let count = extra.len();
            tracing::warn!("{count} tensors of the checkpoint are not used, {first} among them");
        }
    }

    /// Onto the backend's devices.
    pub fn load(
        &self,
        driver: &dyn Driver,
        options: &LoadOptions,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<LoadedModel, LoadError> {
        match self {
            Weights::Files(checkpoint) => load_model(driver, checkpoint, options, progress),
            Weights::Shapes(shapes) => {
                let config = (&shapes.config, &shapes.config_json[..]);
                load_synthetic(driver, config, SEED, options, progress)
            }
        }
    }
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| path.display().to_string())
}
