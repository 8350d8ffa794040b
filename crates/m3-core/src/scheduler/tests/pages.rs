//! Who gets pages when they run out, and who waits for a prefix that another request computes.

use super::*;

#[test]
fn the_last_in_line_gives_its_pages_to_the_first() {
    let config = EngineConfig { num_pages: 4, prefix_cache: false, ..config() };
    let mut late = request(2, 4, 9);
    late.sampling.frequency_penalty = 0.5;
    late.sampling.biases = vec![(3, 1.0)];
    let mut world = World::with(config, [request(1, 4, 9), late]);
    world.turn(10);
    for token in 11..15 {
        world.turn(token);
    }
    let step = world.turn(15);
    assert_eq!(parts(&step), [(0, 8, 1)], "the fifth page is taken from the second request");
    assert_eq!(world.scheduler.stats().counters.preemptions, 1);
    while world.finish(1).is_none() {
        let step = world.turn(20);
        assert_eq!(step.seqs.len(), 1);
    }
    let step = world.turn(30);
    assert_eq!(step.releases, [0], "row 1 was released with the step before");
    assert_eq!(parts(&step), [(0, 0, 8)], "computed again from the start");
    let bind = step.binds[0];
    assert_eq!((bind.prompt_len, bind.output_len), (4, 5), "penalties see prompt and outputs");
    assert_eq!(step.history, [14, 15, 16, 17, 10, 11, 12, 13, 14]);
    assert_eq!((bind.seed, step.seqs[0].output_index), (2, 5), "randomness goes on where it was");
    while world.finish(2).is_none() {
        world.turn(31);
    }
    assert_eq!(world.tokens(2), [10, 11, 12, 13, 14, 31, 31, 31, 31]);
}

#[test]
fn a_lone_sequence_in_the_way_of_itself_starts_over() {
    let config = EngineConfig { num_pages: 6, max_step_tokens: 16, ..config() };
    let twin = Request { priority: -1, prompt: request(1, 8, 9).prompt, ..request(2, 8, 16) };
    let mut world = World::with(config, [request(1, 8, 9)]);
    // Both compute the same two pages, as nobody waits for one behind it in line; the first one's are cached and the
    // second one holds both copies.
    let first = world.plan();
    world.scheduler.arrive(twin, 0);
    let second = world.plan();
    world.answer(&first, 9);
    world.answer(&second, 9);
    world.abort(1);
    assert_eq!(world.leased(), 5);
    while world.finish(2).is_none() {
        world.turn(9);
    }
    assert_eq!((world.tokens(2).len(), world.scheduler.stats().counters.preemptions), (16, 1));
}

#[test]
fn preemption_waits_until_nothing_is_in_flight() {
    let config = EngineConfig { num_pages: 4, prefix_cache: false, ..config() };
    // Both get by with their pages in the step in flight; the second one needs another in the step after it.
    let mut world = World::with(config, [request(1, 3, 9), request(2, 4, 9)]);
    for token in 0..4 {
        world.turn(token);
    }
    let ahead = world.plan();
    assert!(world.scheduler.plan(1).is_none());
    assert_eq!(world.scheduler.stats().counters.preemptions, 0);
    world.answer(&ahead, 9);
    world.turn(9);
    assert_eq!(world.scheduler.stats().counters.preemptions, 1);
}

#[test]
fn lower_priority_values_go_first() {
    let config = EngineConfig { max_running: 1, ..config() };
    let urgent = Request { priority: -1, ..request(3, 2, 1) };
    let mut world = World::with(config, [request(1, 2, 1), request(2, 2, 1), urgent]);
    for _ in 0..3 {
        world.turn(9);
    }
    let order = world.heard.iter().filter_map(|emission| match emission {
        Emission::Finish(id, _) => Some(id.0),
        Emission::Event(..) => None,
    });
    assert_eq!(order.collect::<Vec<_>>(), [3, 1, 2]);
}

