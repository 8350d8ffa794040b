//! What this server is and how busy it is, under the paths that routers and benchmarks ask. No secrets: keys,
//! environment and command line are not told.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use m3_core::metrics::EngineStats;
use serde_json::{Value, json};

use super::chat::text_side;
use crate::app::{App, Serving, State as ServerState};
use crate::error::ApiError;
use crate::info::generation_rate;

/// `GET /version`.
pub(super) async fn version() -> Json<Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION") }))
}

/// `GET /server_info`: settings, limits and the load of now.
pub(super) async fn server(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    let serving = app.serving()?;
    let model = &serving.model;
    let stats = serving.engine.stats();
    let mut info = json!({
        "model_path": model.path.display().to_string(),
        "served_model_name": model.names.first(),
        "served_model_names": model.names,
        "tokenizer_path": model.path.display().to_string(),
        "skip_tokenizer_init": model.text.is_none(),
        "version": env!("CARGO_PKG_VERSION"),
        "status": if app.state() == ServerState::Ready { "ready" } else { "busy" },
        "context_length": model.max_context,
        "vocab_size": model.limits.vocab_size,
        "enable_metrics": true,
        "reasoning_parser": "minimax-m3",
        "tool_call_parser": "minimax-m3",
        "sampling_defaults": sampling(serving),
        "api_key_required": !app.http.access.api_keys.is_empty(),
        "internal_states": [state(serving, &stats)],
    });
    if let (Value::Object(info), Value::Object(fixed)) = (&mut info, serving.info.fields()) {
        info.extend(fixed);
    }
    Ok(Json(info))
}

fn sampling(serving: &Serving) -> Value {
    let defaults = serving.model.sampling_defaults;
    json!({"temperature": defaults.temperature, "top_p": defaults.top_p, "top_k": defaults.top_k})
}

/// What SGLang's scheduler tells of itself.
fn state(serving: &Serving, stats: &EngineStats) -> Value {
    json!({
        "last_gen_throughput": generation_rate(stats),
        "max_running_requests": serving.info.max_running,
        "num_running_reqs": stats.running,
        "num_waiting_reqs": stats.waiting,
        "memory_usage": {"token_capacity": serving.info.num_pages * serving.info.page_tokens},
        "weight_version": "default",
    })
}

/// `GET /model_info`.
pub(super) async fn model(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    let serving = app.serving()?;
    let path = serving.model.path.display().to_string();
    let sees = serving.model.vision.is_ok();
    Ok(Json(json!({
        "model_path": path,
        "tokenizer_path": path,
        "is_generation": true,
        "preferred_sampling_params": null,
        "weight_version": "default",
        "has_image_understanding": sees,
        "has_video_understanding": sees,
        "has_audio_understanding": false,
        "model_type": serving.info.model_type,
        "architectures": serving.info.architectures,
    })))
}

/// `GET /load`: vLLM's count of requests in the server.
pub(super) async fn load(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    let stats = app.serving()?.engine.stats();
    Ok(Json(json!({ "server_load": stats.running + stats.waiting })))
}

/// `GET /get_load`: SGLang's older form.
pub(super) async fn get_load(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    let serving = app.serving()?;
    let stats = serving.engine.stats();
    Ok(Json(json!([{
        "dp_rank": 0,
        "num_reqs": stats.running + stats.waiting,
        "num_waiting_reqs": stats.waiting,
        "num_tokens": stats.pages.leased * serving.info.page_tokens,
    }])))
}

/// `GET /v1/loads`: what routers balance by.
pub(super) async fn loads(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    let serving = app.serving()?;
    let stats = serving.engine.stats();
    let (info, counters) = (&serving.info, &stats.counters);
    let usage = stats.pages.leased as f64 / stats.pages.total.max(1) as f64;
    let hits = counters.cached_tokens as f64 / counters.prompt_tokens.max(1) as f64;
    let now = crate::clock::since_1970().as_secs_f64();
    Ok(Json(json!({
        "timestamp": now,
        "dp_rank_count": 1,
        "loads": [{
            "dp_rank": 0,
            "num_running_reqs": stats.running,
            "num_waiting_reqs": stats.waiting,
            "num_total_reqs": stats.running + stats.waiting,
            "num_used_tokens": stats.pages.leased * info.page_tokens,
            "max_total_num_tokens": info.num_pages * info.page_tokens,
            "token_usage": usage,
            "gen_throughput": generation_rate(&stats),
            "cache_hit_rate": hits,
            "utilization": stats.running as f64 / info.max_running.max(1) as f64,
            "max_running_requests": info.max_running,
        }],
    })))
}

/// `GET /tokenizer_info`.
pub(super) async fn tokenizer(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    let serving = app.serving()?;
    let text = text_side(serving)?;
    let added = text.tokenizer.added_tokens();
    let list = added.iter().map(|token| {
        json!({"id": token.id, "content": token.content, "special": text.tokenizer.is_special(token.id)})
    });
    let names = |ids: &[u32]| {
        let name = |id: &u32| added.iter().find(|token| token.id == *id).map(|token| token.content.clone());
        ids.iter().filter_map(name).collect::<Vec<_>>()
    };
    let ends = names(&serving.model.eos_ids);
    // The singular names are what evaluation harnesses ask for: they score a text's first token behind `eos_token`
    // where there is no `bos_token`.
    Ok(Json(json!({
        "vocab_size": text.tokenizer.vocab_len(),
        "model_vocab_size": serving.model.limits.vocab_size,
        "model_max_length": serving.model.max_context,
        "eos_token_ids": serving.model.eos_ids,
        "eos_token": ends.first(),
        "eos_tokens": ends,
        "bos_token": null,
        "adds_bos": false,
        "has_chat_template": text.template.is_some(),
        "added_tokens": list.collect::<Vec<_>>(),
    })))
}
