//! `POST /v1/chat/completions`.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use m3_core::text::parse::{ParserOptions, ToolSet};
use m3_core::text::template::{RenderInput, Rendered};
use serde_json::Value;

use super::{blocking, check_model, head, with_id};
use crate::app::{App, Serving};
use crate::error::ApiError;
use crate::extract::JsonBody;
use crate::generate::{AnswerOptions, Job, ReasoningShape, Session, masks};
use crate::model::TextSide;
use crate::openai::chat_request::ChatRequest;
use crate::shape::{ChatShape, TokenNames};
use crate::stream;
use crate::strict::Strict;
use crate::vision::{self, add_media};

/// Renders, submits and answers.
pub(super) async fn create(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    JsonBody(Strict(body)): JsonBody<Strict>,
) -> Result<Response, ApiError> {
    let received = Instant::now();
    let work = Arc::clone(&app);
    let (request, mut job) = blocking(move || prepare(&work, body, received)).await?;
    show(&app, &request, &mut job).await?;
    job.answers = request.generation.best_of;
    let serving = app.serving()?;
    let head = head("chatcmpl", &headers, request.generation.request_id.as_deref(), serving);
    let id = head.id.clone();
    let mut delivery = request.generation.delivery;
    delivery.include_usage |= app.http.always_usage;
    let tokenizer = serving.model.text.as_ref().map(|text| text.tokenizer.clone());
    let names = request.logprobs.map(|_| TokenNames::new(tokenizer.clone(), delivery.tokens_as_ids));
    let n = request.generation.n as usize;
    let shape = ChatShape::new(head, delivery, names, app.http.reasoning_names, &job.prompts[0], n);
    let scores =
        request.generation.prompt_logprobs.map(|_| TokenNames::new(tokenizer, delivery.tokens_as_ids));
    let shape = shape.with_media(job.media_tokens).with_prompt_scores(scores);
    let session = Session::start(&app, &job)?.named(&app, std::slice::from_ref(&id));
    let best_of = request.generation.best_of as usize;
    let response = if best_of > n {
        stream::best(session, shape, n, best_of).await?
    } else if delivery.stream {
        stream::events(session, shape, app.http.stream.with_interval(delivery.interval))
    } else {
        stream::whole(session, shape).await?
    };
    Ok(with_id(response, &id))
}

/// Puts the request's images and videos into its prompt.
pub async fn show(app: &Arc<App>, request: &ChatRequest, job: &mut Job) -> Result<(), ApiError> {
    add_media(app, job, std::slice::from_ref(&request.media), "messages").await
}

/// Everything before the engine but the media: checks, template, tokens.
pub fn prepare(app: &App, body: Value, received: Instant) -> Result<(ChatRequest, Job), ApiError> {
    let serving = app.serving()?;
    let text = text_side(serving)?;
    let request = ChatRequest::read(body, serving.model.limits, &serving.model.template_kwargs)?;
    check_model(serving, request.generation.model.as_deref())?;
    let tools = ToolSet::from_json(&Value::Array(request.tools.clone()))
        .map_err(|error| ApiError::invalid("tools", error.to_string()))?;
    if !request.media.is_empty() {
        vision::check(serving, &request.media)?;
    }
    let (_, prompt) = render(text, &request)?;
    let mut masks = masks::of_generation(&request.generation, &serving.model)?;
    if let Some(budget) = request.thinking_budget {
        masks.push(masks::of_budget(budget, request.start_mode(), &serving.model)?);
    }
    let generation = request.generation.clone();
    let reasoning = ReasoningShape { delivery: request.reasoning, whole: !request.stream_reasoning };
    let answer = AnswerOptions {
        parallel_tool_calls: request.parallel_tool_calls,
        reasoning,
        echo: request.echo_text(),
        ..AnswerOptions::of(&generation)
    };
    let mut parser = ParserOptions {
        thinking_mode: request.start_mode(),
        tools: Arc::new(tools),
        stop: generation.stop.clone(),
        include_stop: generation.include_stop,
        parse_tools: request.parse_tools,
        markers: text.markers.clone(),
        ..ParserOptions::default()
    };
    masks.extend(masks::of_chat(&request, &serving.model, &mut parser)?);
    let job = Job {
        logprobs: request.logprobs,
        prompt_logprobs: generation.prompt_logprobs,
        parser: Some(parser),
        answer,
        masks,
        ..Job::new(vec![prompt], generation, received)
    };
    Ok((request, job))
}

/// The text side, or 400 with the way out.
pub(super) fn text_side(serving: &Serving) -> Result<&TextSide, ApiError> {
    serving.model.text.as_ref().ok_or_else(|| {
        let sentence =
            "this server runs without a tokenizer (--skip-tokenizer-init): send token ids to /v1/completions";
        ApiError::new(axum::http::StatusCode::BAD_REQUEST, sentence).with_code("no_tokenizer")
    })
}

/// The prompt's text and ids.
pub fn render(text: &TextSide, request: &ChatRequest) -> Result<(String, Vec<u32>), ApiError> {
    let bad_request = axum::http::StatusCode::BAD_REQUEST;
    let Some(template) = &text.template else {
        let sentence =
            "this model has no chat template: start the server with --chat-template, or use /v1/completions";
        return Err(ApiError::new(bad_request, sentence).with_code("no_chat_template"));
    };
    let messages = Value::Array(request.messages.clone());
    let tools = (!request.tools.is_empty()).then(|| Value::Array(request.tools.clone()));
    let input = RenderInput {
        messages: &messages,
        tools: tools.as_ref(),
        add_generation_prompt: request.add_generation_prompt,
        kwargs: Some(&request.template_kwargs),
    };
    // A template that cannot take a conversation says why; that is the client's to mend.
    let mut rendered = template
        .render(&input, Some(&text.tokenizer))
        .map_err(|error| ApiError::invalid("messages", error.to_string()))?;
    if request.continue_final {
        leave_open(&mut rendered, request.final_text())?;
    }
    let ids = text.tokenizer.encode_segments(&rendered.segments);
    let ids = ids.map_err(|error| ApiError::invalid("messages", error.to_string()))?;
    Ok((rendered.prompt, ids))
}

/// Cuts the prompt behind the text of its last message.
fn leave_open(rendered: &mut Rendered, text: &str) -> Result<(), ApiError> {
    let place = rendered.prompt.rfind(text).filter(|_| !text.is_empty());
    let Some(place) = place else {
        let sentence =
            "continue_final_message: the chat template does not show the last message's text as it stands";
        return Err(ApiError::invalid("continue_final_message", sentence));
    };
    rendered.cut(place + text.len());
    Ok(())
}
