//! The scheduler under random load with its own clock, against a backend that is Fatal on every broken rule and whose
//! tokens depend on every page it reads. After every turn the books are audited; at the end every request must have
//! had exactly one terminal event, with the tokens it would have had alone.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::{BTreeMap, HashMap, VecDeque};

use m3_abi::types::{FAULT_NAN, MediaSpan};
use m3_abi::{Backend, Output, Ticket};
use m3_core::cache::media::MediaId;
use m3_core::engine::{EngineConfig, MediaLimits, MediaSupport};
use m3_core::event::{Finish, FinishReason, RequestEvent};
use m3_core::request::{Refusal, Request, RequestId, TokenMask};
use m3_core::scheduler::{Emission, Scheduler, Step};
use support::{Random, SumRule, expected, media_limits, null_rank, show, small_config};

/// What came back for one request.
#[derive(Default)]
struct Heard {
    tokens: Vec<u32>,
    scored: Vec<u32>,
    finish: Option<Finish>,
    aborted: bool,
}

/// A world of one scheduler and one device.
struct Simulation {
    config: EngineConfig,
    scheduler: Scheduler,
    backend: Box<dyn Backend>,
    in_flight: VecDeque<(Step, Ticket)>,
    /// The device's handles of encoded media.
    handles: HashMap<MediaId, u64>,
    heard: HashMap<u64, Heard>,
    now_us: u64,
    most_leased: usize,
    /// Percent of steps in which one slot is said to be not a number.
    faults: u64,
    random: Random,
}

impl Simulation {
    fn new(config: EngineConfig) -> Self {
        config.validate().unwrap();
        Simulation {
            scheduler: Scheduler::new(config.clone()),
            backend: null_rank(&config, 0, 1, "{}"),
            config,
            in_flight: VecDeque::new(),
            handles: HashMap::new(),
            heard: HashMap::new(),
            now_us: 0,
            most_leased: 0,
            faults: 0,
            random: Random::new(1),
        }
    }

    fn arrive(&mut self, request: Request) {
        assert!(self.heard.insert(request.id.0, Heard::default()).is_none());
        self.scheduler.arrive(request, self.now_us);
        self.listen();
    }

    fn abort(&mut self, id: u64) {
        let open = self.heard.get(&id).is_some_and(|heard| heard.finish.is_none());
        self.scheduler.abort(RequestId(id), self.now_us);
        self.listen();
        let heard = self.heard.get_mut(&id).unwrap();
        heard.aborted |= open;
        assert!(heard.finish.is_some(), "an abort ends the request at once");
    }

    /// One turn of the engine's loop: submit what can be, read one step.
    fn turn(&mut self) {
        self.now_us += 1000;
        let depth = if self.config.run_ahead { 2 } else { 1 };
        while self.in_flight.len() < depth {
            self.encode_media();
            let Some(step) = self.scheduler.plan(self.now_us) else {
                if self.encode_media() {
                    continue;
                }
                break;
            };
            assert!(step.num_tokens() <= self.config.max_step_tokens, "a step keeps its budget");
            assert!(step.num_tokens() > 0);
            let own = |span: &MediaSpan| MediaSpan { handle: self.handles[&MediaId(span.handle)], ..*span };
            let media: Vec<MediaSpan> = step.media.iter().map(own).collect();
            let ticket = self.backend.submit(&m3_abi::Step { media: &media, ..step.lend() }).unwrap();
            self.in_flight.push_back((step, ticket));
        }
        assert!(
            !self.in_flight.is_empty() || self.scheduler.num_live() == 0,
            "live requests always get a step: {:?}",
            self.scheduler.stats()
        );
        if let Some((step, ticket)) = self.in_flight.pop_front() {
            let mut output = step.output();
            self.backend.wait(ticket, &mut output).unwrap();
            if step.num_outputs > 0 && self.random.chance(self.faults) {
                let slot = self.random.between(0, step.num_outputs as u64 - 1) as usize;
                output.faults[slot] = FAULT_NAN;
            }
            self.complete(&step, &output);
        }
        self.listen();
        self.scheduler.audit().unwrap();
        let pages = self.scheduler.stats().pages;
        assert_eq!(pages.free + pages.leased + pages.cached, pages.total);
        self.most_leased = self.most_leased.max(pages.leased);
    }

