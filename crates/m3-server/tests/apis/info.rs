//! What routers and benchmarks ask, and the parser's own routes.

use serde_json::{Value, json};

use crate::support::{Server, says};
use crate::{two_calls, weather};

#[tokio::test(flavor = "multi_thread")]
async fn routers_find_what_they_read() {
    let server = Server::start(says("a"), &[]).await;
    for path in ["/server_info", "/get_server_info"] {
        let (status, info) = server.get(path).await;
        assert_eq!(status, 200);
        for name in ["model_path", "served_model_name", "version"] {
            assert!(info[name].is_string(), "{name}: {info}");
        }
        for name in
            ["tp_size", "dp_size", "pp_size", "context_length", "max_total_tokens", "max_running_requests"]
        {
            assert!(info[name].as_u64().unwrap() > 0, "{name}: {info}");
        }
        assert_eq!((&info["disaggregation_mode"], &info["is_embedding"]), (&json!("null"), &json!(false)));
        assert!(info["internal_states"][0].is_object());
    }
    for path in ["/model_info", "/get_model_info"] {
        let (_, info) = server.get(path).await;
        assert_eq!((&info["is_generation"], &info["has_image_understanding"]), (&json!(true), &json!(true)));
        assert!(info["model_path"].is_string() && info["architectures"].is_array());
    }
    let (_, loads) = server.get("/v1/loads?include=core,queues").await;
    let load = &loads["loads"][0];
    assert_eq!((&loads["dp_rank_count"], &load["num_running_reqs"]), (&json!(1), &json!(0)));
    assert!(load["max_total_num_tokens"].as_u64().unwrap() > 0);
    assert_eq!(load["token_usage"], 0.0);
    assert_eq!(server.get("/load").await.1, json!({"server_load": 0}));
    assert_eq!(server.get("/get_load").await.1[0]["num_reqs"], 0);
    assert_eq!(server.get("/version").await.1["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(server.get("/ping").await.0, 200);
    assert_eq!(server.get("/health_generate").await.0, 200);
    let (_, tokenizer) = server.get("/tokenizer_info").await;
    assert_eq!(tokenizer["eos_tokens"], json!(["[e~["]));
    assert_eq!((&tokenizer["eos_token"], &tokenizer["bos_token"]), (&json!("[e~["), &Value::Null));
    let (_, models) = server.get("/v1/models").await;
    let card = &models["data"][0];
    assert_eq!((&card["owned_by"], &card["id"]), (&json!("sglang"), &json!("nano")));
    assert!(card["max_model_len"].as_u64().unwrap() > 0 && card["root"].is_string());
    assert_eq!(card["capabilities"]["input_modalities"], json!(["text", "image", "video"]));
    assert_eq!(card["capabilities"]["structured_output"], true);
    server.assert_no_leak().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_route_tells_a_secret() {
    let secrets = ["key-of-a-tenant", "key-of-the-admin"];
    let server = Server::start(says("a"), &["--api-key", secrets[0], "--admin-api-key", secrets[1]]).await;
    for path in
        ["/server_info", "/model_info", "/version", "/v1/models", "/tokenizer_info", "/v1/loads", "/metrics"]
    {
        let url = format!("{}{path}", server.base);
        assert_eq!(server.client.get(&url).send().await.unwrap().status(), 401, "{path} needs a key");
        let response = server.client.get(&url).bearer_auth(secrets[0]).send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        let text = response.text().await.unwrap();
        assert!(secrets.iter().all(|secret| !text.contains(secret)), "{path}");
    }
    for path in ["/flush_cache", "/abort_request"] {
        let post = |key: &'static str| {
            let request = server.client.post(format!("{}{path}", server.base)).bearer_auth(key);
            request.json(&json!({"rid": "x"})).send()
        };
        assert_eq!(post(secrets[0]).await.unwrap().status(), 401, "{path} needs the admin's key");
        assert_eq!(post(secrets[1]).await.unwrap().status(), 200, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cache_is_flushed() {
    let server = Server::start(says("a"), &[]).await;
    let body = json!({"prompt": "word ".repeat(600), "max_tokens": 1});
    let cached = async || {
        let answer = server.good("/v1/completions", body.clone()).await;
        answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    assert_eq!(cached().await, 0);
    assert!(cached().await > 0);
    server.assert_no_leak().await;
    assert_eq!(server.good("/flush_cache", json!({})).await["success"], true);
    assert_eq!(cached().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn text_is_parsed_on_its_own() {
    let server = Server::start(says("a"), &[]).await;
    let tool = json!([{"type": "function", "function": {"name": "get_weather", "parameters": weather()}}]);
    let text = two_calls().split_once("</mm:think>").unwrap().1.to_owned();
    let answer = server
        .good("/parse_function_call", json!({"text": text, "tools": tool, "tool_call_parser": "minimax-m3"}))
        .await;
    assert_eq!(answer["normal_text"], "One moment. ");
    assert_eq!(
        (&answer["calls"][1]["name"], &answer["calls"][1]["tool_index"]),
        (&json!("get_weather"), &json!(1))
    );
    let parameters: Value = serde_json::from_str(answer["calls"][1]["parameters"].as_str().unwrap()).unwrap();
    assert_eq!(parameters, json!({"location": "Köln 🌶", "days": 3}));
    let answer = server.good("/separate_reasoning", json!({"text": "<mm:think>r</mm:think>a"})).await;
    assert_eq!(answer, json!({"reasoning_text": "r", "text": "a"}));
    let enabled = json!({"text": "r</mm:think>a", "thinking_mode": "enabled"});
    assert_eq!(server.good("/separate_reasoning", enabled).await["reasoning_text"], "r");
    let (status, error) =
        server.post("/separate_reasoning", json!({"text": "x", "reasoning_parser": "qwen3"})).await;
    assert_eq!((status, &error["error"]["param"]), (400, &json!("reasoning_parser")));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_path_takes_every_kind_of_body() {
    let server = Server::start(says("said"), &[]).await;
    let chat = server.good("/invocations", json!({"messages": [{"role": "user", "content": "x"}]})).await;
    assert_eq!(chat["choices"][0]["message"]["content"], "said");
    assert_eq!(server.good("/invocations", json!({"prompt": "x"})).await["choices"][0]["text"], "said");
    assert_eq!(server.good("/invocations", json!({"input": "x"})).await["object"], "response");
    assert_eq!(server.post("/invocations", json!({"x": 1})).await.0, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_document_and_its_page_need_no_key_and_no_network() {
    let server = Server::start(says("a"), &["--api-key", "k"]).await;
    let (status, document) = server.get("/openapi.json").await;
    assert_eq!((status, &document["openapi"]), (200, &json!("3.1.0")));
    // Every path that is named is there: nothing answers 404 for want of a route.
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let url = format!(
                "{}{}",
                server.base,
                path.replace("{id}", "x").replace("{name}", "x").replace("{file}", "app.js")
            );
            let method = method.to_uppercase().parse().unwrap();
            let request = server
                .client
                .request(method, url)
                .bearer_auth("k")
                .header("content-type", "application/json");
            let response = request.body("{}").send().await.unwrap();
            let status = response.status().as_u16();
            let answer: Value = response.json().await.unwrap_or_default();
            assert!(
                status < 500 && answer["error"]["code"] != "not_found" && status != 405,
                "{path}: {status} {answer}"
            );
        }
    }
    let page = server.client.get(format!("{}/docs", server.base)).send().await.unwrap();
    assert!(page.headers()["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'"));
    assert!(page.text().await.unwrap().contains("openapi.json"));
}
