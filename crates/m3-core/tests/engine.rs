//! The engine with its threads, over scripted ranks: many clients at once, bad clients, bad devices, and its ends.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use m3_abi::types::{Ready, WarmShape};
use m3_abi::{Backend, Error, Output, Result, Step, TensorView, Ticket};
use m3_core::engine::{EngineConfig, EngineError, EngineHandle, Health};
use m3_core::event::{Finish, FinishReason, RequestEvent, Sink, SinkError};
use m3_core::metrics::EngineStats;
use m3_core::request::{Refusal, Request, RequestId};
use support::{Random, expected, null_rank, small_config};

const PATIENCE: Duration = Duration::from_secs(20);

/// What a client has received.
struct Client {
    tokens: Receiver<u32>,
    finish: Receiver<Finish>,
}

/// Takes `room` events, then says it is full; its terminal event has its own way.
struct TestSink {
    tokens: Sender<u32>,
    finish: Sender<Finish>,
    room: usize,
}

impl Sink for TestSink {
    fn send(&mut self, event: RequestEvent) -> std::result::Result<(), SinkError> {
        self.room = self.room.checked_sub(1).ok_or(SinkError::Full)?;
        if let RequestEvent::Tokens(tokens) = event {
            tokens
                .iter()
                .try_for_each(|sampled| self.tokens.send(sampled.token))
                .map_err(|_| SinkError::Closed)?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>, finish: Finish) {
        let _ = self.finish.send(finish);
    }
}

fn client(room: usize) -> (Box<dyn Sink>, Client) {
    let (tokens, tokens_out) = channel();
    let (finish, finish_out) = channel();
    (Box::new(TestSink { tokens, finish, room }), Client { tokens: tokens_out, finish: finish_out })
}

impl Client {
    /// Tokens and the terminal event, of which there must be exactly one.
    fn end(&self) -> (Vec<u32>, Finish) {
        let finish = self.finish.recv_timeout(PATIENCE).expect("every request ends");
        assert!(self.finish.recv_timeout(PATIENCE).is_err(), "and only once");
        (self.tokens.try_iter().collect(), finish)
    }

    fn reason(&self) -> FinishReason {
        self.end().1.reason
    }
}

fn start(config: &EngineConfig, options: &str) -> EngineHandle {
    EngineHandle::start(config.clone(), vec![null_rank(config, 0, 1, options)]).unwrap()
}

fn request(id: u64, prompt_len: u32, max_tokens: u32) -> Request {
    let prompt = (0..prompt_len).map(|at| (at + id as u32) % 48).collect();
    let mut request = Request::new(RequestId(id), prompt, max_tokens);
    request.sampling.seed = Some(id);
    request
}

fn submit(engine: &EngineHandle, request: Request) -> Client {
    let (sink, client) = client(usize::MAX);
    engine.submit(request, sink).unwrap();
    client
}

fn assert_error(reason: &FinishReason, part: &str) {
    let FinishReason::Error(sentence) = reason else { panic!("{reason:?} is not an error") };
    assert!(sentence.contains(part), "{sentence:?} does not say {part:?}");
}

fn assert_idle(engine: &EngineHandle) {
    assert!(engine.wait_idle(PATIENCE));
    // The last terminal event is delivered a moment before the numbers are.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let stats = engine.stats();
        if stats.running + stats.waiting + stats.pages.leased + stats.steps_in_flight == 0 {
            return assert_eq!(stats.pages.free + stats.pages.cached, stats.pages.total);
        }
        assert!(Instant::now() < deadline, "{stats:?} is not idle");
        std::thread::yield_now();
    }
}

fn until(engine: &EngineHandle, holds: impl Fn(&EngineStats) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds(&engine.stats()) {
        assert!(Instant::now() < deadline, "{:?}", engine.stats());
        std::thread::yield_now();
    }
}