    /// Does what the scheduler asks for; with faults, some media cannot be encoded.
    fn encode_media(&mut self) -> bool {
        let work = self.scheduler.media_work();
        for id in work.frees {
            if let Some(handle) = self.handles.remove(&id) {
                self.backend.media_free(handle).unwrap();
            }
        }
        let MediaSupport::Encodes(limits) = &self.config.media else { panic!("the tests have media") };
        let patches: u32 = work.encodes.iter().map(|encode| encode.grid.iter().product::<u32>()).sum();
        assert!(work.encodes.len() <= 1 || patches as usize <= limits.patches_per_step);
        let most = limits.cache_bytes;
        for encode in &work.encodes {
            let outcome = match self.random.chance(self.faults) {
                true => Err("as asked".to_owned()),
                false => {
                    let values = &encode.patches[encode.values.clone()];
                    let media = self.backend.encode(values, encode.row_len, &[encode.grid]).unwrap();
                    assert_eq!(media.num_rows, encode.num_rows);
                    self.handles.insert(encode.id, media.handle);
                    Ok(media.bytes)
                }
            };
            self.scheduler.encoded(encode, outcome, self.now_us);
        }
        self.listen();
        assert!(self.scheduler.stats().media.bytes <= most, "encoded media keep their budget");
        work.num_taken > 0
    }

    fn complete(&mut self, step: &Step, output: &Output) {
        self.now_us += 100 * step.num_tokens() as u64;
        self.scheduler.complete(step.id, output, self.now_us);
    }

    fn listen(&mut self) {
        for emission in self.scheduler.take_emissions() {
            let (Emission::Event(id, _) | Emission::Finish(id, _)) = &emission;
            let heard = self.heard.get_mut(&id.0).expect("only requests that arrived are told anything");
            assert!(heard.finish.is_none(), "nothing follows the terminal event of request {}", id.0);
            match emission {
                Emission::Event(_, RequestEvent::Tokens(tokens)) => {
                    heard.tokens.extend(tokens.iter().map(|sampled| sampled.token));
                }
                Emission::Event(_, RequestEvent::Prompt { first_position, scores }) => {
                    assert_eq!(first_position as usize, heard.scored.len() + 1, "scores come in order, once");
                    heard.scored.extend(scores.iter().map(|score| score.token));
                }
                Emission::Finish(_, finish) => heard.finish = Some(finish),
            }
        }
    }

    fn run_dry(&mut self) {
        while self.scheduler.num_live() > 0 || !self.in_flight.is_empty() {
            self.turn();
        }
        let stats = self.scheduler.stats();
        assert_eq!((stats.running, stats.waiting, stats.pages.leased), (0, 0, 0), "nothing is left at idle");
        assert_eq!(stats.media.held, 0, "nobody holds media at idle");
    }

    /// Compares with a run of each request alone.
    fn check(&self, request: &Request) {
        let heard = &self.heard[&request.id.0];
        let finish = heard.finish.as_ref().expect("every request ends");
        let (mut outputs, reason) = expected(&self.config, request);
        if heard.aborted {
            assert_eq!(finish.reason, FinishReason::Aborted);
            assert_eq!(heard.tokens, outputs[..heard.tokens.len()], "request {}", request.id.0);
            return;
        }
        if self.faults > 0 && matches!(finish.reason, FinishReason::Error(_)) {
            assert_eq!(heard.tokens, outputs[..heard.tokens.len()], "request {}", request.id.0);
            return;
        }
        assert_eq!(finish.reason, reason, "request {}", request.id.0);
        assert_eq!(finish.usage.output_tokens as usize, outputs.len());
        assert_eq!(finish.usage.prompt_tokens as usize, request.prompt.len());
        if matches!(reason, FinishReason::Stop { .. }) {
            outputs.pop();
        }
        assert_eq!(heard.tokens, outputs, "request {}", request.id.0);
        match request.prompt_logprobs {
            Some(_) => assert_eq!(heard.scored, request.prompt[1..], "request {}", request.id.0),
            None => assert!(heard.scored.is_empty()),
        }
    }
}

