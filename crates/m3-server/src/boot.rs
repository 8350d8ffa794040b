//! From options to a model that serves: folder, text side, backend, weights, pages, engine. Runs on its own thread;
//! every failure is a sentence and nothing is served.

use std::path::Path;
use std::time::Instant;

use anyhow::{bail, ensure};
use m3_abi::types::{DTYPE_BF16, DTYPE_F32, DTYPE_FP8_E4M3, PROBE_ENCODES, PROBE_KEEP_MAPPED};
use m3_abi::{Driver, ProbeReport, ProbeRequest};
use m3_core::engine::{EngineConfig, EngineHandle, MediaLimits, MediaSupport};
use m3_core::load::{LoadOptions, LoadedModel, MEDIA_CACHE_BYTES, Progress};
use m3_core::model::config::Quantization;

use crate::app::Serving;
use crate::args::{EngineOptions, ModelOptions, Options};
use crate::backends;
use crate::doctor;
use crate::info::{Computer, MemoryFacts, ServerInfo};
use crate::model::{SamplingDefaults, ServedModel, TextSide, forbidden_ids};
use crate::openai::generation::Limits;
use crate::place::{folder_name, model_dir};
use crate::plan::{self, MemoryPlan};
use crate::vision::{TextOnly, VisionSide};
use crate::weights::Weights;

/// Requests computed at once, when nothing is said.
const DEFAULT_MAX_RUNNING: usize = 64;
/// Tokens of a step, when nothing is said.
const DEFAULT_STEP_TOKENS: usize = 2048;

/// Loads everything.
pub fn boot(options: &Options, progress: &(dyn Fn(Progress) + Sync)) -> anyhow::Result<Serving> {
    let begun = Instant::now();
    progress(Progress::Opening);
    let dir = model_dir(&options.model)?;
    let config = dir.join("config.json");
    ensure!(config.is_file(), "{} is not there; a model is a folder with config.json", config.display());
    let text = match options.model.skip_tokenizer {
        true => None,
        false => Some(TextSide::load(&dir, &options.model)?),
    };
    if let Some(Err(error)) = text.as_ref().map(TextSide::grammars) {
        tracing::warn!("constrained output is not available: {error}");
    }
    let weights = Weights::open(&dir, options.model.dummy_weights)?;
    check(&weights, options)?;
    check_ids(&weights, text.as_ref())?;
    let opened = Instant::now();
    let OnDevices { computer, model: loaded, max_context, max_step_tokens } =
        load(&weights, options, progress)?;
    let memory = MemoryFacts {
        weight_bytes: loaded.weight_bytes,
        page_bytes: loaded.page_bytes,
        workspace_bytes: loaded.workspace_bytes,
        load_seconds: opened.elapsed().as_secs_f64(),
        startup_seconds: begun.elapsed().as_secs_f64(),
    };
    tracing::info!(
        "backend {}: {} pages of {} tokens, {} MiB of weights on each of {} ranks, context {max_context}",
        computer.backend,
        loaded.num_pages,
        weights.config().text.sparse.block_size,
        loaded.weight_bytes >> 20,
        loaded.ranks.len()
    );
    let model = served_model(&dir, &weights, text, options, (max_context, &loaded.media));
    if model.vision.as_ref().is_ok_and(|vision| vision.limits.videos > 0) {
        doctor::warn_without_landlock();
    }
    let config = engine_config(&weights, &model, &loaded, options);
    let config = EngineConfig { max_step_tokens, ..config };
    let held = held_quantization(&weights);
    let info = ServerInfo::new(computer, options, &config, weights.config_json(), held);
    let info = ServerInfo { memory, ..info };
    let engine = EngineHandle::start(config, loaded.ranks)?;
    Ok(Serving { model, engine, info })
}

