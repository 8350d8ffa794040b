//! `cargo xtask test`: sets up what the tests need and runs all of them.

use crate::process::{cargo, target_folder, works};
use anyhow::{Context, Result, bail, ensure};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) fn run(root: &Path, with_python: bool) -> Result<()> {
    if !works("cargo-nextest", &["nextest", "--version"]) {
        cargo(root, &["install", "--locked", "cargo-nextest"])?;
    }
    // Plugins are loaded by path in tests, so they must be there before the first one runs.
    cargo(root, &["build", "--workspace"])?;
    if with_python {
        crate::kernels::gate(root)?;
        crate::clients::test(root)?;
        crate::nano::eval::quick(root)?;
        crate::ui::test(root)?;
        // From what is built already: that packages install and serve, not what is handed out.
        crate::dist::run(root, &crate::dist::Wanted { backends: vec!["null".to_owned()], debug: true })?;
    }
    cargo(root, &["test", "--workspace", "--doc", "--quiet"])?;
    cargo(root, &["nextest", "run", "--workspace", "--no-fail-fast"])
}

/// The simulation of the engine, for longer than a test may take.
pub(crate) fn soak(root: &Path, worlds: u64) -> Result<()> {
    println!("{worlds} worlds of 100 requests");
    let status = Command::new("cargo")
        .args(["test", "--release", "--package", "m3-core", "--test", "simulation"])
        .env("M3_SIMULATION_WORLDS", worlds.to_string())
        .current_dir(root)
        .status()?;
    ensure!(status.success(), "the simulation failed");
    Ok(())
}

/// Made-up input for hours. Not a release build: overflows shall be noticed.
pub(crate) fn soak_fuzz(
    root: &Path,
    what: &str,
    hours: f64,
    seed: Option<u64>,
    target: Option<String>,
) -> Result<()> {
    ensure!(what == "fuzz", "{what:?} cannot be soaked; simulation, fuzz and load can");
    let seconds = (hours * 3600.0).max(1.0) as u64;
    let mut args = vec!["run", "--package", "m3-fuzz", "--", "--seconds"]
        .into_iter()
        .map(str::to_owned)
        .collect::<Vec<_>>();
    args.push(seconds.to_string());
    args.extend(seed.map(|seed| format!("--seed={seed}")));
    args.extend(target.map(|target| format!("--target={target}")));
    cargo(root, &args.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Load and faults in full, recorded as `bench/load.json`. Not a release build either: its checks shall be on.
pub(crate) fn soak_load(root: &Path) -> Result<()> {
    // The whole, as tests build it: the plugin lies beside the program and is made of the same crates.
    cargo(root, &["build", "--workspace"])?;
    let figures = tempfile::tempdir()?;
    let begun = Instant::now();
    let mut tests = Command::new("cargo");
    tests.args(["test", "--workspace", "--test", "load", "--", "--nocapture", "--test-threads", "1"]);
    tests.env("M3_LOAD", "full").env("M3_LOAD_OUT", figures.path()).current_dir(root);
    let status = tests.status()?;
    let mut all = serde_json::Map::new();
    for entry in std::fs::read_dir(figures.path())? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).context("a figure has a name")?;
        all.insert(name.to_owned(), serde_json::from_slice(&std::fs::read(&path)?)?);
    }
    // Nothing is recorded of a run that failed.
    ensure!(status.success(), "the soak failed after {} s", begun.elapsed().as_secs());
    all.sort_keys();
    all.insert("seconds".to_owned(), begun.elapsed().as_secs().into());
    crate::bench::record(root, "load", "cargo xtask soak load", &all.into())
}

/// Killed when the test ends, however it ends.
pub(crate) struct Server(Child);

impl Server {
    pub(crate) fn start(root: &Path, port: u16, flags: &[&str]) -> Result<Self> {
        let binary = target_folder(root).join("debug/m3");
        println!("\n$ {} serve --port {port} {}", binary.display(), flags.join(" "));
        let child = Command::new(&binary)
            .args(["serve", "--port", &port.to_string()])
            .args(flags)
            .current_dir(root)
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        Ok(Server(child))
    }

    pub(crate) fn wait_until_ready(&mut self, port: u16) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(120) {
            if let Some(status) = self.0.try_wait()? {
                bail!("the server ended before it was ready: {status}");
            }
            if ready(port).unwrap_or(false) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        bail!("the server was not ready after 120 s")
    }
}

pub(crate) fn ready(port: u16) -> Result<bool> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer.starts_with("HTTP/1.1"), "not an HTTP answer");
    Ok(answer.starts_with("HTTP/1.1 200"))
}

impl Drop for Server {
    fn drop(&mut self) {
        let killed = self.0.kill().and_then(|()| self.0.wait());
        if let Err(error) = killed {
            println!("the server could not be stopped: {error}");
        }
    }
}
