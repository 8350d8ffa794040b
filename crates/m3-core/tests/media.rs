//! Images and videos through the engine, on a scripted device whose tokens depend on every row it is shown.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use m3_abi::types::{MediaSpan, Ready, WarmShape};
use m3_abi::{Backend, Error, Media, Output, Result, Step, TensorView, Ticket};
use m3_core::engine::{EngineConfig, EngineHandle, MediaLimits, MediaSupport};
use m3_core::event::{Finish, FinishReason, RequestEvent, Sink, SinkError};
use m3_core::request::{Medium, MediumRun, Refusal, Request, RequestId};
use m3_core::scheduler::Scheduler;
use support::{SLOT, expected, media_limits, null_rank, show, small_config};

/// All tokens in one go, at the end.
struct Answer {
    tokens: Vec<u32>,
    to: Sender<(Vec<u32>, Finish)>,
}

impl Sink for Answer {
    fn send(&mut self, event: RequestEvent) -> std::result::Result<(), SinkError> {
        if let RequestEvent::Tokens(tokens) = event {
            self.tokens.extend(tokens.iter().map(|sampled| sampled.token));
        }
        Ok(())
    }

    fn finish(self: Box<Self>, finish: Finish) {
        let _ = self.to.send((self.tokens, finish));
    }
}

fn submit(engine: &EngineHandle, request: Request) -> Receiver<(Vec<u32>, Finish)> {
    let (to, answer) = channel();
    engine.submit(request, Box::new(Answer { tokens: Vec::new(), to })).unwrap();
    answer
}

fn ask(engine: &EngineHandle, request: Request) -> (Vec<u32>, Finish) {
    submit(engine, request).recv_timeout(Duration::from_secs(20)).expect("every request ends")
}

fn start(config: &EngineConfig) -> EngineHandle {
    EngineHandle::start(config.clone(), vec![null_rank(config, 0, 1, "{}")]).unwrap()
}

fn with_limits(change: impl FnOnce(&mut MediaLimits)) -> EngineConfig {
    let mut limits = media_limits();
    change(&mut limits);
    EngineConfig { media: MediaSupport::Encodes(limits), ..small_config() }
}

/// "Look at" media, "and say".
fn question(id: u64, shown: &[(u32, [u32; 3])]) -> Request {
    let mut prompt = vec![1, 2, 3, 4, 5, 6];
    let media = shown.iter().map(|&(content, grid)| show(&mut prompt, content, grid)).collect();
    prompt.extend([7, 8, 9]);
    let mut request = Request::new(RequestId(id), prompt, 6);
    request.sampling.seed = Some(1);
    request.sampling.temperature = 0.0;
    request.media = media;
    request
}

const PICTURE: [u32; 3] = [1, 4, 4];

#[test]
fn h1_h10_another_picture_under_the_same_tokens_shares_nothing_from_its_page_on() {
    let config = small_config();
    let engine = start(&config);
    let (first, second) = (question(1, &[(1, PICTURE)]), question(2, &[(2, PICTURE)]));
    assert_eq!(first.prompt, second.prompt);
    let wanted = (expected(&config, &first).0, expected(&config, &second).0);
    assert_ne!(wanted.0, wanted.1);
    assert_eq!(ask(&engine, first).0, wanted.0);
    let (tokens, finish) = ask(&engine, second);
    assert_eq!(tokens, wanted.1);
    // Pages of 4: the picture begins at position 6, in the second page.
    assert_eq!(finish.usage.cached_tokens, 4);
    let (tokens, finish) = ask(&engine, question(3, &[(1, PICTURE)]));
    assert_eq!(tokens, wanted.0);
    assert_eq!(finish.usage.cached_tokens, 12, "the same picture's pages are shared");
    engine.shutdown();
}

