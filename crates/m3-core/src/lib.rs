//! m3-core

pub mod engine;
pub mod event;
pub mod load;
pub mod metrics;
pub mod request;
pub mod text;

pub use m3_model as model;
