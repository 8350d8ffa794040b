//! `POST /v1/messages` and `/v1/messages/count_tokens`.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::{Value, json};

use super::chat::{prepare, show};
use super::{blocking, head_of, one_answer, with_id};
use crate::anthropic::{MessagesRequest, MessagesShape};
use crate::app::App;
use crate::error::ApiError;
use crate::extract::JsonBody;
use crate::generate::{Job, Session};
use crate::openai::chat_request::ChatRequest;
use crate::stream;
use crate::strict::Strict;

/// Translates, renders, submits and answers.
pub(super) async fn create(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    JsonBody(Strict(body)): JsonBody<Strict>,
) -> Result<Response, ApiError> {
    let received = Instant::now();
    let work = Arc::clone(&app);
    let (request, chat, mut job) = blocking(move || read(&work, body, false, received)).await?;
    show(&app, &chat, &mut job).await.map_err(|error| request.renames.apply(error))?;
    let head = head_of("msg_", &headers, chat.generation.request_id.as_deref(), app.serving()?);
    let id = head.id.clone();
    let shape = MessagesShape::new(head, job.prompts[0].len() as u32);
    let started = Session::start(&app, &job).map_err(|error| request.renames.apply(error))?;
    let session = started.named(&app, std::slice::from_ref(&id));
    let response = if request.stream {
        stream::events(session, shape, app.http.stream)
    } else {
        stream::whole(session, shape).await?
    };
    Ok(with_id(response, &id))
}

fn read(
    app: &App,
    body: Value,
    counting: bool,
    received: Instant,
) -> Result<(MessagesRequest, ChatRequest, Job), ApiError> {
    let request = MessagesRequest::read(body, counting, app.http.keep_billing_header)?;
    let prepared = prepare(app, Value::Object(request.chat.clone()), received);
    let (chat, job) = prepared.map_err(|error| request.renames.apply(error))?;
    one_answer(&chat)?;
    Ok((request, chat, job))
}

/// The very tokens that the same message would be answered from.
pub(super) async fn count_tokens(
    State(app): State<Arc<App>>,
    JsonBody(Strict(body)): JsonBody<Strict>,
) -> Result<Json<Value>, ApiError> {
    let work = Arc::clone(&app);
    let (request, chat, mut job) = blocking(move || read(&work, body, true, Instant::now())).await?;
    show(&app, &chat, &mut job).await.map_err(|error| request.renames.apply(error))?;
    Ok(Json(json!({ "input_tokens": job.prompts[0].len() })))
}
