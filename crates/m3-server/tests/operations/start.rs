//! Start: models of a hub, what of them is checked, and memory that does not suffice.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Path as Segments, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::{Server, bundled, model_dir, says};

const COMMIT: &str = "c5454eb03678d8710e54a4e0fc681b9f3b4a3dba";

/// A hub on this machine with one model, the bundled one, and a pickle beside it.
struct Hub {
    address: String,
    state: Arc<Files>,
}

struct Files {
    contents: HashMap<String, Vec<u8>>,
    /// Ranges asked for, by file.
    asked: Mutex<Vec<(String, Option<String>)>>,
    /// So many answers break off in the middle.
    breaks: AtomicUsize,
    /// So many answers have a wrong byte.
    spoils: AtomicUsize,
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn take(counter: &AtomicUsize) -> bool {
    counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

impl Hub {
    async fn start(breaks: usize, spoils: usize) -> Self {
        let mut contents: HashMap<String, Vec<u8>> = HashMap::new();
        for entry in std::fs::read_dir(bundled()).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                contents
                    .insert(entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap());
            }
        }
        contents.insert("pytorch_model.bin".into(), b"a pickle".to_vec());
        let state = Arc::new(Files {
            contents,
            asked: Mutex::default(),
            breaks: AtomicUsize::new(breaks),
            spoils: AtomicUsize::new(spoils),
        });
        let router = Router::new()
            .route("/api/models/{owner}/{name}/revision/{revision}", axum::routing::get(list))
            .route("/api/v1/models/{owner}/{name}/repo/files", axum::routing::get(scope_list))
            .route("/api/v1/models/{owner}/{name}/repo", axum::routing::get(scope_file))
            .route("/{owner}/{name}/resolve/{revision}/{*path}", axum::routing::get(file))
            .with_state(Arc::clone(&state));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Hub { address, state }
    }

    fn asked(&self, name: &str) -> Vec<Option<String>> {
        let asked = self.state.asked.lock().unwrap();
        asked.iter().filter(|(file, _)| file == name).map(|(_, range)| range.clone()).collect()
    }

    /// `m3` with this hub and a cache.
    async fn run(
        &self,
        cache: &Path,
        words: &[&str],
        variables: &[(&str, &str)],
    ) -> (Option<i32>, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_m3"));
        command
            .args(words)
            .env("HF_ENDPOINT", &self.address)
            .env("HF_HUB_CACHE", cache)
            .env_remove("HF_TOKEN");
        command.env_remove("HF_HUB_OFFLINE").envs(variables.iter().copied());
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }
}

async fn list(
    State(state): State<Arc<Files>>,
    Segments((_, name, revision)): Segments<(String, String, String)>,
) -> Response {
    if name != "m3-nano" || !["main", COMMIT].contains(&revision.as_str()) {
        return StatusCode::NOT_FOUND.into_response();
    }
    let sibling = |(name, bytes): (&String, &Vec<u8>)| {
        let large = name.ends_with(".safetensors");
        let lfs = large.then(|| json!({"sha256": hex(bytes), "size": bytes.len()}));
        // What git calls a small file; only its shape matters here.
        json!({"rfilename": name, "size": bytes.len(), "blobId": &hex(name.as_bytes())[..40], "lfs": lfs})
    };
    axum::Json(json!({"sha": COMMIT, "siblings": state.contents.iter().map(sibling).collect::<Vec<_>>()}))
        .into_response()
}

async fn scope_list(State(state): State<Arc<Files>>) -> axum::Json<Value> {
    let file = |(name, bytes): (&String, &Vec<u8>)| json!({"Path": name, "Size": bytes.len(), "Sha256": hex(bytes), "Type": "blob"});
    axum::Json(json!({"Code": 200, "Data": {"Files": state.contents.iter().map(file).collect::<Vec<_>>()}}))
}

async fn scope_file(
    State(state): State<Arc<Files>>,
    axum::extract::Query(query): axum::extract::Query<HashMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    send(&state, &query["FilePath"], &headers)
}

async fn file(
    State(state): State<Arc<Files>>,
    Segments((_, _, revision, path)): Segments<(String, String, String, String)>,
    headers: HeaderMap,
) -> Response {
    assert_eq!(revision, COMMIT, "files are asked for by commit");
    send(&state, &path, &headers)
}

