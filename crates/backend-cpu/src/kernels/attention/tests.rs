//! Against the plain two-pass formula in f64, over head counts, ragged pages and both formats.

use super::super::convert::{bf16_to_f32, f32_to_bf16};
use super::super::random::Random;
use super::super::{Isa, Kernels};
use super::*;

struct Case {
    heads: usize,
    dim: usize,
    page_tokens: usize,
    /// Visible tokens of each page.
    pages: Vec<usize>,
    format: Format,
}

fn check(isa: Isa, case: &Case) {
    let kernels = Kernels::of(isa).unwrap();
    let mut random = Random::new((case.heads * 31 + case.dim) as u64);
    let count = case.pages.len() * case.page_tokens * case.dim;
    let mut bits = || (0..count).map(|_| f32_to_bf16(random.normal() * 2.0)).collect::<Vec<u16>>();
    let (keys, values) = (bits(), bits());
    let wide = |bits: &[u16]| bits.iter().map(|&b| bf16_to_f32(b)).collect::<Vec<f32>>();
    let (keys_f32, values_f32) = (wide(&keys), wide(&values));
    let query_bits: Vec<u16> = (0..case.heads * case.dim).map(|_| f32_to_bf16(random.normal())).collect();
    let queries = wide(&query_bits);
    let rows = Rows::new(&queries, Some(&query_bits), case.dim);
    let shape = KvShape { format: case.format, page_tokens: case.page_tokens, dim: case.dim };
    let mut scores = vec![0.0; case.heads * case.page_tokens];
    let (mut max, mut sum, mut acc) =
        (vec![0.0; case.heads], vec![0.0; case.heads], vec![0.0; queries.len()]);
    let mut state = State { max: &mut max, sum: &mut sum, acc: &mut acc };
    state.clear();
    for (page, &visible) in case.pages.iter().enumerate() {
        let at = page * case.page_tokens * case.dim;
        let pick = |bits: &[u16], wide: &[f32]| match case.format {
            Format::Bf16 => bits[at..].as_ptr().cast::<u8>(),
            _ => wide[at..].as_ptr().cast(),
        };
        let block = KvBlock { keys: pick(&keys, &keys_f32), values: pick(&values, &values_f32), visible };
        // SAFETY: the vectors hold whole pages.
        unsafe { kernels.attend_block(rows, shape, block, &mut scores, &mut state) };
    }
    state.finish(case.dim);
    let visible: Vec<usize> = case
        .pages
        .iter()
        .enumerate()
        .flat_map(|(page, &n)| (0..n).map(move |t| page * case.page_tokens + t))
        .collect();
    for head in 0..case.heads {
        let q = &queries[head * case.dim..][..case.dim];
        let dot = |token: usize| -> f64 {
            q.iter().zip(&keys_f32[token * case.dim..]).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
        };
        let weights: Vec<f64> = visible.iter().map(|&t| (dot(t) / (case.dim as f64).sqrt()).exp()).collect();
        let total: f64 = weights.iter().sum();
        for d in 0..case.dim {
            let pairs = visible.iter().zip(&weights);
            let exact = pairs.map(|(&t, w)| w * f64::from(values_f32[t * case.dim + d])).sum::<f64>() / total;
            let got = f64::from(acc[head * case.dim + d]);
            assert!((got - exact).abs() < 2e-5, "{isa:?} head {head} dim {d}: {got} / {exact}");
        }
    }
}

#[test]
fn every_isa_attends_over_ragged_pages() {
    for isa in Isa::available() {
        for format in [Format::F32, Format::Bf16] {
            let pages = |pages: &[usize]| pages.to_vec();
            for (heads, dim, page_tokens, pages) in [
                (1, 32, 16, pages(&[1])),
                (2, 32, 16, pages(&[16, 16, 3])),
                (16, 128, 128, pages(&[128, 128, 77])),
                (5, 20, 16, pages(&[16, 7])),
                (4, 33, 16, pages(&[9])),
                (40, 32, 16, pages(&[16, 9])),
            ] {
                check(isa, &Case { heads, dim, page_tokens, pages, format });
            }
        }
    }
}

#[test]
fn runs_of_pages_merge_to_the_whole() {
    let (mut max, mut sum, mut acc) = (vec![1.0], vec![2.0], vec![4.0]);
    let mut state = State { max: &mut max, sum: &mut sum, acc: &mut acc };
    let (mut max2, mut sum2, mut acc2) = (vec![3.0], vec![1.0], vec![5.0]);
    let other = State { max: &mut max2, sum: &mut sum2, acc: &mut acc2 };
    state.merge(&other, 1);
    let keep = (-2.0f32).exp();
    assert_eq!((state.max[0], state.sum[0], state.acc[0]), (3.0, 2.0 * keep + 1.0, 4.0 * keep + 5.0));
    let (mut max3, mut sum3, mut acc3) = (vec![f32::NEG_INFINITY], vec![0.0], vec![0.0]);
    let mut empty = State { max: &mut max3, sum: &mut sum3, acc: &mut acc3 };
    let (mut max4, mut sum4, mut acc4) = (vec![f32::NEG_INFINITY], vec![0.0], vec![0.0]);
    empty.merge(&State { max: &mut max4, sum: &mut sum4, acc: &mut acc4 }, 1);
    assert_eq!((empty.sum[0], empty.acc[0]), (0.0, 0.0));
}
