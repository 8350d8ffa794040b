//! Writing one call's arguments as JSON text that grows: `{`, keys, string values as their text comes, other
//! values when complete, `}`. It decides what a repeated key does; it reads no markup.

use std::collections::HashSet;

use super::delta::DeltaSink;
use super::element::MAX_CONTAINERS;
use super::json;

/// The arguments of the call being answered.
#[derive(Debug)]
pub(super) struct CallWriter {
    index: usize,
    /// Keys whose values were sent: they cannot be taken back.
    sent: HashSet<String>,
    /// The last complete value, kept until something else follows, so that the same key again makes a list.
    waiting: Option<(String, Vec<String>)>,
}

impl CallWriter {
    pub(super) fn new(index: usize) -> Self {
        Self { index, sent: HashSet::new(), waiting: None }
    }

    /// True when this key's value was sent.
    pub(super) fn has_sent(&self, key: &str) -> bool {
        self.sent.contains(key)
    }

    /// True when this key's value is complete but not sent.
    pub(super) fn awaits(&self, key: &str) -> bool {
        self.waiting.as_ref().is_some_and(|(waiting, _)| waiting == key)
    }

    /// Opens a string value; its text follows through [`Self::string_text`].
    pub(super) fn open_string(&mut self, key: &str, out: &mut DeltaSink) {
        self.release(out);
        self.begin_key(key, out);
        out.arguments(self.index, "\"");
    }

    /// More text of the open string.
    pub(super) fn string_text(&mut self, text: &str, out: &mut DeltaSink) {
        let mut escaped = String::with_capacity(text.len());
        json::escape_into(text, &mut escaped);
        out.arguments(self.index, &escaped);
    }

    /// Ends the open string.
    pub(super) fn close_string(&mut self, out: &mut DeltaSink) {
        out.arguments(self.index, "\"");
    }

    /// A complete value as JSON text. The key must not have been sent.
    pub(super) fn value(&mut self, key: &str, value: String, out: &mut DeltaSink) {
        match &mut self.waiting {
            // The list and the arguments' object are two containers around the value.
            Some((waiting, values)) if waiting == key => {
                if json::nesting(&value) + 2 <= MAX_CONTAINERS
                    && json::nesting(&values[0]) + 2 <= MAX_CONTAINERS
                {
                    values.push(value);
                }
            }
            _ => {
                self.release(out);
                self.waiting = Some((key.to_owned(), vec![value]));
            }
        }
    }

    /// Sends the value that waits, if one does: nothing can be added to it any more.
    pub(super) fn release(&mut self, out: &mut DeltaSink) {
        let Some((key, values)) = self.waiting.take() else { return };
        self.begin_key(&key, out);
        match values.as_slice() {
            [single] => out.arguments(self.index, single),
            several => out.arguments(self.index, &json::array(several.iter().map(String::as_str))),
        }
    }

    /// Ends the arguments and the call.
    pub(super) fn end(mut self, out: &mut DeltaSink) {
        self.release(out);
        out.arguments(self.index, if self.sent.is_empty() { "{}" } else { "}" });
        out.tool_end(self.index);
    }

    fn begin_key(&mut self, key: &str, out: &mut DeltaSink) {
        let before = if self.sent.is_empty() { '{' } else { ',' };
        out.arguments(self.index, &format!("{before}{}:", json::quoted(key)));
        self.sent.insert(key.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::parse::delta::Delta;

    fn fragments(write: impl FnOnce(CallWriter, &mut DeltaSink)) -> String {
        let mut out = DeltaSink::default();
        write(CallWriter::new(3), &mut out);
        let texts = out.take().into_iter().map(|delta| match delta {
            Delta::ToolArguments { index: 3, fragment } => fragment,
            Delta::ToolEnd { index: 3 } => "#".to_owned(),
            other => panic!("{other:?}"),
        });
        texts.collect()
    }

    #[test]
    fn arguments_grow_to_one_object() {
        assert_eq!(fragments(|writer, out| writer.end(out)), "{}#");
        let text = fragments(|mut writer, out| {
            writer.value("n", "1".into(), out);
            writer.open_string("s\"", out);
            writer.string_text("a\n", out);
            writer.string_text("b", out);
            writer.close_string(out);
            assert!(writer.has_sent("n") && writer.has_sent("s\""));
            writer.value("l", "[]".into(), out);
            assert!(writer.awaits("l") && !writer.has_sent("l"));
            writer.value("l", "2".into(), out);
            writer.end(out);
        });
        assert_eq!(text, r#"{"n":1,"s\"":"a\nb","l":[[],2]}#"#);
    }
}
