//! The golden checkpoint with vision on the CPU backend, over HTTP: pictures as PNG files in, the reference's very tokens out.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use safetensors::SafeTensors;
use serde_json::{Value, json};
use support::Server;

/// Part of the repository, so its absence is a failure.
fn golden(relative: &str) -> std::path::PathBuf {
    m3_testdata::golden(relative).unwrap()
}

/// The checkpoint's files in a folder of their own.
fn model() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(golden("ckpt/vl_mxfp8")).unwrap() {
        let path = entry.unwrap().path().canonicalize().unwrap();
        std::os::unix::fs::symlink(&path, dir.path().join(path.file_name().unwrap())).unwrap();
    }
    dir
}

fn ids(tensors: &SafeTensors<'_>, name: &str) -> Vec<i32> {
    let tensor = tensors.tensor(name).unwrap();
    tensor.data().chunks_exact(4).map(|four| i32::from_le_bytes(four.try_into().unwrap())).collect()
}

/// The golden pictures as PNG files in data URIs.
fn pictures() -> Vec<String> {
    let bytes = std::fs::read(golden("golden/vl/images.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let picture = |at: usize| {
        let tensor = tensors.tensor(&format!("image{at}.pixels")).unwrap();
        let (height, width) = (tensor.shape()[0] as u32, tensor.shape()[1] as u32);
        let picture = m3_media::Picture { width, height, rgb: tensor.data().to_vec() };
        format!("data:image/png;base64,{}", STANDARD.encode(m3_media::view::png(&picture).unwrap()))
    };
    (0..4).map(picture).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn four_pictures_give_the_references_tokens() {
    let fixed =
        ["--backend", "cpu", "--dtype", "float32", "--kv-cache-memory-bytes", "64M", "--threads", "1"];
    let server = Server::start_unready(model(), &[&fixed[..], &["--skip-tokenizer-init"]].concat()).await;
    server.wait_ready().await;
    let bytes = std::fs::read(golden("golden/vl_mxfp8/greedy_mm_images4.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let (prompt, expected) = (ids(&tensors, "prompt_ids"), ids(&tensors, "new_ids"));
    let ask = |images: Vec<String>| {
        json!({"input_ids": prompt, "image_data": images,
            "sampling_params": {"temperature": 0, "max_new_tokens": expected.len(), "ignore_eos": true}})
    };
    let answer = server.good("/generate", ask(pictures())).await;
    assert_eq!(answer["output_ids"], json!(expected));
    // Once more from the cache, then with a picture missing.
    let again = server.good("/generate", ask(pictures())).await;
    assert_eq!(again["output_ids"], json!(expected));
    let (status, refused): (u16, Value) = server.post("/generate", ask(pictures()[..3].to_vec())).await;
    assert_eq!((status, &refused["error"]["param"]), (400, &json!("input_ids")), "{refused}");
    server.assert_no_leak().await;
}
