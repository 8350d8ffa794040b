//! From checked requests to answers: submits to the engine, reads what comes back, and hands out events that both
//! streams and whole answers are made of. Dropping a [`Session`] aborts everything it asked for.

mod answer;
mod best;
mod choice;
mod feed;
pub mod masks;
mod reasoning;
mod repetition;
mod sampling;

use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt;
use futures_util::stream::{BoxStream, SelectAll};
use m3_core::request::{Refusal, Request, RequestId};
use m3_core::text::parse::ParserOptions;

use crate::app::{App, InFlight, Serving};
use crate::error::ApiError;
use crate::openai::generation::Generation;
use crate::running::Registered;
pub use answer::{Answer, AnswerOptions, OutputToken, Reason};
pub use best::{Best, choose};
pub use choice::{Choice, ChoiceEvent, Done, Output, Stop};
pub use feed::{ChannelSink, Feed, FeedItem};
use masks::MaskSource;
pub use reasoning::ReasoningShape;
pub use sampling::resolve_sampling;

/// What to generate.
pub struct Job {
    /// Token ids; each prompt gets `answers` answers.
    pub prompts: Vec<Vec<u32>>,
    /// `n`, or `best_of` where the route can choose among them.
    pub answers: u32,
    pub generation: Generation,
    /// When the request names no limit; still cut to the room in the context. `None` = all the room.
    pub default_max_tokens: Option<u32>,
    pub logprobs: Option<u32>,
    pub prompt_logprobs: Option<u32>,
    /// How output text is read; `None` = ids only.
    pub parser: Option<ParserOptions>,
    pub answer: AnswerOptions,
    /// What may be sampled; each answer gets a mask of its own from every one of them.
    pub masks: Vec<Arc<dyn MaskSource>>,
    pub received: Instant,
}

impl Job {
    /// A job that only generates: no scores, no text, no masks.
    pub fn new(prompts: Vec<Vec<u32>>, generation: Generation, received: Instant) -> Self {
        let answer = AnswerOptions::of(&generation);
        Job {
            prompts,
            answers: generation.n,
            generation,
            default_max_tokens: None,
            logprobs: None,
            prompt_logprobs: None,
            parser: None,
            answer,
            masks: Vec::new(),
            received,
        }
    }
}

/// Running answers. Answer `p * answers + i` is the `i`th of prompt `p`.
pub struct Session {
    events: SelectAll<BoxStream<'static, (usize, ChoiceEvent)>>,
    _in_flight: InFlight,
    ids: Vec<RequestId>,
    registered: Option<Registered>,
}

impl Session {
    /// Submits everything or nothing.
    pub fn start(app: &Arc<App>, job: &Job) -> Result<Self, ApiError> {
        let serving = app.serving()?;
        if job.generation.best_of > job.answers {
            let sentence = "best_of cannot be honoured: this route gives every answer that is made";
            return Err(ApiError::unsupported("best_of", sentence));
        }
        let in_flight = app.enter()?;
        let mut requests = Vec::with_capacity(job.prompts.len() * job.answers as usize);
        for prompt in &job.prompts {
            let max_tokens = resolve_max_tokens(job, prompt.len(), serving.model.max_context)?;
            let answers = 0..job.answers;
            requests.extend(answers.map(|at| request(app, serving, job, prompt, (max_tokens, at))));
        }
        let ids = requests.iter().map(|request| request.id).collect();
        let feeds = Feed::submit_all(&serving.engine, requests, app.http.stream_buffer)?;
        let choices = feeds.into_iter().map(|feed| {
            let answer = Answer::new(serving.model.text.as_ref(), job.parser.clone(), job.answer.clone());
            Choice::new(feed, answer, Arc::clone(app), job.received)
        });
        let mut events = SelectAll::new();
        for (index, choice) in choices.enumerate() {
            events.push(choice.into_events().map(move |event| (index, event)).boxed());
        }
        Ok(Session { events, _in_flight: in_flight, ids, registered: None })
    }

    /// Lets callers abort the answers by name: one name for all of them, or one for each prompt.
    pub fn named(mut self, app: &App, names: &[String]) -> Self {
        let each = self.ids.len().div_ceil(names.len().max(1)).max(1);
        let parts = names.iter().cloned().zip(self.ids.chunks(each).map(<[_]>::to_vec));
        self.registered = Some(app.running.register(parts.collect()));
        self
    }

    /// The next event of any answer; `None` when all have ended.
    pub async fn next(&mut self) -> Option<(usize, ChoiceEvent)> {
        self.events.next().await
    }
}

/// 400 when a prompt leaves no room for its answer, as [`Session::start`] would say it.
pub fn check_room(app: &App, job: &Job) -> Result<(), ApiError> {
    let max_context = app.serving()?.model.max_context;
    for prompt in &job.prompts {
        if prompt.len() > max_context {
            return Err(Refusal::PromptTooLong { prompt_tokens: prompt.len(), max_context }.into());
        }
        resolve_max_tokens(job, prompt.len(), max_context)?;
    }
    Ok(())
}

/// The `at`th answer to `prompt`, of at most `max_tokens` tokens.
fn request(app: &App, serving: &Serving, job: &Job, prompt: &[u32], (max_tokens, at): (u32, u32)) -> Request {
    let id = RequestId(app.next_id());
    let generation = &job.generation;
    Request {
        id,
        prompt: prompt.to_vec(),
        sampling: resolve_sampling(generation, &serving.model, at, id.0),
        max_tokens,
        min_tokens: generation.min_tokens.min(max_tokens),
        stop_token_ids: serving.model.stop_ids_for(generation),
        // Which answers are best is told by the scores of their tokens.
        logprobs: job.logprobs.or((job.answers > generation.n).then_some(0)),
        prompt_logprobs: job.prompt_logprobs,
        cache_salt: generation.cache_salt.as_ref().map(|salt| salt.as_bytes().to_vec()),
        priority: generation.priority,
        mask: masks::start(&job.masks, &serving.model.eos_ids),
        media: Vec::new(),
    }
}

/// Without a limit an answer may fill the context; an explicit limit that does not fit is refused with both numbers.
fn resolve_max_tokens(job: &Job, prompt_tokens: usize, max_context: usize) -> Result<u32, ApiError> {
    let room = max_context.saturating_sub(prompt_tokens).min(u32::MAX as usize) as u32;
    if prompt_tokens == max_context && job.generation.max_tokens != Some(0) {
        let sentence = format!(
            "the prompt has {prompt_tokens} tokens and this server's context is {max_context} tokens; it needs room \
             for at least one more token"
        );
        return Err(ApiError::invalid("prompt", sentence).with_code("context_length_exceeded"));
    }
    match job.generation.max_tokens {
        // The engine answers a prompt that is longer than the context.
        None => Ok(job.default_max_tokens.unwrap_or(u32::MAX).min(room).max(1)),
        Some(asked) if asked <= room || prompt_tokens >= max_context => Ok(asked),
        Some(asked) => {
            let sentence = format!(
                "the prompt has {prompt_tokens} tokens and max_tokens is {asked}, {} in all; this server's context \
                 is {max_context} tokens",
                prompt_tokens as u64 + u64::from(asked)
            );
            Err(ApiError::invalid("max_tokens", sentence).with_code("context_length_exceeded"))
        }
    }
}
