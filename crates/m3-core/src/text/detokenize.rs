//! Incremental detokenisation: token ids to text, never half a character. No parsing of markers here.