fn send(state: &Files, path: &str, headers: &HeaderMap) -> Response {
    let range = headers.get("range").map(|range| range.to_str().unwrap().to_owned());
    state.asked.lock().unwrap().push((path.to_owned(), range.clone()));
    let mut bytes = state.contents[path].clone();
    let from = range.as_deref().map_or(0, |range| {
        range.trim_start_matches("bytes=").trim_end_matches('-').parse::<usize>().unwrap()
    });
    if path.ends_with(".safetensors") && take(&state.spoils) {
        bytes[from] ^= 1;
    }
    let rest = bytes.split_off(from);
    let status = if from > 0 { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    if path.ends_with(".safetensors") && take(&state.breaks) {
        let half = rest[..rest.len() / 2].to_vec();
        let broken = futures_util::stream::iter([Ok(half), Err(std::io::Error::other("cut"))]);
        return (status, Body::from_stream(broken)).into_response();
    }
    (status, rest).into_response()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_is_resumed_pinned_checked_and_then_found_without_a_network() {
    let hub = Hub::start(2, 0).await;
    let dir = tempfile::tempdir().unwrap();
    let (code, out, log) =
        hub.run(dir.path(), &["download", "owner/m3-nano", "--log-level", "info"], &[]).await;
    assert_eq!(code, Some(0), "{log}");
    let folder = Path::new(out.trim());
    assert_eq!(folder, dir.path().join(format!("models--owner--m3-nano/snapshots/{COMMIT}")));
    for (name, bytes) in &hub.state.contents {
        let there = std::fs::read(folder.join(name)).ok();
        assert_eq!(there.as_ref() == Some(bytes), name != "pytorch_model.bin", "{name}");
    }
    let asked = hub.asked("model.safetensors");
    assert_eq!((asked.len(), &asked[0]), (3, &None), "{asked:?}");
    assert!(
        asked[1..].iter().all(|range| range.as_deref().is_some_and(|range| range.starts_with("bytes="))),
        "{asked:?}"
    );
    // Again: nothing is asked but the list. Then without any hub, by branch and by commit.
    let (code, again, _) =
        hub.run(dir.path(), &["download", "owner/m3-nano", "--revision", COMMIT], &[]).await;
    assert_eq!((code, &again), (Some(0), &out));
    assert_eq!(hub.asked("model.safetensors").len(), 3);
    let offline = [("HF_HUB_OFFLINE", "1"), ("HF_ENDPOINT", "http://127.0.0.1:1")];
    for revision in ["main", COMMIT] {
        let words = ["download", "owner/m3-nano", "--revision", revision, "--verify"];
        assert_eq!(hub.run(dir.path(), &words, &offline).await.1, out);
    }
    let (code, _, log) = hub.run(dir.path(), &["download", "owner/other"], &offline).await;
    assert_eq!(code, Some(1));
    assert!(log.contains("HF_HUB_OFFLINE is set and owner/other at revision main is not in"), "{log}");
    let (code, out, log) = hub.run(dir.path(), &["verify", "owner/m3-nano"], &offline).await;
    assert!(code == Some(0) && out.contains("as published"), "{out} {log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn m8_a_file_that_is_not_what_the_hub_says_is_never_used() {
    let hub = Hub::start(0, 1).await;
    let dir = tempfile::tempdir().unwrap();
    let (code, out, log) = hub.run(dir.path(), &["download", "owner/m3-nano"], &[]).await;
    assert!(
        code == Some(0) && log.contains("has SHA-256"),
        "the first answer was wrong, the second is taken: {log}"
    );
    // Later a bit falls over on the disk.
    let weights = Path::new(out.trim()).join("model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&weights, bytes).unwrap();
    for words in [
        &["verify", "owner/m3-nano"][..],
        &["serve", "owner/m3-nano", "--verify", "--port", "0", "--backend", "cpu"],
    ] {
        let (code, _, log) = hub.run(dir.path(), words, &[("HF_HUB_OFFLINE", "1")]).await;
        assert_eq!(code, Some(1), "{words:?}");
        assert!(log.contains("model.safetensors has SHA-256") && log.contains("check the disk"), "{log}");
    }
    let always = Hub::start(0, usize::MAX).await;
    let fresh = tempfile::tempdir().unwrap();
    let (code, _, log) = always.run(fresh.path(), &["download", "owner/m3-nano"], &[]).await;
    assert!(code == Some(1) && log.contains("could not be downloaded in 5 tries"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_hub_does_not_have_is_told_in_a_sentence() {
    let hub = Hub::start(0, 0).await;
    let dir = tempfile::tempdir().unwrap();
    for (words, sentence) in [
        (&["download", "owner/none"][..], "the hub has no model owner/none at revision main"),
        (&["download", "owner/m3-nano", "--revision", "v9"], "at revision v9"),
        (&["download", "m3-nano"], "OWNER/NAME"),
        (
            &["download", "owner/m3-nano", "--hub-endpoint", "http://127.0.0.1:1"],
            "the hub cannot be asked for",
        ),
    ] {
        let (code, _, log) = hub.run(dir.path(), words, &[]).await;
        assert!(code == Some(1) && log.contains(sentence), "{words:?} {log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn m8_the_other_hub_s_mirror_is_checked_file_by_file() {
    let hub = Hub::start(1, 0).await;
    let (dir, plain) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let folder = plain.path().join("model");
    let words = [
        "download",
        "owner/m3-nano",
        "--hub",
        "modelscope",
        "--hub-endpoint",
        &hub.address,
        "--local-dir",
        folder.to_str().unwrap(),
    ];
    let (code, out, log) = hub.run(dir.path(), &words, &[]).await;
    assert_eq!((code, Path::new(out.trim())), (Some(0), folder.as_path()), "{log}");
    for name in ["config.json", "model.safetensors"] {
        assert_eq!(std::fs::read(folder.join(name)).unwrap(), hub.state.contents[name]);
    }
    assert!(!folder.join("pytorch_model.bin").exists());
}

/// A workspace for 2048 tokens does not fit, one for 512 does.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_lacks_memory_takes_smaller_steps_instead_of_failing() {
    let null = |memory: u64| {
        let mut script = says("fits");
        script["memory_bytes"] = memory.into();
        script["step_token_bytes"] = 1000.into();
        script
    };
    let server = Server::start(null(600_000), &[]).await;
    assert_eq!(server.get("/server_info").await.1["chunked_prefill_size"], 512);
    let answer = server.good("/v1/completions", json!({"prompt": vec![5; 1500], "max_tokens": 2})).await;
    assert_eq!(answer["usage"]["prompt_tokens"], 1500);
    let hopeless = Server::start_unready(model_dir(&null(1000)), &[]).await;
    let error = hopeless.task.await.unwrap().unwrap_err();
    let sentence = m3_server::error::sentence(&error);
    assert!(sentence.contains("256000 bytes of device memory; 1000 are free"), "{sentence}");
}
