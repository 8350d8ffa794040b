//! What the scheduler's and the engine's tests share: scripted ranks, and the tokens they must produce, worked out
//! one request at a time without any scheduler.

#![allow(dead_code, reason = "each test program uses its part")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use backend_null::NullDriver;
use backend_null::distribution::{Draw, START, chain, drawn_rank, favourite, mix, token_at};
use m3_abi::types::DTYPE_F32;
use m3_abi::{Backend, Driver, OpenRequest};
use m3_core::engine::{EngineConfig, MediaLimits, MediaSupport};
use m3_core::event::FinishReason;
use m3_core::request::{Medium, MediumRun, Request, TokenMask};

/// Reserved and warmed; `options` is the object under `m3_null`.
pub(crate) fn null_rank(config: &EngineConfig, rank: u32, tp: u32, options: &str) -> Box<dyn Backend> {
    let vocab = config.vocab_size;
    let request = OpenRequest {
        rank,
        tp,
        ep: 1,
        dtype: DTYPE_F32,
        kv_dtype: DTYPE_F32,
        max_rows: config.max_running as u32,
        max_step_tokens: config.max_step_tokens as u32,
        max_context: config.max_context as u32,
        page_tokens: config.page_tokens as u32,
        max_logprobs: config.max_logprobs,
        config: format!(r#"{{"vocab_size": {vocab}, "m3_null": {options}}}"#).into_bytes(),
        comm_id: b"null".to_vec(),
        ..OpenRequest::default()
    };
    let mut backend = NullDriver.open(&request).unwrap();
    assert!(backend.ready().unwrap().max_pages >= config.num_pages as u64);
    backend.reserve(config.num_pages as u64).unwrap();
    backend.warm(&[]).unwrap();
    backend
}

/// A small engine: 4 tokens a page, 64 pages.
pub(crate) fn small_config() -> EngineConfig {
    EngineConfig {
        max_running: 8,
        max_queued: 10_000,
        max_step_tokens: 16,
        max_context: 96,
        page_tokens: 4,
        num_pages: 64,
        prefix_cache: true,
        mixed_chunk: true,
        run_ahead: true,
        vocab_size: 50,
        forbidden_tokens: vec![48, 49],
        max_logprobs: 4,
        media: MediaSupport::Encodes(media_limits()),
    }
}

/// Patches of two values, 2 x 2 of them a row of 8 bytes, videos cut after two temporal patches.
pub(crate) fn media_limits() -> MediaLimits {
    MediaLimits {
        row_len: 2,
        merge_size: 2,
        segment_frames: 2,
        row_bytes: 8,
        cache_bytes: 4096,
        patches_per_step: 16,
    }
}

/// What stands at every position of a picture, whatever it shows.
pub(crate) const SLOT: u32 = 47;

/// A picture or video that shows `content`. Appends its slots to `prompt`, frame by frame with a token between.
pub(crate) fn show(prompt: &mut Vec<u32>, content: u32, grid: [u32; 3]) -> Medium {
    let [t, h, w] = grid;
    let (frame, num_values) = (h * w / 4, (t * h * w) as usize * 2);
    let mut runs = Vec::new();
    for at in 0..t {
        prompt.extend((at > 0).then_some(at % 40));
        runs.push(MediumRun { first_position: prompt.len() as u32, len: frame });
        prompt.extend((0..frame).map(|_| SLOT));
    }
    let patches: Vec<f32> = (0..num_values).map(|at| content as f32 + at as f32 / 1024.0).collect();
    let mut digest = [0; 32];
    digest[..4].copy_from_slice(&content.to_le_bytes());
    for (to, side) in digest[8..].chunks_exact_mut(4).zip(grid) {
        to.copy_from_slice(&side.to_le_bytes());
    }
    Medium { digest, patches: patches.into(), row_len: 2, grid, runs }
}

/// What the scripted device reads at each position of the prompt: tokens, or rows of encoded media.
fn inputs(request: &Request) -> Vec<u64> {
    let mut inputs: Vec<u64> = request.prompt.iter().map(|token| u64::from(*token)).collect();
    for medium in &request.media {
        let [_, h, w] = medium.grid;
        let (piece, frame) = (media_limits().segment_frames as u32, h * w / 4);
        let rows = medium.runs.iter().flat_map(|run| run.first_position..run.first_position + run.len);
        for (row, position) in rows.enumerate() {
            let values = medium.patches.chunks((piece * h * w) as usize * medium.row_len);
            let values = values.into_iter().nth(row / (piece * frame) as usize).unwrap();
            let bits = |before, value: &f32| chain(before, u64::from(value.to_bits()));
            let content = values.iter().fold(START, bits);
            let row = row as u64 % u64::from(piece * frame);
            let token = u64::from(request.prompt[position as usize]);
            inputs[position as usize] = mix(content ^ mix(row << 32 | token)) >> 1;
        }
    }
    inputs
}

/// A grammar for tests: the sum of two tokens in a row is not a multiple of 3.
pub(crate) struct SumRule {
    last: u32,
    vocab_size: usize,
}

impl SumRule {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        SumRule { last: 0, vocab_size: config.vocab_size }
    }

    fn allows(last: u32, token: u32) -> bool {
        !(last + token).is_multiple_of(3)
    }
}

impl TokenMask for SumRule {
    fn fill(&mut self, words: &mut [u32]) {
        assert!(words.iter().all(|word| *word == 0));
        for token in (0..self.vocab_size as u32).filter(|token| Self::allows(self.last, *token)) {
            words[token as usize / 32] |= 1 << (token % 32);
        }
    }

    fn accept(&mut self, token: u32) {
        assert!(Self::allows(self.last, token), "{token} after {}", self.last);
        self.last = token;
    }
}

/// All outputs, a stop id included, and the reason for the end, when nobody interferes. A request with a mask is
/// taken to have a [`SumRule`].
pub(crate) fn expected(config: &EngineConfig, request: &Request) -> (Vec<u32>, FinishReason) {
    let vocab = config.vocab_size as u32;
    let sampling = &request.sampling;
    let draw = Draw {
        seed: sampling.seed.expect("tests choose their seeds"),
        temperature: sampling.temperature,
        top_k: sampling.top_k,
        top_p: sampling.top_p,
        min_p: sampling.min_p,
    };
    let step = |end: u64, token: &u32| chain(end, u64::from(*token));
    let mut end = inputs(request).into_iter().fold(START, chain);
    let mut outputs = Vec::new();
    let limit = (config.max_context - request.prompt.len()).min(request.max_tokens as usize);
    while outputs.len() < limit {
        let index = outputs.len() as u32;
        let last = outputs.last().copied().unwrap_or(0);
        let ruled_out = |token: &u32| request.mask.is_some() && !SumRule::allows(last, *token);
        let barred = |token: &u32| index < request.min_tokens && request.stop_token_ids.contains(token);
        let first = drawn_rank(&draw, index, vocab);
        let ranked = (0..vocab).map(|next| token_at((first + next) % vocab, favourite(end, vocab), vocab));
        let mut allowed = ranked
            .filter(|token| !barred(token) && !ruled_out(token) && !config.forbidden_tokens.contains(token));
        let token = allowed.next().expect("something is allowed");
        outputs.push(token);
        if request.stop_token_ids.contains(&token) {
            return (outputs, FinishReason::Stop { token });
        }
        end = step(end, &token);
    }
    (outputs, FinishReason::Length)
}

/// A generator of test cases (xorshift); equal seeds give equal cases.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// `low..=high`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }
}
