//! Packets: what is gathered, for how long, and what is never held back.

use super::*;
use crate::generate::{OutputToken, Reason};
use m3_core::event::SampledToken;
use proptest::prelude::*;

const PACING: Pacing =
    Pacing { min_tokens: 1, gather: Duration::from_millis(25), hold: Duration::from_millis(200) };

fn token(id: u32) -> OutputToken {
    OutputToken { sampled: SampledToken { token: id, score: None }, num_chars: 1, reasoning: false }
}

fn output(deltas: Vec<Delta>, at: u32) -> ChoiceEvent {
    let tokens = vec![token(at)];
    ChoiceEvent::Output(Output { deltas, tokens, completion_tokens: at + 1, reasoning_tokens: 0 })
}

fn done(deltas: Vec<Delta>) -> ChoiceEvent {
    ChoiceEvent::Done(Done {
        deltas,
        reason: Reason::Stop,
        stop: None,
        completion_tokens: 0,
        reasoning_tokens: 0,
        cached_tokens: 0,
    })
}

/// Plays deltas, one a token, `gap` apart, and gives the packets with the time each one was sent at.
fn play(pacing: Pacing, deltas: &[Delta], gap: Duration) -> Vec<(Duration, Vec<Delta>, Vec<u32>)> {
    let start = Instant::now();
    let mut coalescer = Coalescer::new(pacing);
    let mut sent = Vec::new();
    let mut collect = |coalescer: &mut Coalescer, now: Instant| {
        for (_, event) in coalescer.take_ready() {
            let (deltas, tokens) = match event {
                ChoiceEvent::Output(output) => (output.deltas, output.tokens),
                ChoiceEvent::Done(done) => (done.deltas, Vec::new()),
                other => panic!("{other:?}"),
            };
            sent.push((now - start, deltas, tokens.iter().map(|token| token.sampled.token).collect()));
        }
    };
    let events = deltas.iter().enumerate().map(|(at, delta)| output(vec![delta.clone()], at as u32));
    for (at, event) in events.chain(std::iter::once(done(Vec::new()))).enumerate() {
        let now = start + gap * at as u32;
        // The timer, as the stream keeps it.
        while let Some(due) = coalescer.due().filter(|due| *due < now) {
            coalescer.tick(due);
            collect(&mut coalescer, due);
        }
        coalescer.push(0, event, now);
        collect(&mut coalescer, now);
    }
    sent
}

fn sizes(packets: &[(Duration, Vec<Delta>, Vec<u32>)]) -> Vec<usize> {
    let deltas = packets.iter().flat_map(|(_, deltas, _)| deltas);
    deltas.filter_map(text_of).map(|text| text.chars().count()).collect()
}

/// Shares of packets of 1 to 4, 5 to 200 and more characters.
fn shares(sizes: &[usize]) -> [f64; 3] {
    let share = |count: usize| count as f64 / sizes.len().max(1) as f64;
    let count = |least, most| sizes.iter().filter(|size| (least..=most).contains(*size)).count();
    [share(count(1, 4)), share(count(5, 200)), share(count(201, usize::MAX))]
}

/// Tokens of one to `longest` characters, as a tokenizer of mostly `longest`-character words gives them.
fn tokens_of(total: usize, longest: usize) -> Vec<String> {
    let (mut left, mut state, mut tokens) = (total, 11_usize, Vec::new());
    while left > 0 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let size = ((state >> 33) % longest + 1).min(left);
        tokens.push("字".repeat(size));
        left -= size;
    }
    tokens
}

