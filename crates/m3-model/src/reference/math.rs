//! The small formulas: dot product, Gemma norm, clamped SwiGLU, sigmoid; and rows spread over threads.

/// Partial sums of [`dot`]; as many independent chains keep the vector units busy.
const LANES: usize = 16;
/// Fewer rows than this are not worth a thread.
const MIN_ROWS_PER_THREAD: usize = 8;

/// `f32` dot product. Lane `i` sums the products at `i, i + 16, ...`, so rounding errors stay small.
pub fn dot(left: &[f32], right: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    let (left_chunks, left_rest) = left.as_chunks::<LANES>();
    let (right_chunks, right_rest) = right.as_chunks::<LANES>();
    for (left, right) in left_chunks.iter().zip(right_chunks) {
        for lane in 0..LANES {
            sums[lane] += left[lane] * right[lane];
        }
    }
    let rest: f32 = left_rest.iter().zip(right_rest).map(|(left, right)| left * right).sum();
    sums.iter().sum::<f32>() + rest
}

/// Gemma RMSNorm in place: `x / sqrt(mean(x^2) + eps) * (1 + weight)`.
pub fn gemma_norm(values: &mut [f32], weight: &[f32], eps: f32) {
    let mean_square = dot(values, values) / values.len() as f32;
    let scale = 1.0 / (mean_square + eps).sqrt();
    for (value, weight) in values.iter_mut().zip(weight) {
        *value = *value * scale * (1.0 + weight);
    }
}

pub fn sigmoid(value: f32) -> f32 {
    1.0 / (1.0 + (-value).exp())
}

/// `min(gate, limit) * sigmoid(alpha * min(gate, limit)) * (clamp(up, -limit, limit) + 1)`; the gate has no lower clamp.
pub fn swiglu(gate: f32, up: f32, alpha: f32, limit: f32) -> f32 {
    let gate = gate.min(limit);
    let up = up.clamp(-limit, limit);
    (up + 1.0) * gate * sigmoid(alpha * gate)
}

/// Calls `work(row, values of that row)` for every row of `width` values, spread over the machine's cores.
pub fn for_rows(values: &mut [f32], width: usize, work: impl Fn(usize, &mut [f32]) + Sync) {
    let num_rows = values.len() / width;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let num_threads = cores.min(num_rows / MIN_ROWS_PER_THREAD).max(1);
    if num_threads == 1 {
        values.chunks_mut(width).enumerate().for_each(|(row, values)| work(row, values));
        return;
    }
    // Rows are dealt out like cards: later tokens have more keys to attend to, so runs would be uneven.
    let mut hands: Vec<Vec<(usize, &mut [f32])>> = (0..num_threads).map(|_| Vec::new()).collect();
    for (row, values) in values.chunks_mut(width).enumerate() {
        hands[row % num_threads].push((row, values));
    }
    std::thread::scope(|scope| {
        for hand in hands {
            scope.spawn(|| hand.into_iter().for_each(|(row, values)| work(row, values)));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swiglu_check_values() {
        let value = |gate, up| swiglu(gate, up, 1.702, 7.0);
        assert_eq!(value(0.0, 5.0), 0.0);
        assert!((value(10.0, 10.0) - 55.999_625).abs() < 1e-5);
        assert!((value(-3.0, -9.0) - 0.108_428).abs() < 1e-6);
    }

    #[test]
    fn gemma_norm_weights_stand_around_zero() {
        let mut values = [3.0, 4.0];
        gemma_norm(&mut values, &[0.0, 1.0], 0.0);
        let scale = 1.0 / 12.5f32.sqrt();
        assert!((values[0] - 3.0 * scale).abs() < 1e-6 && (values[1] - 8.0 * scale).abs() < 1e-6);
    }

    #[test]
    fn dot_takes_every_element_once() {
        for len in [0, 1, 15, 16, 17, 100] {
            let left: Vec<f32> = (0..len).map(|index| index as f32).collect();
            let right = vec![2.0; len];
            assert_eq!(dot(&left, &right), (len * len.saturating_sub(1)) as f32, "{len}");
        }
    }

    #[test]
    fn every_row_is_visited_with_its_number() {
        let mut values = vec![0.0; 3 * 101];
        for_rows(&mut values, 3, |row, values| values.fill(row as f32 + 1.0));
        assert!(values.chunks(3).enumerate().all(|(row, values)| values == [row as f32 + 1.0; 3]));
    }
}