#[test]
fn h2_hundreds_of_pictures_under_one_question_keep_their_own_answers() {
    let config = EngineConfig { num_pages: 400, ..with_limits(|limits| limits.cache_bytes = 1 << 20) };
    let engine = start(&config);
    let requests: Vec<Request> = (0..300).map(|id| question(id, &[(id as u32, PICTURE)])).collect();
    let wanted: Vec<Vec<u32>> = requests.iter().map(|request| expected(&config, request).0).collect();
    let answers: Vec<_> = requests.into_iter().map(|request| submit(&engine, request)).collect();
    for (answer, wanted) in answers.iter().zip(&wanted) {
        assert_eq!(answer.recv_timeout(Duration::from_secs(20)).unwrap().0, *wanted);
    }
    // Again, when all of them are known.
    for id in 0..300 {
        let (tokens, _) = ask(&engine, question(1000 + id, &[(id as u32, PICTURE)]));
        assert_eq!(tokens, wanted[id as usize]);
    }
    assert_eq!(engine.stats().counters.media_encodes, 300, "each is encoded once");
    engine.shutdown();
}

#[test]
fn h8_salts_and_pictures_each_keep_prefixes_apart() {
    let config = small_config();
    let engine = start(&config);
    for (id, salt) in [(1, None), (2, Some(&b"a"[..])), (3, Some(b"b"))] {
        let request = Request { cache_salt: salt.map(<[u8]>::to_vec), ..question(id, &[(1, PICTURE)]) };
        assert_eq!(ask(&engine, request).1.usage.cached_tokens, 0, "salt {salt:?}");
    }
    let again = Request { cache_salt: Some(b"a".to_vec()), ..question(4, &[(1, PICTURE)]) };
    assert_eq!(ask(&engine, again).1.usage.cached_tokens, 12);
    let other = Request { cache_salt: Some(b"a".to_vec()), ..question(5, &[(2, PICTURE)]) };
    assert_eq!(ask(&engine, other).1.usage.cached_tokens, 4);
    engine.shutdown();
}

#[test]
fn g12_three_pictures_of_different_size_and_a_video_in_one_message() {
    let config = small_config();
    let engine = start(&config);
    let request = question(1, &[(1, PICTURE), (2, [1, 2, 2]), (3, [1, 2, 6]), (4, [5, 2, 2])]);
    let wanted = expected(&config, &request);
    let (tokens, finish) = ask(&engine, request);
    assert_eq!((tokens, finish.reason), wanted);
    let counters = engine.stats().counters;
    // The video of five frames is three pieces.
    assert_eq!((counters.media_encodes, counters.media_patches), (6, 16 + 4 + 12 + 20));
    engine.shutdown();
}

#[test]
fn chunks_may_end_inside_pictures() {
    for max_step_tokens in [1, 2, 3, 5, 7] {
        let config = EngineConfig { max_step_tokens, ..small_config() };
        let engine = start(&config);
        let request = question(1, &[(1, PICTURE), (2, [3, 2, 4])]);
        let wanted = expected(&config, &request).0;
        assert_eq!(ask(&engine, request).0, wanted, "chunks of {max_step_tokens}");
        engine.shutdown();
    }
}

#[test]
fn a_picture_that_lost_its_place_is_encoded_again() {
    // Room for one picture of 4 rows, no cached prefixes: every turn needs its rows.
    let config = EngineConfig { prefix_cache: false, ..with_limits(|limits| limits.cache_bytes = 32) };
    let engine = start(&config);
    for id in 0..6 {
        let request = question(id, &[(id as u32 % 2, PICTURE), (7, PICTURE)]);
        let wanted = expected(&config, &request).0;
        assert_eq!(ask(&engine, request).0, wanted);
    }
    let stats = engine.stats();
    assert_eq!((stats.counters.media_encodes, stats.counters.media_hits), (12, 0));
    assert_eq!((stats.media.bytes, stats.media.budget_bytes, stats.media.held), (32, 32, 0));
    assert_eq!(stats.counters.media_evictions, 11);
    engine.shutdown();
}

