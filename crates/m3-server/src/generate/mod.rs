//! From checked requests to answers: submits to the engine, reads what comes back, and hands out events that both
//! streams and whole answers are made of. Dropping a [`Session`] aborts everything it asked for.

mod answer;
mod best;
mod choice;
mod feed;
pub mod masks;
mod pacer;
mod reasoning;
mod repetition;
mod sampling;
mod stop_regex;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::http::StatusCode;
use m3_core::request::{Medium, Refusal, Request, RequestId};
use m3_core::text::parse::{Markers, ParserOptions};
use tokio::time::Sleep;

use crate::app::{App, InFlight, Serving};
use crate::error::ApiError;
use crate::openai::generation::Generation;
use crate::running::Registered;
use crate::vision::{MediaTokens, Placed};
pub use answer::{Answer, AnswerOptions, OutputToken, Reason};
pub use best::{Best, choose};
pub use choice::{Choice, ChoiceEvent, Done, Output, Stop};
pub use feed::{Feed, FeedItem, Patience, QueueSink, Sent};
use masks::MaskSource;
pub use pacer::Pacer;
pub use reasoning::ReasoningShape;
pub use sampling::resolve_sampling;
pub use stop_regex::StopExpressions;

/// What to generate.
pub struct Job {
    /// Token ids; each prompt gets `answers` answers.
    pub prompts: Vec<Vec<u32>>,
    /// Images and videos of each prompt; shorter than `prompts` where the rest has none.
    pub media: Vec<Vec<Medium>>,
    /// Media's share of all prompts.
    pub media_tokens: MediaTokens,
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
            media: Vec::new(),
            media_tokens: MediaTokens::default(),
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

impl Job {
    /// Gives prompt `at` its media, and the tokens it has with them.
    pub fn set_media(&mut self, at: usize, placed: Placed) {
        if self.media.len() <= at {
            self.media.resize_with(at + 1, Vec::new);
        }
        self.prompts[at] = placed.ids;
        self.media[at] = placed.media;
        self.media_tokens.image += placed.tokens.image;
        self.media_tokens.video += placed.tokens.video;
    }
}

/// Running answers. Answer `p * answers + i` is the `i`th of prompt `p`.
pub struct Session {
    feed: Feed,
    choices: Vec<Choice>,
    /// The text itself may end an answer, so no token of it may wait.
    ends_itself: bool,
    _in_flight: InFlight,
    ids: Vec<RequestId>,
    registered: Option<Registered>,
    deadline: Option<Deadline>,
}

/// When an answer must have ended, and whether that has been.
enum Deadline {
    At(Pin<Box<Sleep>>),
    Over,
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
        app.metrics.asked(job.generation.n, job.generation.max_tokens);
        let mut requests = Vec::with_capacity(job.prompts.len() * job.answers as usize);
        for index in 0..job.prompts.len() {
            let max_tokens = resolve_max_tokens(job, job.prompts[index].len(), serving.model.max_context)?;
            let answers = 0..job.answers;
            requests.extend(answers.map(|at| request(app, serving, job, index, (max_tokens, at))));
        }
        let ids: Vec<RequestId> = requests.iter().map(|request| request.id).collect();
        let markers_from = job.parser.as_ref().map_or(u32::MAX, |parser| lowest_marker(&parser.markers));
        app.pacer.start();
        let limit = app.http.stream_buffer;
        let feed = Feed::submit_all(&serving.engine, &app.pacer, requests, limit, markers_from)?;
        let choice = |_: &RequestId| {
            let answer = Answer::new(serving.model.text.as_ref(), job.parser.clone(), job.answer.clone());
            Choice::new(answer, Arc::clone(app), job.received)
        };
        let choices = ids.iter().map(choice).collect();
        let stops = job.parser.as_ref().is_some_and(|parser| !parser.stop.is_empty());
        let stops = stops || job.answer.stop_expressions.is_some();
        let ends_itself = stops || job.answer.repetition.is_some() || !job.answer.parallel_tool_calls;
        let deadline = deadline(app, job);
        Ok(Session { feed, choices, ends_itself, _in_flight: in_flight, ids, registered: None, deadline })
    }

