//! The engine without its server: scheduler, page cache, engine loop and loading, and everything that is text.

pub mod cache;
pub mod clock;
mod contain;
pub mod engine;
pub mod event;
pub mod load;
pub mod metrics;
pub mod ranks;
pub mod request;
pub mod scheduler;
pub mod stop;
pub mod text;

pub use m3_model as model;