#[test]
fn many_pictures_at_once_in_little_room_all_get_on() {
    let config = EngineConfig { prefix_cache: false, ..with_limits(|limits| limits.cache_bytes = 40) };
    let engine = start(&config);
    let requests: Vec<Request> =
        (0..24).map(|id| question(id, &[(id as u32 % 5, PICTURE), (9, [5, 2, 2])])).collect();
    let wanted: Vec<Vec<u32>> = requests.iter().map(|request| expected(&config, request).0).collect();
    let answers: Vec<_> = requests.into_iter().map(|request| submit(&engine, request)).collect();
    for (answer, wanted) in answers.iter().zip(wanted) {
        assert_eq!(answer.recv_timeout(Duration::from_secs(20)).unwrap().0, wanted);
    }
    engine.shutdown();
}

#[test]
fn flushing_the_cache_forgets_encoded_media() {
    let config = small_config();
    let engine = start(&config);
    ask(&engine, question(1, &[(1, PICTURE)]));
    assert!(engine.flush_cache());
    let (_, finish) = ask(&engine, question(2, &[(1, PICTURE)]));
    assert_eq!(finish.usage.cached_tokens, 0);
    assert_eq!(engine.stats().counters.media_encodes, 2);
    engine.shutdown();
}

/// What a rank does differently.
#[derive(Clone, Copy, Default)]
struct Quirks {
    /// Media that begin with this value are refused.
    refuses: Option<f32>,
    /// Added to every handle.
    handle_offset: u64,
    dies: bool,
}

struct Quirky {
    inner: Box<dyn Backend>,
    quirks: Quirks,
    held: Arc<Mutex<Vec<u64>>>,
}

impl Backend for Quirky {
    fn load(&mut self, tensor: &TensorView<'_>) -> Result<()> {
        self.inner.load(tensor)
    }
    fn ready(&mut self) -> Result<Ready> {
        self.inner.ready()
    }
    fn reserve(&mut self, num_pages: u64) -> Result<()> {
        self.inner.reserve(num_pages)
    }
    fn warm(&mut self, shapes: &[WarmShape]) -> Result<()> {
        self.inner.warm(shapes)
    }
    fn submit(&mut self, step: &Step<'_>) -> Result<Ticket> {
        let offset = self.quirks.handle_offset;
        let own = |span: &MediaSpan| MediaSpan { handle: span.handle - offset, ..*span };
        let media: Vec<MediaSpan> = step.media.iter().map(own).collect();
        self.inner.submit(&Step { media: &media, ..*step })
    }
    fn wait(&mut self, ticket: Ticket, output: &mut Output) -> Result<()> {
        self.inner.wait(ticket, output)
    }
    fn done(&mut self) -> Result<Ticket> {
        self.inner.done()
    }
    fn encode(&mut self, patches: &[f32], row_len: usize, grids: &[[u32; 3]]) -> Result<Media> {
        if self.quirks.dies {
            return Err(Error::Fatal("the device is gone".to_owned()));
        }
        if self.quirks.refuses == Some(patches[0]) {
            return Err(Error::Unsupported("a picture of nothing".to_owned()));
        }
        let media = self.inner.encode(patches, row_len, grids)?;
        let handle = media.handle + self.quirks.handle_offset;
        self.held.lock().unwrap().push(handle);
        Ok(Media { handle, ..media })
    }
    fn media_free(&mut self, handle: u64) -> Result<()> {
        self.held.lock().unwrap().retain(|held| *held != handle);
        self.inner.media_free(handle - self.quirks.handle_offset)
    }
}

type Held = Arc<Mutex<Vec<u64>>>;

/// Two ranks; the second has `quirks`. And what each still holds.
fn two_ranks(config: &EngineConfig, quirks: Quirks) -> (EngineHandle, [Held; 2]) {
    let held: [Held; 2] = Default::default();
    let rank = |rank: u32, quirks: Quirks| {
        let (inner, held) = (null_rank(config, rank, 2, "{}"), held[rank as usize].clone());
        Box::new(Quirky { inner, quirks, held }) as Box<dyn Backend>
    };
    let ranks = vec![rank(0, Quirks::default()), rank(1, quirks)];
    (EngineHandle::start(config.clone(), ranks).unwrap(), held)
}

