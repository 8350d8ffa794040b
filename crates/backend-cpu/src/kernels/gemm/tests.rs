//! Every instruction set against sums in f64, over ragged sizes, formats and cuts inside a scale group.

use super::super::Kernels;
use super::super::convert::{bf16_to_f32, f32_to_bf16};
use super::super::isa::Isa;
use super::super::matrix::{Format, Matrix};
use super::Rows;
use crate::kernels::random::Random;

/// Bytes behind a [`Matrix`].
struct Weights {
    bytes: Vec<u8>,
    scales: Vec<u8>,
}

fn weights(
    random: &mut Random,
    format: Format,
    rows: usize,
    cols: usize,
    group_offset: usize,
) -> (Weights, Matrix) {
    let groups = (cols + group_offset).div_ceil(32);
    let bytes = match format {
        Format::F32 => (0..rows * cols).flat_map(|_| random.normal().to_le_bytes()).collect(),
        Format::Bf16 => (0..rows * cols).flat_map(|_| f32_to_bf16(random.normal()).to_le_bytes()).collect(),
        // Every code but the NaNs, subnormals and both zeros among them.
        Format::Mxfp8 => {
            (0..rows * cols).map(|_| (random.below(127) | (random.below(2) << 7)) as u8).collect()
        }
    };
    let scales = (0..rows * groups).map(|_| (112 + random.below(12)) as u8).collect();
    let owner: Weights = Weights { bytes, scales };
    let view = Matrix {
        format,
        rows,
        cols,
        row_stride: cols,
        data: owner.bytes.as_ptr(),
        scale: owner.scales.as_ptr(),
        scale_stride: groups,
        group_offset,
    };
    (owner, view)
}

fn check(kernels: Kernels, format: Format, shape: [usize; 3], group_offset: usize, as_bf16: bool) {
    let [m, n, k] = shape;
    let mut random = Random::new((m * 1_000_003 + n * 1009 + k) as u64);
    let (_owner, w) = weights(&mut random, format, n, k, group_offset);
    let bits: Vec<u16> = (0..m * k).map(|_| f32_to_bf16(random.normal())).collect();
    let x: Vec<f32> = bits.iter().map(|&b| bf16_to_f32(b)).collect();
    let mut y = vec![f32::NAN; m * n];
    kernels.gemm(Rows::new(&x, as_bf16.then_some(&bits[..]), k), &w, &mut y);
    for i in 0..m {
        for j in 0..n {
            let products = (0..k).map(|c| f64::from(x[i * k + c]) * f64::from(w.get(j, c)));
            let (exact, size) = products.fold((0.0, 1e-30), |(sum, size), p| (sum + p, size + p.abs()));
            let error = (f64::from(y[i * n + j]) - exact).abs();
            let case = format!(
                "{:?} {format:?} {shape:?} +{group_offset} bf16={as_bf16} at ({i}, {j})",
                kernels.isa()
            );
            assert!(error <= 2e-6 * size, "{case}: {} instead of {exact}", y[i * n + j]);
        }
    }
}

#[test]
fn every_isa_multiplies_ragged_shapes() {
    let shapes = [
        [1, 1, 1],
        [1, 5, 32],
        [2, 7, 96],
        [3, 33, 160],
        [5, 4, 64],
        [7, 9, 100],
        [13, 40, 37],
        [16, 64, 288],
    ];
    let larger = [[32, 33, 64], [37, 70, 515], [33, 3, 1], [50, 65, 544]];
    for isa in Isa::available() {
        let kernels = Kernels::of(isa).unwrap();
        for shape in shapes.into_iter().chain(larger) {
            for format in [Format::F32, Format::Bf16, Format::Mxfp8] {
                check(kernels, format, shape, 0, false);
                check(kernels, format, shape, 0, true);
            }
            for group_offset in [1, 8, 16, 31] {
                check(kernels, Format::Mxfp8, shape, group_offset, true);
                check(kernels, Format::Mxfp8, shape, group_offset, false);
            }
        }
    }
}

#[test]
fn more_rows_than_stay_in_cache() {
    for isa in [Isa::detect(), Isa::Scalar] {
        let kernels = Kernels::of(isa).unwrap();
        for (format, as_bf16) in [(Format::Bf16, true), (Format::Mxfp8, true), (Format::F32, false)] {
            check(kernels, format, [101, 37, 3072], 0, as_bf16);
            check(kernels, format, [25, 20, 12_289 / 32 * 32], 0, as_bf16);
        }
    }
}

#[test]
fn picked_rows_and_strided_weights() {
    let kernels = Kernels::detect();
    let mut random = Random::new(5);
    let x: Vec<f32> = (0..6 * 48).map(|_| random.normal()).collect();
    let (_owner, whole) = weights(&mut random, Format::F32, 10, 100, 0);
    let w = Matrix { cols: 48, data: whole.data.wrapping_add(4 * 20), ..whole };
    let picked = [4u32, 0, 4];
    let mut y = vec![0.0; 3 * 10];
    kernels.gemm(Rows::new(&x, None, 48).pick(&picked), &w, &mut y);
    for (i, &row) in picked.iter().enumerate() {
        for j in 0..10 {
            let exact: f32 = (0..48).map(|c| x[row as usize * 48 + c] * whole.get(j, 20 + c)).sum();
            assert!((y[i * 10 + j] - exact).abs() < 1e-4);
        }
    }
}

#[test]
fn a_row_of_a_batch_gets_the_bits_it_gets_alone() {
    for isa in Isa::available() {
        let kernels = Kernels::of(isa).unwrap();
        let mut random = Random::new(9);
        let (_owner, w) = weights(&mut random, Format::Bf16, 37, 192, 0);
        let x: Vec<f32> = (0..11 * 192).map(|_| random.normal()).collect();
        let mut batch = vec![0.0; 11 * 37];
        kernels.gemm(Rows::new(&x, None, 192), &w, &mut batch);
        for m in 0..11 {
            let mut alone = vec![0.0; 37];
            kernels.gemm(Rows::new(&x[m * 192..(m + 1) * 192], None, 192), &w, &mut alone);
            assert_eq!(alone, batch[m * 37..(m + 1) * 37], "{isa:?} row {m}");
        }
    }
}
