//! The server alone: `m3 serve` over the scripted backend, this process as the load. Reports requests and streamed
//! tokens a second and the server process's own CPU time a token (user and system, from `/proc/PID/stat`); the load's
//! cost is apart. One thread of plain sockets drives all streams.

use crate::process::{cargo, target_folder};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Streams at once.
const STREAMS: usize = 256;
/// Tokens of each stream, and streams one after another on each connection.
const TOKENS: u32 = 512;
const ROUNDS: usize = 4;
/// Short whole answers for the rate of requests.
const REQUESTS: usize = 4000;
const CONNECTIONS: usize = 32;
/// Microseconds of a step: as fast as the server can take it, and the rate of a device with 256 streams.
const STEPS_US: [u64; 2] = [0, 20_000];

pub(super) fn run(root: &Path) -> Result<Value> {
    cargo(root, &["build", "--release", "-p", "m3-server", "-p", "backend-null-plugin"])?;
    let mut rows = Vec::new();
    for step_us in STEPS_US {
        for coalescer in [true, false] {
            let server = Server::start(root, step_us, coalescer)?;
            let row = stream_row(&server, step_us, coalescer)?;
            println!("{row}");
            rows.push(row);
        }
    }
    let server = Server::start(root, 0, true)?;
    let requests = request_row(&server)?;
    println!("{requests}");
    Ok(json!({"streams": rows, "requests": requests}))
}

/// All streams from start to end.
fn stream_row(server: &Server, step_us: u64, coalescer: bool) -> Result<Value> {
    let body = json!({"messages": [{"role": "user", "content": "Go on."}], "max_tokens": TOKENS, "ignore_eos": true,
        "stream": true});
    let load =
        Load { port: server.port, path: "/v1/chat/completions", body, rounds: ROUNDS, connections: STREAMS };
    let before = server.cpu_seconds()?;
    let done = load.run()?;
    let cpu = server.cpu_seconds()? - before;
    let tokens = (STREAMS * ROUNDS) as f64 * f64::from(TOKENS);
    Ok(json!({
        "streams": STREAMS, "tokens_of_a_stream": TOKENS, "rounds": ROUNDS, "step_us": step_us,
        "coalescer": coalescer, "seconds": round(done.seconds), "tokens_per_s": round(tokens / done.seconds),
        "server_cpu_us_per_token": round(cpu * 1e6 / tokens), "server_cores_used": round(cpu / done.seconds),
        "events_per_token": round(done.events as f64 / tokens), "bytes_per_token": round(done.bytes as f64 / tokens),
    }))
}

fn request_row(server: &Server) -> Result<Value> {
    let body = json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, "ignore_eos": true});
    let rounds = REQUESTS / CONNECTIONS;
    let load =
        Load { port: server.port, path: "/v1/chat/completions", body, rounds, connections: CONNECTIONS };
    let before = server.cpu_seconds()?;
    let done = load.run()?;
    let cpu = server.cpu_seconds()? - before;
    let count = (rounds * CONNECTIONS) as f64;
    Ok(json!({
        "requests": count, "connections": CONNECTIONS, "max_tokens": 1, "requests_per_s": round(count / done.seconds),
        "server_cpu_us_per_request": round(cpu * 1e6 / count),
    }))
}

