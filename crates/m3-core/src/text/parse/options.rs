//! What the parser is told before the first token: markers, modes, tools and stop strings.
//! It holds no state of an answer.

use std::collections::HashMap;
use std::sync::Arc;

use super::ids::CallIds;
use super::schema::ToolSet;
use super::stop::SharedStops;

/// The effective thinking mode of the request. It alone decides the start state; the prompt is never scanned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ThinkingMode {
    /// The model decides: the output may open with reasoning, a lone closer or the answer.
    #[default]
    Adaptive,
    /// The prompt ended with the opener, so the output starts inside reasoning.
    Enabled,
    /// The prompt ended with the closer; a repeated closer or an unasked think block is still understood.
    Disabled,
}

/// A piece of markup: its text and, when the tokenizer has it as one token, that token's id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    /// The marker as decoded text.
    pub text: String,
    /// Its token id, if it has one.
    pub token: Option<u32>,
}

impl Marker {
    fn new(text: &str, token: u32) -> Self {
        Self { text: text.to_owned(), token: Some(token) }
    }
}

/// The markers of the model's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Markers {
    /// Stands before every tag of a tool call.
    pub namespace: Marker,
    /// Opens reasoning.
    pub think_open: Marker,
    /// Closes reasoning.
    pub think_close: Marker,
    /// Opens a block of calls; a tag in angle brackets.
    pub tool_open: Marker,
    /// Closes a block of calls; the tag of `tool_open` with a slash.
    pub tool_close: Marker,
    /// Texts of other added tokens that look like tags (`<filename>`). A parameter or a tag that the answer speaks
    /// of can carry such a name, and a detokeniser that skips special tokens would lose exactly the opening one:
    /// while markup is read, a piece of such a token without text takes its text from here.
    pub tag_tokens: Arc<HashMap<u32, String>>,
}

impl Default for Markers {
    /// The markers of the released tokenizer.
    fn default() -> Self {
        Self {
            namespace: Marker::new("]<]minimax[>[", 200_058),
            think_open: Marker::new("<mm:think>", 200_059),
            think_close: Marker::new("</mm:think>", 200_060),
            tool_open: Marker::new("<tool_call>", 200_052),
            tool_close: Marker::new("</tool_call>", 200_053),
            tag_tokens: Arc::default(),
        }
    }
}

impl Markers {
    /// The released markers with the ids of these added tokens, and every other added token that looks like a tag.
    /// A marker that is no added token is recognised by its text alone.
    pub fn from_added_tokens<'t>(tokens: impl IntoIterator<Item = (u32, &'t str)>) -> Self {
        let by_text: HashMap<&str, u32> = tokens.into_iter().map(|(id, text)| (text, id)).collect();
        let mut markers = Self::default();
        for marker in markers.all_mut() {
            marker.token = by_text.get(marker.text.as_str()).copied();
        }
        let own: Vec<Option<u32>> = markers.all().iter().map(|marker| marker.token).collect();
        let is_tag = |text: &str| text.len() > 2 && text.starts_with('<') && text.ends_with('>');
        let tags = by_text.into_iter().filter(|(text, id)| is_tag(text) && !own.contains(&Some(*id)));
        markers.tag_tokens = Arc::new(tags.map(|(text, id)| (id, text.to_owned())).collect());
        markers
    }

    fn all_mut(&mut self) -> [&mut Marker; 5] {
        let Self { namespace, think_open, think_close, tool_open, tool_close, .. } = self;
        [namespace, think_open, think_close, tool_open, tool_close]
    }

    /// The markers that have a token of their own.
    pub(in crate::text) fn all(&self) -> [&Marker; 5] {
        [&self.namespace, &self.think_open, &self.think_close, &self.tool_open, &self.tool_close]
    }

    /// Name of the block tag: `tool_call` for `<tool_call>`.
    pub(super) fn block_name(&self) -> &str {
        self.tool_open.text.trim_start_matches('<').trim_end_matches('>')
    }
}

/// Settings of one answer's parser.
#[derive(Debug, Clone)]
pub struct ParserOptions {
    /// Decides the start state.
    pub thinking_mode: ThinkingMode,
    /// Tools of the request, for typing arguments.
    pub tools: Arc<ToolSet>,
    /// Stop strings. Empty ones are ignored.
    pub stop: Vec<String>,
    /// Copies of the options share one search over the stop strings.
    pub shared_stops: SharedStops,
    /// Keep the stop string in the text that it ends.
    pub include_stop: bool,
    /// Look for stop strings in reasoning too, apart from content.
    pub stop_in_reasoning: bool,
    /// Look for stop strings in the argument values as the model wrote them, each value by itself.
    pub stop_in_arguments: bool,
    /// Split reasoning from content. Off: think markers are content like any text.
    pub parse_reasoning: bool,
    /// Read tool calls. Off: their markup is content like any text.
    pub parse_tools: bool,
    /// The model's markup.
    pub markers: Markers,
    /// Where call ids come from.
    pub call_ids: CallIds,
}

impl Default for ParserOptions {
    /// Adaptive, no tools, no stop strings, both parsers on.
    fn default() -> Self {
        Self {
            thinking_mode: ThinkingMode::default(),
            tools: Arc::default(),
            stop: Vec::new(),
            shared_stops: SharedStops::default(),
            include_stop: false,
            stop_in_reasoning: false,
            stop_in_arguments: false,
            parse_reasoning: true,
            parse_tools: true,
            markers: Markers::default(),
            call_ids: CallIds::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_take_the_ids_of_their_tokens() {
        let tokens =
            [(5, "]<]minimax[>["), (6, "<mm:think>"), (7, "</mm:think>"), (8, "<filename>"), (9, "[e~[")];
        let markers = Markers::from_added_tokens(tokens);
        let ids = markers.all().map(|marker| marker.token);
        assert_eq!(ids, [Some(5), Some(6), Some(7), None, None]);
        assert_eq!(*markers.tag_tokens, HashMap::from([(8, "<filename>".to_owned())]));
    }
}
