//! Counts of what the parser met and mended. They feed the server's metrics: an operator sees how often the
//! model's markup was repaired or dropped, instead of reading it off wrong answers.

/// Repairs and drops of one answer. All zero for well-formed output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// A parameter given again after its value had been sent (dropped) or was about to be (made a list).
    pub repeated_keys: u32,
    /// Runs of text where the tool grammar allows only elements. Ignored, or kept as `$text` beside children.
    pub stray_text: u32,
    /// Closing tags that fit no open element, or an outer one while inner ones were open.
    pub mismatched_tags: u32,
    /// Parameters left out of a call because they were malformed or cut.
    pub dropped_parameters: u32,
    /// Calls ended without their own closing tag (by the block's end, the next call, or the end of output).
    pub unclosed_calls: u32,
    /// Calls that the end of output or a stop string cut.
    pub truncated_calls: u32,
    /// Calls without a readable name; nothing of them is answered.
    pub nameless_calls: u32,
    /// Calls of tools that the request did not declare; they are answered all the same.
    pub undeclared_tools: u32,
    /// Parameters whose lost opening tag was inferred from the closing one.
    pub recovered_parameters: u32,
    /// Values that fit no type of their schema and were kept as they stand.
    pub untypable_values: u32,
    /// Elements nested deeper than the limit, kept as text.
    pub too_deep: u32,
}

impl Faults {
    /// Sum of all counts; zero means nothing was repaired.
    pub fn total(&self) -> u32 {
        [
            self.repeated_keys,
            self.stray_text,
            self.mismatched_tags,
            self.dropped_parameters,
            self.unclosed_calls,
            self.truncated_calls,
            self.nameless_calls,
            self.undeclared_tools,
            self.recovered_parameters,
            self.untypable_values,
            self.too_deep,
        ]
        .iter()
        .sum()
    }
}
