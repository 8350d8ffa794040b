//! Good requests that each carry a nonce, over every API, streamed or whole, and the text that comes back.

use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::nonce::{judge, nonce};

/// How a nonce is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Api {
    Completions,
    Generate,
    Chat,
    Messages,
    Responses,
}

pub(crate) const APIS: [Api; 5] = [Api::Completions, Api::Generate, Api::Chat, Api::Messages, Api::Responses];

/// Tokens of an answer over a chat API: enough for the template's own words and the nonce behind them.
const CHAT_TOKENS: u32 = 256;

impl Api {
    fn path(self) -> &'static str {
        match self {
            Api::Completions => "/v1/completions",
            Api::Generate => "/generate",
            Api::Chat => "/v1/chat/completions",
            Api::Messages => "/v1/messages",
            Api::Responses => "/v1/responses",
        }
    }

    fn body(self, text: &str, stream: bool) -> Value {
        let turn = json!([{"role": "user", "content": text}]);
        match self {
            Api::Completions => json!({"prompt": text, "max_tokens": 400, "stream": stream}),
            Api::Generate => {
                json!({"text": text, "sampling_params": {"max_new_tokens": 400}, "stream": stream})
            }
            Api::Chat => {
                json!({"messages": turn, "max_tokens": CHAT_TOKENS, "stream": stream})
            }
            Api::Messages => {
                json!({"model": "nano", "messages": turn, "max_tokens": CHAT_TOKENS, "stream": stream})
            }
            Api::Responses => {
                json!({"input": text, "max_output_tokens": CHAT_TOKENS, "store": false, "stream": stream})
            }
        }
    }

    /// All that was said, in one text.
    fn said(self, answer: &str, stream: bool) -> String {
        let values: Vec<Value> = if stream {
            let lines = answer.lines().filter_map(|line| line.strip_prefix("data: "));
            lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
        } else {
            vec![serde_json::from_str(answer).unwrap_or_default()]
        };
        if let (Api::Generate, Some(last)) = (self, values.last()) {
            // Every event has the whole text so far.
            return last["text"].as_str().unwrap_or_default().to_owned();
        }
        values.iter().map(|value| self.part(value, stream)).collect()
    }

    fn part(self, value: &Value, stream: bool) -> String {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match (self, stream) {
            (Api::Completions, _) => text(&value["choices"][0]["text"]),
            (Api::Chat, _) => {
                let message = &value["choices"][0][if stream { "delta" } else { "message" }];
                text(&message["reasoning_content"]) + &text(&message["content"])
            }
            (Api::Messages, true) => text(&value["delta"]["thinking"]) + &text(&value["delta"]["text"]),
            (Api::Messages, false) => {
                let blocks = value["content"].as_array().cloned().unwrap_or_default();
                blocks.iter().map(|block| text(&block["thinking"]) + &text(&block["text"])).collect()
            }
            (Api::Responses, true) => text(&value["delta"]),
            (Api::Responses, false) => value["output"].to_string(),
            (Api::Generate, _) => text(&value["text"]),
        }
    }
}

/// One good request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) api: Api,
    pub(crate) stream: bool,
    pub(crate) number: u64,
    /// How often the nonce stands in the prompt.
    pub(crate) repeats: usize,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    Right,
    /// Somebody else's words: what must never be.
    Mixed(String),
    Wrong(String),
}

impl Ask {
    pub(crate) fn text(&self) -> String {
        vec![nonce(self.number); self.repeats].join(" ")
    }

    pub(crate) async fn send(
        &self,
        client: &reqwest::Client,
        base: &str,
    ) -> Result<reqwest::Response, String> {
        let body = self.api.body(&self.text(), self.stream);
        let sent = client.post(format!("{base}{}", self.api.path())).bearer_auth("tenant").json(&body).send();
        let answer = sent.await.map_err(|error| error.to_string())?;
        if answer.status() == 200 {
            return Ok(answer);
        }
        Err(format!("{} {}", answer.status(), answer.text().await.unwrap_or_default()))
    }

    /// Reads so many pieces of the answer, then leaves.
    pub(crate) async fn leave_after(
        &self,
        client: &reqwest::Client,
        base: &str,
        pieces: usize,
    ) -> Result<(), String> {
        let mut bytes = self.send(client, base).await?.bytes_stream();
        for _ in 0..pieces {
            let Some(piece) = bytes.next().await else { break };
            piece.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Sends, reads to the end and judges.
    pub(crate) async fn whole(&self, client: &reqwest::Client, base: &str) -> Came {
        let answer = match self.send(client, base).await {
            Ok(answer) => answer.text().await.map_err(|error| error.to_string()),
            Err(sentence) => Err(sentence),
        };
        match answer {
            Ok(text) => self.judge(&self.api.said(&text, self.stream)),
            Err(sentence) => Came::Wrong(sentence),
        }
    }

    pub(crate) fn judge(&self, said: &str) -> Came {
        let own = nonce(self.number);
        let exact = matches!(self.api, Api::Completions | Api::Generate);
        match judge(said, &own) {
            (_, Some(other)) => Came::Mixed(format!("{other} instead of {own}")),
            (count, None) if exact && (count != self.repeats || said != self.text()) => {
                Came::Wrong(format!("{said:?} for {:?}", self.text()))
            }
            (0, None) => Came::Wrong(format!("no {own} in {said:?}")),
            _ => Came::Right,
        }
    }

    pub(crate) fn said(&self, answer: &str) -> String {
        self.api.said(answer, self.stream)
    }
}
