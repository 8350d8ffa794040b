//! Cuts a rendered prompt at its control markers. Only an unbroken stretch of template text can be a marker;
//! what lies between two markers stays one piece of ordinary text, whoever wrote it.

use super::traced::Traced;
use crate::text::tokenizer::Segment;
use crate::text::tokenizer::Tokenizer;

/// The prompt as markers and ordinary text, in order; joined they give the prompt again.
pub(crate) fn cut(prompt: &Traced, tokenizer: &Tokenizer) -> Vec<Segment> {
    let whole = prompt.as_str();
    let mut segments = Vec::new();
    let mut ordinary_from = 0;
    for range in prompt.template_ranges() {
        for (marker, id) in tokenizer.find_added(&whole[range.clone()]) {
            let (start, end) = (range.start + marker.start, range.start + marker.end);
            if ordinary_from < start {
                segments.push(Segment::Ordinary(whole[ordinary_from..start].to_owned()));
            }
            segments.push(Segment::Added { id, text: whole[start..end].to_owned() });
            ordinary_from = end;
        }
    }
    if ordinary_from < whole.len() {
        segments.push(Segment::Ordinary(whole[ordinary_from..].to_owned()));
    }
    segments
}

impl super::Rendered {
    /// Keeps the first `length` bytes of the prompt, which must be whole characters. A marker that the cut would split
    /// goes with the rest.
    pub fn cut(&mut self, length: usize) {
        self.prompt.truncate(length);
        let mut left = length;
        let mut kept = Vec::new();
        for segment in std::mem::take(&mut self.segments) {
            let size = segment.text().len();
            if size <= left {
                left -= size;
                kept.push(segment);
                continue;
            }
            if let Segment::Ordinary(mut text) = segment {
                text.truncate(left);
                kept.push(Segment::Ordinary(text));
            }
            break;
        }
        self.segments = kept;
    }
}
