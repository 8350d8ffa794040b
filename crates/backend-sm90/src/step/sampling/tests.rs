//! Records of positions and rows.

use m3_abi::types::TokenBias;
use m3_model::sampling::SamplingSettings;

use super::*;

#[test]
fn records_have_the_sizes_that_the_kernels_read() {
    assert_eq!(size_of::<Position>(), 8 * 4);
    assert_eq!(size_of::<RowSettings>(), 16 * 4);
    assert_eq!(size_of::<Bias>(), 2 * 4);
}

#[test]
fn settings_carry_everything_and_name_counts_only_for_penalties() {
    let plain = RowSampling {
        settings: SamplingSettings {
            seed: 0x1_0000_0002,
            top_k: 7,
            num_logprobs: Some(3),
            ..Default::default()
        },
        biases: vec![TokenBias { token: 5, bias: -1.0 }],
        ..RowSampling::default()
    };
    let record = settings(9, &plain, 40);
    assert_eq!((record.seed_low, record.seed_high, record.top_k, record.num_logprobs), (2, 1, 7, 3));
    assert_eq!((record.bias, record.num_biases, record.counts), (40, 1, NONE));
    let penalised = SamplingSettings { presence_penalty: 0.5, ..Default::default() };
    let record = settings(9, &RowSampling { settings: penalised, ..RowSampling::default() }, 0);
    assert_eq!((record.counts, record.num_logprobs, record.presence), (9, NONE, 0.5));
}
