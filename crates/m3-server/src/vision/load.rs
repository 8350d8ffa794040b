//! From parts to prepared media: fetched under the policy, decoded in the pool, resized and cut into patches off the
//! threads that serve sockets. A part that fails ends its own request, with its path in the sentence.

use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use m3_media::geometry::Geometry;
use m3_media::prepare::{self, Plan, Prepared};
use m3_media::resize::resize;
use m3_media::sample::Sampling;
use m3_media::size::{Rule, Size};
use m3_media::{Error, Meta, Picture, digest};

use super::{MediaKind, MediaPart, Placed, Placer, VisionSide};
use crate::app::{App, Serving};
use crate::error::ApiError;
use crate::generate::Job;
use crate::media;

/// Parts of one request that are worked on at once.
const AT_ONCE: usize = 4;

/// The same error as an answer about the part at `path`.
pub(super) fn refused(path: &str, error: &Error) -> ApiError {
    let refusal = media::refusal(path, error);
    ApiError { message: format!("{path}: {}", refusal.message), ..refusal }
}

/// 400 unless the model takes all of `parts`; nothing is fetched yet.
pub fn check<'a>(serving: &'a Serving, parts: &[MediaPart]) -> Result<&'a VisionSide, ApiError> {
    let Some(first) = parts.first() else { return Err(ApiError::engine("there are no media to check")) };
    let vision = serving.model.vision.as_ref().map_err(|why| {
        let sentence = format!("{} is {} input; {why}", first.path, article(first.kind));
        ApiError::unsupported(&first.path, sentence)
    })?;
    for kind in MediaKind::ALL {
        let (mut of_kind, limit) = (parts.iter().filter(|part| part.kind == kind), vision.limits.of(kind));
        if let Some(over) = of_kind.clone().nth(limit) {
            let (count, word) = (of_kind.by_ref().count(), kind.word());
            let sentence =
                format!("the request has {count} {word}s; this server takes {limit} ({})", over.path);
            return Err(ApiError::invalid(&over.path, sentence));
        }
    }
    for part in parts {
        let told = |error: &Error| refused(&part.path, error);
        vision.rule(part.kind, part.options.max_long_side).map_err(|error| told(&error))?;
        part.options.sampling().check().map_err(|error| told(&error))?;
    }
    Ok(vision)
}

fn article(kind: MediaKind) -> &'static str {
    match kind {
        MediaKind::Image => "an image",
        MediaKind::Video => "a video",
    }
}

/// Fetches, decodes and prepares all parts, in their order.
pub async fn load(app: &Arc<App>, parts: &[MediaPart]) -> Result<Vec<(MediaKind, Prepared)>, ApiError> {
    let vision = check(app.serving()?, parts)?;
    let ready = stream::iter(parts.to_vec()).map(|part| {
        let (app, vision) = (Arc::clone(app), vision.clone());
        async move {
            let prepared = one(&app, &part, &vision).await;
            prepared.map(|prepared| (part.kind, prepared)).map_err(|error| refused(&part.path, &error))
        }
    });
    ready.buffered(AT_ONCE).try_collect().await
}

/// What a medium is prepared by.
struct Recipe {
    rule: Rule,
    sampling: Sampling,
    geometry: Geometry,
    /// Of a whole context: what is larger is refused before it is resized.
    max_tokens: usize,
}

async fn one(app: &App, part: &MediaPart, vision: &VisionSide) -> m3_media::Result<Prepared> {
    let recipe = Recipe {
        rule: vision.rule(part.kind, part.options.max_long_side)?,
        sampling: part.options.sampling(),
        geometry: vision.geometry,
        max_tokens: app.loaded().map_or(0, |serving| serving.model.max_context),
    };
    match part.kind {
        MediaKind::Image => {
            let (bytes, picture) = app.media.image(&part.source).await?;
            off_thread(move || {
                let file = digest::of_file(&bytes);
                prepare::image(&picture, &file, recipe.rule, &recipe.geometry, recipe.max_tokens)
            })
            .await
        }
        MediaKind::Video => video(app, part, recipe).await,
    }
}

/// Frames are chosen by what the video says of itself, and each is resized as it comes: a long video need not fit into
/// memory at full size.
async fn video(app: &App, part: &MediaPart, recipe: Recipe) -> m3_media::Result<Prepared> {
    let limit = app.http.media.policy.limits.max_chosen_frames;
    let (mut unfit, mut from) = (None, None);
    let choose = |video: &Meta| {
        let chosen = recipe.sampling.choose(video, limit).and_then(|chosen| {
            let size = Size { height: video.height, width: video.width };
            Plan::new(chosen.len(), size, recipe.rule, &recipe.geometry, recipe.max_tokens)?;
            Ok(chosen)
        });
        chosen.unwrap_or_else(|error| {
            unfit = Some(error);
            Vec::new()
        })
    };
    let each = |frame: Picture| {
        let size = *from.get_or_insert(frame.size());
        resize(&frame, recipe.rule.apply(size, recipe.geometry.unit())?)
    };
    let decoded = app.media.video(&part.source, choose, each).await;
    if let Some(error) = unfit {
        return Err(error);
    }
    let (bytes, clip) = decoded?;
    let from = from.ok_or_else(|| Error::Shape("the video has no frame".to_owned()))?;
    off_thread(move || {
        let file = digest::of_file(&bytes);
        let ways = (recipe.rule, recipe.sampling);
        prepare::video(&clip, (&file, from), ways, &recipe.geometry, recipe.max_tokens)
    })
    .await
}

async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> m3_media::Result<T> + Send + 'static,
) -> m3_media::Result<T> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.unwrap_or_else(|_| Err(Error::Internal("preparing a medium failed".to_owned())))
}

/// Gives the job's prompts the media of their parts. Prompt `i` shows `parts[i]`; without parts nothing changes.
pub async fn add_media(
    app: &Arc<App>,
    job: &mut Job,
    parts: &[Vec<MediaPart>],
    param: &str,
) -> Result<(), ApiError> {
    for (at, parts) in parts.iter().enumerate().filter(|(_, parts)| !parts.is_empty()) {
        let placed = place(app, &job.prompts[at], parts, param).await?;
        job.set_media(at, placed);
    }
    Ok(())
}

/// Loads the parts and gives them their places in a prompt; errors about counts name `param`.
pub async fn place(
    app: &Arc<App>,
    prompt: &[u32],
    parts: &[MediaPart],
    param: &str,
) -> Result<Placed, ApiError> {
    let media = load(app, parts).await?;
    place_loaded(app, prompt, media, param)
}

/// Gives media that are loaded their places in a prompt; errors about counts name `param`.
pub fn place_loaded(
    app: &App,
    prompt: &[u32],
    media: Vec<(MediaKind, Prepared)>,
    param: &str,
) -> Result<Placed, ApiError> {
    let serving = app.serving()?;
    let vision = serving.model.vision.as_ref();
    let vision = vision.map_err(|why| ApiError::engine(format!("there are media, and {why}")))?;
    let Some(side) = &serving.model.text else {
        return Placer { vision, encode: None, param }.place(prompt, media);
    };
    let encode = |text: &str| {
        let ids = side.tokenizer.encode_ordinary(text);
        ids.map_err(|error| ApiError::engine(format!("a time cannot be encoded: {error}")))
    };
    Placer { vision, encode: Some(&encode), param }.place(prompt, media)
}
