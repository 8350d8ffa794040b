//! `POST /v1/completions`: raw prompts, also as token ids, also only scored (`echo`, `logprobs`, `max_tokens: 0`).

use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use m3_core::text::TextError;
use m3_core::text::parse::ParserOptions;
use m3_core::text::tokenizer::Tokenizer;
use serde_json::Value;

use super::chat::text_side;
use super::{blocking, check_model, head, with_id};
use crate::app::{App, Serving};
use crate::error::ApiError;
use crate::extract::JsonBody;
use crate::generate::{Job, Session, masks};
use crate::openai::completion_request::{CompletionRequest, DEFAULT_MAX_TOKENS, Prompt};
use crate::shape::{CompletionShape, Echo, TokenNames};
use crate::stream;
use crate::strict::Strict;
use crate::vision::{MediaKind, MediaPart, VisionSide, find_media_token};

/// Encodes, submits and answers.
pub(super) async fn create(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    JsonBody(Strict(body)): JsonBody<Strict>,
) -> Result<Response, ApiError> {
    let received = Instant::now();
    let work = Arc::clone(&app);
    let (request, mut job) = blocking(move || prepare(&work, body, received, &[])).await?;
    job.answers = request.generation.best_of;
    let serving = app.serving()?;
    let head = head("cmpl", &headers, request.generation.request_id.as_deref(), serving);
    let id = head.id.clone();
    let mut delivery = request.generation.delivery;
    delivery.include_usage |= app.http.always_usage;
    let tokenizer = serving.model.text.as_ref().map(|text| text.tokenizer.clone());
    // Without texts the ids are all there is to send.
    delivery.token_ids |= tokenizer.is_none();
    let names = request.logprobs.map(|_| TokenNames::new(tokenizer.clone(), delivery.tokens_as_ids));
    let best_of = request.generation.best_of as usize;
    let n = request.generation.n as usize;
    let scores = TokenNames::new(tokenizer.clone(), delivery.tokens_as_ids);
    let echo = Echo { prompts: job.prompts.clone(), echo: request.echo, tokenizer };
    let mut shape = CompletionShape::new(head, delivery, names, echo, n);
    if let Some(asked) = request.generation.prompt_logprobs {
        shape = shape.with_prompt_scores(scores, asked as usize, request.logprobs.unwrap_or(0) as usize);
    }
    let session = Session::start(&app, &job)?.named(&app, std::slice::from_ref(&id));
    let response = if best_of > n {
        stream::best(session, shape, n, best_of).await?
    } else if delivery.stream {
        stream::events(session, shape, app.http.stream.with_interval(delivery.interval))
    } else {
        stream::whole(session, shape).await?
    };
    let mut response = with_id(response, &id);
    if request.keep_last.is_some() {
        response.headers_mut().insert("x-truncated-prompt-tokens", request.num_cut.into());
    }
    Ok(response)
}

/// Checks and encodes. `media` is what the prompts show, when the caller's route takes any.
pub(super) fn prepare(
    app: &App,
    body: Value,
    received: Instant,
    media: &[Vec<MediaPart>],
) -> Result<(CompletionRequest, Job), ApiError> {
    let serving = app.serving()?;
    let mut request = CompletionRequest::read(body, serving.model.limits)?;
    check_model(serving, request.generation.model.as_deref())?;
    let encoded = request.prompts.iter().enumerate().map(|(at, prompt)| {
        let ids = encode(serving, prompt, request.parse_special)?;
        match media.get(at).is_some_and(|parts| !parts.is_empty()) {
            true => Ok(ids),
            false => without_media(serving, prompt, ids, at),
        }
    });
    let mut prompts = encoded.collect::<Result<Vec<_>, _>>()?;
    request.num_cut = cut(&request, serving, &mut prompts);
    let parser = parser(serving, &request)?;
    let generation = request.generation.clone();
    let mut masks = masks::of_generation(&generation, &serving.model)?;
    masks.extend(masks::of_completion(request.constraint.as_ref(), &generation, &serving.model)?);
    let echoed = request.logprobs.filter(|_| request.echo);
    let job = Job {
        default_max_tokens: Some(DEFAULT_MAX_TOKENS.max(generation.min_tokens)),
        logprobs: request.logprobs,
        prompt_logprobs: echoed.max(generation.prompt_logprobs),
        parser,
        masks,
        ..Job::new(prompts, generation, received)
    };
    Ok((request, job))
}

