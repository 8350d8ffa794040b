//! Typed options from flag values, with their limits and defaults. The only reader of [`Parsed`]'s values for the
//! commands that run a model; nothing here opens a file except `--api-key-file`.

mod access;
mod device;
mod guard;
mod http;
mod media;
mod model;
mod values;

use super::{ArgError, Parsed};
pub use access::{AccessOptions, CorsOptions, TlsOptions};
pub use device::{BackendOptions, EngineOptions};
pub use guard::{GuardOptions, HealthOptions, Rate};
pub use http::HttpOptions;
pub use media::MediaOptions;
pub use model::ModelOptions;
pub(crate) use values::count as number;

/// Everything `m3 serve` and `m3 chat` need to know.
#[derive(Clone, Debug)]
pub struct Options {
    pub model: ModelOptions,
    pub backend: BackendOptions,
    pub engine: EngineOptions,
    pub http: HttpOptions,
}

impl Options {
    /// Reads all options of `serve` and `chat`. `--help` and the flags of single commands are the callers'.
    pub fn read(parsed: &Parsed) -> Result<Self, ArgError> {
        Ok(Options {
            model: ModelOptions::read(parsed)?,
            backend: BackendOptions::read(parsed)?,
            engine: EngineOptions::read(parsed)?,
            http: HttpOptions::read(parsed)?,
        })
    }
}
