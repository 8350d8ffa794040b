//! The scheduler by hand: what steps look like and what results do. Random load is the simulation's.

mod pages;

use m3_abi::Output;
use m3_abi::types::{FAULT_EMPTY_MASK, FAULT_NAN, NONE, SEQ_CHAINED};

use super::*;
use crate::request::{Refusal, TokenMask};

fn config() -> EngineConfig {
    EngineConfig {
        max_running: 4,
        max_queued: 100,
        max_step_tokens: 8,
        max_context: 64,
        page_tokens: 4,
        num_pages: 32,
        prefix_cache: true,
        mixed_chunk: true,
        run_ahead: true,
        vocab_size: 100,
        forbidden_tokens: vec![],
        max_logprobs: 3,
        media: Default::default(),
    }
}

fn request(id: u64, prompt_len: u32, max_tokens: u32) -> Request {
    // Distinct prompts, so that nothing is shared by accident.
    let first = id as u32 * 7 % 50;
    let mut request = Request::new(RequestId(id), (first..first + prompt_len).collect(), max_tokens);
    request.sampling.seed = Some(id);
    request
}

/// A scheduler and the events it has emitted.
struct World {
    scheduler: Scheduler,
    heard: Vec<Emission>,
}

impl World {
    fn new(config: EngineConfig) -> Self {
        World { scheduler: Scheduler::new(config), heard: Vec::new() }
    }

    fn with(config: EngineConfig, requests: impl IntoIterator<Item = Request>) -> Self {
        let mut world = Self::new(config);
        requests.into_iter().for_each(|request| world.scheduler.arrive(request, 0));
        world
    }

    fn plan(&mut self) -> Step {
        self.scheduler.plan(1).expect("there is something to compute")
    }

    /// Completes `step` with the same token everywhere.
    fn answer(&mut self, step: &Step, token: u32) {
        self.answer_with(step, |output| output.tokens.fill(token));
    }

    fn answer_with(&mut self, step: &Step, fill: impl FnOnce(&mut Output)) {
        let mut output = step.output();
        output.tokens.fill(0);
        fill(&mut output);
        self.scheduler.complete(step.id, &output, 2);
        self.heard.extend(self.scheduler.take_emissions());
        self.scheduler.audit().unwrap();
    }

    fn turn(&mut self, token: u32) -> Step {
        let step = self.plan();
        self.answer(&step, token);
        step
    }

    fn finish(&self, id: u64) -> Option<FinishReason> {
        self.heard.iter().find_map(|emission| match emission {
            Emission::Finish(of, finish) if of.0 == id => Some(finish.reason.clone()),
            _ => None,
        })
    }

    fn tokens(&self, id: u64) -> Vec<u32> {
        let mut tokens = Vec::new();
        for emission in &self.heard {
            if let Emission::Event(of, RequestEvent::Tokens(sampled)) = emission
                && of.0 == id
            {
                tokens.extend(sampled.iter().map(|sampled| sampled.token));
            }
        }
        tokens
    }

    fn abort(&mut self, id: u64) {
        self.scheduler.abort(RequestId(id), 3);
        self.heard.extend(self.scheduler.take_emissions());
        self.scheduler.audit().unwrap();
    }

    fn leased(&self) -> usize {
        self.scheduler.stats().pages.leased
    }
}

/// `(row, first position, tokens)` of every part.
fn parts(step: &Step) -> Vec<(u32, u32, u32)> {
    step.seqs.iter().map(|seq| (seq.row, seq.first_position, seq.num_tokens)).collect()
}

#[test]
fn decoding_rows_come_first_and_a_chunk_fills_the_budget() {
    let mut world = World::with(config(), [request(1, 3, 9), request(2, 20, 9)]);
    let first = world.turn(9);
    assert_eq!(parts(&first), [(0, 0, 3), (1, 0, 5)]);
    assert_eq!(first.seqs[1].num_logits, 0, "a chunk in the middle needs no logits");
    let second = world.turn(9);
    assert_eq!(parts(&second), [(0, 3, 1), (1, 5, 7)]);
    assert!(second.binds.is_empty(), "a row is bound once");
    let third = world.turn(9);
    assert_eq!(parts(&third), [(0, 4, 1), (1, 12, 7)]);
    assert_eq!(parts(&world.turn(9)), [(0, 5, 1), (1, 19, 1)]);
    assert_eq!(world.tokens(2), [9]);
}