/// Cuts prompts as `truncate_prompt_tokens` says; how many tokens in all.
fn cut(request: &CompletionRequest, serving: &Serving, prompts: &mut [Vec<u32>]) -> usize {
    let Some(kept) = request.keep_last else { return 0 };
    // A prompt needs room for its answer, or for one token of it.
    let answer = request.generation.max_tokens.unwrap_or(1) as usize;
    let fits = serving.model.max_context.saturating_sub(answer).max(1);
    let kept = usize::try_from(kept).unwrap_or(fits);
    let cut = |prompt: &mut Vec<u32>| prompt.drain(..prompt.len().saturating_sub(kept)).count();
    prompts.iter_mut().map(cut).sum()
}

fn encode(serving: &Serving, prompt: &Prompt, parse_special: bool) -> Result<Vec<u32>, ApiError> {
    match prompt {
        Prompt::Tokens(ids) => Ok(ids.clone()),
        Prompt::Text(text) => {
            let tokenizer = &text_side(serving)?.tokenizer;
            let ids =
                if parse_special { tokenizer.encode_special(text) } else { tokenizer.encode_ordinary(text) };
            ids.map_err(|error| ApiError::invalid("prompt", error.to_string()))
        }
    }
}

/// A prompt that shows nothing has no media token: in a text their markers are ordinary text, among ids they are 400,
/// since no row would replace them and the model would read garbage.
fn without_media(serving: &Serving, prompt: &Prompt, ids: Vec<u32>, at: usize) -> Result<Vec<u32>, ApiError> {
    let Ok(vision) = &serving.model.vision else { return Ok(ids) };
    let Some((place, kind)) = find_media_token(vision, &ids) else { return Ok(ids) };
    match prompt {
        Prompt::Text(text) => encode_around_markers(&text_side(serving)?.tokenizer, text, vision),
        Prompt::Tokens(_) => {
            let (param, word, token) = (format!("prompt[{at}]"), kind.word(), vision.token(kind));
            let sentence = format!(
                "{param} has the {word} token {token} at position {place}, and the request brings no {word}"
            );
            Err(ApiError::invalid(param, sentence))
        }
    }
}

/// Encodes a text whose markers count, except those of media.
fn encode_around_markers(
    tokenizer: &Tokenizer,
    text: &str,
    vision: &VisionSide,
) -> Result<Vec<u32>, ApiError> {
    let marker =
        |kind| tokenizer.token_bytes(vision.token(kind)).and_then(|bytes| std::str::from_utf8(bytes).ok());
    let markers: Vec<&str> = MediaKind::ALL.into_iter().filter_map(marker).collect();
    let failed = |error: TextError| ApiError::invalid("prompt", error.to_string());
    let (mut ids, mut rest) = (Vec::new(), text);
    loop {
        let found = markers.iter().filter_map(|marker| Some((rest.find(marker)?, marker.len()))).min();
        let Some((at, len)) = found else { break };
        ids.extend(tokenizer.encode_special(&rest[..at]).map_err(failed)?);
        ids.extend(tokenizer.encode_ordinary(&rest[at..at + len]).map_err(failed)?);
        rest = &rest[at + len..];
    }
    ids.extend(tokenizer.encode_special(rest).map_err(failed)?);
    Ok(ids)
}

/// Text as it is: reasoning and tool markup are content here. Only stop strings are looked for.
fn parser(serving: &Serving, request: &CompletionRequest) -> Result<Option<ParserOptions>, ApiError> {
    let Some(text) = &serving.model.text else {
        let name = match (&request.generation.stop_expressions, request.generation.stop.is_empty()) {
            (None, true) => return Ok(None),
            (Some(_), true) => "stop_regex",
            (_, false) => "stop",
        };
        let sentence =
            format!("{name} needs a tokenizer, which this server runs without; send stop_token_ids");
        return Err(ApiError::unsupported(name, sentence));
    };
    Ok(Some(ParserOptions {
        stop: request.generation.stop.clone(),
        include_stop: request.generation.include_stop,
        parse_reasoning: false,
        parse_tools: false,
        markers: text.markers.clone(),
        ..ParserOptions::default()
    }))
}
