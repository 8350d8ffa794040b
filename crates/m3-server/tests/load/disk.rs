//! A full disk under everything that the program writes: its log, its temporary files, downloads. The disk is a small
//! tmpfs in a mount namespace of the program's own; where the system grants none, that is said loudly and what can be
//! tried without one is.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Path as Segments, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::asking::{APIS, Ask, Came};
use crate::program::{Model, Program, root};
use crate::support::bundled;
use crate::{echo, record, size};

/// Mounts `$0` with `$1` bytes and goes on with the rest of the words, standard error inside of it.
const MOUNTED: &str = r#"mount -t tmpfs -o "size=$1" m3 "$0" && shift && exec "$@" 2>"$0/log""#;
const UNSHARE: [&str; 4] = ["--mount", "--map-root-user", "--propagation", "private"];

/// A program on a disk of so many bytes at `dir`, which nobody else sees; `None` where the system grants no mounts.
fn on_small_disk(dir: &Path, bytes: &str, program: &str) -> Option<Command> {
    let command = |program: &str| {
        let mut command = Command::new("unshare");
        command.args(UNSHARE).args(["sh", "-c", MOUNTED]).arg(dir).args([bytes, program]);
        command
    };
    let granted = command("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    if !granted {
        eprintln!("SKIPPED: this system lets nobody mount a small disk");
    }
    granted.then(|| command(program))
}

/// The small disk as it is seen from here.
fn inside(program: &Program, dir: &Path) -> PathBuf {
    PathBuf::from(format!("/proc/{}/root{}", program.id(), dir.display()))
}

/// Writes until nothing more fits.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    for chunk in [vec![0u8; 4096], vec![0u8; 1]] {
        while file.write_all(&chunk).is_ok() {}
    }
}

async fn answers(program: &Program, from: u64, count: u64) {
    for number in from..from + count {
        let ask =
            Ask { api: APIS[number as usize % 5], stream: number.is_multiple_of(2), number, repeats: 2 };
        assert_eq!(ask.whole(&program.client, &program.base).await, Came::Right, "{ask:?}");
    }
}

/// A request with a video, for which a temporary file is needed.
async fn video(program: &Program, film: &str) -> (u16, Value) {
    let part = json!({"type": "video_url", "video_url": {"url": film}});
    let body = json!({"messages": [{"role": "user", "content": [part]}], "max_tokens": 4});
    program.post("/v1/chat/completions", &body).await
}