fn round(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

struct Load {
    port: u16,
    path: &'static str,
    body: Value,
    /// Requests one after another on each connection.
    rounds: usize,
    connections: usize,
}

#[derive(Default)]
struct Done {
    seconds: f64,
    events: usize,
    bytes: usize,
}

/// One connection: what is still to be asked, and the tail of what came.
struct Client {
    socket: TcpStream,
    left: usize,
    tail: Vec<u8>,
}

impl Load {
    fn run(&self) -> Result<Done> {
        let mut clients = (0..self.connections)
            .map(|_| {
                let socket = TcpStream::connect(("127.0.0.1", self.port))?;
                socket.set_nodelay(true)?;
                Ok(Client { socket, left: self.rounds, tail: Vec::new() })
            })
            .collect::<Result<Vec<_>>>()?;
        let begun = Instant::now();
        for client in &mut clients {
            client.ask(self)?;
            client.socket.set_nonblocking(true)?;
        }
        let mut done = Done::default();
        let mut buffer = vec![0; 1 << 16];
        while !clients.is_empty() {
            let mut idle = true;
            let mut at = 0;
            while at < clients.len() {
                let more = clients[at].read(self, &mut buffer, &mut done)?;
                idle &= more != Some(true);
                match more {
                    None => drop(clients.swap_remove(at)),
                    Some(_) => at += 1,
                }
            }
            if idle {
                // Reading in gulps costs the server's cores less than polling.
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        done.seconds = begun.elapsed().as_secs_f64();
        Ok(done)
    }
}

impl Client {
    fn ask(&mut self, load: &Load) -> Result<()> {
        let body = load.body.to_string();
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            load.path,
            body.len()
        );
        self.left -= 1;
        self.socket.write_all(format!("{head}{body}").as_bytes()).context("a request could not be sent")
    }

    /// What has come: true when there was something, `None` when the last answer has ended.
    fn read(&mut self, load: &Load, buffer: &mut [u8], done: &mut Done) -> Result<Option<bool>> {
        let length = match self.socket.read(buffer) {
            Ok(0) => bail!("the server closed a connection: {}", String::from_utf8_lossy(&self.tail)),
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Some(false)),
            Err(error) => return Err(error.into()),
        };
        done.bytes += length;
        done.events += buffer[..length].windows(6).filter(|bytes| *bytes == b"data: ").count();
        self.tail.extend_from_slice(&buffer[..length]);
        if !self.ended()? {
            let keep = self.tail.len().saturating_sub(2048);
            if !load.body["stream"].is_null() {
                self.tail.drain(..keep);
            }
            return Ok(Some(true));
        }
        self.tail.clear();
        if self.left == 0 {
            return Ok(None);
        }
        self.socket.set_nonblocking(false)?;
        self.ask(load)?;
        self.socket.set_nonblocking(true)?;
        Ok(Some(true))
    }

    /// A stream ends with its empty chunk, a whole answer with its length.
    fn ended(&self) -> Result<bool> {
        if self.tail.starts_with(b"HTTP/1.1 ") {
            ensure!(self.tail.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&self.tail));
        }
        if self.tail.ends_with(b"\r\n0\r\n\r\n") {
            return Ok(true);
        }
        let text = String::from_utf8_lossy(&self.tail);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { return Ok(false) };
        let length =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse::<usize>().ok());
        Ok(length.is_some_and(|length| body.len() >= length))
    }
}

/// Killed when the benchmark ends, however it ends.
struct Server {
    child: Child,
    port: u16,
    /// The model's folder.
    _folder: Folder,
}

/// The bundled model with another script; removed with the server.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            println!("{} is left over: {error}", self.0.display());
        }
    }
}

impl Server {
    fn start(root: &Path, step_us: u64, coalescer: bool) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let folder = model(root, step_us)?;
        let binary = target_folder(root).join("release/m3");
        let gather = if coalescer { "25" } else { "0" };
        let running = STREAMS.to_string();
        let child = Command::new(&binary)
            .arg("serve")
            .arg(&folder.0)
            .args(["--backend", "null", "--port", &port.to_string(), "--max-running-requests", &running])
            .args(["--stream-gather-ms", gather, "--log-level", "error"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let mut server = Server { child, port, _folder: folder };
        let begun = Instant::now();
        while !crate::test::ready(port).unwrap_or(false) {
            if let Some(status) = server.child.try_wait()? {
                bail!("the server ended before it was ready: {status}");
            }
            ensure!(begun.elapsed() < Duration::from_secs(60), "the server was not ready after 60 s");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }

    /// User and system time of the process so far.
    fn cpu_seconds(&self) -> Result<f64> {
        /// Linux counts in hundredths of a second.
        const TICKS_PER_SECOND: f64 = 100.0;
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let fields = stat.rsplit_once(')').context("/proc/PID/stat has no name")?.1;
        let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
        Ok(ticks.collect::<Result<Vec<_>, _>>()?.iter().sum::<f64>() / TICKS_PER_SECOND)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
            println!("the server could not be stopped: {error}");
        }
    }
}

/// Words of prose, so that tokens are as long as in an answer.
const SCRIPT: &str = "The server streams this answer again and again so that its own cost can be told from the cost \
                      of a model, which a real device would add to it. ";

fn model(root: &Path, step_us: u64) -> Result<Folder> {
    let source = root.join("tests/data/random/m3-nano");
    let folder = Folder(std::env::temp_dir().join(format!("m3-bench-{}-{step_us}", std::process::id())));
    std::fs::create_dir_all(&folder.0)?;
    for entry in std::fs::read_dir(&source)? {
        let entry = entry?;
        std::fs::copy(entry.path(), folder.0.join(entry.file_name()))?;
    }
    let tokenizer = m3_core::text::tokenizer::Tokenizer::from_dir(&source)?;
    let mut config: Value = serde_json::from_slice(&std::fs::read(source.join("config.json"))?)?;
    config["m3_null"] =
        json!({"script": tokenizer.encode_ordinary(SCRIPT)?, "step_us": step_us, "max_pages": 65_536});
    std::fs::write(folder.0.join("config.json"), config.to_string())?;
    Ok(folder)
}