#[test]
fn without_mixing_decoding_waits_for_chunks() {
    let config = EngineConfig { mixed_chunk: false, ..config() };
    let mut world = World::with(config, [request(1, 3, 9), request(2, 20, 9)]);
    assert_eq!(parts(&world.turn(9)), [(0, 0, 3), (1, 0, 5)]);
    assert_eq!(parts(&world.turn(9)), [(1, 5, 8)]);
    assert_eq!(parts(&world.turn(9)), [(1, 13, 7)]);
    assert_eq!(parts(&world.turn(9)), [(0, 3, 1), (1, 20, 1)]);
}

#[test]
fn a_request_that_can_never_fit_is_refused_with_both_numbers() {
    let config = EngineConfig { num_pages: 4, ..config() };
    let refusal = config.check(&request(1, 10, 8)).unwrap_err();
    assert_eq!(refusal, Refusal::NeverFits { needed_pages: 5, total_pages: 4 });
    let sentence = refusal.to_string();
    assert!(sentence.contains('5') && sentence.contains('4'), "{sentence}");
    // 17 tokens, of which the last one is never computed.
    config.check(&request(1, 10, 7)).unwrap();
    let refusal = config.check(&request(1, 65, 0)).unwrap_err();
    assert_eq!(refusal, Refusal::PromptTooLong { prompt_tokens: 65, max_context: 64 });
    let roomy = self::config();
    roomy.check(&request(1, 64, 0)).unwrap();
    assert!(roomy.check(&request(1, 64, 1)).is_err());
    roomy.check(&request(1, 10, 1_000_000)).unwrap();
    assert_eq!(roomy.check(&Request::new(RequestId(1), vec![], 1)), Err(Refusal::EmptyPrompt));
    let stray = Refusal::TokenOutOfRange { token: 100, vocab_size: 100 };
    assert_eq!(roomy.check(&Request::new(RequestId(1), vec![100], 1)), Err(stray));
    let greedy = Request { logprobs: Some(4), ..request(1, 1, 1) };
    assert_eq!(roomy.check(&greedy), Err(Refusal::TooManyLogprobs { asked: 4, max_logprobs: 3 }));
    let mut odd = request(1, 1, 1);
    odd.sampling.temperature = f32::NAN;
    assert!(matches!(roomy.check(&odd), Err(Refusal::BadSampling { name: "temperature", .. })));
}

#[test]
fn the_next_step_chains_to_a_token_not_read_yet() {
    let mut world = World::with(config(), [request(1, 3, 3)]);
    let first = world.plan();
    let second = world.plan();
    assert_eq!((second.seqs[0].flags, second.seqs[0].first_position), (SEQ_CHAINED, 3));
    assert_eq!((second.seqs[0].output_index, second.tokens.len()), (1, 0));
    assert!(world.scheduler.plan(1).is_none(), "two steps in flight are the most");
    world.answer(&first, 10);
    let third = world.plan();
    assert!(third.seqs[0].flags == SEQ_CHAINED && third.seqs[0].output_index == 2);
    world.answer(&second, 11);
    assert!(world.scheduler.plan(1).is_none(), "the last token is on its way");
    world.answer(&third, 12);
    assert_eq!(world.tokens(1), [10, 11, 12]);
    assert_eq!(world.finish(1), Some(FinishReason::Length));
    assert_eq!(world.leased(), 0);
}

#[test]
fn a_step_ahead_of_a_stop_is_thrown_away_and_holds_its_pages() {
    let mut world = World::with(config(), [Request { stop_token_ids: vec![5], ..request(1, 3, 9) }]);
    let first = world.plan();
    let second = world.plan();
    world.answer(&first, 5);
    assert_eq!(world.finish(1), Some(FinishReason::Stop { token: 5 }));
    assert!(world.tokens(1).is_empty(), "the stop id is not a token event");
    assert!(world.leased() > 0, "the step in flight still writes");
    assert_eq!(world.scheduler.num_live(), 0);
    // The same id again, while its predecessor's step is in flight.
    world.heard.clear();
    world.scheduler.arrive(request(1, 2, 1), 0);
    let third = world.plan();
    world.answer(&second, 77);
    assert!(world.tokens(1).is_empty());
    world.answer(&third, 8);
    assert_eq!(world.tokens(1), [8]);
    let stats = world.scheduler.stats();
    assert_eq!((stats.counters.overrun_tokens, stats.pages.leased), (1, 0));
    assert_eq!(stats.counters.generated_tokens, 2);
}

