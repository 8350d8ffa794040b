//! `/v1/responses`: create, get, delete, cancel and list the input of responses.

mod fit;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Caller, blocking, head_of, with_id};
use crate::app::App;
use crate::error::ApiError;
use crate::extract::{JsonBody, lower_first};
use crate::generate::Session;
use crate::responses::shape::Keep;
use crate::responses::store::{Kept, Live, skip_to};
use crate::responses::{History, ResponsesRequest, ResponsesShape};
use crate::shape::TokenNames;
use crate::stream;
use crate::strict::Strict;
use fit::{Fitted, fit_media, fit_text};

/// Translates, renders, submits and answers.
pub(super) async fn create(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    JsonBody(Strict(body)): JsonBody<Strict>,
) -> Result<Response, ApiError> {
    let received = Instant::now();
    let work = Arc::clone(&app);
    let fitted = blocking(move || read(&work, body, caller, received)).await?;
    let fitted = fit_media(&app, fitted).await?;
    let serving = app.serving()?;
    // Never the caller's own id: it is what the response is stored under.
    let head = head_of("resp_", &HeaderMap::new(), None, serving);
    let id = head.id.clone();
    let echo = echo(&fitted, &app);
    let (request, job) = (fitted.request, fitted.job);
    let tokenizer = serving.model.text.as_ref().map(|text| text.tokenizer.clone());
    let names = request.logprobs.then(|| TokenNames::new(tokenizer, false));
    let background = request.background.then(|| Arc::new(Live::default()));
    let shape = ResponsesShape::new(head, echo, names, job.prompts[0].len() as u32)
        .sealed(request.encrypted_reasoning)
        .with_media(job.media_tokens)
        .keep(keeper(&app, &request, &id, caller, background.clone()));
    let started = Session::start(&app, &job).map_err(|error| request.renames.apply(error))?;
    let session = started.named(&app, std::slice::from_ref(&id));
    let response = match background {
        Some(live) => in_background(&app, &request, (session, shape), (&id, caller, live)),
        None if request.stream => stream::events(session, shape, app.http.stream),
        None => stream::whole(session, shape).await?,
    };
    Ok(with_id(response, &id))
}

fn read(app: &App, body: Value, caller: Caller, received: Instant) -> Result<Fitted, ApiError> {
    let body = resolve_references(app, body, caller)?;
    let request = ResponsesRequest::read(body, |id| previous(app, id, caller))?;
    if request.background && !app.responses.is_on() {
        let sentence = "background is true, but this server keeps no responses (--max-stored-responses 0)";
        return Err(ApiError::unsupported("background", sentence));
    }
    fit_text(app, request, received)
}

/// The id that an item only refers to; a reference may also come without its type.
fn reference(item: &Value) -> Option<&str> {
    let bare = item.as_object().is_some_and(|object| object.len() == 1);
    let refers = item.get("type").map_or(bare, |kind| kind == "item_reference");
    item.get("id").and_then(Value::as_str).filter(|_| refers)
}

/// Puts the items in that `item_reference`s stand for.
fn resolve_references(app: &App, mut body: Value, caller: Caller) -> Result<Value, ApiError> {
    let Some(items) = body.get_mut("input").and_then(Value::as_array_mut) else { return Ok(body) };
    let wanted: HashSet<String> = items.iter().filter_map(reference).map(str::to_owned).collect();
    if wanted.is_empty() {
        return Ok(body);
    }
    let found = app.responses.items(&wanted, caller);
    for (at, item) in items.iter_mut().enumerate() {
        let Some(id) = reference(item) else { continue };
        let stored = found.get(id).ok_or_else(|| {
            let param = format!("input[{at}].id");
            let sentence = format!("{param} is \"{id}\"; no stored response has such an item");
            ApiError::invalid(param, sentence)
        })?;
        *item = stored.clone();
    }
    Ok(body)
}