#[test]
fn g4_a_picture_that_cannot_be_encoded_ends_its_own_request_and_no_other() {
    let config = small_config();
    let (engine, held) = two_ranks(&config, Quirks { refuses: Some(13.0), ..Quirks::default() });
    let bad: Vec<_> = (0..3).map(|id| submit(&engine, question(id, &[(13, PICTURE)]))).collect();
    let good = question(10, &[(1, PICTURE)]);
    let wanted = expected(&config, &good).0;
    let good = submit(&engine, good);
    for answer in bad {
        let (tokens, finish) = answer.recv_timeout(Duration::from_secs(20)).unwrap();
        let FinishReason::Error(sentence) = finish.reason else { panic!("{finish:?}") };
        assert_eq!(sentence, "the backend refused a medium: a picture of nothing");
        assert!(tokens.is_empty());
    }
    assert_eq!(good.recv_timeout(Duration::from_secs(20)).unwrap().0, wanted);
    // Text and pictures go on as if nothing had been.
    let text = question(11, &[]);
    let wanted = expected(&config, &text).0;
    assert_eq!(ask(&engine, text).0, wanted);
    engine.flush_cache();
    ask(&engine, question(12, &[]));
    let held = held.map(|held| held.lock().unwrap().len());
    assert_eq!(held, [0, 0], "rank 0 freed what rank 1 had refused, and both what was flushed");
    engine.shutdown();
}

#[test]
fn ranks_may_name_media_as_they_like() {
    let config = small_config();
    let (engine, _) = two_ranks(&config, Quirks { handle_offset: 1000, ..Quirks::default() });
    let request = question(1, &[(1, PICTURE), (2, [5, 2, 2])]);
    let wanted = expected(&config, &request).0;
    assert_eq!(ask(&engine, request).0, wanted);
    engine.shutdown();
}

#[test]
fn a_device_that_dies_at_a_picture_ends_every_request() {
    let config = small_config();
    let (engine, _) = two_ranks(&config, Quirks { dies: true, ..Quirks::default() });
    let (_, finish) = ask(&engine, question(1, &[(1, PICTURE)]));
    let FinishReason::Error(sentence) = finish.reason else { panic!("{finish:?}") };
    assert_eq!(sentence, "rank 1 failed to encode a medium: the device is gone");
}

fn refusal(config: &EngineConfig, change: impl FnOnce(&mut Request)) -> String {
    let mut request = question(1, &[(1, PICTURE), (2, PICTURE)]);
    change(&mut request);
    match config.check(&request) {
        Err(refusal) => refusal.to_string(),
        Ok(()) => panic!("{request:?} was not refused"),
    }
}

fn broken(change: impl FnOnce(&mut Medium)) -> String {
    refusal(&small_config(), |request| change(&mut request.media[1]))
}

