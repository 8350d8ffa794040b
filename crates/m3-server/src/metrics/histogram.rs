//! A histogram with fixed bounds that many threads may write.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts by upper bound, with sum and count.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One more than the bounds: what is above them all.
    counts: Vec<AtomicU64>,
    /// Bits of an `f64`.
    sum: AtomicU64,
}

impl Histogram {
    /// `bounds` ascend.
    pub fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { bounds, counts, sum: AtomicU64::new(0f64.to_bits()) }
    }

    /// Counts one value.
    pub fn observe(&self, value: f64) {
        let at = self.bounds.partition_point(|bound| *bound < value);
        self.counts[at].fetch_add(1, Ordering::Relaxed);
        let add = |bits: u64| Some((f64::from_bits(bits) + value).to_bits());
        // Always succeeds: `add` never gives `None`.
        let _ = self.sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Writes the series in Prometheus' text form; `labels` is `key="value"` pairs.
    pub fn write(&self, out: &mut String, name: &str, help: &str, labels: &str) {
        let mut total = 0;
        // Writing to a string cannot fail.
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} histogram");
        for (at, count) in self.counts.iter().enumerate() {
            total += count.load(Ordering::Relaxed);
            let bound = self.bounds.get(at).map_or("+Inf".to_owned(), f64::to_string);
            let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {total}");
        }
        let sum = f64::from_bits(self.sum.load(Ordering::Relaxed));
        let _ = writeln!(out, "{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {total}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_bounds_inclusive() {
        let histogram = Histogram::new(&[1.0, 2.0]);
        for value in [0.5, 1.0, 1.5, 9.0] {
            histogram.observe(value);
        }
        let mut text = String::new();
        histogram.write(&mut text, "x", "h", "m=\"a\"");
        let expected = "# HELP x h\n# TYPE x histogram\nx_bucket{m=\"a\",le=\"1\"} 2\nx_bucket{m=\"a\",le=\"2\"} 3\n\
                        x_bucket{m=\"a\",le=\"+Inf\"} 4\nx_sum{m=\"a\"} 12\nx_count{m=\"a\"} 4\n";
        assert_eq!(text, expected);
    }
}