/// The packet table of M3's format check, at the token rates of a lone and a crowded server, for English words and
/// for Chinese, whose tokens are one or two characters.
#[test]
fn packets_meet_the_format_check_at_real_rates() {
    let content = |text: &String| Delta::Content(text.clone());
    let arguments = |text: &String| Delta::ToolArguments { index: 0, fragment: text.clone() };
    for (longest, gaps) in [(8, [3, 8, 15, 30, 60]), (2, [3, 8, 15, 20, 30])] {
        for gap in gaps.map(Duration::from_millis) {
            let text: Vec<Delta> = tokens_of(3000, longest).iter().map(content).collect();
            let [tiny, normal, large] = shares(&sizes(&play(PACING, &text, gap)));
            assert!(
                tiny <= 0.05 && normal >= 0.95 && large == 0.0,
                "content {longest} {gap:?}: {tiny} {normal}"
            );
            for (length, most_tiny, least_normal) in
                [(500, 0.15, 0.85), (2000, 0.10, 0.85), (10_000, 0.05, 0.90)]
            {
                let mut call = vec![Delta::ToolStart { index: 0, id: "c".into(), name: "write".into() }];
                call.extend(tokens_of(length, longest).iter().map(arguments));
                call.push(Delta::ToolEnd { index: 0 });
                let [tiny, normal, large] = shares(&sizes(&play(PACING, &call, gap)));
                let fits = tiny <= most_tiny && normal >= least_normal && large == 0.0;
                assert!(fits, "call {length} {longest} {gap:?}: {tiny} {normal} {large}");
            }
        }
    }
}

/// Without the coalescer the same streams fail the table, so the test above can.
#[test]
fn single_tokens_do_not_meet_it() {
    let text: Vec<Delta> = tokens_of(3000, 8).into_iter().map(Delta::Content).collect();
    let [tiny, ..] = shares(&sizes(&play(Pacing::OFF, &text, Duration::from_millis(8))));
    assert!(tiny > 0.4, "{tiny}");
}

#[test]
fn the_first_fragment_of_a_call_waits_at_most_100_ms_and_the_name_not_at_all() {
    let mut call = vec![Delta::ToolStart { index: 0, id: "c".into(), name: "write".into() }];
    call.extend(["{", "\"", "a", "\""].map(|text| Delta::ToolArguments { index: 0, fragment: text.into() }));
    let packets = play(PACING, &call, Duration::from_millis(40));
    assert_eq!(packets[0].0, Duration::ZERO);
    assert_eq!(packets[0].1.len(), 1);
    assert!(packets[1].0 <= Duration::from_millis(140), "{packets:?}");
}

#[test]
fn text_never_waits_longer_than_it_may() {
    for gap in [1, 10, 50, 150, 500].map(Duration::from_millis) {
        let deltas: Vec<Delta> = tokens_of(200, 3).into_iter().map(Delta::Content).collect();
        for (at, _, tokens) in play(PACING, &deltas, gap) {
            for token in tokens {
                let waited = at - gap * token;
                assert!(waited <= PACING.hold, "a token waited {waited:?} at {gap:?}");
            }
        }
    }
}

fn any_delta() -> impl Strategy<Value = Delta> {
    let text = "[a-z 字🌶]{0,450}";
    prop_oneof![
        text.prop_map(Delta::Reasoning),
        text.prop_map(Delta::Content),
        (0..3_usize, text).prop_map(|(index, fragment)| Delta::ToolArguments { index, fragment }),
        (0..3_usize).prop_map(|index| Delta::ToolStart { index, id: "c".into(), name: "f".into() }),
        (0..3_usize).prop_map(|index| Delta::ToolEnd { index }),
    ]
}

proptest! {
    /// Whatever comes, however fast: the same text of the same kinds in the same order, every token once, no lumps.
    #[test]
    fn nothing_is_lost_or_reordered(
        deltas in proptest::collection::vec(any_delta(), 0..40),
        gap in 0..300_u64,
        min_tokens in 1..6_usize,
    ) {
        let pacing = Pacing { min_tokens, ..PACING };
        let packets = play(pacing, &deltas, Duration::from_millis(gap));
        let mut joined = Vec::new();
        packets.iter().flat_map(|(_, deltas, _)| deltas.clone()).for_each(|delta| join(&mut joined, delta));
        let mut expected = Vec::new();
        deltas.iter().cloned().for_each(|delta| join(&mut expected, delta));
        prop_assert_eq!(joined, expected);
        let tokens: Vec<u32> = packets.iter().flat_map(|(_, _, tokens)| tokens.clone()).collect();
        prop_assert_eq!(tokens, (0..deltas.len() as u32).collect::<Vec<_>>());
        prop_assert!(sizes(&packets).into_iter().all(|size| size <= LARGEST));
    }
}
