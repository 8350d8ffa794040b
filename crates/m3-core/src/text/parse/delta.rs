//! What the parser says: deltas in the order of the output, and the answer they fold to. The fold is the only
//! way to a whole answer, so streaming and non-streaming cannot differ.

/// One event of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// More reasoning text.
    Reasoning(String),
    /// More answer text.
    Content(String),
    /// A call begins; its arguments follow.
    ToolStart {
        /// Position of the call in the answer, from 0.
        index: usize,
        /// Unique id, `call_` and 24 hex digits.
        id: String,
        /// Name of the tool as the model wrote it.
        name: String,
    },
    /// More of the JSON text of a call's arguments. Fragments join to one valid JSON object.
    ToolArguments {
        /// The call it belongs to.
        index: usize,
        /// The next characters of the JSON text.
        fragment: String,
    },
    /// The call's arguments are complete.
    ToolEnd {
        /// The call that ended.
        index: usize,
    },
}

/// A whole answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parsed {
    /// Reasoning text; `None` when there was none.
    pub reasoning: Option<String>,
    /// Answer text; `None` when there was none.
    pub content: Option<String>,
    /// Calls in the order of the output.
    pub tool_calls: Vec<ParsedCall>,
}

/// One tool call of a whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedCall {
    /// Unique id of the call.
    pub id: String,
    /// Name of the tool as the model wrote it.
    pub name: String,
    /// Arguments as JSON text, always an object.
    pub arguments: String,
}

/// Joins the deltas of one answer.
///
/// # Panics
/// When an argument fragment comes before the start of its call: the parser never does that.
pub fn fold(deltas: impl IntoIterator<Item = Delta>) -> Parsed {
    let mut parsed = Parsed::default();
    for delta in deltas {
        match delta {
            Delta::Reasoning(text) => parsed.reasoning.get_or_insert_default().push_str(&text),
            Delta::Content(text) => parsed.content.get_or_insert_default().push_str(&text),
            Delta::ToolStart { id, name, .. } => {
                parsed.tool_calls.push(ParsedCall { id, name, arguments: String::new() });
            }
            Delta::ToolArguments { index, fragment } => {
                parsed.tool_calls[index].arguments.push_str(&fragment);
            }
            Delta::ToolEnd { .. } => {}
        }
    }
    parsed
}

/// Collects deltas of one call to the parser, joining neighbours of one kind. Empty text makes no delta.
#[derive(Debug, Default)]
pub(super) struct DeltaSink {
    deltas: Vec<Delta>,
}

impl DeltaSink {
    pub(super) fn reasoning(&mut self, text: &str) {
        match self.deltas.last_mut() {
            Some(Delta::Reasoning(last)) => last.push_str(text),
            _ if text.is_empty() => {}
            _ => self.deltas.push(Delta::Reasoning(text.to_owned())),
        }
    }

    pub(super) fn content(&mut self, text: &str) {
        match self.deltas.last_mut() {
            Some(Delta::Content(last)) => last.push_str(text),
            _ if text.is_empty() => {}
            _ => self.deltas.push(Delta::Content(text.to_owned())),
        }
    }

    pub(super) fn tool_start(&mut self, index: usize, id: String, name: String) {
        self.deltas.push(Delta::ToolStart { index, id, name });
    }

    pub(super) fn arguments(&mut self, index: usize, text: &str) {
        match self.deltas.last_mut() {
            Some(Delta::ToolArguments { fragment, .. }) => fragment.push_str(text),
            _ if text.is_empty() => {}
            _ => self.deltas.push(Delta::ToolArguments { index, fragment: text.to_owned() }),
        }
    }

    pub(super) fn tool_end(&mut self, index: usize) {
        self.deltas.push(Delta::ToolEnd { index });
    }

    pub(super) fn take(&mut self) -> Vec<Delta> {
        std::mem::take(&mut self.deltas)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_join_and_the_fold_keeps_order() {
        let mut sink = DeltaSink::default();
        sink.reasoning("");
        sink.reasoning("a");
        sink.reasoning("b");
        sink.content("c");
        sink.tool_start(0, "i".into(), "f".into());
        sink.arguments(0, "{");
        sink.arguments(0, "}");
        sink.tool_end(0);
        sink.content("d");
        let deltas = sink.take();
        assert_eq!(deltas.len(), 6);
        let parsed = fold(deltas);
        assert_eq!(parsed.reasoning.as_deref(), Some("ab"));
        assert_eq!(parsed.content.as_deref(), Some("cd"));
        assert_eq!(parsed.tool_calls[0].arguments, "{}");
    }
}