/// What options and weights must agree on.
fn check(weights: &Weights, options: &Options) -> anyhow::Result<()> {
    let config = weights.config();
    let page = config.text.sparse.block_size;
    if let Some(asked) = options.engine.page_tokens {
        ensure!(
            asked == page,
            "--page-size is {asked}; this model's block size is {page}, and a page is one block"
        );
    }
    let longest = config.text.max_position_embeddings;
    if let Some(asked) = options.engine.context {
        ensure!(asked <= longest, "--context-length is {asked}; the model was made for {longest} tokens");
    }
    let held = held_quantization(weights);
    if let Some(asked) = &options.model.quantization {
        ensure!(asked == held, "--quantization is {asked}; the checkpoint holds {held}");
    }
    weights.report();
    Ok(())
}

fn held_quantization(weights: &Weights) -> &'static str {
    match weights.config().quantization {
        Quantization::None => "none",
        Quantization::Mxfp8 => "mxfp8",
    }
}

/// Token ids that the embedding and the logits have no row for would only fail inside a request, if at all.
fn check_ids(weights: &Weights, text: Option<&TextSide>) -> anyhow::Result<()> {
    let vocab_size = weights.config().text.vocab_size;
    if let Some(text) = text {
        let ids = text.tokenizer.vocab_len();
        ensure!(
            ids <= vocab_size,
            "the tokenizer has token ids up to {}; the model's vocabulary has {vocab_size} tokens",
            ids - 1
        );
    }
    let eos = &weights.generation().eos_token_ids;
    if let Some(id) = eos.iter().find(|id| **id as usize >= vocab_size) {
        bail!("eos_token_id {id} of generation_config.json is outside the vocabulary of {vocab_size} tokens");
    }
    Ok(())
}

/// What the backend computes with and keeps pages in must be what was asked for; named here as the flags name it.
fn check_dtypes(name: &str, chosen: &LoadOptions, report: &ProbeReport) -> anyhow::Result<()> {
    let named = |bits: u32| {
        let all = [(DTYPE_F32, "float32"), (DTYPE_BF16, "bfloat16"), (DTYPE_FP8_E4M3, "fp8")];
        let names = all.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name);
        names.collect::<Vec<_>>().join(", ")
    };
    for (flag, asked, able) in
        [("--dtype", chosen.dtype, report.dtypes), ("--kv-cache-dtype", chosen.kv_dtype, report.kv_dtypes)]
    {
        let (asked_name, able_names) = (named(asked), named(able));
        ensure!(asked & able != 0, "{flag} is {asked_name}; the backend {name} takes {able_names}");
    }
    Ok(())
}

/// A model on its devices, and what was settled on the way.
struct OnDevices {
    computer: Computer,
    model: LoadedModel,
    max_context: usize,
    /// As asked for, or less where memory did not allow it.
    max_step_tokens: usize,
}

/// Chooses a backend, loads the ranks, and settles how long a context may be.
fn load(
    weights: &Weights,
    options: &Options,
    progress: &(dyn Fn(Progress) + Sync),
) -> anyhow::Result<OnDevices> {
    let backend = &options.backend;
    let request = ProbeRequest { config: weights.config_json().to_vec(), tp: backend.tp, ep: backend.ep };
    let discovery = backends::find(backend, &request)?;
    for refused in discovery.refused() {
        tracing::info!("not used: {refused}");
    }
    let (driver, report) = discovery.chosen().map_err(anyhow::Error::msg)?;
    let longest = weights.config().text.max_position_embeddings;
    let wanted = options.engine.context.unwrap_or(longest);
    let page_memory_bytes = page_memory(weights, options, report)?;
    let load_options = LoadOptions { page_memory_bytes, ..load_options(options, report, wanted) };
    check_dtypes(driver.name(), &load_options, report)?;
    check_memory(weights, options, report, &load_options)?;
    let (model, max_step_tokens) = load_somehow(weights, driver, load_options, progress)?;
    let room = model.num_pages * weights.config().text.sparse.block_size;
    if options.engine.context.is_some() {
        ensure!(
            wanted <= room,
            "--context-length is {wanted}; {} pages hold {room} tokens, give more --kv-cache-memory-bytes",
            model.num_pages
        );
    }
    let computer = Computer::new(driver.name(), report);
    Ok(OnDevices { computer, model, max_context: wanted.min(room), max_step_tokens })
}

