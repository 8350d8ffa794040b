//! What a request wants done with reasoning: apart, inside the content, in one piece, or not at all. Works on deltas,
//! behind the parser, so that stop strings and calls are found as always.

use m3_core::text::parse::{Delta, Markers};

use crate::openai::thinking::ReasoningDelivery;

/// The request's wish.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReasoningShape {
    pub delivery: ReasoningDelivery,
    /// In one piece, when it is complete.
    pub whole: bool,
}

/// Applies it to the deltas of one answer.
#[derive(Debug)]
pub(super) struct ReasoningFilter {
    shape: ReasoningShape,
    open: String,
    close: String,
    /// Reasoning that waits for its end.
    held: String,
    /// Reasoning is being told inside the content.
    inside: bool,
}

impl ReasoningFilter {
    pub(super) fn new(shape: ReasoningShape, markers: &Markers) -> Self {
        let (open, close) = (markers.think_open.text.clone(), markers.think_close.text.clone());
        ReasoningFilter { shape, open, close, held: String::new(), inside: false }
    }

    /// The deltas to send instead of these.
    pub(super) fn apply(&mut self, deltas: Vec<Delta>) -> Vec<Delta> {
        if self.shape == ReasoningShape::default() {
            return deltas;
        }
        let mut told = Vec::with_capacity(deltas.len());
        for delta in deltas {
            match delta {
                Delta::Reasoning(text) if self.shape.whole => self.held.push_str(&text),
                Delta::Reasoning(text) => told.extend(self.reasoning(text)),
                other => {
                    told.extend(self.finish());
                    if std::mem::take(&mut self.inside) {
                        told.push(Delta::Content(self.close.clone()));
                    }
                    told.push(other);
                }
            }
        }
        told
    }

    /// What was held back. Reasoning that was cut gets no closing marker.
    pub(super) fn finish(&mut self) -> Option<Delta> {
        if self.held.is_empty() {
            return None;
        }
        let held = std::mem::take(&mut self.held);
        self.reasoning(held)
    }

    fn reasoning(&mut self, text: String) -> Option<Delta> {
        match self.shape.delivery {
            ReasoningDelivery::Separate => Some(Delta::Reasoning(text)),
            ReasoningDelivery::Omitted => None,
            ReasoningDelivery::Inline if std::mem::replace(&mut self.inside, true) => {
                Some(Delta::Content(text))
            }
            ReasoningDelivery::Inline => Some(Delta::Content(format!("{}{text}", self.open))),
        }
    }
}

#[cfg(test)]
mod tests {
    use m3_core::text::parse::fold;

    use super::*;

    fn told(delivery: ReasoningDelivery, whole: bool, cut: bool) -> Vec<Delta> {
        let mut filter = ReasoningFilter::new(ReasoningShape { delivery, whole }, &Markers::default());
        let mut told = filter.apply(vec![Delta::Reasoning("a".into())]);
        told.extend(filter.apply(vec![Delta::Reasoning("b".into())]));
        if !cut {
            told.extend(filter.apply(vec![Delta::Reasoning("c".into()), Delta::Content("d".into())]));
            told.extend(filter.apply(vec![Delta::Content("e".into())]));
        }
        told.extend(filter.finish());
        told
    }

    #[test]
    fn reasoning_goes_where_it_is_wanted() {
        use ReasoningDelivery::{Inline, Omitted, Separate};
        for whole in [false, true] {
            let parsed = fold(told(Separate, whole, false));
            assert_eq!((parsed.reasoning.as_deref(), parsed.content.as_deref()), (Some("abc"), Some("de")));
            let parsed = fold(told(Omitted, whole, false));
            assert_eq!((parsed.reasoning, parsed.content.as_deref()), (None, Some("de")));
            let parsed = fold(told(Inline, whole, false));
            assert_eq!(parsed.content.as_deref(), Some("<mm:think>abc</mm:think>de"));
            assert_eq!(fold(told(Inline, whole, true)).content.as_deref(), Some("<mm:think>ab"));
        }
    }

    #[test]
    fn reasoning_in_one_piece_is_one_delta() {
        let count = |whole| {
            let told = told(ReasoningDelivery::Separate, whole, false);
            told.iter().filter(|delta| matches!(delta, Delta::Reasoning(_))).count()
        };
        assert_eq!((count(false), count(true)), (3, 1));
    }
}
