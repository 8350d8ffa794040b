//! A chat message's content in the making, from the blocks or parts of another API. Text alone stays text; with media
//! it becomes parts that remember where they came from.

use serde_json::{Value, json};

/// Texts and media in their order.
#[derive(Debug, Default)]
pub struct Parts {
    parts: Vec<Value>,
    /// Where each part came from, as a path of the request.
    origins: Vec<String>,
    has_media: bool,
}

impl Parts {
    /// One more text.
    pub fn text(&mut self, text: &str, origin: &str) {
        self.parts.push(json!({ "type": "text", "text": text }));
        self.origins.push(origin.to_owned());
    }

    /// One more image or video, as a part of a chat message.
    pub fn media(&mut self, part: Value, origin: &str) {
        self.parts.push(part);
        self.origins.push(origin.to_owned());
        self.has_media = true;
    }

    /// Whether there is neither text nor medium.
    pub fn is_empty(&self) -> bool {
        !self.has_media && self.parts.iter().all(|part| part["text"] == "")
    }

    /// Where the first medium came from.
    pub fn first_medium(&self) -> Option<&str> {
        let at = self.parts.iter().position(|part| part["type"] != "text")?;
        Some(&self.origins[at])
    }

    /// The content of message number `message`, and what its parts are to be called by.
    pub fn finish(self, message: usize) -> (Value, Vec<(String, String)>) {
        if !self.has_media {
            let texts = self.parts.iter().filter_map(|part| part["text"].as_str());
            return (Value::String(texts.collect()), Vec::new());
        }
        let path = |at: usize| format!("messages[{message}].content[{at}]");
        let names = self.origins.into_iter().enumerate().map(|(at, origin)| (path(at), origin));
        (Value::Array(self.parts), names.collect())
    }
}