/// Says what memory is for before any is taken, and refuses what cannot fit.
fn check_memory(
    weights: &Weights,
    options: &Options,
    report: &ProbeReport,
    load_options: &LoadOptions,
) -> anyhow::Result<()> {
    let media_cache = media_cache(weights, options, report);
    let plan = MemoryPlan::new(weights.config(), report, load_options, media_cache)?;
    plan.lines().iter().for_each(|line| tracing::info!("{line}"));
    // Weights that stay in their files take no memory that others could not have.
    if report.flags & PROBE_KEEP_MAPPED == 0 {
        let share = options.backend.memory_share.is_some();
        let flag = if share { "--mem-fraction-static" } else { "--kv-cache-memory-bytes" };
        if let Some(refusal) = plan.refusal(load_options.tp, flag) {
            bail!(refusal);
        }
    }
    Ok(())
}

/// Bytes that encoded media may take of each rank.
fn media_cache(weights: &Weights, options: &Options, report: &ProbeReport) -> u64 {
    let encodes = report.flags & PROBE_ENCODES != 0 && weights.config().vision.is_some();
    match encodes && !options.model.text_only {
        true => options.engine.media_cache_bytes.unwrap_or(MEDIA_CACHE_BYTES),
        false => 0,
    }
}

/// Loads; where memory does not suffice, again with smaller steps and fewer pages, and says so.
fn load_somehow(
    weights: &Weights,
    driver: &dyn Driver,
    mut options: LoadOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> anyhow::Result<(LoadedModel, usize)> {
    loop {
        let error = match weights.load(driver, &options, progress) {
            Ok(model) => return Ok((model, options.max_step_tokens as usize)),
            Err(error) => error,
        };
        let Some(next) = plan::smaller(&options, &error) else { return Err(error.into()) };
        tracing::warn!(
            "{error}; trying again with --chunked-prefill-size {} and {} bytes for pages (0: what is left)",
            next.max_step_tokens,
            next.page_memory_bytes
        );
        options = next;
    }
}

/// Bytes for the pages of each rank; 0 lets the backend decide. Ranks that share a device share its memory.
fn page_memory(weights: &Weights, options: &Options, report: &ProbeReport) -> anyhow::Result<u64> {
    let backend = &options.backend;
    let Some(share) = backend.memory_share else { return Ok(backend.page_memory_bytes) };
    let total = report.memory_total_bytes;
    ensure!(
        total > 0,
        "--mem-fraction-static is {share}, but the backend does not say how much memory there is"
    );
    let ranks = if backend.solo.is_some() { 1 } else { backend.tp };
    let ranks_of_device = u64::from(ranks.div_ceil(report.num_devices.max(1)));
    let allowed = (total as f64 * share) as u64 / ranks_of_device;
    let bytes = weights.bytes()? / u64::from(backend.tp);
    ensure!(
        allowed > bytes,
        "--mem-fraction-static is {share}: {} MiB for each rank, and the weights alone take {} MiB",
        allowed >> 20,
        bytes >> 20
    );
    Ok(allowed - bytes)
}

fn load_options(options: &Options, report: &ProbeReport, context: usize) -> LoadOptions {
    let backend = &options.backend;
    let best = if report.dtypes & DTYPE_BF16 != 0 { DTYPE_BF16 } else { DTYPE_F32 };
    let dtype = if backend.dtype == 0 { best } else { backend.dtype };
    LoadOptions {
        dtype,
        kv_dtype: if backend.kv_dtype == 0 { dtype } else { backend.kv_dtype },
        tp: backend.tp,
        ep: backend.ep,
        solo: backend.solo,
        max_rows: max_running(&options.engine) as u32,
        max_step_tokens: max_step_tokens(&options.engine) as u32,
        max_context: context as u32,
        num_threads: backend.threads,
        max_logprobs: options.model.max_logprobs,
        ..LoadOptions::default()
    }
}

fn max_running(options: &EngineOptions) -> usize {
    options.max_running.unwrap_or(DEFAULT_MAX_RUNNING)
}

fn max_step_tokens(options: &EngineOptions) -> usize {
    options.max_step_tokens.unwrap_or(DEFAULT_STEP_TOKENS)
}

fn served_model(
    dir: &Path,
    weights: &Weights,
    text: Option<TextSide>,
    options: &Options,
    (max_context, support): (usize, &MediaSupport),
) -> ServedModel {
    let generation = weights.generation();
    let mut names = options.model.served_names.clone();
    if names.is_empty() {
        names.push(folder_name(dir));
    }
    let vocab_size = weights.config().text.vocab_size as u32;
    let id_of = |marker: &str| text.as_ref().and_then(|text| text.tokenizer.token_id(marker));
    let eos = if generation.eos_token_ids.is_empty() {
        id_of("[e~[").into_iter().collect()
    } else {
        generation.eos_token_ids.clone()
    };
    let runaway = ["]~b]", "]~!b["].into_iter().filter_map(id_of).collect();
    ServedModel {
        names,
        path: dir.to_owned(),
        created: crate::clock::since_1970().as_secs(),
        limits: Limits {
            vocab_size,
            max_logprobs: options.model.max_logprobs,
            max_choices: max_running(&options.engine).saturating_add(options.engine.max_queued),
            always_thinks: options.model.always_thinks,
        },
        max_context,
        sampling_defaults: match options.model.model_defaults {
            true => SamplingDefaults::of(generation),
            false => SamplingDefaults::neutral(),
        },
        eos_ids: eos,
        runaway_ids: runaway,
        forbidden_ids: forbidden_ids(
            text.as_ref().map(|text| text.tokenizer.as_ref()),
            vocab_size as usize,
            [weights.config().image_token_id, weights.config().video_token_id],
        ),
        random_seed: options.model.random_seed,
        vision: vision_side(weights, text.as_ref(), &options.model, support),
        template_kwargs: options.model.template_kwargs.clone(),
        text,
    }
}

/// What is taken besides text: what the checkpoint has, the backend runs and the operator wants.
fn vision_side(
    weights: &Weights,
    text: Option<&TextSide>,
    options: &ModelOptions,
    support: &MediaSupport,
) -> Result<VisionSide, TextOnly> {
    match support {
        MediaSupport::TextModel => return Err(TextOnly::Model),
        MediaSupport::TextBackend => return Err(TextOnly::Backend),
        MediaSupport::Encodes(_) if options.text_only => return Err(TextOnly::Operator),
        MediaSupport::Encodes(_) => {}
    }
    let tokenizer = text.map(|text| text.tokenizer.as_ref());
    VisionSide::of(weights.config(), tokenizer, options.size_rule, options.media_limits)
        .ok_or(TextOnly::Model)
}

fn engine_config(
    weights: &Weights,
    model: &ServedModel,
    loaded: &LoadedModel,
    options: &Options,
) -> EngineConfig {
    let config = weights.config();
    let vocab_size = config.text.vocab_size;
    EngineConfig {
        max_running: max_running(&options.engine),
        max_queued: options.engine.max_queued,
        max_step_tokens: max_step_tokens(&options.engine),
        max_context: model.max_context,
        page_tokens: config.text.sparse.block_size,
        num_pages: loaded.num_pages,
        prefix_cache: options.engine.prefix_cache,
        mixed_chunk: true,
        run_ahead: true,
        vocab_size,
        forbidden_tokens: model.forbidden_ids.clone(),
        max_logprobs: options.model.max_logprobs,
        media: media_support(loaded, options),
    }
}

/// What the loaded model and backend can do, with the budget that was asked for.
fn media_support(loaded: &LoadedModel, options: &Options) -> MediaSupport {
    match (loaded.media.clone(), options.engine.media_cache_bytes) {
        (MediaSupport::Encodes(limits), Some(cache_bytes)) => {
            MediaSupport::Encodes(MediaLimits { cache_bytes, ..limits })
        }
        (support, _) => support,
    }
}