/// A second of red.
fn film() -> Option<String> {
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-loglevel", "error", "-f", "lavfi", "-i", "color=c=red:s=112x112:d=1:r=4"]);
    ffmpeg.args(["-movflags", "frag_keyframe+empty_moov", "-f", "mp4", "-"]).stdin(Stdio::null());
    let made = ffmpeg.output().ok().filter(|output| output.status.success());
    if made.is_none() {
        eprintln!("SKIPPED: no ffmpeg, so no video");
    }
    let text = base64::engine::general_purpose::STANDARD.encode(made?.stdout);
    Some(format!("data:video/mp4;base64,{text}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_turns_ready_red_and_harms_no_answer() {
    let requests = size(100, 2000);
    let dir = tempfile::tempdir().unwrap();
    let exe = env!("CARGO_BIN_EXE_m3");
    let flags = ["--log-level", "debug", "--min-free-disk", "64K"];
    let Some(mut command) = on_small_disk(dir.path(), "4m", exe) else {
        // A log that can never be written is the half of it that needs no mount.
        let full = File::options().write(true).open("/dev/full").unwrap();
        let program = Program::start_in(Command::new(exe), Model::Null(echo(0)), &flags, Some(full)).await;
        answers(&program, 0, requests).await;
        return record("disk-log", &json!({"disk": "/dev/full", "right_on_a_full_disk": requests}));
    };
    command.env("TMPDIR", dir.path());
    let nowhere = File::options().write(true).open("/dev/null").unwrap();
    let program = Program::start_in(command, Model::Null(echo(0)), &flags, Some(nowhere)).await;
    let disk = inside(&program, dir.path());
    let film = film();
    if let Some(film) = &film {
        let (status, answer) = video(&program, film).await;
        assert_eq!(status, 200, "{answer}");
    }
    fill(&disk.join("filler"));
    let red = program.wait_for("/ready", 503).await;
    let reason =
        program.client.get(format!("{}/ready", program.base)).send().await.unwrap().text().await.unwrap();
    assert!(reason.contains("bytes free; at least 65536 are needed"), "{reason}");
    assert_eq!((program.status("/health").await, program.status("/live").await), (200, 200));
    let full = std::fs::metadata(disk.join("log")).unwrap().len();
    answers(&program, 0, requests).await;
    let refused = match &film {
        Some(film) => {
            let (status, answer) = video(&program, film).await;
            assert!(status >= 500, "{status} {answer}");
            let sentence = answer["error"]["message"].as_str().unwrap_or_default().to_owned();
            assert!(
                sentence.contains("cannot store the video") && sentence.contains("no storage space"),
                "{sentence}"
            );
            sentence
        }
        None => "no ffmpeg".to_owned(),
    };
    std::fs::remove_file(disk.join("filler")).unwrap();
    let green = program.wait_for("/ready", 200).await;
    answers(&program, requests, 20).await;
    let grown = std::fs::metadata(disk.join("log")).unwrap().len();
    assert!(grown > full, "the log goes on once there is room: {full} then {grown} bytes");
    if let Some(film) = &film {
        assert_eq!(video(&program, film).await.0, 200, "so do videos");
    }
    record(
        "disk-log",
        &json!({
            "disk": "tmpfs of 4 MiB", "right_on_a_full_disk": requests, "a_video_meanwhile": refused,
            "ready_was_red_within_s": red.as_secs_f64().ceil(), "ready_was_green_again_within_s": green.as_secs_f64().ceil(),
        }),
    );
}

/// Standard output on a full disk, standard error too: the port is open all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_with_all_output_on_a_full_disk_serves() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_m3"));
    command.args([
        "serve",
        "--backend",
        "cpu",
        "--kv-cache-memory-bytes",
        "64M",
        "--port",
        &port.to_string(),
    ]);
    let mut child =
        command.current_dir(root()).stdin(Stdio::null()).stdout(full()).stderr(full()).spawn().unwrap();
    let client = crate::support::client();
    let begun = std::time::Instant::now();
    let mut ready = false;
    while !ready && begun.elapsed() < std::time::Duration::from_secs(60) {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        let answer = client.get(format!("http://127.0.0.1:{port}/ready")).send().await;
        ready = answer.is_ok_and(|answer| answer.status() == 200);
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(ready, "not ready within 60 s");
}

/// A hub on this machine with the bundled model, which stops in the middle of the weights, once, until it is told to go on.
struct Hub {
    folder: PathBuf,
    halfway: Notify,
    go_on: Notify,
    stopped: AtomicBool,
    /// Where the weights were asked for from.
    asked_from: Mutex<Vec<usize>>,
}

impl Hub {
    async fn start() -> (Arc<Self>, String) {
        let hub = Arc::new(Hub {
            folder: bundled(),
            halfway: Notify::new(),
            go_on: Notify::new(),
            stopped: AtomicBool::new(false),
            asked_from: Mutex::default(),
        });
        let router = Router::new()
            .route("/api/models/{owner}/{name}/revision/{revision}", axum::routing::get(list))
            .route("/{owner}/{name}/resolve/{revision}/{*path}", axum::routing::get(file))
            .with_state(Arc::clone(&hub));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (hub, address)
    }
}

async fn list(State(hub): State<Arc<Hub>>) -> axum::Json<Value> {
    let files = std::fs::read_dir(&hub.folder).unwrap().map(|entry| entry.unwrap());
    let siblings: Vec<Value> = files
        .filter(|entry| entry.file_type().unwrap().is_file())
        .map(|entry| {
            json!({"rfilename": entry.file_name().to_str().unwrap(), "size": entry.metadata().unwrap().len(), "blobId": format!("{:040x}", entry.metadata().unwrap().len())})
        })
        .collect();
    axum::Json(json!({"sha": "c5454eb03678d8710e54a4e0fc681b9f3b4a3dba", "siblings": siblings}))
}

async fn file(
    State(hub): State<Arc<Hub>>,
    Segments((_, _, _, path)): Segments<(String, String, String, String)>,
    headers: HeaderMap,
) -> Response {
    let bytes = std::fs::read(hub.folder.join(&path)).unwrap();
    let range =
        headers.get("range").and_then(|range| range.to_str().ok()?.strip_prefix("bytes=")?.strip_suffix('-'));
    let from: usize = range.map_or(0, |from| from.parse().unwrap());
    let status = if from > 0 { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    let rest = bytes[from..].to_vec();
    if !path.ends_with(".safetensors") {
        return (status, rest).into_response();
    }
    hub.asked_from.lock().unwrap().push(from);
    if hub.stopped.swap(true, Ordering::SeqCst) {
        return (status, rest).into_response();
    }
    let (head, tail) = (rest[..rest.len() / 2].to_vec(), rest[rest.len() / 2..].to_vec());
    let later = async move {
        hub.halfway.notify_one();
        hub.go_on.notified().await;
        Ok(tail)
    };
    let pieces = futures_util::stream::once(async { Ok::<_, std::io::Error>(head) });
    let body = axum::body::Body::from_stream(pieces.chain(futures_util::stream::once(later)));
    (status, body).into_response()
}

/// Words: the disk, the program, and the size that the disk grows to.
const DOWNLOADS: &str = r#""$2" download owner/nano 2>&1; echo "small $?"
    mount -o "remount,size=$3" "$1"
    "$2" download owner/nano 2>&1; echo "filled $?"
    rm "$1/filler"
    "$2" download owner/nano 2>&1; echo "emptied $?"
    find "$1" -name '*.incomplete'"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_download_on_a_full_disk_says_so_and_goes_on_when_there_is_room() {
    let (hub, address) = Hub::start().await;
    let weights = std::fs::metadata(bundled().join("model.safetensors")).unwrap().len();
    let dir = tempfile::tempdir().unwrap();
    let exe = env!("CARGO_BIN_EXE_m3");
    let Some(mut command) = on_small_disk(dir.path(), &(weights / 2).to_string(), "sh") else { return };
    command.args(["-c", DOWNLOADS, "sh"]).arg(dir.path()).args([exe, &(weights + 4_000_000).to_string()]);
    command.env("HF_ENDPOINT", &address).env("HF_HUB_CACHE", dir.path().join("cache"));
    command.env_remove("HF_TOKEN").env_remove("HF_HUB_OFFLINE");
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let disk = PathBuf::from(format!("/proc/{}/root{}", child.id(), dir.path().display()));
    let mut waiting = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap());
    tokio::select! {
        () = hub.halfway.notified() => {}
        ended = &mut waiting => panic!("{:?}", ended.unwrap()),
    }
    fill(&disk.join("filler"));
    hub.go_on.notify_one();
    let text = String::from_utf8_lossy(&waiting.await.unwrap().stdout).into_owned();
    let (small, rest) = text.split_once("small 1").unwrap_or_else(|| panic!("{text}"));
    assert!(
        small.contains("bytes are to be downloaded and the disk of"),
        "before anything is loaded: {text}"
    );
    let (filled, rest) = rest.split_once("filled 1").unwrap_or_else(|| panic!("{text}"));
    assert!(filled.contains("is the disk full?") && filled.contains("No space left on device"), "{text}");
    assert!(rest.contains("emptied 0") && !rest.contains(".incomplete\n"), "{text}");
    let asked = hub.asked_from.lock().unwrap().clone();
    assert!(asked.len() == 2 && asked[1] > 0, "the rest was asked for: {asked:?}");
    record(
        "disk-download",
        &json!({
            "disk": "tmpfs", "weights_bytes": weights, "went_on_from_byte": asked[1],
        }),
    );
}
