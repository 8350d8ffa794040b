//! One streamed request, and the times at which its packets came.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures_util::StreamExt;
use serde_json::{Map, Value, json};

use super::options::BenchOptions;

/// A server under load.
#[derive(Clone)]
pub(super) struct Target {
    client: reqwest::Client,
    base: String,
    path: &'static str,
    chat: bool,
    key: Option<String>,
    pub model: String,
    fields: Map<String, Value>,
    timeout: Duration,
}

/// What goes into one request.
#[derive(Clone, Debug)]
pub(super) struct Prompt {
    /// User and assistant in turn, the user last.
    pub history: Vec<String>,
}

impl Prompt {
    pub(super) fn first(text: &str) -> Self {
        Prompt { history: vec![text.to_owned()] }
    }
}

/// What came of one request. Times are seconds from sending.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    /// When each packet with output came.
    pub packets: Vec<f64>,
    pub end: f64,
    pub prompt_tokens: u32,
    pub cached_tokens: u32,
    pub output_tokens: u32,
    /// Content alone, for the next turn.
    pub text: String,
    /// Why it does not count.
    pub failure: Option<String>,
}

impl Target {
    /// Asks what is served, unless the model was named.
    pub(super) async fn connect(options: &BenchOptions) -> anyhow::Result<Self> {
        // Each request has its own deadline; a pool keeps connections as a real client does.
        let client = reqwest::Client::builder().tcp_nodelay(true).build()?;
        let mut fields = Map::new();
        if options.ignore_eos {
            fields.insert("ignore_eos".to_owned(), true.into());
        }
        fields.extend(options.extra.clone());
        let mut target = Target {
            client,
            base: options.url.clone(),
            path: options.path(),
            chat: options.chat,
            key: options.key.clone(),
            model: options.model.clone().unwrap_or_default(),
            fields,
            timeout: Duration::from_secs_f64(options.timeout),
        };
        if options.model.is_none() {
            target.model = target.first_model().await?;
        }
        Ok(target)
    }