#[test]
fn media_that_do_not_fit_are_refused_with_the_value_and_the_limit() {
    let text_model = EngineConfig { media: MediaSupport::TextModel, ..small_config() };
    assert_eq!(
        refusal(&text_model, |_| {}),
        "this model takes text only; it has no vision tower for images and videos"
    );
    assert!(text_model.check(&question(1, &[])).is_ok());
    let text_backend = EngineConfig { media: MediaSupport::TextBackend, ..small_config() };
    let sentence = "this server takes text only; its backend encodes no images and no videos";
    assert_eq!(refusal(&text_backend, |_| {}), sentence);
    assert_eq!(
        broken(|medium| medium.row_len = 3),
        "medium 1 of this request cannot be used: its patches have 3 values each; those of this model have 2"
    );
    assert!(broken(|medium| medium.grid = [1, 3, 4]).ends_with(
        "its grid is 1 x 3 x 4 patches; no side may be 0, height and width must be multiples of 2"
    ));
    assert!(broken(|medium| medium.grid = [0, 4, 4]).contains("0 x 4 x 4"));
    assert!(broken(|medium| medium.grid = [u32::MAX - 1; 3]).contains("its grid needs 18446744073709551615"));
    assert!(broken(|medium| medium.grid = [2, 4, 4]).ends_with("it has 32 patch values; its grid needs 64"));
    assert!(
        broken(|medium| medium.runs[0].len = 3)
            .ends_with("3 positions of the prompt are for its rows; its grid makes 4 rows")
    );
    let outside = MediumRun { first_position: 15, len: 4 };
    assert!(
        broken(|medium| medium.runs = vec![outside]).contains("from 15 is empty, out of order or outside")
    );
    let backwards = vec![MediumRun { first_position: 12, len: 2 }, MediumRun { first_position: 10, len: 2 }];
    assert!(broken(|medium| medium.runs = backwards).contains("2 positions from 10 is empty, out of order"));
    let overlapping = MediumRun { first_position: 9, len: 4 };
    assert!(
        broken(|medium| medium.runs = vec![overlapping]).ends_with("from position 9 overlaps one before it")
    );
    let around = vec![MediumRun { first_position: 5, len: 1 }, MediumRun { first_position: 10, len: 3 }];
    assert!(
        broken(|medium| medium.runs = around)
            .ends_with("from position 10 comes after another medium has begun; media must follow each other")
    );
    let little = with_limits(|limits| limits.cache_bytes = 31);
    assert!(
        refusal(&little, |_| {})
            .ends_with("32 bytes of it must be on the device at once; this server keeps up to 31")
    );
    let wrong = refusal(&small_config(), |request| request.media[0].runs[0].first_position = u32::MAX);
    assert!(wrong.starts_with("medium 0 of this request"), "{wrong}");
    assert!(matches!(small_config().check(&question(1, &[(1, PICTURE)])), Ok::<(), Refusal>(())));
    assert_eq!(question(1, &[(1, PICTURE)]).prompt[6..10], [SLOT; 4]);
}

#[test]
fn a_budget_of_nothing_is_no_engine() {
    let config = with_limits(|limits| limits.patches_per_step = 0);
    let error = config.validate().unwrap_err().to_string();
    assert_eq!(error, "media.patches_per_step is 0; it must be at least 1");
}

#[test]
fn a_long_video_is_encoded_piece_by_piece_between_the_steps_of_others() {
    let config = with_limits(|limits| limits.patches_per_step = 8);
    let mut scheduler = Scheduler::new(config);
    let mut talk = question(1, &[]);
    talk.max_tokens = 40;
    scheduler.arrive(talk, 0);
    let step = scheduler.plan(1).unwrap();
    scheduler.complete(step.id, &step.output_of(3), 2);
    scheduler.arrive(question(2, &[(1, [12, 2, 2])]), 3);
    let mut pieces = 0;
    for turn in 0..12 {
        let work = scheduler.media_work();
        assert!(work.encodes.len() <= 1, "one piece of eight patches ahead of a step");
        for encode in &work.encodes {
            assert_eq!((encode.grid, encode.num_rows, encode.values.len()), ([2, 2, 2], 2, 16));
            scheduler.encoded(encode, Ok(16), 4);
        }
        pieces += work.encodes.len();
        let step = scheduler.plan(5).unwrap();
        assert_eq!((step.seqs[0].row, step.seqs[0].num_tokens), (0, 1), "turn {turn} keeps the talk going");
        scheduler.complete(step.id, &step.output_of(3), 6);
        scheduler.audit().unwrap();
    }
    assert_eq!(pieces, 6);
    assert_eq!(scheduler.stats().media.held, 0, "the video has been read to its end");
}

/// Results in which every row sampled `token`.
trait OutputOf {
    fn output_of(&self, token: u32) -> Output;
}

impl OutputOf for m3_core::scheduler::Step {
    fn output_of(&self, token: u32) -> Output {
        let mut output = self.output();
        output.tokens.fill(token);
        output
    }
}
