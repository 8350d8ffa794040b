//! `POST /generate`: SGLang's native route, for its benchmark, its router and trainers.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::Value;

use super::{blocking, completions, head_of, with_id};
use crate::app::App;
use crate::error::ApiError;
use crate::extract::JsonBody;
use crate::generate::{Job, Session};
use crate::native::request::DEFAULT_NEW_TOKENS;
use crate::native::shape::Options;
use crate::native::{GenerateRequest, GenerateShape};
use crate::stream;
use crate::strict::Strict;
use crate::vision::add_media;

/// Encodes, submits and answers.
pub(super) async fn create(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    JsonBody(Strict(body)): JsonBody<Strict>,
) -> Result<Response, ApiError> {
    let received = Instant::now();
    let work = Arc::clone(&app);
    let (request, mut job) = blocking(move || read(&work, body, received)).await?;
    let placed = add_media(&app, &mut job, &request.media, "prompt").await;
    placed.map_err(|error| request.renames.apply(error))?;
    let serving = app.serving()?;
    let n = job.generation.n as usize;
    let unique = head_of("", &headers, None, serving).id;
    let names = names(&request, job.prompts.len(), &unique)?;
    let ids = answer_ids(&names, job.prompts.len(), n);
    let options = Options {
        batch: request.batch,
        logprobs: request.logprobs,
        tokenizer: serving.model.text.as_ref().map(|text| text.tokenizer.clone()),
        received,
        stream: request.stream,
    };
    let shape = GenerateShape::new(ids, job.prompts.clone(), n, options);
    let started = Session::start(&app, &job).map_err(|error| request.renames.apply(error))?;
    let session = started.named(&app, &names);
    let response = if request.stream {
        stream::events(session, shape, app.http.stream)
    } else {
        stream::whole(session, shape).await?
    };
    Ok(with_id(response, &unique))
}

fn read(app: &App, body: Value, received: Instant) -> Result<(GenerateRequest, Job), ApiError> {
    let request = GenerateRequest::read(body)?;
    let body = Value::Object(request.completion.clone());
    let prepared = completions::prepare(app, body, received, &request.media);
    let (completion, mut job) = prepared.map_err(|error| request.renames.apply(error))?;
    job.default_max_tokens = Some(DEFAULT_NEW_TOKENS.max(completion.generation.min_tokens));
    Ok((request, job))
}

/// What the prompts may be aborted by: the caller's ids, or one of ours.
fn names(request: &GenerateRequest, prompts: usize, unique: &str) -> Result<Vec<String>, ApiError> {
    match request.ids.len() {
        0 => Ok(vec![unique.to_owned()]),
        1 => Ok(request.ids.clone()),
        count if count == prompts => Ok(request.ids.clone()),
        count => {
            let sentence =
                format!("rid has {count} ids for {prompts} prompts; send one, or one for each prompt");
            Err(ApiError::invalid("rid", sentence))
        }
    }
}

/// One id for each answer; equal ones get their number.
fn answer_ids(names: &[String], prompts: usize, n: usize) -> Vec<String> {
    let answers = prompts * n;
    let id = |at: usize| match names.len() {
        1 if answers == 1 => names[0].clone(),
        1 => format!("{}-{at}", names[0]),
        _ if n == 1 => names[at].clone(),
        _ => format!("{}-{}", names[at / n], at % n),
    };
    (0..answers).map(id).collect()
}
