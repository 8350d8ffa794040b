//! Running a server: who may ask and how much, clients that stall, health, metrics, and the program as a process.
#![allow(clippy::unwrap_used, reason = "a test")]

mod access;
mod clients;
mod health;
mod metrics;
mod process;
mod start;
#[path = "../support/mod.rs"]
mod support;

/// A port that was free a moment ago.
fn free_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port().to_string()
}