fn previous(app: &App, id: &str, caller: Caller) -> Result<Arc<History>, ApiError> {
    let kept = app.responses.get(id, caller);
    kept.and_then(|kept| kept.history).ok_or_else(|| {
        let sentence =
            format!("previous_response_id is \"{id}\"; no finished response of that id is stored here");
        ApiError::invalid("previous_response_id", sentence).with_code("previous_response_not_found")
    })
}

/// What the request decided, as every response object repeats it.
fn echo(fitted: &Fitted, app: &App) -> Map<String, Value> {
    let (request, chat) = (&fitted.request, &fitted.chat);
    let mut echo = request.echo.clone();
    let defaults = app.loaded().map(|serving| serving.model.sampling_defaults);
    let number = |value: f32| value.to_string().parse::<f64>().map_or(Value::Null, Value::from);
    let generation = &chat.generation;
    let temperature = generation.temperature.or(defaults.map(|defaults| defaults.temperature));
    let top_p = generation.top_p.or(defaults.map(|defaults| defaults.top_p));
    for (name, value) in [
        ("background", request.background.into()),
        ("store", (request.store && app.responses.is_on()).into()),
        ("max_output_tokens", json!(generation.max_tokens)),
        ("max_tool_calls", Value::Null),
        ("parallel_tool_calls", chat.parallel_tool_calls.into()),
        ("temperature", temperature.map_or(Value::Null, number)),
        ("top_p", top_p.map_or(Value::Null, number)),
        ("top_logprobs", chat.logprobs.unwrap_or(0).into()),
        ("truncation", if request.truncate { "auto" } else { "disabled" }.into()),
    ] {
        echo.insert(name.to_owned(), value);
    }
    // Nothing is left out silently.
    if fitted.left_out > 0 {
        echo.insert("truncated_messages".to_owned(), fitted.left_out.into());
    }
    echo
}

/// What to do with the finished response, when it is to be stored.
fn keeper(
    app: &Arc<App>,
    request: &ResponsesRequest,
    id: &str,
    caller: Caller,
    live: Option<Arc<Live>>,
) -> Option<Keep> {
    if !request.store || !app.responses.is_on() {
        return None;
    }
    let (app, id) = (Arc::clone(app), id.to_owned());
    let (input, parent) = (request.items.clone(), request.previous.clone());
    Some(Box::new(move |response, output| {
        let own = input.iter().cloned().chain(output).collect();
        let more = response.to_string().len() + live.as_ref().map_or(0, |live| live.bytes());
        let history = Some(app.responses.history(parent, own, more));
        let response = response.clone();
        // One that was deleted or cancelled meanwhile stays so.
        let gone = live.is_some() && app.responses.get(&id, caller).is_none_or(|kept| kept.history.is_some());
        if !gone {
            app.responses.put(&id, Kept { response, input, history, caller, live });
        }
    }))
}

/// Goes on without the caller, who may follow, look or cancel.
fn in_background(
    app: &Arc<App>,
    request: &ResponsesRequest,
    (session, shape): (Session, ResponsesShape),
    (id, caller, live): (&str, Caller, Arc<Live>),
) -> Response {
    let begun = shape.object();
    let input = request.items.clone();
    let kept = Kept { response: begun.clone(), input, history: None, caller, live: Some(Arc::clone(&live)) };
    app.responses.put(id, kept);
    let mut frames = stream::frames(
        session,
        shape,
        stream::StreamOptions { heartbeat: Default::default(), ..app.http.stream },
    );
    let following = Arc::clone(&live);
    tokio::spawn(async move {
        // Followers hear of the end however it comes.
        let live = EndOnDrop(live);
        let live = &live.0;
        loop {
            tokio::select! {
                frame = frames.next() => match frame {
                    Some(frame) => live.push(Some(frame)),
                    None => break,
                },
                () = live.stop.notified() => break,
            }
        }
    });
    if request.stream { follow(following, None) } else { Json(begun).into_response() }
}

struct EndOnDrop(Arc<Live>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.push(None);
    }
}

