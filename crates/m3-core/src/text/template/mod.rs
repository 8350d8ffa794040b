//! Chat template rendering with a known origin for every character of the prompt.
