//! m3-core

pub mod text;
