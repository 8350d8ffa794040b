//! The packages in a fresh root: installed by `dpkg`, then served from there, seeing nothing of this machine but its C
//! library. Drains on SIGTERM, and leaves nothing behind when it is removed.

use super::{VERSION, archive, stage};
use crate::process::works;
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Installs, serves, stops, removes.
pub(super) fn run(debs: &[PathBuf], backends: &[String]) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let root = folder.path();
    install(root, debs)?;
    libraries(root)?;
    let isolated = works("unshare", &["--map-root-user", "--mount", "--pid", "--fork", "true"]);
    if !isolated {
        println!(
            "\nSKIPPED: no namespaces here, so that the packages are tried in their folder and see this machine\n"
        );
    }
    for deb in debs {
        listed(&root.join(stage::DOCUMENTS), &package(deb).context("a package has a name")?)?;
    }
    let place = Place { root, isolated };
    sees(place.command(&["backends"]), backends)?;
    place.serve(&[])?;
    if backends.iter().any(|name| name == "null") {
        place.serve(&["--backend", "null"])?;
    }
    remove(root, debs)?;
    println!("the packages install into a fresh root, serve, drain and go away again");
    Ok(())
}

/// The archives beside each other in a fresh folder: the program runs from there, and everything has its documents.
pub(super) fn unpack(archives: &[(String, PathBuf)], backends: &[String]) -> Result<()> {
    let folder = tempfile::tempdir()?;
    for (_, archive) in archives {
        archive::unpack(archive, folder.path())?;
    }
    let home = folder.path().join(format!("m3-{VERSION}"));
    for (package, _) in archives {
        listed(&home.join("doc"), package)?;
    }
    let mut command = Command::new(home.join("m3"));
    command.arg("backends");
    sees(command, backends)?;
    println!("the archives unpack into one folder and run there");
    Ok(())
}

/// Whether the program behind `m3 backends` finds the plugins beside it.
fn sees(command: Command, backends: &[String]) -> Result<()> {
    let text = output(command)?;
    for backend in backends {
        ensure!(text.contains(&format!("{backend} (")), "m3 does not see {backend}:\n{text}");
    }
    Ok(())
}

/// Whether a package's documents say what it is made of.
fn listed(documents: &Path, package: &str) -> Result<()> {
    let path = documents.join(package).join(stage::SBOM);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let list: serde_json::Value = serde_json::from_str(&text)?;
    let crates = list["components"].as_array().map_or(0, Vec::len);
    ensure!(list["bomFormat"] == "CycloneDX" && crates > 1, "{} lists {crates} crates", path.display());
    ensure!(documents.join(package).join("copyright").is_file(), "{package} does not state its licence");
    Ok(())
}

/// The name of the package in a file's name.
fn package(deb: &Path) -> Option<String> {
    deb.file_name()?.to_str()?.split_once('_').map(|(name, _)| name.to_owned())
}

fn dpkg(root: &Path) -> Command {
    let mut command = Command::new("dpkg");
    // The C library is laid beside, not installed; packages have no scripts that a foreign root could not run.
    command.arg(format!("--root={}", root.display())).args([
        "--force-depends",
        "--force-not-root",
        "--force-script-chrootless",
    ]);
    command.arg("--log=/dev/null");
    command
}

fn install(root: &Path, debs: &[PathBuf]) -> Result<()> {
    for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "proc", "dev", "tmp"]
    {
        std::fs::create_dir_all(root.join(folder))?;
    }
    std::fs::write(root.join("var/lib/dpkg/status"), "")?;
    let mut command = dpkg(root);
    command.arg("--install").args(debs);
    output(command).map(|_| ())
}

fn remove(root: &Path, debs: &[PathBuf]) -> Result<()> {
    let mut command = dpkg(root);
    command.arg("--purge").args(debs.iter().rev().filter_map(|deb| package(deb)));
    output(command)?;
    for left in ["usr/lib/m3", "usr/bin/m3", "etc/m3"] {
        ensure!(!root.join(left).exists(), "/{left} is left behind");
    }
    Ok(())
}