#[test]
fn a_cached_prefix_is_not_computed_again() {
    let mut world = World::with(config(), [request(1, 8, 1)]);
    world.turn(9);
    world.scheduler.arrive(request(1, 8, 1), 0);
    let step = world.turn(9);
    assert_eq!(parts(&step), [(0, 4, 4)], "one page is cached; at least one token must be computed");
    let salted = Request { cache_salt: Some(vec![1]), ..request(1, 8, 1) };
    world.scheduler.arrive(salted, 0);
    assert_eq!(parts(&world.turn(9)), [(0, 0, 8)]);
    let scored = Request { prompt_logprobs: Some(0), ..request(1, 8, 1) };
    world.scheduler.arrive(scored, 0);
    assert_eq!(parts(&world.turn(9)), [(0, 0, 8)], "scores need every position's logits");
    let usages = world.heard.iter().filter_map(|emission| match emission {
        Emission::Finish(_, finish) => Some(finish.usage.cached_tokens),
        Emission::Event(..) => None,
    });
    assert_eq!(usages.collect::<Vec<_>>(), [0, 4, 0, 0]);
    assert!(world.scheduler.flush_cache());
}

fn same_prompt(id: u64, max_tokens: u32) -> Request {
    Request { id: RequestId(id), ..request(1, 14, max_tokens) }
}

#[test]
fn a_prompt_asked_for_many_times_at_once_is_computed_once() {
    let config = EngineConfig { max_step_tokens: 32, ..config() };
    let mut world = World::with(config, (1..=4).map(|id| same_prompt(id, 3)));
    let first = world.plan();
    assert_eq!(parts(&first), [(0, 0, 14)], "the others wait for its pages");
    let ahead = world.plan();
    assert_eq!(parts(&ahead), [(0, 14, 1)]);
    world.answer(&first, 9);
    world.answer(&ahead, 9);
    let third = world.turn(9);
    assert_eq!(parts(&third), [(0, 15, 1), (1, 12, 2), (2, 12, 2), (3, 12, 2)]);
    while world.scheduler.num_live() > 0 {
        world.turn(9);
    }
    let counters = world.scheduler.stats().counters;
    assert_eq!((counters.cached_tokens, counters.computed_tokens), (3 * 12, 14 + 3 * 2 + 4 * 2));
}

#[test]
fn who_waits_for_pages_goes_on_when_they_will_not_come() {
    let config = EngineConfig { max_step_tokens: 32, ..config() };
    let mut world = World::with(config.clone(), [same_prompt(1, 3), same_prompt(2, 3)]);
    let step = world.plan();
    world.abort(1);
    assert_eq!(parts(&world.plan()), [(1, 0, 14)], "an abort lets it go, before the step is read");
    drop(step);
    let mut world = World::with(config, [same_prompt(1, 3), same_prompt(2, 3)]);
    let step = world.plan();
    world.answer_with(&step, |output| output.faults[0] = FAULT_NAN);
    assert!(matches!(world.finish(1), Some(FinishReason::Error(_))));
    assert_eq!(parts(&world.turn(9)), [(0, 0, 14)], "nothing of a faulty prompt is shared");
}

#[test]
fn nobody_waits_for_pages_of_other_prompts_salts_or_places() {
    let config = EngineConfig { max_step_tokens: 64, ..config() };
    let salted = Request { cache_salt: Some(vec![1]), ..same_prompt(2, 3) };
    let mut other = same_prompt(3, 3);
    other.prompt[3] = 99;
    let mut world = World::with(config.clone(), [same_prompt(1, 3), salted, other]);
    assert_eq!(world.turn(9).seqs.len(), 3);
    let mut world = World::with(config, [same_prompt(1, 3)]);
    world.plan();
    world.scheduler.arrive(Request { priority: -1, ..same_prompt(2, 3) }, 0);
    let step = world.plan();
    assert_eq!(parts(&step), [(0, 14, 1), (1, 0, 14)], "nobody waits for one behind it in line");
}