    /// Lets callers abort the answers by name: one name for all of them, or one for each prompt.
    pub fn named(mut self, app: &App, names: &[String]) -> Self {
        let each = self.ids.len().div_ceil(names.len().max(1)).max(1);
        let parts = names.iter().cloned().zip(self.ids.chunks(each).map(<[_]>::to_vec));
        self.registered = Some(app.running.register(parts.collect()));
        self
    }

    /// The next event of any answer as soon as it comes; `None` when all have ended.
    pub async fn next(&mut self) -> Option<(usize, ChoiceEvent)> {
        let next = |context: &mut Context<'_>| self.poll_next(context, Patience::AtOnce, None);
        std::future::poll_fn(next).await.map(|(index, event, _)| (index, event))
    }

    /// The next event, for a reader that needs nothing before the end.
    pub async fn next_of_whole(&mut self) -> Option<(usize, ChoiceEvent)> {
        let next = |context: &mut Context<'_>| self.poll_next(context, Patience::Whole, None);
        std::future::poll_fn(next).await.map(|(index, event, _)| (index, event))
    }

    /// The next event and when the engine sent it. While there is none, `patience` and `wake_at` are as in
    /// [`Feed::poll_next`]; an answer that text may end is read at once.
    pub fn poll_next(
        &mut self,
        context: &mut Context<'_>,
        patience: Patience,
        wake_at: Option<Instant>,
    ) -> Poll<Option<(usize, ChoiceEvent, Instant)>> {
        let late = match &mut self.deadline {
            None => false,
            Some(Deadline::Over) => return Poll::Ready(None),
            Some(Deadline::At(sleep)) => sleep.as_mut().poll(context).is_ready(),
        };
        if late {
            return Poll::Ready(Some(self.too_late()));
        }
        let patience = if self.ends_itself { Patience::AtOnce } else { patience };
        loop {
            let sent = std::task::ready!(self.feed.poll_next(context, patience, wake_at));
            let Some(Sent { index, item, at }) = sent else { return Poll::Ready(None) };
            let overflowed = matches!(item, FeedItem::End(_)) && self.feed.overflowed(index);
            let choice = &mut self.choices[index];
            let was_over = choice.is_over();
            let event = choice.take(item, at, overflowed);
            if choice.is_over() && !was_over {
                self.feed.abort(index);
            }
            if let Some(event) = event {
                return Poll::Ready(Some((index, event, at)));
            }
        }
    }

    /// Ends everything that is still being made.
    fn too_late(&mut self) -> (usize, ChoiceEvent, Instant) {
        self.deadline = Some(Deadline::Over);
        (0..self.choices.len()).for_each(|index| self.feed.abort(index));
        let sentence = "the answer was not complete within the time that --request-timeout allows";
        let late = ApiError::new(StatusCode::GATEWAY_TIMEOUT, sentence).with_code("deadline_exceeded");
        (0, ChoiceEvent::Failed(late), Instant::now())
    }

    /// Whether the next token of an answer may change more than the text that is being told.
    pub fn is_eager(&self, index: usize) -> bool {
        self.choices[index].is_eager()
    }
}

/// The lowest id of the markers; the highest id there is when none is a token.
fn lowest_marker(markers: &Markers) -> u32 {
    let Markers { namespace, think_open, think_close, tool_open, tool_close, .. } = markers;
    let all = [namespace, think_open, think_close, tool_open, tool_close];
    all.into_iter().filter_map(|marker| marker.token).min().unwrap_or(u32::MAX)
}

/// When an answer must have ended.
fn deadline(app: &App, job: &Job) -> Option<Deadline> {
    let limit = app.http.guard.deadline;
    let at = || Deadline::At(Box::pin(tokio::time::sleep_until((job.received + limit).into())));
    (!limit.is_zero()).then(at)
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

/// The `at`th answer to prompt `index`, of at most `max_tokens` tokens. All answers to a prompt share its media.
fn request(app: &App, serving: &Serving, job: &Job, index: usize, (max_tokens, at): (u32, u32)) -> Request {
    let id = RequestId(app.next_id());
    let generation = &job.generation;
    Request {
        id,
        prompt: job.prompts[index].clone(),
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
        media: job.media.get(index).cloned().unwrap_or_default(),
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