/// Allows one token, then the next, and so on.
struct Counting(u32);

impl TokenMask for Counting {
    fn fill(&mut self, words: &mut [u32]) {
        words[self.0 as usize / 32] |= 1 << (self.0 % 32);
    }

    fn accept(&mut self, token: u32) {
        assert_eq!(token, self.0, "told the token it allowed");
        self.0 += 1;
    }
}

#[test]
fn a_masked_row_waits_for_its_token_and_others_run_ahead() {
    let masked = Request { mask: Some(Box::new(Counting(40))), ..request(1, 2, 3) };
    let mut world = World::with(config(), [masked, request(2, 2, 3)]);
    let first = world.plan();
    assert_eq!((first.seqs[0].mask_offset, first.seqs[1].mask_offset), (0, NONE));
    assert_eq!(first.masks, [0, 1 << 8, 0, 0]);
    let second = world.plan();
    assert_eq!(parts(&second), [(1, 2, 1)]);
    world.answer(&first, 40);
    let third = world.plan();
    assert_eq!(third.seqs[0].flags, 0, "its token is known, so it is sent");
    assert_eq!((third.tokens.clone(), third.masks[1]), (vec![40], 1 << 9));
}

#[test]
fn stop_ids_are_masked_until_min_tokens() {
    let request = Request { stop_token_ids: vec![5], min_tokens: 2, ..request(1, 2, 9) };
    let mut world = World::with(config(), [request]);
    let (first, second) = (world.plan(), world.plan());
    for step in [&first, &second] {
        assert_eq!(step.masks, [!(1 << 5), u32::MAX, u32::MAX, 0xf], "all of 100 tokens but the stop id");
    }
    world.answer(&first, 6);
    let third = world.plan();
    assert_eq!(third.seqs[0].mask_offset, NONE);
    world.answer(&second, 7);
    world.answer(&third, 5);
    assert_eq!(world.finish(1), Some(FinishReason::Stop { token: 5 }));
}

struct Broken;

impl TokenMask for Broken {
    fn fill(&mut self, _words: &mut [u32]) {
        panic!("no such state");
    }

    fn accept(&mut self, _token: u32) {}
}

#[test]
fn a_failing_grammar_ends_its_request_only() {
    let broken = Request { mask: Some(Box::new(Broken)), ..request(1, 2, 3) };
    let mut world = World::with(config(), [broken, request(2, 2, 1)]);
    world.turn(9);
    let Some(FinishReason::Error(sentence)) = world.finish(1) else { panic!("it must end") };
    assert_eq!(sentence, "the grammar panicked: no such state");
    assert_eq!(world.finish(2), Some(FinishReason::Length));
    assert_eq!(world.leased(), 0);
}

#[test]
fn not_a_number_ends_one_request_and_is_not_cached() {
    let mut world = World::with(config(), [request(1, 4, 9), request(2, 4, 9)]);
    let step = world.plan();
    world.answer_with(&step, |output| {
        output.faults[0] = FAULT_NAN;
        output.tokens[0] = NONE;
    });
    assert!(
        matches!(world.finish(1), Some(FinishReason::Error(sentence)) if sentence.contains("not numbers"))
    );
    assert_eq!(world.tokens(2), [0]);
    assert_eq!(world.scheduler.stats().pages.cached, 0);
    let step = world.plan();
    world.answer_with(&step, |output| output.faults[0] = FAULT_EMPTY_MASK);
    assert!(matches!(world.finish(2), Some(FinishReason::Error(sentence)) if sentence.contains("no token")));
    assert_eq!(world.scheduler.stats().counters.finished_error, 2);
    assert_eq!(world.scheduler.stats().pages.cached, 1, "what was computed before the fault was sound");
}

