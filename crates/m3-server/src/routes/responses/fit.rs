//! Making a conversation fit: with `truncation: auto` the fewest oldest turns are left out, and what they show with
//! them. Nothing is left out silently; the response says how many messages were.

use std::sync::Arc;
use std::time::Instant;

use m3_media::prepare::Prepared;
use serde_json::Value;

use crate::app::App;
use crate::error::ApiError;
use crate::generate::{Job, check_room};
use crate::openai::chat_request::ChatRequest;
use crate::responses::ResponsesRequest;
use crate::routes::chat::prepare;
use crate::routes::{blocking, one_answer};
use crate::vision::{self, MediaKind, MediaPart};

/// A request and its rendered conversation.
pub(super) struct Fitted {
    pub request: ResponsesRequest,
    pub chat: ChatRequest,
    pub job: Job,
    /// Messages that were left out so that it fits.
    pub left_out: usize,
    /// The first message that was kept, but for the system's.
    cut: usize,
    received: Instant,
}

/// Images and videos of the whole conversation: the paths of their parts, and once they are loaded their pixels.
#[derive(Default)]
struct Shown {
    parts: Vec<MediaPart>,
    loaded: Option<Vec<(MediaKind, Prepared)>>,
}

/// What became of a conversation that was cut at some message.
type Attempt = Result<(ChatRequest, Job, usize), ApiError>;

/// Renders; the text alone has to fit here, since nothing is fetched yet.
pub(super) fn fit_text(app: &App, request: ResponsesRequest, received: Instant) -> Result<Fitted, ApiError> {
    let mut shown = Shown::default();
    let (mut cut, mut best) = (0, attempt(app, (&request, received), 0, &mut shown));
    if is_too_long(&best) && request.truncate {
        (cut, best) = search(app, (&request, received), 0, &mut shown).unwrap_or((0, best));
    }
    let (chat, job, left_out) = best.map_err(|error| request.renames.apply(error))?;
    Ok(Fitted { request, chat, job, left_out, cut, received })
}

/// Loads what the conversation shows and gives it its places in the prompt; turns that do not fit with it are left out
/// as well.
pub(super) async fn fit_media(app: &Arc<App>, mut fitted: Fitted) -> Result<Fitted, ApiError> {
    if fitted.chat.media.is_empty() {
        return Ok(fitted);
    }
    let parts = fitted.chat.media.clone();
    let loaded = vision::load(app, &parts).await.map_err(|error| fitted.request.renames.apply(error))?;
    let app = Arc::clone(app);
    let place = move || {
        let mut shown = Shown { parts, loaded: Some(loaded) };
        let placed = show(&app, &mut fitted.chat, &mut fitted.job, &shown);
        let mut outcome = placed.and_then(|()| check_room(&app, &fitted.job));
        if is_too_long(&outcome) && fitted.request.truncate {
            let found = search(&app, (&fitted.request, fitted.received), fitted.cut, &mut shown);
            if let Some((cut, attempt)) = found {
                outcome = attempt.map(|(chat, job, left_out)| {
                    (fitted.chat, fitted.job, fitted.left_out, fitted.cut) = (chat, job, left_out, cut);
                });
            }
        }
        outcome.map_err(|error| fitted.request.renames.apply(error))?;
        Ok(fitted)
    };
    blocking(place).await
}

fn is_too_long<T>(outcome: &Result<T, ApiError>) -> bool {
    outcome.as_ref().is_err_and(|error| error.code == Some("context_length_exceeded"))
}

/// The first cut beyond `from` that fits, and what it came to; `None` when none does. Fewer turns always fit better, so
/// it is found by halving.
fn search(
    app: &App,
    request: (&ResponsesRequest, Instant),
    from: usize,
    shown: &mut Shown,
) -> Option<(usize, Attempt)> {
    let mut cuts = turns(messages(request.0));
    cuts.retain(|cut| *cut > from);
    let mut best = None;
    while !cuts.is_empty() {
        let middle = cuts.len() / 2;
        let outcome = attempt(app, request, cuts[middle], shown);
        if is_too_long(&outcome) {
            cuts.drain(..=middle);
        } else {
            best = Some((cuts[middle], outcome));
            cuts.truncate(middle);
        }
    }
    best
}

/// Renders what is left behind `cut`. The whole conversation, cut at 0, tells `shown` its parts.
fn attempt(
    app: &App,
    (request, received): (&ResponsesRequest, Instant),
    cut: usize,
    shown: &mut Shown,
) -> Attempt {
    let all = messages(request);
    let kept = without(all, cut);
    let left_out = all.len() - kept.len();
    let mut body = request.chat.clone();
    body.insert("messages".to_owned(), Value::Array(kept));
    let (mut chat, mut job) = prepare(app, Value::Object(body), received)?;
    one_answer(&chat)?;
    if cut == 0 {
        shown.parts.clone_from(&chat.media);
    }
    show(app, &mut chat, &mut job, shown)?;
    check_room(app, &job)?;
    Ok((chat, job, left_out))
}

/// Gives the parts of a conversation that may be cut their paths in the request, and their media if they are loaded.
/// What is left out is the oldest, so these are the last ones.
fn show(app: &App, chat: &mut ChatRequest, job: &mut Job, shown: &Shown) -> Result<(), ApiError> {
    let first = shown.parts.len().checked_sub(chat.media.len());
    let kept = first.map(|first| &shown.parts[first..]).unwrap_or_default();
    let same = |(one, other): (&MediaPart, &MediaPart)| {
        (one.kind, &one.source, one.options) == (other.kind, &other.source, other.options)
    };
    if kept.len() != chat.media.len() || !kept.iter().zip(&chat.media).all(same) {
        return Err(ApiError::engine("a shortened conversation shows other media than the whole one's last"));
    }
    chat.media = kept.to_vec();
    if let (Some(loaded), Some(first)) = (&shown.loaded, first)
        && !chat.media.is_empty()
    {
        let placed = vision::place_loaded(app, &job.prompts[0], loaded[first..].to_vec(), "messages")?;
        job.set_media(0, placed);
    }
    Ok(())
}

fn messages(request: &ResponsesRequest) -> &[Value] {
    request.chat["messages"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn is_system(message: &Value) -> bool {
    matches!(message["role"].as_str(), Some("system" | "developer" | "root"))
}

/// Where a conversation may be cut: before a user's message, so that no call loses its result.
fn turns(messages: &[Value]) -> Vec<usize> {
    let user = |at: &usize| messages[*at]["role"] == "user";
    (0..messages.len()).filter(user).skip(1).collect()
}

fn without(messages: &[Value], cut: usize) -> Vec<Value> {
    let kept = messages.iter().enumerate().filter(|(at, message)| *at >= cut || is_system(message));
    kept.map(|(_, message)| message.clone()).collect()
}