/// Prompts often begin alike, so that prefixes are shared while they are computed, cached, evicted and preempted.
fn random_request(random: &mut Random, config: &EngineConfig, id: u64) -> Request {
    let vocab = config.vocab_size as u64;
    let shared = random.between(0, 24);
    let family = random.between(0, 3);
    let mut prompt: Vec<u32> = (0..shared).map(|at| ((at * 7 + family) % vocab) as u32).collect();
    let most = if random.chance(10) { 40 } else { 8 };
    // Few pictures, so that they meet again, and always the same tokens, so that only the pictures tell them apart.
    let num_media = if random.chance(40) { random.between(1, 2) } else { 0 };
    let grids = [[1, 2, 2], [1, 4, 4], [3, 2, 4], [5, 2, 2]];
    let shown = |prompt: &mut Vec<u32>, random: &mut Random| {
        show(prompt, random.between(0, 5) as u32, grids[random.between(0, 3) as usize])
    };
    let media = (0..num_media).map(|_| shown(&mut prompt, random)).collect();
    let own = random.between(1, most);
    prompt.extend((0..own).map(|_| random.between(0, vocab - 1) as u32));
    let max_tokens = if random.chance(5) { 0 } else { random.between(1, 40) as u32 };
    let mut request = Request::new(RequestId(id), prompt, max_tokens);
    request.media = media;
    request.sampling.seed = Some(random.next());
    if random.chance(50) {
        request.sampling.temperature = 0.0;
    }
    if random.chance(50) {
        request.stop_token_ids = (0..random.between(1, 6)).map(|_| random.between(0, 47) as u32).collect();
        request.min_tokens = random.between(0, 4) as u32;
    }
    request.logprobs = random.chance(20).then(|| random.between(0, 4) as u32);
    request.prompt_logprobs = random.chance(10).then_some(2);
    if random.chance(15) {
        request.mask = Some(Box::new(SumRule::new(config)));
    }
    request.cache_salt = random.chance(10).then(|| vec![random.between(0, 1) as u8]);
    if random.chance(20) {
        request.sampling.repetition_penalty = 1.5;
    }
    if random.chance(20) {
        request.priority = random.between(0, 2) as i32 - 1;
    }
    request
}

fn copy(request: &Request, config: &EngineConfig) -> Request {
    let mask = || Box::new(SumRule::new(config)) as Box<dyn TokenMask>;
    Request {
        mask: request.mask.is_some().then(mask),
        sampling: request.sampling.clone(),
        stop_token_ids: request.stop_token_ids.clone(),
        cache_salt: request.cache_salt.clone(),
        media: request.media.clone(),
        min_tokens: request.min_tokens,
        logprobs: request.logprobs,
        prompt_logprobs: request.prompt_logprobs,
        priority: request.priority,
        ..Request::new(request.id, request.prompt.clone(), request.max_tokens)
    }
}

fn random_config(random: &mut Random) -> EngineConfig {
    let page_tokens = [1, 4, 4, 8, 16][random.between(0, 4) as usize];
    // From "hardly one request" to "everybody fits".
    let tokens = random.between(60, 400) as usize;
    EngineConfig {
        max_running: random.between(1, 16) as usize,
        max_step_tokens: random.between(1, 48) as usize,
        page_tokens,
        num_pages: tokens.div_ceil(page_tokens),
        prefix_cache: random.chance(80),
        mixed_chunk: random.chance(70),
        run_ahead: random.chance(75),
        media: MediaSupport::Encodes(MediaLimits {
            // From "the largest piece" to "all of them".
            cache_bytes: random.between(4, 60) * 8,
            patches_per_step: random.between(1, 64) as usize,
            ..media_limits()
        }),
        ..small_config()
    }
}

/// One world: `count` requests at random times, some cancelled at random times, and what became of them.
fn soak(seed: u64, count: u64) -> Simulation {
    let mut random = Random::new(seed);
    let mut world = Simulation::new(random_config(&mut random));
    world.faults = if random.chance(20) { 3 } else { 0 };
    let load = random.between(1, 30);
    let cancels = if random.chance(50) { 20 } else { 0 };
    let mut requests: BTreeMap<u64, Request> = BTreeMap::new();
    let mut next = 0;
    while next < count {
        while next < count && random.chance(load * 3) {
            let mut request = random_request(&mut random, &world.config, next);
            // Several answers to one prompt, asked for at once.
            if let Some(before) = next.checked_sub(1).and_then(|before| requests.get(&before))
                && random.chance(25)
            {
                request.prompt.clone_from(&before.prompt);
                request.media.clone_from(&before.media);
                request.cache_salt.clone_from(&before.cache_salt);
            }
            next += 1;
            match world.config.check(&request) {
                Ok(()) => {
                    world.arrive(copy(&request, &world.config));
                    requests.insert(request.id.0, request);
                }
                Err(Refusal::NeverFits { needed_pages, total_pages }) => assert!(needed_pages > total_pages),
                Err(other) => panic!("{other}"),
            }
        }
        if random.chance(cancels) && next > 0 {
            // Mostly recent ones, so that every state is hit; some are long gone.
            let id = next - 1 - random.between(0, (next - 1).min(12));
            if requests.contains_key(&id) {
                world.abort(id);
            }
        }
        world.turn();
    }
    world.run_dry();
    for request in requests.values() {
        world.check(request);
    }
    assert_eq!(world.heard.len(), requests.len());
    let counters = world.scheduler.stats().counters;
    assert_eq!(counters.finished(), requests.len() as u64);
    assert!(counters.finished_error == 0 || world.faults > 0);
    world
}