#[test]
fn scores_come_in_chunks_and_once() {
    let scored = Request { prompt_logprobs: Some(1), logprobs: Some(0), ..request(1, 10, 1) };
    let mut world = World::with(config(), [scored]);
    let first = world.plan();
    let second = world.plan();
    assert_eq!((first.seqs[0].num_logits, first.seqs[0].target_offset), (8, 0));
    assert_eq!(first.targets, (8..16).collect::<Vec<_>>(), "each position is scored against its successor");
    assert_eq!(second.targets, [16, NONE], "the last position samples");
    assert_eq!(second.top_capacity, 1);
    world.answer_with(&first, |output| {
        output.logprobs = (0..8).map(|slot| -(slot as f32)).collect();
        output.ranks.fill(2);
        output.top_ids[0] = 50;
        output.top_logprobs[0] = -0.5;
    });
    world.answer(&second, 3);
    let Emission::Event(_, RequestEvent::Prompt { first_position: 1, scores }) = &world.heard[0] else {
        panic!("scores of position 1 on come first: {:?}", world.heard[0])
    };
    assert_eq!((scores.len(), scores[3].token, scores[3].logprob, scores[3].rank), (8, 11, -3.0, 2));
    assert_eq!((scores[0].top.clone(), scores[1].top.len()), (vec![(50, -0.5)], 0));
    assert!(matches!(&world.heard[1], Emission::Event(_, RequestEvent::Prompt { first_position: 9, scores })
        if scores.len() == 1));
    let Emission::Event(_, RequestEvent::Tokens(tokens)) = &world.heard[2] else { panic!("then the token") };
    assert!(tokens[0].score.as_ref().unwrap().top.is_empty(), "no alternatives were asked for");
    assert!(matches!(world.heard[3], Emission::Finish(..)));
}

#[test]
fn no_tokens_wanted_means_scores_only() {
    let scored = Request { prompt_logprobs: Some(0), ..request(1, 10, 0) };
    let single = Request { prompt_logprobs: Some(0), ..request(2, 1, 0) };
    let mut world = World::with(config(), [scored, single, request(3, 5, 0)]);
    let first = world.plan();
    let second = world.plan();
    assert_eq!(
        (parts(&first), parts(&second)),
        (vec![(0, 0, 8)], vec![(0, 8, 1)]),
        "the last token is not needed"
    );
    world.answer(&first, 0);
    assert_eq!((world.finish(1), world.finish(2)), (None, Some(FinishReason::Length)));
    assert_eq!(world.finish(3), Some(FinishReason::Length));
    world.answer(&second, 0);
    assert_eq!(world.finish(1), Some(FinishReason::Length));
    assert_eq!(world.leased(), 0);
}

#[test]
fn the_end_of_the_context_ends_a_request() {
    let config = EngineConfig { max_context: 6, ..config() };
    let mut world = World::with(config, [request(1, 4, 1000)]);
    while world.finish(1).is_none() {
        world.turn(9);
    }
    assert_eq!((world.finish(1), world.tokens(1)), (Some(FinishReason::Length), vec![9, 9]));
}

#[test]
fn forbidden_tokens_win_over_a_request_that_wants_them() {
    let config = EngineConfig { forbidden_tokens: vec![98, 99], ..config() };
    let mut eager = request(1, 2, 1);
    eager.sampling.biases = vec![(99, 5.0), (4, -1.0)];
    eager.sampling.top_p = 0.0;
    eager.sampling.top_k = 1000;
    let mut world = World::with(config, [eager]);
    let step = world.plan();
    let biases: Vec<_> = step.biases.iter().map(|bias| (bias.token, bias.bias)).collect();
    assert_eq!(biases, [(98, f32::NEG_INFINITY), (99, f32::NEG_INFINITY), (4, -1.0)]);
    assert_eq!((step.binds[0].num_biases, step.binds[0].top_k, step.binds[0].top_p), (3, 1, 1.0));
    assert_eq!(step.binds[0].num_logprobs, NONE);
}

#[test]
fn an_abort_in_any_state_ends_once_and_gives_everything_back() {
    let one_row = EngineConfig { max_running: 1, ..config() };
    let mut world = World::with(one_row, [request(1, 20, 9), request(2, 3, 9)]);
    // Unknown; waiting; in the middle of its prompt, in flight.
    world.abort(99);
    world.abort(2);
    let step = world.plan();
    world.abort(1);
    assert!(world.leased() > 0);
    world.answer(&step, 0);
    assert_eq!(world.leased(), 0);
    // Prefilling and decoding between steps; with two steps in flight; finished.
    for turns in [1, 2, 4] {
        world.scheduler.arrive(request(turns, 12, 9), 0);
        for _ in 0..turns {
            world.turn(7);
        }
        world.abort(turns);
        world.abort(turns);
        assert_eq!(world.leased(), 0);
    }
    world.scheduler.arrive(request(5, 3, 9), 0);
    let (first, second) = (world.plan(), world.plan());
    world.abort(5);
    world.answer(&first, 7);
    assert!(world.leased() > 0);
    world.answer(&second, 7);
    assert_eq!((world.leased(), world.tokens(5)), (0, vec![]));
    let counters = world.scheduler.stats().counters;
    assert_eq!((counters.finished_aborted, counters.arrived), (6, 6));
}