/// The events of a response in the background, from the start or after one that was seen.
fn follow(live: Arc<Live>, starting_after: Option<u64>) -> Response {
    let frames = futures_util::stream::unfold((live, 0), move |(live, at)| async move {
        let frames = live.after(at).await?;
        let bytes = skip_to(&frames, starting_after);
        Some((Ok::<_, std::convert::Infallible>(bytes), (live, at + frames.len())))
    });
    stream::response(Body::from_stream(frames))
}

fn bad_query(error: &axum::extract::rejection::QueryRejection) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, lower_first(&error.body_text())).with_code("bad_query")
}

fn not_found(id: &str) -> ApiError {
    let sentence = format!("there is no response \"{id}\" here");
    ApiError::new(StatusCode::NOT_FOUND, sentence).with_code("response_not_found")
}

/// How a response is looked at.
#[derive(Debug, Deserialize)]
pub(super) struct Look {
    #[serde(default)]
    stream: bool,
    starting_after: Option<u64>,
}

/// The object, or its events.
pub(super) async fn get(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    look: Result<Query<Look>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(look) = look.map_err(|error| bad_query(&error))?;
    let kept = app.responses.get(&id, caller).ok_or_else(|| not_found(&id))?;
    match (look.stream, kept.live) {
        (false, _) => Ok(Json(kept.response).into_response()),
        (true, Some(live)) => Ok(follow(live, look.starting_after)),
        (true, None) => {
            let sentence = "stream is true; only the events of a response in the background are kept";
            Err(ApiError::unsupported("stream", sentence))
        }
    }
}

/// Forgets it; one in the making is stopped.
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let kept = app.responses.get(&id, caller).ok_or_else(|| not_found(&id))?;
    app.responses.delete(&id, caller);
    if let Some(live) = kept.live {
        live.stop.notify_one();
    }
    Ok(Json(json!({"id": id, "object": "response", "deleted": true})))
}

/// Stops a response in the background; one that has ended stays as it is.
pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let mut kept = app.responses.get(&id, caller).ok_or_else(|| not_found(&id))?;
    let Some(live) = kept.live.clone() else {
        let sentence = format!("response \"{id}\" is not in the background; close its connection to stop it");
        return Err(ApiError::new(StatusCode::BAD_REQUEST, sentence).with_code("not_cancellable"));
    };
    if kept.history.is_none() {
        kept.response["status"] = "cancelled".into();
        kept.history = Some(app.responses.history(None, kept.input.clone(), live.bytes()));
        let response = kept.response.clone();
        app.responses.put(&id, kept);
        live.stop.notify_one();
        return Ok(Json(response));
    }
    Ok(Json(kept.response))
}

/// Which part of the list.
#[derive(Debug, Deserialize)]
pub(super) struct Page {
    limit: Option<usize>,
    order: Option<String>,
    after: Option<String>,
}

/// The request's own items; the newest first unless `order` is `asc`.
pub(super) async fn input_items(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    page: Result<Query<Page>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    let Query(page) = page.map_err(|error| bad_query(&error))?;
    let limit = page.limit.unwrap_or(20);
    if !(1..=100).contains(&limit) {
        return Err(ApiError::invalid("limit", format!("limit is {limit}; it must be from 1 to 100")));
    }
    let mut items = app.responses.get(&id, caller).ok_or_else(|| not_found(&id))?.input;
    match page.order.as_deref() {
        Some("asc") => {}
        None | Some("desc") => items.reverse(),
        Some(other) => {
            return Err(ApiError::invalid("order", format!("order is \"{other}\"; expected asc or desc")));
        }
    }
    if let Some(after) = &page.after {
        let at = items.iter().position(|item| item["id"] == after.as_str());
        let at = at.ok_or_else(|| {
            ApiError::invalid("after", format!("after is \"{after}\"; there is no such item"))
        })?;
        items.drain(..=at);
    }
    let has_more = items.len() > limit;
    items.truncate(limit);
    let id_of = |item: Option<&Value>| item.map_or(Value::Null, |item| item["id"].clone());
    let (first, last) = (id_of(items.first()), id_of(items.last()));
    Ok(Json(
        json!({"object": "list", "data": items, "first_id": first, "last_id": last, "has_more": has_more}),
    ))
}