#[test]
fn tokens_do_not_depend_on_how_they_were_scheduled() {
    // The same requests in very different engines; with so few pages the second one preempts all the time.
    let roomy = EngineConfig { num_pages: 400, run_ahead: false, prefix_cache: false, ..small_config() };
    let tight = EngineConfig { num_pages: 24, max_step_tokens: 5, max_running: 6, ..small_config() };
    let unmixed = EngineConfig { mixed_chunk: false, ..tight.clone() };
    let worlds = [roomy, tight, unmixed].map(|config| {
        let mut random = Random::new(7);
        let mut world = Simulation::new(config);
        for id in 0..200 {
            let request = random_request(&mut random, &world.config, id);
            if request.prompt.len() + (request.max_tokens as usize) < 90 {
                world.arrive(request);
            }
        }
        world.run_dry();
        world
    });
    assert!(worlds[1].scheduler.stats().counters.preemptions > 20);
    for (id, heard) in &worlds[0].heard {
        for other in &worlds[1..] {
            assert_eq!(heard.tokens, other.heard[id].tokens);
            assert_eq!(
                heard.finish.as_ref().unwrap().reason,
                other.heard[id].finish.as_ref().unwrap().reason
            );
        }
    }
}

#[test]
fn a_pool_for_little_more_than_one_request_neither_loops_nor_leaks() {
    // Twelve requests of 60 tokens each in a pool of 72: preempted again and again, never twice the same token.
    let config = EngineConfig { num_pages: 18, max_context: 64, ..small_config() };
    let mut world = Simulation::new(config);
    let requests: Vec<Request> = (0..12)
        .map(|id| {
            let mut request = Request::new(RequestId(id), vec![id as u32; 10], 50);
            request.sampling.seed = Some(id);
            request
        })
        .collect();
    for request in &requests {
        world.arrive(copy(request, &world.config));
    }
    world.run_dry();
    requests.iter().for_each(|request| world.check(request));
    let counters = world.scheduler.stats().counters;
    assert!(counters.preemptions > 10, "{} preemptions", counters.preemptions);
    assert!(counters.steps < 2000, "{} steps", counters.steps);
    assert_eq!(world.most_leased, 18);
}

/// Worlds of a hundred requests each; `cargo xtask soak` asks for more.
fn num_worlds() -> u64 {
    std::env::var("M3_SIMULATION_WORLDS")
        .map_or(100, |worlds| worlds.parse().expect("M3_SIMULATION_WORLDS is a number"))
}

#[test]
fn ten_thousand_requests_end_as_if_each_were_alone() {
    let (mut preemptions, mut cached, mut overrun, mut aborted, mut evicted, mut faults) = (0, 0, 0, 0, 0, 0);
    let (mut encodes, mut hits, mut media_evictions) = (0, 0, 0);
    for seed in 0..num_worlds() {
        let counters = soak(seed, 100).scheduler.stats().counters;
        preemptions += counters.preemptions;
        cached += counters.cached_tokens;
        overrun += counters.overrun_tokens;
        aborted += counters.finished_aborted;
        evicted += counters.evicted_pages;
        faults += counters.finished_error;
        encodes += counters.media_encodes;
        hits += counters.media_hits;
        media_evictions += counters.media_evictions;
    }
    // The load must have been hard enough to mean something.
    assert!(preemptions > 500, "{preemptions} preemptions");
    assert!(cached > 10_000, "{cached} cached tokens");
    assert!(overrun > 300, "{overrun} overrun tokens");
    assert!(aborted > 200, "{aborted} aborted");
    assert!(evicted > 1000, "{evicted} evicted pages");
    assert!(faults > 20, "{faults} faults");
    assert!(encodes > 1000, "{encodes} encodes");
    assert!(hits > 500, "{hits} media found");
    assert!(media_evictions > 500, "{media_evictions} media given up");
}