    fn request(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.base)).timeout(self.timeout);
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    async fn first_model(&self) -> anyhow::Result<String> {
        let url = format!("{}/v1/models", self.base);
        let silent = |error| anyhow::anyhow!("{url} does not answer: {}", told(error));
        let answer = self.request(reqwest::Method::GET, "/v1/models").send().await.map_err(silent)?;
        if !answer.status().is_success() {
            bail!("{url} answered with {}: give --model", answer.status());
        }
        let models: Value = answer.json().await.with_context(|| format!("{url} is no JSON"))?;
        let name = models["data"][0]["id"].as_str();
        Ok(name.with_context(|| format!("{url} lists no model: give --model"))?.to_owned())
    }

    /// Forgets cached prefixes, under either peer's name.
    pub(super) async fn flush_cache(&self) -> anyhow::Result<()> {
        for path in ["/flush_cache", "/reset_prefix_cache"] {
            let answer = self.request(reqwest::Method::POST, path).send().await.map_err(told)?;
            if answer.status().is_success() {
                return Ok(());
            }
        }
        bail!("--flush-cache: the server has neither /flush_cache nor /reset_prefix_cache, or refuses both")
    }

    /// One request from its first byte to its last; failures are part of the sample.
    pub(super) async fn ask(&self, prompt: &Prompt, output: usize) -> Sample {
        let mut sample = Sample::default();
        let start = Instant::now();
        if let Err(error) = self.stream(prompt, output, start, &mut sample).await {
            sample.failure = Some(crate::error::sentence(&error));
        } else if sample.packets.is_empty() {
            sample.failure = Some("the answer has no output".to_owned());
        } else if sample.output_tokens == 0 {
            sample.failure = Some("the server reports no completion_tokens".to_owned());
        }
        sample.end = start.elapsed().as_secs_f64();
        sample
    }

    async fn stream(
        &self,
        prompt: &Prompt,
        output: usize,
        start: Instant,
        sample: &mut Sample,
    ) -> anyhow::Result<()> {
        let body = self.body(prompt, output);
        let answer = self.request(reqwest::Method::POST, self.path).json(&body).send().await.map_err(told)?;
        let status = answer.status();
        if !status.is_success() {
            let text = answer.text().await.unwrap_or_default();
            let reason = serde_json::from_str::<Value>(&text).ok();
            let reason = reason.and_then(|value| value["error"]["message"].as_str().map(str::to_owned));
            bail!("{status}: {}", crate::error::cut(&reason.unwrap_or(text), 200));
        }
        let mut bytes = answer.bytes_stream();
        let mut lines = Lines::default();
        while let Some(chunk) = bytes.next().await {
            let now = start.elapsed().as_secs_f64();
            for data in lines.take(&chunk.map_err(told)?) {
                if data == "[DONE]" {
                    return Ok(());
                }
                self.event(&data, now, sample)?;
            }
        }
        bail!("the stream ended without [DONE]")
    }

    fn body(&self, prompt: &Prompt, output: usize) -> Value {
        let mut body = json!({
            "model": self.model, "stream": true, "stream_options": {"include_usage": true}, "max_tokens": output,
            "temperature": 0,
        });
        if self.chat {
            let role = |at: usize| if at.is_multiple_of(2) { "user" } else { "assistant" };
            let message = |(at, text): (usize, &String)| json!({"role": role(at), "content": text});
            body["messages"] = prompt.history.iter().enumerate().map(message).collect();
        } else {
            body["prompt"] = prompt.history.join("\n\n").into();
        }
        if let Value::Object(body) = &mut body {
            body.extend(self.fields.clone());
        }
        body
    }

    /// Reasoning, text and calls are output alike.
    fn event(&self, data: &str, now: f64, sample: &mut Sample) -> anyhow::Result<()> {
        let event: Value =
            serde_json::from_str(data).with_context(|| format!("an event is no JSON: {data:.100}"))?;
        if let Some(message) = event["error"]["message"].as_str() {
            bail!("in the stream: {message}");
        }
        let choice = &event["choices"][0];
        let content = if self.chat { &choice["delta"]["content"] } else { &choice["text"] };
        let said = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
        let delta = &choice["delta"];
        let calls = delta["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty());
        if said(content) || said(&delta["reasoning_content"]) || said(&delta["reasoning"]) || calls {
            sample.packets.push(now);
        }
        sample.text.push_str(content.as_str().unwrap_or_default());
        if let Some(usage) = event["usage"].as_object() {
            let count = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0) as u32;
            sample.prompt_tokens = count("prompt_tokens");
            sample.output_tokens = count("completion_tokens");
            let cached =
                usage.get("prompt_tokens_details").and_then(|details| details["cached_tokens"].as_u64());
            sample.cached_tokens = cached.unwrap_or(0) as u32;
        }
        Ok(())
    }
}

/// The innermost cause says what happened; the outer ones repeat the address.
fn told(error: reqwest::Error) -> anyhow::Error {
    if error.is_timeout() {
        return anyhow::anyhow!("no answer within --timeout");
    }
    let mut cause: &dyn std::error::Error = &error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    anyhow::anyhow!("{cause}")
}

/// Data lines of an event stream, put together from chunks of any size.
#[derive(Default)]
struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    fn take(&mut self, chunk: &[u8]) -> Vec<String> {
        self.rest.extend_from_slice(chunk);
        let Some(end) = memchr::memrchr(b'\n', &self.rest) else { return Vec::new() };
        let tail = self.rest.split_off(end + 1);
        let whole = std::mem::replace(&mut self.rest, tail);
        let text = String::from_utf8_lossy(&whole);
        let data = text.lines().filter_map(|line| line.trim_end().strip_prefix("data:"));
        data.map(|data| data.trim_start().to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Lines;

    #[test]
    fn lines_come_whole_however_they_are_cut() {
        let text = ": ping\n\ndata: {\"a\":1}\r\n\r\ndata:[DONE]\n\n".as_bytes();
        for size in 1..text.len() {
            let mut lines = Lines::default();
            let all: Vec<String> = text.chunks(size).flat_map(|chunk| lines.take(chunk)).collect();
            assert_eq!(all, ["{\"a\":1}", "[DONE]"], "{size}");
        }
    }
}
