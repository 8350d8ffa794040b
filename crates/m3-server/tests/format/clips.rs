//! Videos: how many, how large, how many frames a second, in which containers, mixed with images. Skipped, loudly,
//! without `ffmpeg`, which the server needs for videos as well.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::pictures::shows;
use super::support::{Server, says};
use super::{CHAT, refused};

/// Two seconds of a test picture in a container that the name's ending says.
fn clip(ending: &str) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(format!("clip.{ending}"));
    let made = std::process::Command::new("ffmpeg")
        .args(["-loglevel", "error", "-f", "lavfi", "-i", "testsrc=size=64x48:rate=10", "-frames:v", "20"])
        .args(["-c:v", "mpeg4"])
        .arg(&file)
        .status();
    if made.is_ok_and(|status| status.success()) {
        return Some(std::fs::read(&file).unwrap());
    }
    eprintln!("SKIPPED: no ffmpeg that makes a video in {ending}");
    None
}

fn video(bytes: &[u8], more: &Value) -> Value {
    let mut inner = json!({"url": format!("data:video/mp4;base64,{}", STANDARD.encode(bytes))});
    inner.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"type": "video_url", "video_url": inner})
}

async fn video_tokens(server: &Server, body: Value) -> u64 {
    let answer = server.good(CHAT, body).await;
    answer["usage"]["prompt_tokens_details"]["video_tokens"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn videos_of_every_container_give_the_same_tokens() {
    let Some(mp4) = clip("mp4") else { return };
    let server = Server::start(says("seen"), &[]).await;
    let expected = video_tokens(&server, shows(&video(&mp4, &json!({})))).await;
    for ending in ["mov", "mkv", "avi"] {
        let Some(bytes) = clip(ending) else { return };
        assert_eq!(video_tokens(&server, shows(&video(&bytes, &json!({})))).await, expected, "{ending}");
    }
    server.assert_no_leak().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_a_second_go_from_a_fifth_to_five() {
    let Some(mp4) = clip("mp4") else { return };
    let server = Server::start(says("seen"), &[]).await;
    let mut before = 0;
    for fps in [0.2, 1.0, 5.0] {
        let tokens = video_tokens(&server, shows(&video(&mp4, &json!({"fps": fps})))).await;
        assert!(tokens >= before && tokens > 0, "{fps}: {tokens} after {before}");
        before = tokens;
    }
    for fps in [0.1, 5.1, -1.0] {
        let (param, message) = refused(&server, shows(&video(&mp4, &json!({"fps": fps})))).await;
        assert!(param.starts_with("messages[0].content[1]"), "{fps}: {param}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_videos_beside_images_are_taken_and_one_more_is_400() {
    let Some(mp4) = clip("mp4") else { return };
    let server = Server::start(says("seen"), &[]).await;
    let pixel = m3_media::Picture { width: 30, height: 30, rgb: vec![9; 2700] };
    let url = format!("data:image/png;base64,{}", STANDARD.encode(m3_media::view::png(&pixel).unwrap()));
    let image = json!({"type": "image_url", "image_url": {"url": url}});
    let body = |videos: usize| {
        let mut content = vec![video(&mp4, &json!({"max_frames": 2})); videos];
        content.insert(1, image.clone());
        content.push(image.clone());
        json!({"messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 2})
    };
    let answer = server.good(CHAT, body(20)).await;
    let usage = &answer["usage"]["prompt_tokens_details"];
    assert_eq!(usage["image_tokens"], 2 * 4);
    assert_eq!(usage["video_tokens"].as_u64().unwrap() % 20, 0, "{usage}");
    assert!(usage["video_tokens"].as_u64().unwrap() >= 20, "{usage}");
    let (_, message) = refused(&server, body(21)).await;
    assert!(message.contains("21 videos") && message.contains("20"), "{message}");
    server.assert_no_leak().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_video_of_fifty_megabytes_is_taken() {
    let Some(mut mp4) = clip("mp4") else { return };
    let server = Server::start(says("seen"), &[]).await;
    let expected = video_tokens(&server, shows(&video(&mp4, &json!({})))).await;
    // A box that players pass over makes the file as large as may be.
    let filling = 50_000_000 - mp4.len();
    mp4.extend_from_slice(&(filling as u32).to_be_bytes());
    mp4.extend_from_slice(b"free");
    mp4.resize(50_000_000, 0);
    assert_eq!(video_tokens(&server, shows(&video(&mp4, &json!({})))).await, expected);
    server.assert_no_leak().await;
}
