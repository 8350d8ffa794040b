//! Named points of the last step, kept only when the instance was opened with `OPEN_TAPS`.

use std::collections::HashMap;

use m3_abi::Tap;
use m3_model::taps::TapPoint;

/// Points of one step.
pub(crate) type Taps = HashMap<TapPoint, Tap>;

/// Collects points while a step runs, or does nothing.
pub(crate) struct Recorder(Option<Taps>);

impl Recorder {
    pub(crate) fn new(enabled: bool) -> Recorder {
        Recorder(enabled.then(Taps::new))
    }

    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Keeps a point; `data` is only called when taps are on.
    pub(crate) fn keep(&mut self, point: TapPoint, shape: &[usize], data: impl FnOnce() -> Vec<f32>) {
        if let Some(taps) = &mut self.0 {
            let shape = shape.iter().map(|&size| size as u64).collect();
            taps.insert(point, Tap { shape, data: data() });
        }
    }

    /// Adds rows to a point that a step makes in pieces; the shape is `[rows, width]`.
    pub(crate) fn append(&mut self, point: TapPoint, width: usize, rows: &[f32]) {
        if let Some(taps) = &mut self.0 {
            let tap =
                taps.entry(point).or_insert_with(|| Tap { shape: vec![0, width as u64], data: Vec::new() });
            tap.data.extend_from_slice(rows);
            tap.shape[0] = (tap.data.len() / width) as u64;
        }
    }

    /// The points of the step that just ran.
    pub(crate) fn take(&mut self) -> Option<Taps> {
        self.0.as_mut().map(std::mem::take)
    }
}
