//! The sampling specification, rule by rule.

use m3_abi::types::{FAULT_EMPTY_MASK, FAULT_NAN, TokenBias};

use super::*;

fn row(settings: SamplingSettings) -> RowSampling {
    RowSampling { settings, ..RowSampling::default() }
}

fn hot() -> SamplingSettings {
    SamplingSettings { temperature: 1.0, seed: 42, ..SamplingSettings::default() }
}

fn sample(logits: &[f32], row: &RowSampling, output_index: u32) -> Result<u32, u32> {
    choose(logits, row, &[], None, output_index, &mut Scratch::default())
}

/// Ids seen over many output indices, and how often.
fn histogram(logits: &[f32], settings: SamplingSettings, draws: u32) -> Vec<u32> {
    let row = row(settings);
    let mut counts = vec![0; logits.len()];
    for output_index in 0..draws {
        counts[sample(logits, &row, output_index).unwrap() as usize] += 1;
    }
    counts
}

#[test]
fn philox_known_answers() {
    let ones = u32::MAX;
    let cases = [
        ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
        ([ones; 4], [ones; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
        (
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        ),
    ];
    for (counter, key, expected) in cases {
        assert_eq!(philox4x32_10(counter, key), expected);
    }
}

#[test]
fn uniform_is_inside_the_open_interval_and_uses_the_whole_seed() {
    assert_eq!(uniform(0, 0), (f64::from(0x6627_e8d5u32) + 0.5) / 4_294_967_296.0);
    assert_ne!(uniform(1, 0), uniform(1 << 32, 0));
    let mean: f64 = (0..10_000).map(|index| uniform(1, index)).sum::<f64>() / 10_000.0;
    assert!((mean - 0.5).abs() < 0.01, "{mean}");
    assert!((0..10_000).all(|index| (0.0..1.0).contains(&uniform(9, index))));
}

#[test]
fn every_way_to_say_greedy_takes_the_lowest_best_id() {
    let logits = [1.0, 3.0, -2.0, 3.0, 2.9];
    let ways = [
        SamplingSettings::default(),
        SamplingSettings { temperature: 9e-6, ..hot() },
        SamplingSettings { top_k: 1, ..hot() },
        SamplingSettings { top_p: 0.0, ..hot() },
        SamplingSettings { top_p: 1e-9, ..hot() },
        SamplingSettings { temperature: 2.0, top_k: 1, min_p: 0.5, top_p: 0.9, ..hot() },
    ];
    for settings in ways {
        for output_index in 0..50 {
            assert_eq!(sample(&logits, &row(settings.clone()), output_index), Ok(1), "{settings:?}");
        }
    }
    assert_eq!(sample(&[-0.0, 0.0], &row(SamplingSettings::default()), 0), Ok(0), "-0 ties with 0");
}

#[test]
fn tiny_temperatures_do_not_overflow() {
    for temperature in [f32::MIN_POSITIVE, 1e-30, 1e-5, 2e-5] {
        let settings = SamplingSettings { temperature, top_p: 0.95, min_p: 0.01, ..hot() };
        assert_eq!(sample(&[3e38, -3e38, 1.0], &row(settings.clone()), 3), Ok(0));
        assert_eq!(sample(&[5.0, 7.0, 6.999], &row(settings), 3), Ok(1));
    }
}

#[test]
fn draws_follow_the_distribution() {
    let logits = [0.0, 2f32.ln(), 4f32.ln(), f32::NEG_INFINITY, 1f32.ln()];
    let counts = histogram(&logits, hot(), 20_000);
    for (count, share) in counts.iter().zip([1.0, 2.0, 4.0, 0.0, 1.0]) {
        let expected = share / 8.0 * 20_000.0;
        assert!((f64::from(*count) - expected).abs() < 350.0, "{counts:?}");
    }
    let cold = histogram(&logits, SamplingSettings { temperature: 0.5, ..hot() }, 20_000);
    // Squared weights: 1 4 16 0 1.
    assert!((f64::from(cold[2]) - 16.0 / 22.0 * 20_000.0).abs() < 350.0, "{cold:?}");
}

#[test]
fn the_draw_is_the_inverse_sum_in_id_order() {
    let logits = [1f32.ln(), 3f32.ln(), 2f32.ln()];
    for output_index in 0..500 {
        let u = uniform(42, output_index) * 6.0;
        let expected = if u < 1.0 { 0 } else { u32::from(u >= 4.0) + 1 };
        assert_eq!(sample(&logits, &row(hot()), output_index), Ok(expected), "u = {u}");
    }
}

#[test]
fn filters_keep_exactly_their_share() {
    let logits: Vec<f32> = [8f32, 1.0, 4.0, 2.0, 4.0, 1.0].iter().map(|weight| weight.ln()).collect();
    let kept = |settings: SamplingSettings| -> Vec<usize> {
        let counts = histogram(&logits, settings, 3_000);
        (0..counts.len()).filter(|&id| counts[id] > 0).collect()
    };
    assert_eq!(kept(hot()), [0, 1, 2, 3, 4, 5]);
    assert_eq!(kept(SamplingSettings { top_k: 100, ..hot() }), [0, 1, 2, 3, 4, 5]);
    assert_eq!(kept(SamplingSettings { top_k: 2, ..hot() }), [0, 2], "the tie goes to the lower id");
    assert_eq!(kept(SamplingSettings { top_k: 3, ..hot() }), [0, 2, 4]);
    assert_eq!(kept(SamplingSettings { min_p: 0.5, ..hot() }), [0, 2, 4]);
    assert_eq!(kept(SamplingSettings { min_p: 0.51, ..hot() }), [0]);
    // Weights in order 8 4 4 2 1 1 of 20.
    assert_eq!(kept(SamplingSettings { top_p: 0.39, ..hot() }), [0]);
    assert_eq!(kept(SamplingSettings { top_p: 0.59, ..hot() }), [0, 2]);
    assert_eq!(kept(SamplingSettings { top_p: 0.61, ..hot() }), [0, 2, 4]);
    assert_eq!(kept(SamplingSettings { top_p: 0.91, ..hot() }), [0, 1, 2, 3, 4]);
    // top_p is of what top_k left: 8 of 8 + 4 is 0.67.
    assert_eq!(kept(SamplingSettings { top_p: 0.66, top_k: 2, ..hot() }), [0]);
    // Temperature comes before min_p: at 2 the weights are square roots.
    assert_eq!(kept(SamplingSettings { temperature: 2.0, min_p: 0.5, ..hot() }), [0, 2, 3, 4]);
}

#[test]
fn top_p_over_many_candidates_equals_a_full_sort() {
    let logits: Vec<f32> =
        (0..5_000u32).map(|id| philox4x32_10([id, 1, 2, 3], [4, 5])[0] as f32 / 1e9).collect();
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&left, &right| logits[right].total_cmp(&logits[left]).then(left.cmp(&right)));
    let weight = |id: usize| f64::from((logits[id] - logits[order[0]]).exp());
    let total: f64 = order.iter().map(|&id| weight(id)).sum();
    for top_p in [0.01, 0.2, 0.7, 0.99] {
        let mut sum = 0.0;
        let len = 1 + order
            .iter()
            .take_while(|&&id| {
                sum += weight(id);
                sum < f64::from(top_p) * total
            })
            .count();
        let mut kept: Vec<usize> = order[..len].to_vec();
        kept.sort_unstable();
        let kept_total: f64 = kept.iter().map(|&id| weight(id)).sum();
        for output_index in 0..40 {
            let (u, mut sum) = (uniform(42, output_index) * kept_total, 0.0);
            let expected = kept.iter().find(|&&id| {
                sum += weight(id);
                sum > u
            });
            let found = sample(&logits, &row(SamplingSettings { top_p, ..hot() }), output_index).unwrap();
            assert_eq!(Some(&(found as usize)), expected, "top_p {top_p} index {output_index}");
        }
    }
}

#[test]
fn penalties_mean_what_their_names_mean_elsewhere() {
    let base = [2.0, -2.0, 2.0, -2.0, 2.0, 0.5];
    // Prompt 0 and 1; output 2 twice and 3 once; 4 drafted.
    let counts = TokenCounts::new(&[0, 1], &[2, 3, 2]);
    let adjusted = |settings: SamplingSettings| {
        let mut logits = base;
        adjust(&mut logits, &RowSampling { settings, biases: Vec::new(), counts: counts.clone() }, &[4]);
        logits
    };
    let plain = SamplingSettings::default;
    assert_eq!(adjusted(plain()), base);
    let repetition = SamplingSettings { repetition_penalty: 2.0, ..plain() };
    assert_eq!(adjusted(repetition), [1.0, -4.0, 1.0, -4.0, 1.0, 0.5]);
    let presence = SamplingSettings { presence_penalty: 0.25, ..plain() };
    assert_eq!(adjusted(presence), [2.0, -2.0, 1.75, -2.25, 1.75, 0.5]);
    let frequency = SamplingSettings { frequency_penalty: 0.25, ..plain() };
    assert_eq!(adjusted(frequency), [2.0, -2.0, 1.5, -2.25, 1.75, 0.5]);
    let all = SamplingSettings {
        repetition_penalty: 2.0,
        presence_penalty: 0.25,
        frequency_penalty: -0.5,
        ..plain()
    };
    assert_eq!(adjusted(all), [1.0, -4.0, 1.75, -3.75, 1.25, 0.5]);
}

#[test]
fn bias_comes_before_penalties() {
    let mut logits = [-1.0, 0.0];
    let row = RowSampling {
        settings: SamplingSettings { repetition_penalty: 2.0, ..SamplingSettings::default() },
        biases: vec![TokenBias { token: 0, bias: 5.0 }, TokenBias { token: 1, bias: f32::NEG_INFINITY }],
        counts: TokenCounts::new(&[0], &[]),
    };
    adjust(&mut logits, &row, &[]);
    assert_eq!(logits, [2.0, f32::NEG_INFINITY]);
    assert_eq!(sample(&[-9.0, 0.0], &row, 0), Ok(0));
}

#[test]
fn masks_allow_bit_by_bit() {
    let logits: Vec<f32> = (0..70).map(|id| id as f32).collect();
    let allowed = |mask: &[u32], settings: SamplingSettings| {
        choose(&logits, &row(settings), &[], Some(mask), 0, &mut Scratch::default())
    };
    assert_eq!(allowed(&[1, 1 << 31, 0], SamplingSettings::default()), Ok(63));
    assert_eq!(allowed(&[1 << 5, 0, 0], hot()), Ok(5));
    assert_eq!(allowed(&[0, 0, 1 << 5], SamplingSettings::default()), Ok(69));
    assert_eq!(allowed(&[0, 0, 0], hot()), Err(FAULT_EMPTY_MASK));
    // Bits beyond the vocabulary mean nothing.
    assert_eq!(allowed(&[0, 0, 1 << 6], hot()), Err(FAULT_EMPTY_MASK));
}

#[test]
fn bad_numbers_are_faults_not_tokens() {
    for bad in [f32::NAN, f32::INFINITY] {
        for settings in [SamplingSettings::default(), hot()] {
            assert_eq!(sample(&[1.0, bad, 2.0], &row(settings), 0), Err(FAULT_NAN));
        }
    }
    assert_eq!(sample(&[f32::NEG_INFINITY; 3], &row(hot()), 0), Err(FAULT_NAN));
    let biases = vec![TokenBias { token: 1, bias: 3e38 }];
    assert_eq!(sample(&[0.0, 3e38], &RowSampling { biases, ..row(hot()) }, 0), Err(FAULT_NAN));
    assert_eq!(sample(&[f32::NEG_INFINITY, 1.0], &row(hot()), 0), Ok(1));
}

#[test]
fn log_probabilities_ranks_and_alternatives() {
    let logits = [0.0, 3.0, 1.0, 3.0, -1.0];
    let log_sum = log_sum_exp(&logits);
    let sum: f32 = logits.iter().map(|logit| (logit - log_sum).exp()).sum();
    assert!((sum - 1.0).abs() < 1e-6);
    let ranks: Vec<u32> = (0..5).map(|token| rank(&logits, token)).collect();
    assert_eq!(ranks, [3, 0, 2, 1, 4]);
    assert_eq!(top(&logits, 3), [1, 3, 2]);
    assert_eq!(top(&logits, 9), [1, 3, 2, 0, 4]);
    assert!(top(&logits, 0).is_empty());
    assert!((log_sum_exp(&[1000.0, 1000.0]) - (1000.0 + 2f32.ln())).abs() < 1e-3);
}