/// What the loader asks for, and nothing else.
fn libraries(root: &Path) -> Result<()> {
    let mut command = Command::new("ldd");
    command.arg(root.join("usr/lib/m3/m3"));
    let text = output(command)?;
    let paths = text.split_whitespace().filter(|word| word.starts_with('/'));
    for path in paths.filter(|path| !path.contains("/usr/lib/m3/")) {
        let to = root.join(path.trim_start_matches('/'));
        std::fs::create_dir_all(to.parent().context("a library lies in a folder")?)?;
        std::fs::copy(path, &to).with_context(|| format!("cannot copy {path}"))?;
    }
    Ok(())
}

/// Where the packages are.
struct Place<'a> {
    root: &'a Path,
    /// The fresh root is the root, in namespaces of its own.
    isolated: bool,
}

impl Place<'_> {
    /// `/usr/bin/m3`, with `/proc` to find itself by.
    fn command(&self, arguments: &[&str]) -> Command {
        const SCRIPT: &str = "mount -t proc proc \"$0/proc\" && exec chroot \"$0\" /usr/bin/m3 \"$@\"";
        if !self.isolated {
            let mut command = Command::new(self.root.join("usr/bin/m3"));
            command.args(arguments);
            return command;
        }
        let mut command = Command::new("unshare");
        // Ending `unshare` ends the server too, whatever happens.
        command.args([
            "--map-root-user",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child=SIGTERM",
            "sh",
            "-c",
            SCRIPT,
        ]);
        command.arg(self.root).args(arguments).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }

    fn serve(&self, more: &[&str]) -> Result<()> {
        let mut command = self.command(&[&["serve", "--port", "0"], more].concat());
        println!("\n$ m3 serve --port 0 {} (in {})", more.join(" "), self.root.display());
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot start m3")?;
        let mut server = Started(child);
        let lines = BufReader::new(server.0.stdout.take().context("the server has an output")?).lines();
        let mut words = lines
            .map_while(Result::ok)
            .filter_map(|line| line.split_once("http://").map(|(_, rest)| rest.to_owned()));
        let address = words.next().context("the installed m3 ended before it listened")?;
        let begun = Instant::now();
        while !ask(&address, "GET /ready", "").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")) {
            ensure!(server.0.try_wait()?.is_none(), "the installed m3 ended before it was ready");
            ensure!(begun.elapsed() < Duration::from_secs(120), "the installed m3 was not ready after 120 s");
            std::thread::sleep(Duration::from_millis(100));
        }
        let body = r#"{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}"#;
        let answer = ask(&address, "POST /v1/chat/completions", body)?;
        ensure!(
            answer.starts_with("HTTP/1.1 200") && answer.contains("\"completion_tokens\":"),
            "no answer but:\n{answer}"
        );
        let page = ask(&address, "GET /", "")?;
        ensure!(page.starts_with("HTTP/1.1 200") && page.contains("<title>"), "no page but:\n{page}");
        server.stop(self.isolated)
    }
}

struct Started(Child);

impl Started {
    /// SIGTERM to the server itself, which is the only child of `unshare` where there is one: it drains and ends with 0.
    fn stop(mut self, isolated: bool) -> Result<()> {
        let own = self.0.id();
        let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children"))?;
        let child = children.split_whitespace().next().map(str::to_owned).filter(|_| isolated);
        let child = child.unwrap_or_else(|| own.to_string());
        output({
            let mut kill = Command::new("kill");
            kill.args(["-TERM", &child]);
            kill
        })?;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(30) {
            if let Some(status) = self.0.try_wait()? {
                ensure!(status.success(), "after SIGTERM the installed m3 ended with {status}");
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("30 s after SIGTERM the installed m3 still runs")
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // Ended already when all went well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ask(address: &str, what: &str, body: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    write!(
        stream,
        "{what} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// What it prints; its complaints when it fails.
fn output(mut command: Command) -> Result<String> {
    let result = command.output().with_context(|| format!("cannot start {:?}", command.get_program()))?;
    let (out, complaints) =
        (String::from_utf8_lossy(&result.stdout), String::from_utf8_lossy(&result.stderr));
    ensure!(result.status.success(), "{command:?} failed: {}\n{out}{complaints}", result.status);
    Ok(out.into_owned())
}
