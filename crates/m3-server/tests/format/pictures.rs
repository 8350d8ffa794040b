//! Images: formats, declared types, base64 as clients write it, sizes in pixels, tokens and bytes, and pictures beside
//! reasoning and tools. That 200 are taken and a 201st is refused is `d15_…` in `media.rs`; what the model makes of
//! pictures is the backends' tests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::limits::long_context;
use super::support::{Server, fold, says, user};
use super::{CHAT, block, element, invoke, object, refused, tool, with};

/// A picture of the media crate's collection, in base64.
fn file(name: &str) -> String {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../m3-media/tests/corpus");
    STANDARD.encode(std::fs::read(folder.join(name)).unwrap())
}

/// A PNG of one colour, in base64.
fn png(width: u32, height: u32) -> String {
    let rgb = [40, 90, 160].repeat((width * height) as usize);
    STANDARD.encode(m3_media::view::png(&m3_media::Picture { width, height, rgb }).unwrap())
}

fn data(kind: &str, base64: &str) -> String {
    format!("data:{kind};base64,{base64}")
}

pub(super) fn shows(part: &Value) -> Value {
    let content = json!([{"type": "text", "text": "look"}, part]);
    json!({"messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 4})
}

/// A question about an image with these members.
fn about(image: Value) -> Value {
    shows(&json!({"type": "image_url", "image_url": image}))
}

async fn image_tokens(server: &Server, image: Value) -> u64 {
    let answer = server.good(CHAT, about(image)).await;
    answer["usage"]["prompt_tokens_details"]["image_tokens"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn pictures_of_every_format_are_taken_whatever_type_is_declared() {
    let server = Server::start(says("seen"), &[]).await;
    for (name, kind) in [
        ("png_rgb_8.png", "image/png"),
        ("gif.gif", "image/gif"),
        ("webp_lossy.webp", "image/webp"),
        ("webp_lossless.webp", "image/webp"),
        ("jpeg_420.jpg", "image/jpeg"),
        ("jpeg_progressive.jpg", "image/jpeg"),
    ] {
        let picture = file(name);
        let right = image_tokens(&server, json!({"url": data(kind, &picture)})).await;
        assert!(right > 0, "{name}");
        // Another type than it is, upper case, and none at all.
        for declared in ["image/bmp", "IMAGE/PNG", "Image/Jpeg", "application/octet-stream", ""] {
            let told = image_tokens(&server, json!({"url": data(declared, &picture)})).await;
            assert_eq!(told, right, "{name} as {declared:?}");
        }
    }
    server.assert_no_leak().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn base64_without_padding_or_with_line_breaks_is_read_and_broken_base64_is_400() {
    let server = Server::start(says("seen"), &[]).await;
    let picture = file("jpeg_420.jpg");
    let expected = image_tokens(&server, json!({"url": data("image/jpeg", &picture)})).await;
    let lines: Vec<&str> =
        picture.as_bytes().chunks(76).map(|line| std::str::from_utf8(line).unwrap()).collect();
    for text in [picture.trim_end_matches('=').to_owned(), lines.join("\n"), lines.join("\r\n") + "\r\n"] {
        assert_eq!(image_tokens(&server, json!({"url": data("image/jpeg", &text)})).await, expected);
    }
    let half = &picture[..picture.len() / 2 / 4 * 4];
    for bad in [
        format!("*{}", &picture[1..]),
        half.to_owned(),
        String::new(),
        "====".into(),
        STANDARD.encode("text"),
    ] {
        let (param, message) = refused(&server, about(json!({"url": data("image/jpeg", &bad)}))).await;
        assert_eq!(param, "messages[0].content[1]", "{message}");
    }
    // And the next one is seen again.
    image_tokens(&server, json!({"url": data("image/jpeg", &picture)})).await;
    server.assert_no_leak().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_longer_side_means_more_tokens_and_detail_is_accepted_at_every_level() {
    let server = Server::start(says("seen"), &[]).await;
    let url = data("image/png", &png(1400, 1050));
    let mut before = 0;
    for side in [252, 504, 1008] {
        let tokens = image_tokens(&server, json!({"url": url, "max_long_side_pixel": side})).await;
        assert!(tokens > before, "{side}: {tokens} after {before}");
        before = tokens;
    }
    let plain = image_tokens(&server, json!({"url": url})).await;
    for detail in ["low", "default", "high", "auto"] {
        assert_eq!(image_tokens(&server, json!({"url": url, "detail": detail})).await, plain, "{detail}");
    }
    for bad in [json!({"url": url, "detail": "extreme"}), json!({"url": url, "max_long_side_pixel": 0})] {
        let (param, _) = refused(&server, about(bad)).await;
        assert!(param.starts_with("messages[0].content[1]"), "{param}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_and_the_smallest_pictures_are_taken() {
    let server = long_context(says("seen")).await;
    let large = data("image/png", &png(3584, 3584));
    assert!(image_tokens(&server, json!({"url": large})).await > 500);
    // 1008 x 1008 pixels in squares of 28.
    assert_eq!(image_tokens(&server, json!({"url": large, "max_long_side_pixel": 1008})).await, 36 * 36);
    // The short side of the long-side rule is enlarged to 112: four squares of 28.
    let small = data("image/png", &png(60, 60));
    assert_eq!(image_tokens(&server, json!({"url": small, "max_long_side_pixel": 504})).await, 16);
    assert_eq!(image_tokens(&server, json!({"url": data("image/png", &png(1, 1))})).await, 4);
    server.assert_no_leak().await;
}

/// A picture of random pixels, so that its file is as large as they are.
fn noise(width: u32, height: u32) -> Vec<u8> {
    let row = (width as usize * 3).next_multiple_of(4);
    let mut file = Vec::with_capacity(54 + row * height as usize);
    file.extend_from_slice(b"BM");
    file.extend_from_slice(&((54 + row * height as usize) as u32).to_le_bytes());
    file.extend([0, 54, 40].map(u32::to_le_bytes).as_flattened());
    file.extend([width, height, 1 | (24 << 16), 0, 0, 0, 0, 0, 0].map(u32::to_le_bytes).as_flattened());
    let mut state = 1_u32;
    file.extend((0..row * height as usize).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    }));
    file
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_of_thirty_megabytes_and_a_body_of_sixty_four_are_taken() {
    let server = Server::start(says("seen"), &[]).await;
    let large = noise(3600, 2913);
    assert!(large.len() > 30 << 20, "{}", large.len());
    let large = data("image/bmp", &STANDARD.encode(large));
    assert!(image_tokens(&server, json!({"url": large})).await > 100);
    // Two of them, and text up to a little below the limit on bodies.
    let mut body = about(json!({"url": large}));
    body["user"] = json!("");
    let room = (64 << 20) - body.to_string().len();
    body["user"] = json!("u".repeat(room - 1000));
    server.good(CHAT, body.clone()).await;
    body["user"] = json!("u".repeat(room + 1));
    let (status, answer) = server.post(CHAT, body).await;
    assert_eq!((status, answer["error"]["code"].as_str()), (413, Some("bad_body")), "{answer}");
    server.assert_no_leak().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_picture_may_stand_between_texts_and_beside_reasoning_and_tools() {
    let script = format!("two colours</mm:think>{}", block(&invoke("paint", &element("colour", "red"))));
    let server = Server::start(says(&script), &[]).await;
    let image =
        |name: &str| json!({"type": "image_url", "image_url": {"url": data("image/png", &file(name))}});
    let text = |text: &str| json!({"type": "text", "text": text});
    let content =
        json!([text("first"), image("png_rgb_8.png"), text("then"), image("png_grey_8.png"), text("?")]);
    let body = json!({"messages": [{"role": "user", "content": content}], "temperature": 0,
        "thinking": {"type": "enabled"},
        "tools": [tool("paint", &object(json!({"colour": {"type": "string"}})))]});
    let whole = server.good(CHAT, body.clone()).await;
    let message = &whole["choices"][0]["message"];
    assert_eq!(message["reasoning_content"], "two colours");
    assert_eq!(message["tool_calls"][0]["function"]["arguments"], r#"{"colour":"red"}"#);
    let streamed = fold(&server.stream(CHAT, body.clone()).await, 0);
    assert_eq!(streamed["message"]["reasoning_content"], message["reasoning_content"]);
    assert_eq!(streamed["message"]["tool_calls"][0]["arguments"], r#"{"colour":"red"}"#);
    let rendered = server.good("/v1/chat/completions/render", body).await;
    let prompt = rendered["prompt"].as_str().unwrap();
    let places: Vec<usize> =
        ["first", "then", "?"].iter().map(|word| prompt.rfind(word).expect("every text is shown")).collect();
    assert!(places.is_sorted(), "{places:?}");
    // Images of a system message have no place in M3's template, and nothing is dropped in silence.
    let system = json!({"role": "system", "content": [text("rules"), image("png_rgb_8.png")]});
    let body = json!({"messages": [system, user("hi")[0]]});
    let (param, _) = refused(&server, with(body, &json!({"max_tokens": 2}))).await;
    assert!(param.starts_with("messages[0].content"), "{param}");
}
