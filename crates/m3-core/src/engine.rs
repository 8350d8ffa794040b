//! The engine: one thread that turns requests into steps and results into events, and the handle to it.

use crate::event::Sink;
use crate::metrics::EngineStats;
use crate::request::{Refusal, Request, RequestId};

/// Limits and switches, fixed for the engine's life.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Table rows: most requests computed at once.
    pub max_running: usize,
    /// Requests accepted beyond the rows.
    pub max_queued: usize,
    /// Most tokens in one step.
    pub max_step_tokens: usize,
    /// Longest prompt plus output, in tokens.
    pub max_context: usize,
    pub page_tokens: usize,
    pub num_pages: usize,
    pub prefix_cache: bool,
    /// Chunks of prompts share steps with decoding rows; off, steps are one or the other.
    pub mixed_chunk: bool,
    /// Submit a step before the tokens of the one before are read.
    pub run_ahead: bool,
    pub vocab_size: usize,
    /// Never sampled: padding rows of the vocabulary, media slots.
    pub forbidden_tokens: Vec<u32>,
    /// Most alternatives per position.
    pub max_logprobs: u32,
}

/// Why an engine cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("the engine needs at least one rank; none was given")]
    NoRanks,
    #[error("{name} is {value}; it must be {limit}")]
    BadConfig { name: &'static str, value: usize, limit: &'static str },
    #[error("a thread could not be started: {0}")]
    Thread(#[from] std::io::Error),
}

/// Whether requests are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    Serving,
    /// Admitted requests run to their end, new ones are refused.
    Draining,
    /// Every request has been ended; the reason as a sentence.
    Dead(String),
}

/// The way to a running engine; clones reach the same one.
#[derive(Clone)]
pub struct EngineHandle {}

impl EngineHandle {
    /// Starts the engine's thread and one per rank. `ranks` are reserved and warmed, in rank order.
    pub fn start(_config: EngineConfig, _ranks: Vec<Box<dyn m3_abi::Backend>>) -> Result<Self, EngineError> {
        unimplemented!()
    }

    /// Admits or refuses at once; an admitted request's sink hears exactly one `finish`.
    pub fn submit(&self, _request: Request, _sink: Box<dyn Sink>) -> Result<(), Refusal> {
        unimplemented!()
    }

    /// Ends a request wherever it is; unknown ids are ignored.
    pub fn abort(&self, _id: RequestId) {
        unimplemented!()
    }

    /// Never waits for the engine's thread.
    pub fn stats(&self) -> EngineStats {
        unimplemented!()
    }

    /// Never waits for the engine's thread.
    pub fn health(&self) -> Health {
        unimplemented!()
    }

    /// Forgets every cached prefix no request is using; `true` when nothing is left in the cache.
    pub fn flush_cache(&self) -> bool {
        unimplemented!()
    }

    /// Refuses new requests from now on; returns at once.
    pub fn drain(&self) {
        unimplemented!()
    }

    /// Waits until no request is left; `false` when `timeout` has passed first.
    pub fn wait_idle(&self, _timeout: std::time::Duration) -> bool {
        unimplemented!()
    }

    /// Ends every request and the engine's threads.
    pub fn shutdown(&self) {
        unimplemented!()
    }
}
