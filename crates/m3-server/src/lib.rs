//! The `m3` program as a library: HTTP in, tokens out, and the command-line tools around it.
//!
//! The only crate that knows JSON wire types, and the only one with async code. It names no backend but the built-in
//! CPU one; everything about devices is behind `m3-abi`, everything about scheduling in `m3-core`.

pub mod anthropic;
pub mod app;
pub mod args;
pub mod backends;
pub mod bench;
pub mod boot;
pub mod chat;
pub mod clock;
pub mod conversation;
pub mod doctor;
pub mod error;
pub mod extract;
pub mod fetch;
pub mod generate;
pub mod hub;
pub mod info;
pub mod limits;
pub mod listen;
pub mod logging;
pub mod media;
pub mod metrics;
pub mod model;
pub mod native;
pub mod openai;
pub mod openapi;
pub mod phase;
pub mod place;
pub mod plan;
pub mod progress;
pub mod recipe;
pub mod rename;
pub mod responses;
pub mod routes;
pub mod running;
pub mod secret;
pub mod serve;
pub mod shape;
pub mod slow;
pub mod stream;
pub mod strict;
pub mod tls;
pub mod tools;
pub mod ui;
pub mod vision;
pub mod watch;
pub mod weights;
