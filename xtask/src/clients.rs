//! The clients that people use, unmodified and pinned by hash, against the real `m3`: the part of `cargo xtask test`
//! that needs Python and node. What they check is in `crates/m3-server/tests/{python,js}`; this only sets them up.

use crate::process::{self, target_folder, works};
use crate::python;
use crate::test::Server;
use anyhow::{Context, Result, ensure};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Need a running server with a real model and are given its address.
const OF_ANY_MODEL: [&str; 3] = ["test_openai.py", "test_responses.py", "test_anthropic.py"];
/// Start scripted servers themselves.
const OF_KNOWN_ANSWERS: [&str; 4] = ["test_exact.py", "test_bench.py", "test_langchain.py", "test_agents.py"];

pub(crate) fn test(root: &Path) -> Result<()> {
    let begun = Instant::now();
    let scripts = root.join("crates/m3-server/tests/python");
    let python = python::environment(root, "python", &scripts.join("requirements.txt"))?;
    let javascript = javascript(root)?;
    let (server, url) = serve(root, &[])?;
    for name in OF_ANY_MODEL {
        run(root, &python, &scripts.join(name), &[&url])?;
    }
    for name in OF_KNOWN_ANSWERS {
        run(root, &python, &scripts.join(name), &[])?;
    }
    if let Some(folder) = javascript {
        let folder = folder.to_str().context("the target folder's path is not UTF-8")?;
        run(root, &python, &scripts.join("run_javascript.py"), &[&url, folder])?;
    }
    drop(server);
    // Made-up requests rarely say when to stop; in a short context every answer ends before the client's patience.
    let (_server, url) = serve(root, &["--context-length", "512"])?;
    described(root, &scripts, &url)?;
    println!("the clients took {:.0} s", begun.elapsed().as_secs_f64());
    Ok(())
}

/// The bundled model on a free port, ready, and its address.
fn serve(root: &Path, flags: &[&str]) -> Result<(Server, String)> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut server = Server::start(root, port, flags)?;
    server.wait_until_ready(port)?;
    Ok((server, format!("http://127.0.0.1:{port}")))
}

/// Least share of the made-up bodies, in percent, that must be accepted: what is only refused checks nothing else.
const LEAST_ACCEPTED: &str = "34";

/// Made-up requests for every route that `/openapi.json` describes: none may be answered with 5xx, with a status or a
/// content type that is not described, or with a body that breaks its schema. The seed makes a failure repeatable.
/// Values at and beyond every limit are mostly refused; most random bodies are mended by a hook.
fn described(root: &Path, scripts: &Path, url: &str) -> Result<()> {
    let python = python::environment(root, "schemathesis", &scripts.join("schemathesis.txt"))?;
    let program = Path::new(&python).with_file_name("schemathesis");
    let checks =
        "not_a_server_error,response_schema_conformance,status_code_conformance,content_type_conformance";
    for (phase, least) in [("coverage", "0"), ("fuzzing", LEAST_ACCEPTED)] {
        println!("\n$ {} run {url}/openapi.json --phases {phase}", program.display());
        let status = Command::new(&program)
            .args(["run", &format!("{url}/openapi.json"), "--url", url, "--checks", checks, "--no-color"])
            // A server that was told to drain refuses everything after, as it should.
            .args(["--exclude-path-regex", "^/admin/"])
            .args(["--phases", phase, "--max-examples", "40", "--seed", "1", "--request-timeout", "10"])
            .env("SCHEMATHESIS_HOOKS", "schemathesis_hooks")
            .env("PYTHONPATH", scripts)
            .env("M3_LEAST_ACCEPTED", least)
            .current_dir(root)
            .status()
            .with_context(|| format!("cannot start {}", program.display()))?;
        ensure!(status.success(), "schemathesis failed: {status}");
    }
    Ok(())
}

/// One script, told where the program under test is.
fn run(root: &Path, python: &str, script: &Path, args: &[&str]) -> Result<()> {
    println!("\n$ {python} {} {}", script.display(), args.join(" "));
    let status = Command::new(python)
        .arg(script)
        .args(args)
        .env("M3_BINARY", target_folder(root).join("debug/m3"))
        .current_dir(root)
        .status()
        .with_context(|| format!("cannot start {python}"))?;
    ensure!(status.success(), "{} failed: {status}", script.display());
    Ok(())
}

/// A folder with the client's package and the test; `None`, said loudly, where there is no node outside CI.
fn javascript(root: &Path) -> Result<Option<PathBuf>> {
    if !works("node", &["--version"]) || !works("npm", &["--version"]) {
        ensure!(std::env::var_os("CI").is_none(), "CI needs node and npm for the JavaScript client");
        println!("\nSKIPPED: the JavaScript client is not tested, because node or npm is missing\n");
        return Ok(None);
    }
    let sources = root.join("crates/m3-server/tests/js");
    let folder = target_folder(root).join("javascript");
    std::fs::create_dir_all(&folder)?;
    let wanted = std::fs::read(sources.join("package-lock.json"))?;
    let current = std::fs::read(folder.join("package-lock.json")).is_ok_and(|made| made == wanted)
        && folder.join("node_modules/openai").is_dir();
    for name in ["package.json", "package-lock.json", "test_openai.mjs"] {
        std::fs::copy(sources.join(name), folder.join(name))
            .with_context(|| format!("cannot copy {name}"))?;
    }
    if !current {
        let path = folder.to_str().context("the target folder's path is not UTF-8")?;
        process::run(root, "npm", &["ci", "--prefix", path, "--ignore-scripts", "--no-audit", "--no-fund"])?;
    }
    Ok(Some(folder))
}
