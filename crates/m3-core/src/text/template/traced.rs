//! Strings that remember, character by character, whether the template wrote them.
//! Everything else (messages, tools, arguments, numbers) is the user's. Only template characters may later
//! form control markers, so every operation here must carry the origin along; none may guess it.

use std::ops::Range;
use std::rc::Rc;

/// An immutable string plus the byte ranges of it that come from the template's own text.
#[derive(Clone, Default)]
pub(crate) struct Traced(Rc<Content>);

#[derive(Default)]
struct Content {
    text: String,
    /// Sorted, non-empty, never touching one another; always on character boundaries.
    template: Vec<Range<usize>>,
}

impl Traced {
    /// A string no character of which may become part of a marker.
    pub(crate) fn user(text: &str) -> Self {
        Self(Rc::new(Content { text: text.to_owned(), template: Vec::new() }))
    }

    /// A literal of the template.
    pub(crate) fn template(text: &str) -> Self {
        let mut builder = TracedBuilder::default();
        builder.push_template(text);
        builder.finish()
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0.text
    }

    /// Byte ranges written by the template.
    pub(crate) fn template_ranges(&self) -> &[Range<usize>] {
        &self.0.template
    }

    /// The bytes in `range` with their origin. `range` must lie on character boundaries.
    pub(crate) fn slice(&self, range: Range<usize>) -> Self {
        if range == (0..self.0.text.len()) {
            return self.clone();
        }
        let mut builder = TracedBuilder::default();
        builder.push_slice(self, range);
        builder.finish()
    }

    /// `range` cut into stretches of one origin: `(bytes, written by the template)`.
    pub(crate) fn runs(&self, range: Range<usize>) -> Vec<(Range<usize>, bool)> {
        let mut runs = Vec::new();
        let mut at = range.start;
        let first = self.0.template.partition_point(|owned| owned.end <= range.start);
        for owned in &self.0.template[first..] {
            if owned.start >= range.end {
                break;
            }
            let (start, end) = (owned.start.max(range.start), owned.end.min(range.end));
            if at < start {
                runs.push((at..start, false));
            }
            runs.push((start..end, true));
            at = end;
        }
        if at < range.end {
            runs.push((at..range.end, false));
        }
        runs
    }

    /// A new string made character by character; what `write` appends inherits the origin of its character.
    pub(crate) fn map_chars(&self, mut write: impl FnMut(char, &mut String)) -> Self {
        let mut builder = TracedBuilder::default();
        let mut piece = String::new();
        for (run, is_template) in self.runs(0..self.0.text.len()) {
            piece.clear();
            for character in self.0.text[run].chars() {
                write(character, &mut piece);
            }
            builder.push_as(&piece, is_template);
        }
        builder.finish()
    }
}

/// Collects a [`Traced`] string piece by piece.
#[derive(Default)]
pub(crate) struct TracedBuilder {
    text: String,
    template: Vec<Range<usize>>,
}

impl TracedBuilder {
    pub(crate) fn push(&mut self, text: &Traced) {
        self.push_slice(text, 0..text.as_str().len());
    }

    pub(crate) fn push_slice(&mut self, text: &Traced, range: Range<usize>) {
        let base = self.text.len();
        for (run, is_template) in text.runs(range.clone()) {
            if is_template {
                self.own(base + run.start - range.start..base + run.end - range.start);
            }
        }
        self.text.push_str(&text.as_str()[range]);
    }

    pub(crate) fn push_user(&mut self, text: &str) {
        self.push_as(text, false);
    }

    pub(crate) fn push_template(&mut self, text: &str) {
        self.push_as(text, true);
    }

    pub(crate) fn push_as(&mut self, text: &str, is_template: bool) {
        let start = self.text.len();
        self.text.push_str(text);
        if is_template {
            self.own(start..self.text.len());
        }
    }

    pub(crate) fn finish(self) -> Traced {
        Traced(Rc::new(Content { text: self.text, template: self.template }))
    }

    fn own(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        match self.template.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.template.push(range),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mixed() -> Traced {
        let mut builder = TracedBuilder::default();
        builder.push_template("<é");
        builder.push_user("ü>");
        builder.push_template("x");
        builder.push_template("y");
        builder.finish()
    }

    #[test]
    fn neighbouring_template_pieces_join() {
        assert_eq!(mixed().template_ranges(), [0..3, 6..8]);
    }

    #[test]
    fn slices_keep_the_origin_of_every_character() {
        let slice = mixed().slice(1..7);
        assert_eq!(slice.as_str(), "éü>x");
        assert_eq!(slice.template_ranges(), [0..2, 5..6]);
        assert!(mixed().slice(3..6).template_ranges().is_empty());
        assert_eq!(mixed().slice(5..5).as_str().len(), 0);
    }

    #[test]
    fn mapping_may_change_lengths() {
        let upper = Traced::template("ß").map_chars(|c, out| out.extend(c.to_uppercase()));
        assert_eq!(upper.as_str(), "SS");
        assert_eq!(format!("{:?}", upper.template_ranges()), "[0..2]");
        let upper = mixed().map_chars(|c, out| out.extend(c.to_uppercase()));
        assert_eq!(upper.template_ranges(), [0..3, 6..8]);
    }
}
