//! The tokenizer: text to ids and ids to exact bytes. No chat template here.
