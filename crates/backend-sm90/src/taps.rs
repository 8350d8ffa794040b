//! Named points of the last step, kept only when the instance was opened with `OPEN_TAPS`.
//!
//! Each is copied from the device right after the kernel that made it, which makes such steps slow: for conformance.

use std::collections::HashMap;

use m3_abi::Tap;
use m3_model::taps::TapPoint;

/// Points of one step.
pub(crate) type Taps = HashMap<TapPoint, Tap>;

/// Collects points while a step runs, or does nothing.
#[derive(Default)]
pub(crate) struct Recorder {
    taps: Option<Taps>,
    /// Token of the batch -> token in the kernels' order.
    place: Vec<u32>,
}

impl Recorder {
    pub(crate) fn new(enabled: bool) -> Recorder {
        Recorder { taps: enabled.then(Taps::new), place: Vec::new() }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.taps.is_some()
    }

    /// Points of a step whose tokens were put into another order than the host's.
    pub(crate) fn begin(&mut self, place: &[u32]) {
        self.place.clear();
        self.place.extend_from_slice(place);
    }

    /// Keeps `[T, width]` values that stand in the kernels' order of tokens.
    pub(crate) fn keep_tokens(&mut self, point: TapPoint, width: usize, values: &[f32]) {
        let Some(taps) = &mut self.taps else { return };
        let rows = self.place.iter().map(|&place| &values[place as usize * width..][..width]);
        let data = rows.flatten().copied().collect();
        taps.insert(point, Tap { shape: vec![self.place.len() as u64, width as u64], data });
    }

    /// Keeps `[heads, T, width]` of values `[T, heads, width]` in the kernels' order of tokens.
    pub(crate) fn keep_heads(&mut self, point: TapPoint, heads: usize, width: usize, values: &[f32]) {
        let Some(taps) = &mut self.taps else { return };
        let mut data = Vec::with_capacity(heads * self.place.len() * width);
        for head in 0..heads {
            for &place in &self.place {
                data.extend_from_slice(&values[(place as usize * heads + head) * width..][..width]);
            }
        }
        let shape = vec![heads as u64, self.place.len() as u64, width as u64];
        taps.insert(point, Tap { shape, data });
    }

    /// Adds rows to a point that a step makes in pieces; the shape is `[rows, width]`.
    pub(crate) fn append(&mut self, point: TapPoint, width: usize, rows: &[f32]) {
        let Some(taps) = &mut self.taps else { return };
        let tap = taps.entry(point).or_insert_with(|| Tap { shape: vec![0, width as u64], data: Vec::new() });
        tap.data.extend_from_slice(rows);
        tap.shape[0] = (tap.data.len() / width) as u64;
    }

    /// The points of the step that just ran.
    pub(crate) fn take(&mut self) -> Option<Taps> {
        self.taps.as_mut().map(std::mem::take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_in_the_order_of_the_batch() {
        let mut recorder = Recorder::new(true);
        recorder.begin(&[2, 0, 1]);
        recorder.keep_tokens(TapPoint::Routed(1), 2, &[0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 9.0, 9.0]);
        recorder.keep_heads(TapPoint::Selected(1), 2, 1, &[0.0, 10.0, 1.0, 11.0, 2.0, 12.0]);
        recorder.append(TapPoint::Logits, 2, &[1.0, 2.0]);
        recorder.append(TapPoint::Logits, 2, &[3.0, 4.0, 5.0, 6.0]);
        let taps = recorder.take().unwrap();
        assert_eq!(taps[&TapPoint::Routed(1)].data, [2.0, 2.5, 0.0, 0.5, 1.0, 1.5]);
        assert_eq!(taps[&TapPoint::Routed(1)].shape, [3, 2]);
        assert_eq!(taps[&TapPoint::Selected(1)].data, [2.0, 0.0, 1.0, 12.0, 10.0, 11.0]);
        assert_eq!(taps[&TapPoint::Selected(1)].shape, [2, 3, 1]);
        assert_eq!(taps[&TapPoint::Logits].shape, [3, 2]);
    }

    #[test]
    fn nothing_is_kept_when_taps_are_off() {
        let mut recorder = Recorder::new(false);
        recorder.begin(&[0]);
        recorder.keep_tokens(TapPoint::Hidden, 1, &[1.0]);
        assert_eq!(recorder.take(), None);
    }
}
