//! Images through every API over HTTP, with the scripted backend: what is counted, what is refused and how, what stays
//! text. What the model makes of pictures is the backends' tests.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use support::{Server, says};

/// A PNG of one colour as a data URI.
fn png(width: u32, height: u32, colour: [u8; 3]) -> String {
    let picture = m3_media::Picture { width, height, rgb: colour.repeat((width * height) as usize) };
    format!("data:image/png;base64,{}", STANDARD.encode(m3_media::view::png(&picture).unwrap()))
}

fn image(url: &str) -> Value {
    json!({"type": "image_url", "image_url": {"url": url}})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn chat(content: Value) -> Value {
    json!({"model": "nano", "messages": [{"role": "user", "content": content}], "max_tokens": 4})
}

async fn prompt_tokens(server: &Server, content: Value) -> u64 {
    let answer = server.good("/v1/chat/completions", chat(content)).await;
    answer["usage"]["prompt_tokens"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn images_are_counted_in_usage_alike_on_every_route() {
    let server = Server::start(says("fine"), &[]).await;
    let plain = prompt_tokens(&server, json!([text("a"), text("b")])).await;
    // 640 x 480 comes to 391 tokens, and two brackets.
    let content = json!([text("a"), image(&png(640, 480, [9, 9, 9])), text("b")]);
    let answer = server.good("/v1/chat/completions", chat(content.clone())).await;
    let usage = &answer["usage"];
    assert_eq!(usage["prompt_tokens_details"]["image_tokens"], 391);
    assert!(usage["prompt_tokens_details"].get("video_tokens").is_none());
    let counted = usage["prompt_tokens"].as_u64().unwrap();
    // The text is cut in two, which may cost a merge.
    assert!((plain + 393..plain + 396).contains(&counted), "{plain} without, {counted} with the image");
    let mut streamed = chat(content.clone());
    streamed["stream_options"] = json!({"include_usage": true});
    let events = server.stream("/v1/chat/completions", streamed).await;
    assert_eq!(events.last().unwrap()["usage"]["prompt_tokens"], counted);
    for path in ["/tokenize", "/v1/chat/completions/render"] {
        let told = server.good(path, chat(content.clone())).await;
        let count = told.get("count").unwrap_or(&told["prompt_tokens"]);
        assert_eq!(*count, counted, "{path}");
    }
    let blocks = json!([text("a"), {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg",
        "data": png(640, 480, [9, 9, 9]).split_once(',').unwrap().1}}, text("b")]);
    let body = json!({"model": "nano", "max_tokens": 4, "messages": [{"role": "user", "content": blocks}]});
    let answer = server.good("/v1/messages", body.clone()).await;
    let usage = &answer["usage"];
    let input = |name: &str| usage[name].as_u64().unwrap_or(0);
    assert_eq!(input("input_tokens") + input("cache_read_input_tokens"), counted);
    assert_eq!(server.good("/v1/messages/count_tokens", body).await["input_tokens"], counted);
    let input = json!([{"role": "user", "content": [{"type": "input_text", "text": "a"},
        {"type": "input_image", "image_url": png(640, 480, [9, 9, 9]), "detail": "low"},
        {"type": "input_text", "text": "b"}]}]);
    let answer = server.good("/v1/responses", json!({"model": "nano", "input": input})).await;
    assert_eq!(answer["usage"]["input_tokens"], counted);
    assert_eq!(answer["usage"]["input_tokens_details"]["image_tokens"], 391);
    server.assert_no_leak().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sizes_follow_the_rule_and_the_longest_side_that_is_asked_for() {
    let server = Server::start(says("fine"), &[]).await;
    let tokens = async |server: &Server, inner: Value| {
        let content = json!([{"type": "image_url", "image_url": inner}]);
        let answer = server.good("/v1/chat/completions", chat(content)).await;
        answer["usage"]["prompt_tokens_details"]["image_tokens"].as_u64().unwrap()
    };
    let picture = png(1024, 768, [1, 2, 3]);
    assert_eq!(tokens(&server, json!({"url": picture})).await, 540);
    let mut before = 0;
    for side in [252, 504, 1008] {
        let now = tokens(&server, json!({"url": picture, "max_long_side_pixel": side})).await;
        assert!(now > before, "{side} gives {now} tokens");
        before = now;
    }
    for detail in ["low", "default", "auto", "high"] {
        assert_eq!(tokens(&server, json!({"url": picture, "detail": detail})).await, 540);
    }
    // The short side is enlarged to 112 by the long-side rule.
    assert_eq!(tokens(&server, json!({"url": png(20, 20, [0; 3]), "max_long_side_pixel": 504})).await, 16);
    let mut body = chat(json!([image(&picture)]));
    body["mm_processor_kwargs"] = json!({"max_long_side_pixel": 252});
    let answer = server.good("/v1/chat/completions", body).await;
    assert_eq!(answer["usage"]["prompt_tokens_details"]["image_tokens"], 63);
    let server = Server::start(says("fine"), &["--media-size-rule", "long-side"]).await;
    assert_eq!(tokens(&server, json!({"url": picture})).await, 999);
    // A side of the server's own; what a request asks for still wins.
    let server = Server::start(says("fine"), &["--max-long-side-pixel", "252"]).await;
    assert_eq!(tokens(&server, json!({"url": picture})).await, 63);
    assert!(tokens(&server, json!({"url": picture, "max_long_side_pixel": 504})).await > 63);
}

#[tokio::test(flavor = "multi_thread")]
async fn several_images_of_different_sizes_share_a_message_and_n_answers() {
    let server = Server::start(says("fine"), &[]).await;
    let pictures = [png(100, 100, [1; 3]), png(20, 20, [2; 3]), png(30, 400, [3; 3])];
    let content: Vec<Value> = pictures.iter().map(|url| image(url)).chain([text("which?")]).collect();
    let mut body = chat(Value::Array(content));
    body["n"] = json!(3);
    let answer = server.good("/v1/chat/completions", body).await;
    assert_eq!(answer["choices"].as_array().unwrap().len(), 3);
    // 16, 4, and 28 x 392 pixels: 14.
    assert_eq!(answer["usage"]["prompt_tokens_details"]["image_tokens"], 34);
    server.assert_no_leak().await;
}

/// D15: the eleventh image must not be a server's fault. The limit is 200; above it nothing is dropped in silence.
#[tokio::test(flavor = "multi_thread")]
async fn d15_two_hundred_images_are_taken_and_one_more_is_400() {
    let server = Server::start(says("fine"), &[]).await;
    let content = |count: usize| Value::Array(vec![image(&png(20, 20, [7; 3])); count]);
    let answer = server.good("/v1/chat/completions", chat(content(11))).await;
    assert_eq!(answer["usage"]["prompt_tokens_details"]["image_tokens"], 44);
    let answer = server.good("/v1/chat/completions", chat(content(200))).await;
    assert_eq!(answer["usage"]["prompt_tokens_details"]["image_tokens"], 800);
    let (status, answer) = server.post("/v1/chat/completions", chat(content(201))).await;
    assert_eq!(status, 400);
    let message = answer["error"]["message"].as_str().unwrap();
    assert_eq!(message, "the request has 201 images; this server takes 200 (messages[0].content[200])");
    let server = Server::start(says("fine"), &["--limit-mm-per-prompt", "image=1,video=0"]).await;
    assert_eq!(server.post("/v1/chat/completions", chat(content(2))).await.0, 400);
    let video = json!([{"type": "video_url", "video_url": png(20, 20, [0; 3])}]);
    let (status, answer) = server.post("/v1/chat/completions", chat(video)).await;
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("messages[0].content[0]")), "{answer}");
    server.good("/v1/chat/completions", chat(content(1))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_image_is_that_requests_400_with_the_path_of_its_part() {
    let server = Server::start(says("fine"), &[]).await;
    let good = png(40, 40, [0; 3]);
    for bad in
        ["data:image/png;base64,aGVsbG8=", "data:image/png;base64,", "data:,", "https://example.com/a.png"]
    {
        let content = json!([image(&good), text("x"), image(bad)]);
        let (status, answer) = server.post("/v1/chat/completions", chat(content)).await;
        assert_eq!(
            (status, &answer["error"]["param"]),
            (400, &json!("messages[0].content[2]")),
            "{bad}: {answer}"
        );
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("messages[0].content[2]"), "{message}");
    }
    let extreme = image(&png(1, 201, [0; 3]));
    let (status, answer) = server.post("/v1/chat/completions", chat(json!([extreme]))).await;
    assert_eq!(status, 400);
    assert!(answer["error"]["message"].as_str().unwrap().contains("the limit is 200 times"), "{answer}");
    let source = json!({"type": "base64", "media_type": "image/png", "data": "aGVsbG8="});
    let blocks = json!([text("a"), {"type": "image", "source": source}]);
    let body = json!({"model": "nano", "max_tokens": 4, "messages": [{"role": "user", "content": blocks}]});
    let (status, answer) = server.post("/v1/messages", body).await;
    assert_eq!(status, 400);
    assert!(answer["error"]["message"].as_str().unwrap().starts_with("messages[0].content[1]"), "{answer}");
    let input = json!([{"role": "user", "content": [{"type": "input_image", "image_url": "data:,x"}]}]);
    let (status, answer) = server.post("/v1/responses", json!({"model": "nano", "input": input})).await;
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("input[0].content[0]")), "{answer}");
    // And the server goes on.
    prompt_tokens(&server, json!([image(&good)])).await;
    server.assert_no_leak().await;
}