#[test]
fn a_preempted_request_can_be_aborted() {
    let config = EngineConfig { num_pages: 4, ..config() };
    let mut world = World::with(config, [request(1, 4, 9), request(2, 4, 9)]);
    while world.scheduler.stats().counters.preemptions == 0 {
        world.turn(9);
    }
    assert_eq!((world.scheduler.stats().running, world.scheduler.stats().waiting), (1, 1));
    world.abort(2);
    assert_eq!(world.finish(2), Some(FinishReason::Aborted));
    assert_eq!(world.tokens(2).len(), 5);
    while world.finish(1).is_none() {
        world.turn(9);
    }
    assert_eq!(world.tokens(1).len(), 9);
}

#[test]
fn timings_tell_queue_prefill_and_decode_apart() {
    let mut scheduler = Scheduler::new(config());
    scheduler.arrive(request(1, 3, 2), 100);
    for (planned_us, read_us) in [(130, 170), (200, 260)] {
        let step = scheduler.plan(planned_us).unwrap();
        let mut output = step.output();
        output.tokens.fill(9);
        output.device_time_us = 25;
        scheduler.complete(step.id, &output, read_us);
    }
    let emissions = scheduler.take_emissions();
    let Some(Emission::Finish(_, finish)) = emissions.last() else { panic!("{emissions:?}") };
    let timings = finish.timings;
    assert_eq!((timings.queued_us, timings.prefill_us, timings.decode_us), (30, 40, 90));
    let last = scheduler.stats().last_step;
    assert_eq!((last.num_tokens, last.num_seqs, last.wall_us, last.device_us), (1, 1, 60, 25));
}

#[test]
fn steps_that_will_not_come_back_hold_nothing_once_all_has_ended() {
    let mut world = World::with(config(), (0..9).map(|id| request(id, 6, 9)));
    world.plan();
    world.plan();
    world.scheduler.end_all(&FinishReason::Error("gone".to_owned()), 5);
    assert!(world.leased() > 0, "the steps may still write");
    world.scheduler.abandon_steps();
    world.scheduler.audit().unwrap();
    let stats = world.scheduler.stats();
    assert_eq!((stats.pages.leased, stats.running, stats.waiting, stats.steps_in_flight), (0, 0, 0, 0));
}

#[test]
fn ending_all_ends_all() {
    let mut world = World::with(config(), (0..9).map(|id| request(id, 6, 9)));
    let step = world.plan();
    world.scheduler.end_all(&FinishReason::Error("gone".to_owned()), 5);
    world.answer(&step, 3);
    assert_eq!(
        (0..9).filter(|id| world.finish(*id) == Some(FinishReason::Error("gone".to_owned()))).count(),
        9
    );
    assert_eq!((world.scheduler.num_live(), world.leased()), (0, 0));
}

#[test]
fn a_token_outside_the_vocabulary_is_a_fault() {
    let mut world = World::with(config(), [request(1, 4, 9)]);
    world.turn(NONE);
    assert!(
        matches!(world.finish(1), Some(FinishReason::Error(sentence)) if sentence.contains("4294967295"))
    );
}

#[test]
fn numbers_that_are_no_log_probabilities_are_a_fault() {
    for (logprob, top) in [(f32::NAN, 1), (f32::INFINITY, 1), (0.5, 1), (-1.0, 1_000_000)] {
        let mut asked = request(1, 4, 9);
        asked.logprobs = Some(1);
        let mut world = World::with(config(), [asked]);
        let step = world.plan();
        world.answer_with(&step, |output| {
            output.logprobs[0] = logprob;
            (output.top_ids[0], output.top_logprobs[0]) = (top, -0.5);
        });
        let finish = world.finish(1);
        let named = |sentence: &String| sentence.contains("log-probability") || sentence.contains("1000000");
        assert!(
            matches!(&finish, Some(FinishReason::Error(sentence)) if named(sentence)),
            "{logprob}: {finish:?}"
        );
    }
}