#[test]
fn sixty_four_clients_at_once_each_get_their_own_answer() {
    let config = EngineConfig { max_running: 12, max_step_tokens: 24, ..small_config() };
    let engine = start(&config, "{}");
    let threads: Vec<_> = (0..64)
        .map(|id| {
            let (engine, config) = (engine.clone(), config.clone());
            std::thread::spawn(move || {
                let (tokens, finish) = submit(&engine, request(id, 3 + id as u32 % 40, 20)).end();
                assert_eq!((tokens, finish.reason), expected(&config, &request(id, 3 + id as u32 % 40, 20)));
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_idle(&engine);
    let counters = engine.stats().counters;
    assert_eq!((counters.finished_length, counters.generated_tokens), (64, 64 * 20));
    assert!(engine.flush_cache());
    assert_eq!(engine.stats().counters.arrived, 64);
    engine.shutdown();
}

#[test]
fn a_client_that_never_reads_is_aborted_and_others_are_not() {
    let config = small_config();
    let engine = start(&config, "{}");
    let (sink, deaf) = client(3);
    engine.submit(request(1, 4, 50), sink).unwrap();
    let (sink, gone) = client(usize::MAX);
    let Client { finish: gone_finish, tokens } = gone;
    drop(tokens);
    engine.submit(request(2, 4, 50), sink).unwrap();
    let good = submit(&engine, request(3, 4, 50));
    let (tokens, finish) = deaf.end();
    assert_eq!((tokens.len(), finish.reason), (3, FinishReason::Aborted));
    assert_eq!(gone_finish.recv_timeout(PATIENCE).unwrap().reason, FinishReason::Aborted);
    assert_eq!(good.end().0, expected(&config, &request(3, 4, 50)).0);
    assert_idle(&engine);
}

#[test]
fn a_client_that_misses_the_last_token_is_not_told_all_is_well() {
    let engine = start(&small_config(), "{}");
    let (sink, deaf) = client(4);
    engine.submit(request(1, 4, 5), sink).unwrap();
    assert_eq!(deaf.reason(), FinishReason::Aborted);
    assert_idle(&engine);
}

#[test]
fn a_panic_inside_the_plugin_ends_everything_with_a_reason() {
    let engine = start(&small_config(), r#"{"panic_at": 5}"#);
    let clients: Vec<Client> = (0..20).map(|id| submit(&engine, request(id, 6, 40))).collect();
    for client in &clients {
        let reason = client.reason();
        assert_error(&reason, "rank 0 panicked");
        assert_error(&reason, "step 5 panics as asked");
    }
    let Health::Dead(reason) = engine.health() else { panic!("health is {:?}", engine.health()) };
    assert!(reason.contains("panics as asked"), "{reason}");
    let (sink, _client) = client(1);
    assert_eq!(engine.submit(request(99, 2, 2), sink), Err(Refusal::Dead(reason.clone())));
    assert_eq!(engine.stats().fatal, Some(reason));
    assert!(!engine.flush_cache());
    assert!(engine.wait_idle(PATIENCE));
    engine.shutdown();
}

#[test]
fn a_fatal_submit_ends_everything_with_a_reason() {
    let engine = start(&small_config(), r#"{"fault_at": 3}"#);
    let clients: Vec<Client> = (0..20).map(|id| submit(&engine, request(id, 6, 40))).collect();
    clients
        .iter()
        .for_each(|client| assert_error(&client.reason(), "rank 0 failed at step 3: step 3 fails as asked"));
    assert!(matches!(engine.health(), Health::Dead(_)));
}

/// A rank that fails in `wait`, or hangs there.
struct Failing {
    inner: Box<dyn Backend>,
    waits_left: usize,
    hangs: Option<Receiver<()>>,
}

impl Backend for Failing {
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
        self.inner.submit(step)
    }

    fn wait(&mut self, ticket: Ticket, output: &mut Output) -> Result<()> {
        if self.waits_left == 0 {
            if let Some(hangs) = &self.hangs {
                let _ = hangs.recv();
            }
            return Err(Error::Fatal("the device fell off the bus".to_owned()));
        }
        self.waits_left -= 1;
        self.inner.wait(ticket, output)
    }

    fn done(&mut self) -> Result<Ticket> {
        self.inner.done()
    }
}

fn two_ranks(config: &EngineConfig, waits_left: usize, hangs: Option<Receiver<()>>) -> EngineHandle {
    let second = Failing { inner: null_rank(config, 1, 2, "{}"), waits_left, hangs };
    EngineHandle::start(config.clone(), vec![null_rank(config, 0, 2, "{}"), Box::new(second)]).unwrap()
}

#[test]
fn two_ranks_take_the_same_steps_and_give_one_answer() {
    let config = small_config();
    let engine = two_ranks(&config, usize::MAX, None);
    let clients: Vec<Client> = (0..30).map(|id| submit(&engine, request(id, 5, 20))).collect();
    for (id, client) in clients.iter().enumerate() {
        assert_eq!(client.end().0, expected(&config, &request(id as u64, 5, 20)).0);
    }
    assert_idle(&engine);
    engine.shutdown();
    assert!(matches!(engine.health(), Health::Dead(reason) if reason == "the engine was shut down"));
}

#[test]
fn a_dead_rank_poisons_all_and_is_named() {
    let engine = two_ranks(&small_config(), 4, None);
    let clients: Vec<Client> = (0..10).map(|id| submit(&engine, request(id, 5, 40))).collect();
    for client in &clients {
        assert_error(&client.reason(), "rank 1 failed at step 5: the device fell off the bus");
    }
    assert!(matches!(engine.health(), Health::Dead(_)));
}

#[test]
fn a_stalled_device_shows_and_asking_does_not_wait() {
    let (release, hangs) = channel();
    let engine = two_ranks(&small_config(), 2, Some(hangs));
    let client = submit(&engine, request(1, 5, 40));
    let deadline = Instant::now() + PATIENCE;
    while engine.stats().oldest_step_us < 50_000 {
        assert!(Instant::now() < deadline, "{:?}", engine.stats());
        std::thread::sleep(Duration::from_millis(5));
    }
    let asked = Instant::now();
    assert_eq!(engine.health(), Health::Serving);
    assert!(engine.stats().running == 1 && asked.elapsed() < Duration::from_millis(100));
    drop(release);
    assert_error(&client.reason(), "fell off the bus");
}

#[test]
fn not_a_number_in_one_row_ends_that_request_only() {
    let config = EngineConfig { max_running: 4, ..small_config() };
    let engine = start(&config, r#"{"nan_row": 2}"#);
    let clients: Vec<Client> = (0..4).map(|id| submit(&engine, request(id, 5, 10))).collect();
    let mut faults = 0;
    for (id, client) in clients.iter().enumerate() {
        let (tokens, finish) = client.end();
        match finish.reason {
            FinishReason::Error(sentence) => {
                assert!(sentence.contains("not numbers"), "{sentence}");
                faults += 1;
            }
            reason => assert_eq!((tokens, reason), expected(&config, &request(id as u64, 5, 10))),
        }
    }
    // Whoever gets the row after it is hit as well, so at least one and never all.
    assert!((1..4).contains(&faults), "{faults} faults");
    assert_eq!(engine.health(), Health::Serving);
    assert_idle(&engine);
}

#[test]
fn abort_storms_leave_nothing_behind() {
    let config = EngineConfig { num_pages: 30, max_context: 80, ..small_config() };
    let engine = start(&config, r#"{"step_us": 50}"#);
    let mut random = Random::new(3);
    let mut clients = Vec::new();
    for id in 0..500 {
        let (prompt_len, max_tokens) = (random.between(1, 30) as u32, random.between(1, 40) as u32);
        clients.push((submit(&engine, request(id, prompt_len, max_tokens)), prompt_len, max_tokens));
        for _ in 0..random.between(0, 2) {
            engine.abort(RequestId(random.between(0, id + 1)));
        }
        if random.chance(5) {
            std::thread::sleep(Duration::from_micros(random.between(10, 2000)));
        }
    }
    for (id, (client, prompt_len, max_tokens)) in clients.iter().enumerate() {
        let (tokens, finish) = client.end();
        let (all, _) = expected(&config, &request(id as u64, *prompt_len, *max_tokens));
        match finish.reason {
            FinishReason::Aborted => assert_eq!(tokens, all[..tokens.len()]),
            FinishReason::Length => assert_eq!(tokens, all),
            reason => panic!("{reason:?}"),
        }
    }
    assert_idle(&engine);
    let counters = engine.stats().counters;
    assert_eq!((counters.arrived, counters.finished()), (500, 500));
    assert!(counters.finished_aborted > 50);
    assert!(engine.flush_cache());
}

#[test]
fn draining_lets_admitted_requests_end_and_refuses_new_ones() {
    let config = small_config();
    let engine = start(&config, r#"{"step_us": 500}"#);
    let clients: Vec<Client> = (0..20).map(|id| submit(&engine, request(id, 5, 20))).collect();
    engine.drain();
    assert_eq!(engine.health(), Health::Draining);
    let (sink, refused) = client(9);
    assert_eq!(engine.submit(request(50, 2, 2), sink), Err(Refusal::Draining));
    assert!(refused.finish.recv().is_err(), "a refused request's sink hears nothing");
    assert!(engine.wait_idle(PATIENCE));
    for (id, client) in clients.iter().enumerate() {
        assert_eq!(client.end().0, expected(&config, &request(id as u64, 5, 20)).0);
    }
}

#[test]
fn a_shutdown_ends_all_and_dropping_the_handle_does_not() {
    let config = small_config();
    let engine = start(&config, r#"{"step_us": 1000}"#);
    let clients: Vec<Client> = (0..20).map(|id| submit(&engine, request(id, 5, 80))).collect();
    engine.shutdown();
    clients.iter().for_each(|client| assert_error(&client.reason(), "shut down"));
    engine.shutdown();
    let engine = start(&config, "{}");
    let client = submit(&engine, request(1, 5, 60));
    drop(engine);
    assert_eq!(client.reason(), FinishReason::Length);
}

#[test]
fn ids_in_use_and_full_queues_are_refused() {
    let config = EngineConfig { max_running: 2, max_queued: 3, ..small_config() };
    let engine = start(&config, r#"{"step_us": 2000}"#);
    let clients: Vec<Client> = (0..4).map(|id| submit(&engine, request(id, 5, 40))).collect();
    let refuse = |id| engine.submit(request(id, 5, 40), client(1).0).unwrap_err();
    assert_eq!(refuse(2), Refusal::DuplicateId(2));
    let fifth = submit(&engine, request(4, 5, 1));
    until(&engine, |stats| stats.running == 2);
    assert_eq!(refuse(5), Refusal::QueueFull { num_requests: 1, queued: 3, max_queued: 3 });
    let too_long = engine.submit(request(6, 97, 0), client(1).0).unwrap_err();
    assert_eq!(too_long.to_string(), "the prompt has 97 tokens; this server accepts contexts of 96 tokens");
    clients.iter().enumerate().for_each(|(id, _)| engine.abort(RequestId(id as u64)));
    assert_eq!(fifth.reason(), FinishReason::Length);
    // An id is free again once its request has ended.
    assert_eq!(submit(&engine, request(4, 5, 1)).reason(), FinishReason::Length);
}

type Submission = (Request, Box<dyn Sink>);

fn batch(ids: std::ops::Range<u64>) -> (Vec<Submission>, Vec<Client>) {
    ids.map(|id| {
        let (sink, client) = client(usize::MAX);
        ((request(id, 5, 40), sink), client)
    })
    .unzip()
}

#[test]
fn a_request_with_too_many_choices_takes_no_place_from_others() {
    let config = EngineConfig { max_running: 2, max_queued: 3, ..small_config() };
    let engine = start(&config, r#"{"step_us": 300}"#);
    let (too_many, refused) = batch(100..106);
    let refusal = engine.submit_all(too_many).unwrap_err();
    assert_eq!(refusal, Refusal::BatchTooLarge { num_requests: 6, most: 5 });
    assert!(
        refusal.to_string().contains("6 answers") && refusal.to_string().contains("up to 5"),
        "{refusal}"
    );
    let clients: Vec<Client> = (0..3).map(|id| submit(&engine, request(id, 5, 90))).collect();
    until(&engine, |stats| stats.running == 2);
    let (three, also_refused) = batch(200..203);
    let full = Refusal::QueueFull { num_requests: 3, queued: 1, max_queued: 3 };
    assert_eq!(engine.submit_all(three), Err(full), "one waits, not those that came with it");
    for client in refused.iter().chain(&also_refused) {
        assert!(client.finish.recv().is_err(), "a refused request's sink hears nothing");
    }
    let (two, admitted) = batch(300..302);
    engine.submit_all(two).unwrap();
    for client in clients.iter().chain(&admitted) {
        assert_eq!(client.reason(), FinishReason::Length);
    }
    assert_idle(&engine);
    assert_eq!(engine.stats().counters.arrived, 5, "nothing of a refused batch reached the engine");
}

#[test]
fn one_bad_choice_or_a_double_id_refuses_the_whole_batch() {
    let engine = start(&small_config(), "{}");
    let (mut bad, _clients) = batch(0..3);
    bad[2].0.prompt.clear();
    assert_eq!(engine.submit_all(bad), Err(Refusal::EmptyPrompt));
    let (mut double, _clients) = batch(0..3);
    double[2].0.id = RequestId(1);
    assert_eq!(engine.submit_all(double), Err(Refusal::DuplicateId(1)));
    assert_eq!(engine.submit_all(Vec::new()), Ok(()));
    let (good, clients) = batch(0..3);
    engine.submit_all(good).unwrap();
    clients.iter().for_each(|client| assert_eq!(client.reason(), FinishReason::Length));
    assert_idle(&engine);
}

#[test]
fn aborted_waiters_free_their_places_while_the_device_is_busy() {
    let config = EngineConfig { max_running: 1, max_queued: 4, ..small_config() };
    let (release, hangs) = channel();
    let engine = two_ranks(&config, 3, Some(hangs));
    let first = submit(&engine, request(1, 5, 40));
    until(&engine, |stats| stats.running == 1);
    // Some reach the scheduler before the device hangs, some stay at the gate: no step ends from here on.
    let (waiters, waiting) = batch(10..12);
    engine.submit_all(waiters).unwrap();
    until(&engine, |stats| stats.oldest_step_us > 50_000);
    let (late, waiting_late) = batch(12..14);
    engine.submit_all(late).unwrap();
    let (more, _clients) = batch(20..24);
    let full = Refusal::QueueFull { num_requests: 4, queued: 4, max_queued: 4 };
    assert_eq!(engine.submit_all(more), Err(full));
    (10..14).for_each(|id| engine.abort(RequestId(id)));
    // Twice is once.
    (10..14).for_each(|id| engine.abort(RequestId(id)));
    let (more, admitted) = batch(20..24);
    engine.submit_all(more).expect("the places of aborted waiters are free at once");
    let (one, _clients) = batch(30..31);
    let full = Refusal::QueueFull { num_requests: 1, queued: 4, max_queued: 4 };
    assert_eq!(engine.submit_all(one), Err(full), "and only theirs");
    drop(release);
    for client in waiting.iter().chain(&waiting_late).chain(&admitted).chain([&first]) {
        assert!(matches!(client.reason(), FinishReason::Error(_) | FinishReason::Aborted));
    }
    assert!(engine.wait_idle(PATIENCE), "everyone heard of the end");
}

#[test]
fn a_request_aborted_before_the_engine_saw_it_is_counted_and_told_once() {
    let config = EngineConfig { max_running: 1, ..small_config() };
    let engine = start(&config, r#"{"step_us": 20000}"#);
    let first = submit(&engine, request(1, 5, 80));
    until(&engine, |stats| stats.running == 1);
    for _ in 0..30 {
        let waiter = submit(&engine, request(2, 7, 10));
        engine.abort(RequestId(2));
        let again = submit(&engine, request(3, 7, 10));
        engine.abort(RequestId(3));
        let (tokens, finish) = waiter.end();
        assert_eq!((tokens.len(), finish.reason), (0, FinishReason::Aborted));
        assert_eq!((finish.usage.prompt_tokens, finish.usage.output_tokens), (7, 0));
        assert_eq!(again.reason(), FinishReason::Aborted);
    }
    assert_eq!(first.reason(), FinishReason::Length);
    assert_idle(&engine);
    let counters = engine.stats().counters;
    assert_eq!((counters.arrived, counters.finished(), counters.finished_aborted), (61, 61, 60));
}

#[test]
fn a_dead_engine_holds_no_pages_and_no_rows() {
    // One dies while its results are awaited, one by a panic of the plugin, one when a step is handed over.
    let engines = [
        two_ranks(&small_config(), 4, None),
        start(&small_config(), r#"{"panic_at": 5}"#),
        start(&small_config(), r#"{"fault_at": 6}"#),
    ];
    for engine in engines {
        let (requests, clients) = batch(0..10);
        engine.submit_all(requests).unwrap();
        clients.iter().for_each(|client| assert_error(&client.reason(), "step"));
        let stats = engine.stats();
        assert_eq!((stats.running, stats.waiting, stats.steps_in_flight), (0, 0, 0), "{stats:?}");
        assert_eq!((stats.pages.leased, stats.oldest_step_us), (0, 0), "{stats:?}");
        assert_eq!(stats.pages.free + stats.pages.cached, stats.pages.total);
        assert!(stats.fatal.is_some());
    }
}

#[test]
fn many_answers_to_one_prompt_cost_one_prompt() {
    let config = small_config();
    let engine = start(&config, "{}");
    let choice = |id| Request { prompt: request(7, 41, 9).prompt, ..request(id, 1, 9) };
    let (sinks, clients): (Vec<_>, Vec<_>) = (0..6).map(|_| client(usize::MAX)).unzip();
    engine.submit_all((0..6).map(choice).zip(sinks).collect()).unwrap();
    for (id, client) in (0..6).zip(&clients) {
        assert_eq!(client.end().0, expected(&config, &choice(id)).0);
    }
    assert_eq!(engine.stats().counters.cached_tokens, 5 * 40);
}

#[test]
fn requests_without_a_seed_differ() {
    let config = small_config();
    let engine = start(&config, "{}");
    let answers: Vec<Vec<u32>> = (0..4)
        .map(|id| {
            let mut request = request(0, 5, 30);
            request.sampling.seed = None;
            request.id = RequestId(id);
            submit(&engine, request).end().0
        })
        .collect();
    for (index, answer) in answers.iter().enumerate() {
        assert!(!answers[..index].contains(answer), "answers {answers:?}");
    }
}

/// A client whose code panics.
struct Panicking(Arc<Mutex<usize>>);

impl Sink for Panicking {
    fn send(&mut self, _event: RequestEvent) -> std::result::Result<(), SinkError> {
        panic!("a client's bug");
    }

    fn finish(self: Box<Self>, _finish: Finish) {
        *self.0.lock().unwrap() += 1;
    }
}

#[test]
fn a_panic_of_the_engine_itself_ends_everything_with_a_reason() {
    let engine = start(&small_config(), r#"{"step_us": 300}"#);
    let clients: Vec<Client> = (0..20).map(|id| submit(&engine, request(id, 5, 90))).collect();
    let finishes = Arc::new(Mutex::new(0));
    engine
        .submit(Request { priority: -1, ..request(50, 3, 3) }, Box::new(Panicking(finishes.clone())))
        .unwrap();
    clients.iter().for_each(|client| assert_error(&client.reason(), "the engine panicked: a client's bug"));
    assert!(engine.wait_idle(PATIENCE));
    assert_eq!(*finishes.lock().unwrap(), 1);
    assert!(matches!(engine.health(), Health::Dead(_)));
}

#[test]
fn settings_that_make_no_sense_do_not_start() {
    let config = small_config();
    assert!(matches!(EngineHandle::start(config.clone(), vec![]), Err(EngineError::NoRanks)));
    let config = EngineConfig { num_pages: 0, ..config };
    let error = EngineHandle::start(config, vec![]).err().unwrap();
    assert_eq!(error.to_string(), "num_pages is 0; it must be between 1 and 2^32 - 2");
}