/// G13: a tool's screenshot is seen, not printed.
#[tokio::test(flavor = "multi_thread")]
async fn g13_images_of_tool_results_are_images() {
    let server = Server::start(says("fine"), &[]).await;
    let call = json!({"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}});
    let picture = png(100, 100, [5; 3]);
    let messages = json!([
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": [text("seen:"), image(&picture)]},
    ]);
    let body = json!({"model": "nano", "messages": messages, "max_tokens": 4});
    let answer = server.good("/v1/chat/completions", body.clone()).await;
    assert_eq!(answer["usage"]["prompt_tokens_details"]["image_tokens"], 16);
    let rendered = server.good("/v1/chat/completions/render", body).await;
    let prompt = rendered["prompt"].as_str().unwrap();
    assert!(!prompt.contains("base64"), "{prompt}");
    let data = picture.split_once(',').unwrap().1;
    let result = json!([{"type": "tool_result", "tool_use_id": "c1", "content": [text("seen:"),
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}]}]);
    let messages = json!([
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}]},
        {"role": "user", "content": result},
    ]);
    let body = json!({"model": "nano", "max_tokens": 4, "messages": messages});
    let counted = server.good("/v1/messages/count_tokens", body).await;
    assert_eq!(counted["input_tokens"], answer["usage"]["prompt_tokens"]);
    let input = json!([
        {"role": "user", "content": "look"},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "seen:"},
            {"type": "input_image", "image_url": picture}]},
    ]);
    let responded = server.good("/v1/responses", json!({"model": "nano", "input": input})).await;
    assert_eq!(responded["usage"]["input_tokens"], answer["usage"]["prompt_tokens"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn marker_texts_of_users_never_become_media_tokens() {
    let server = Server::start(says("fine"), &[]).await;
    let marker = "]<]image[>[ and ]<]start of image[>[]<]video[>[";
    let media = [985, 986, 989];
    let ids = |answer: &Value, name: &str| -> Vec<u64> {
        answer[name].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
    };
    let content = json!([text(marker), image(&png(20, 20, [0; 3]))]);
    let told = server.good("/tokenize", chat(content)).await;
    let found = ids(&told, "tokens").into_iter().filter(|id| media.contains(id)).count();
    assert_eq!(found, 5, "one bracket and four image tokens, all of them the picture's");
    let told = server.good("/tokenize", chat(json!(marker))).await;
    assert!(!ids(&told, "tokens").iter().any(|id| media.contains(id)));
    // A raw prompt may hold markers, but shows no media: their tokens would have no rows.
    let body =
        json!({"model": "nano", "prompt": format!("a{marker}b"), "max_tokens": 1, "return_token_ids": true});
    let answer = server.good("/v1/completions", body).await;
    let prompt = ids(&answer["choices"][0], "prompt_token_ids");
    assert!(!prompt.contains(&985) && !prompt.contains(&986), "{prompt:?}");
    assert!(prompt.contains(&989), "other markers of a raw prompt count");
    let body = json!({"model": "nano", "prompt": [1, 985, 2], "max_tokens": 1});
    let (status, answer) = server.post("/v1/completions", body).await;
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("prompt[0]")), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_native_route_takes_images_beside_texts_and_ids() {
    let server = Server::start(says("fine"), &[]).await;
    let picture = png(20, 20, [0; 3]);
    let bare = picture.split_once(',').unwrap().1;
    let settings = json!({"max_new_tokens": 2});
    let tokens = |answer: &Value| answer["meta_info"]["prompt_tokens"].as_u64().unwrap();
    let body = json!({"input_ids": [1, 985, 2], "image_data": bare, "sampling_params": settings});
    assert_eq!(tokens(&server.good("/generate", body).await), 8);
    let expanded = json!({"input_ids": [1, 989, 985, 985, 985, 985, 990, 2], "image_data": [picture],
        "sampling_params": settings});
    assert_eq!(tokens(&server.good("/generate", expanded).await), 8);
    let body = json!({"text": "a]<]image[>[", "image_data": [picture], "sampling_params": settings});
    let one = tokens(&server.good("/generate", body).await);
    assert_eq!(one, 7);
    let batch =
        json!({"text": ["a]<]image[>[", "a"], "image_data": [picture, null], "sampling_params": settings});
    let answers = server.good("/generate", batch).await;
    assert_eq!((tokens(&answers[0]), tokens(&answers[1])), (7, 1));
    for (ids, images) in [
        (json!([1, 2]), json!([bare])),
        (json!([1, 985, 985]), json!([bare])),
        (json!([1, 985]), json!([bare, bare])),
    ] {
        let body = json!({"input_ids": ids, "image_data": images, "sampling_params": settings});
        let (status, answer) = server.post("/generate", body).await;
        assert_eq!((status, &answer["error"]["param"]), (400, &json!("input_ids")), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn models_say_what_they_take_and_text_models_refuse_pictures_by_name() {
    let server = Server::start(says("fine"), &[]).await;
    let (_, models) = server.get("/v1/models").await;
    assert_eq!(models["data"][0]["capabilities"]["input_modalities"], json!(["text", "image", "video"]));
    let dir = support::model_dir_with(|config| {
        config["m3_null"] = says("fine");
        config.as_object_mut().unwrap().shift_remove("vision_config");
    });
    let server = Server::start_unready(dir, &[]).await;
    server.wait_ready().await;
    let (_, models) = server.get("/v1/models").await;
    assert_eq!(models["data"][0]["capabilities"]["input_modalities"], json!(["text"]));
    let (status, answer) =
        server.post("/v1/chat/completions", chat(json!([image(&png(9, 9, [0; 3]))]))).await;
    assert_eq!(status, 400);
    let message = answer["error"]["message"].as_str().unwrap();
    assert_eq!(message, "messages[0].content[0] is an image input; this model takes text only");
}

/// Turns of a conversation that is too long with its pictures go as wholes, the oldest first, and take their pictures
/// with them.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_shortened_response_shows_are_the_pictures_of_the_turns_that_are_kept() {
    let server = Server::start(says("fine"), &["--context-length", "900"]).await;
    let turn = |url: &str| {
        json!({"role": "user", "content": [{"type": "input_text", "text": "what is it?"},
            {"type": "input_image", "image_url": url}]})
    };
    let said = json!({"role": "assistant", "content": "a colour"});
    let call = json!({"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"});
    let result = |url: &str| {
        json!({"type": "function_call_output", "call_id": "c",
            "output": [{"type": "input_image", "image_url": url}]})
    };
    // 391, 576, 16 and 4 tokens: each sum tells which of them are there.
    let [first, second] = [png(640, 480, [9; 3]), png(672, 672, [8; 3])];
    let [third, last] = [png(100, 100, [7; 3]), png(20, 20, [6; 3])];
    let items = [turn(&first), said.clone(), turn(&second), call, result(&third), said, turn(&last)];
    let ask = |items: &[Value], truncation: &str| json!({"model": "nano", "input": items, "truncation": truncation, "max_output_tokens": 4});
    let path = "/v1/responses";
    let (status, error) = server.post(path, ask(&items, "disabled")).await;
    assert_eq!((status, &error["error"]["code"]), (400, &json!("context_length_exceeded")), "{error}");
    assert!(error["error"]["message"].as_str().unwrap().contains("900"), "{error}");
    let answer = server.good(path, ask(&items, "auto")).await;
    assert_eq!(answer["truncated_messages"], 2);
    assert_eq!(answer["usage"]["input_tokens_details"]["image_tokens"], 576 + 16 + 4);
    let kept = server.good(path, ask(&items[2..], "disabled")).await;
    assert_eq!(answer["usage"]["input_tokens"], kept["usage"]["input_tokens"]);
    assert!(kept.get("truncated_messages").is_none());
    // What fits is not cut.
    let whole = server.good(path, ask(&items[..2], "auto")).await;
    assert_eq!(whole["usage"]["input_tokens_details"]["image_tokens"], 391);
    assert!(whole.get("truncated_messages").is_none());
    // One turn that alone is too long cannot be cut.
    let both = json!({"role": "user", "content": [{"type": "input_image", "image_url": first},
        {"type": "input_image", "image_url": second}]});
    let (status, error) = server.post(path, ask(&[both], "auto")).await;
    assert_eq!((status, &error["error"]["code"]), (400, &json!("context_length_exceeded")), "{error}");
    // Errors name the part as the request has it, also when the text alone has cost turns before it.
    let long = json!({"role": "user", "content": "word ".repeat(1200)});
    let broken = turn("data:image/png;base64,iVBORw0KGgo=");
    let said = json!({"role": "assistant", "content": "a colour"});
    let (status, error) = server.post(path, ask(&[long, said, turn(&last), broken], "auto")).await;
    assert_eq!((status, &error["error"]["param"]), (400, &json!("input[3].content[1]")), "{error}");
    server.assert_no_leak().await;
}

/// A server of one picture on this machine; the port it listens on.
async fn picture_server(data_uri: &str) -> u16 {
    let bytes = STANDARD.decode(data_uri.split_once(',').unwrap().1).unwrap();
    let router = axum::Router::new().route("/a.png", axum::routing::get(move || async move { bytes }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move { axum::serve(listener, router).await });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_are_fetched_where_the_operator_allows_it() {
    let port = picture_server(&png(640, 480, [9; 3])).await;
    let url = format!("http://localhost:{port}/a.png");
    let port = port.to_string();
    let flags = ["--allowed-media-domains", "localhost", "--allowed-media-networks", "127.0.0.0/8,::1/128"];
    let open = Server::start(says("fine"), &[&flags[..], &["--allowed-media-ports", &port]].concat()).await;
    let answer =
        open.good("/v1/chat/completions", chat(json!([image(&url), image(&png(20, 20, [1; 3]))]))).await;
    assert_eq!(answer["usage"]["prompt_tokens_details"]["image_tokens"], 391 + 4);
    let source = json!({"type": "url", "url": url});
    let body = json!({"model": "nano", "max_tokens": 4,
        "messages": [{"role": "user", "content": [{"type": "image", "source": source}]}]});
    assert!(open.good("/v1/messages/count_tokens", body).await["input_tokens"].as_u64().unwrap() > 391);
    let missing = url.replace("a.png", "b.png");
    let (status, answer) = open.post("/v1/chat/completions", chat(json!([image(&missing)]))).await;
    assert!(status == 400 || status == 502, "{status} {answer}");
    assert_eq!(answer["error"]["param"], "messages[0].content[0]");
    let shut = Server::start(says("fine"), &[]).await;
    let (status, answer) = shut.post("/v1/chat/completions", chat(json!([image(&url)]))).await;
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("invalid_media")), "{answer}");
}

/// The worked example of the model's specification over HTTP: 100 frames at 30 a second of 640 x 360.
#[tokio::test(flavor = "multi_thread")]
async fn a_video_becomes_its_frames_times_and_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("clip.mp4");
    let made = std::process::Command::new("ffmpeg")
        .args(["-loglevel", "error", "-f", "lavfi", "-i", "testsrc=size=640x360:rate=30", "-frames:v", "100"])
        .args(["-pix_fmt", "yuv420p"])
        .arg(&file)
        .status();
    if !made.is_ok_and(|status| status.success()) {
        m3_testdata::skip("no ffmpeg here makes an MP4");
        return;
    }
    let url = format!("data:video/mp4;base64,{}", STANDARD.encode(std::fs::read(&file).unwrap()));
    let server = Server::start(says("fine"), &[]).await;
    let video = |inner: Value| {
        let mut object = json!({"url": url});
        object.as_object_mut().unwrap().extend(inner.as_object().unwrap().clone());
        chat(json!([{"type": "video_url", "video_url": object}, text("what happens?")]))
    };
    let answer = server.good("/v1/chat/completions", video(json!({}))).await;
    assert_eq!(answer["usage"]["prompt_tokens_details"]["video_tokens"], 897);
    let rendered = server.good("/v1/chat/completions/render", video(json!({}))).await;
    let prompt = rendered["prompt"].as_str().unwrap();
    for time in ["]<]0.0 seconds[>[", "]<]2.0 seconds[>[", "]<]3.3 seconds[>["] {
        assert_eq!(prompt.matches(time).count(), 1, "{time}");
    }
    // Two frames, the first and the last, make one temporal patch.
    let answer = server.good("/v1/chat/completions", video(json!({"max_frames": 2}))).await;
    assert_eq!(answer["usage"]["prompt_tokens_details"]["video_tokens"], 299);
    let answer =
        server.good("/v1/chat/completions", video(json!({"fps": 5, "max_long_side_pixel": 252}))).await;
    // Frames 0, 6, …, 96, 99: 18 of 252 x 140.
    assert_eq!(answer["usage"]["prompt_tokens_details"]["video_tokens"], 9 * 45);
    for bad in [json!({"fps": 9}), json!({"max_frames": 0}), json!({"max_long_side_pixel": 100})] {
        let (status, answer) = server.post("/v1/chat/completions", video(bad.clone())).await;
        assert_eq!(
            (status, &answer["error"]["param"]),
            (400, &json!("messages[0].content[0]")),
            "{bad}: {answer}"
        );
    }
    let mixed = json!([image(&png(20, 20, [0; 3])), {"type": "video_url", "video_url": {"url": url}}]);
    let usage = server.good("/v1/chat/completions", chat(mixed)).await["usage"].clone();
    assert_eq!(usage["prompt_tokens_details"]["image_tokens"], 4);
    assert_eq!(usage["prompt_tokens_details"]["video_tokens"], 897);
    server.assert_no_leak().await;
}

/// Hashed tokens depend on every row that the prompt reads, pixels included.
#[tokio::test(flavor = "multi_thread")]
async fn equal_pictures_are_answered_alike_and_other_pictures_otherwise() {
    let server = Server::start(json!({}), &[]).await;
    let answer = async |colour: [u8; 3]| {
        let content = json!([text("describe"), image(&png(300, 200, colour)), text("please")]);
        let mut body = chat(content);
        body.as_object_mut().unwrap().extend(
            json!({"temperature": 0, "max_tokens": 12, "ignore_eos": true, "return_token_ids": true})
                .as_object()
                .unwrap()
                .clone(),
        );
        let answer = server.good("/v1/chat/completions", body).await;
        (
            answer["choices"][0]["token_ids"].clone(),
            answer["usage"]["prompt_tokens_details"]["cached_tokens"].clone(),
        )
    };
    let (red, _) = answer([200, 0, 0]).await;
    let (blue, _) = answer([0, 0, 200]).await;
    let (again, _) = answer([200, 0, 0]).await;
    assert_eq!(red.as_array().unwrap().len(), 12);
    assert_eq!(red, again, "the same picture");
    assert_ne!(red, blue, "H1: the same words and another picture");
    server.assert_no_leak().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_may_serve_text_alone() {
    let server = Server::start(says("fine"), &["--language-model-only"]).await;
    let (status, answer) =
        server.post("/v1/chat/completions", chat(json!([image(&png(9, 9, [0; 3]))]))).await;
    assert_eq!(status, 400);
    assert!(answer["error"]["message"].as_str().unwrap().contains("--language-model-only"), "{answer}");
    prompt_tokens(&server, json!([text("words")])).await;
}
