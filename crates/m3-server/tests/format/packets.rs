//! The packet table: how many of a stream's pieces may be crumbs of 1 to 4 characters, how many must have 5 to 200, how
//! many may have more. The scripted device takes as long for a step as real ones take for M3, so the numbers are those
//! of the gathering that is on by default. Only counts are held; the bound on silence is generous.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use serde_json::{Value, json};

use super::support::{Server, ids, user};
use super::{CHAT, block, element, invoke, object, tool};

/// Microseconds of a step: speculation on a quiet device, a quiet device, a busy one.
const STEPS: [u64; 3] = [2_500, 8_000, 20_000];
/// The bundled tokenizer spends so many times M3's tokens on Chinese; characters shall come at M3's pace.
const CHINESE_TOKENS: u64 = 3;
/// No two pieces of one stream are further apart. A list or an object is sent when it is complete.
const SILENCE: Duration = Duration::from_secs(20);

/// Characters of each piece of one kind of text, in order.
#[derive(Default, Debug)]
struct Pieces(Vec<usize>);

impl Pieces {
    fn share(&self, wanted: impl Fn(usize) -> bool) -> f64 {
        self.0.iter().filter(|piece| wanted(**piece)).count() as f64 / self.0.len() as f64
    }

    fn tiny(&self) -> f64 {
        self.share(|piece| piece <= 4)
    }

    fn normal(&self) -> f64 {
        self.share(|piece| (5..=200).contains(&piece))
    }

    fn large(&self) -> f64 {
        self.share(|piece| piece > 200)
    }

    /// Share of the characters that come in pieces of 5 to 200.
    fn normal_characters(&self) -> f64 {
        let normal: usize = self.0.iter().filter(|piece| (5..=200).contains(*piece)).sum();
        normal as f64 / self.0.iter().sum::<usize>() as f64
    }
}

/// What a stream of `script` brings at this pace.
#[derive(Default, Debug)]
struct Packets {
    content: Pieces,
    reasoning: Pieces,
    arguments: Pieces,
    text: String,
}

impl Packets {
    fn take(&mut self, delta: &Value) {
        let characters =
            |text: &Value| text.as_str().filter(|text| !text.is_empty()).map(|text| text.chars().count());
        self.content.0.extend(characters(&delta["content"]));
        self.reasoning.0.extend(characters(&delta["reasoning_content"]));
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            self.arguments.0.extend(characters(&call["function"]["arguments"]));
            self.text.push_str(call["function"]["arguments"].as_str().unwrap_or_default());
        }
        self.text.push_str(delta["content"].as_str().unwrap_or_default());
    }
}

/// Reads the stream as it comes, so that silence is seen.
async fn packets(script: &str, tools: &Value, step: u64) -> Packets {
    let null = json!({"script": ids(script), "eos": super::support::EOS, "step_us": step});
    let server = Server::start(null, &[]).await;
    let body = json!({"messages": user("x"), "tools": tools, "temperature": 0, "stream": true});
    let request = server.client.post(format!("{}{CHAT}", server.base)).json(&body);
    let mut stream = request.send().await.unwrap().bytes_stream();
    let (mut packets, mut rest, mut last) = (Packets::default(), Vec::new(), Instant::now());
    while let Some(bytes) = stream.next().await {
        assert!(last.elapsed() < SILENCE, "{:?} of silence", last.elapsed());
        last = Instant::now();
        rest.extend_from_slice(&bytes.unwrap());
        while let Some(end) = rest.windows(2).position(|pair| pair == b"\n\n") {
            let event: Vec<u8> = rest.drain(..end + 2).collect();
            let Some(data) = event.strip_prefix(b"data: ") else { continue };
            if let Ok(chunk) = serde_json::from_slice::<Value>(data) {
                chunk["choices"].as_array().unwrap().iter().for_each(|choice| packets.take(&choice["delta"]));
            }
        }
    }
    packets
}

/// The packets at every pace, at once.
async fn at_every_pace(script: String, tools: Value) -> Vec<(u64, Packets)> {
    at_paces(STEPS, script, tools).await
}

async fn at_paces(steps: [u64; 3], script: String, tools: Value) -> Vec<(u64, Packets)> {
    let runs = steps.map(|step| {
        let (script, tools) = (script.clone(), tools.clone());
        async move { (step, packets(&script, &tools, step).await) }
    });
    futures_util::future::join_all(runs).await
}

fn write_file() -> Value {
    json!([tool("write", &object(json!({"path": {"type": "string"}, "content": {"type": "string"}})))])
}

/// So many characters of English prose.
fn prose(characters: usize) -> String {
    let sentence =
        "The quick brown fox jumps over the lazy dog, and then it goes home to think about what it did. ";
    sentence.chars().cycle().take(characters).collect()
}

fn assert_content(step: u64, pieces: &Pieces) {
    assert!(pieces.tiny() <= 0.05, "{step} us: {pieces:?}");
    assert!(pieces.normal() >= 0.95 && pieces.normal_characters() >= 0.90, "{step} us: {pieces:?}");
    assert!(pieces.large() <= 0.02, "{step} us: {pieces:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_of_english_content_are_in_the_table() {
    for (step, packets) in at_every_pace(prose(1200), json!(null)).await {
        assert_content(step, &packets.content);
        assert_eq!(packets.text, prose(1200));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_of_chinese_content_are_in_the_table() {
    let text = "天空之所以是蓝色的,是因为空气分子对短波长的光散射得更强。".repeat(20);
    let steps = STEPS.map(|step| step / CHINESE_TOKENS);
    for (step, packets) in at_paces(steps, text.clone(), json!(null)).await {
        assert_content(step, &packets.content);
        assert_eq!(packets.text, text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_of_code_and_lists_are_in_the_table() {
    let text =
        "```rust\nfn main() {\n    let x = [1, 2, 3];\n}\n```\n\n- one\n- two\n\n| a | b |\n|---|---|\n"
            .repeat(10);
    for (step, packets) in at_every_pace(text.clone(), json!(null)).await {
        assert_content(step, &packets.content);
        assert_eq!(packets.text, text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_of_a_tool_s_string_of_500_characters_are_in_the_table() {
    let parameters = element("path", "notes/today.txt") + &element("content", &prose(500));
    for (step, packets) in at_every_pace(block(&invoke("write", &parameters)), write_file()).await {
        let pieces = &packets.arguments;
        assert!(pieces.tiny() <= 0.15 && pieces.normal() >= 0.85, "{step} us: {pieces:?}");
        assert_eq!(pieces.large(), 0.0, "{step} us: {pieces:?}");
        let arguments: Value = serde_json::from_str(&packets.text).unwrap();
        assert_eq!(arguments["content"], prose(500));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_of_a_tool_s_json_are_in_the_table() {
    let numbers: String = (0..40).map(|at| element("item", &(at * 37).to_string())).collect();
    let parameters = element("values", &numbers) + &element("scale", "2.5") + &element("exact", "true");
    let properties = json!({"values": {"type": "array", "items": {"type": "integer"}},
        "scale": {"type": "number"}, "exact": {"type": "boolean"}});
    for (step, packets) in
        at_every_pace(block(&invoke("sum", &parameters)), json!([tool("sum", &object(properties))])).await
    {
        let pieces = &packets.arguments;
        assert!(pieces.tiny() <= 0.10, "{step} us: {pieces:?}");
        let arguments: Value = serde_json::from_str(&packets.text).unwrap();
        assert_eq!(arguments["values"].as_array().unwrap().len(), 40);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_of_a_tool_s_string_of_10_000_characters_are_in_the_table() {
    let script =
        block(&invoke("write", &(element("path", "book.txt") + &element("content", &prose(10_000)))));
    // At the quickest pace alone: the others take a minute and more.
    let packets = packets(&script, &write_file(), STEPS[0]).await;
    let pieces = &packets.arguments;
    assert!(pieces.tiny() <= 0.05 && pieces.normal() >= 0.90 && pieces.large() <= 0.10, "{pieces:?}");
    let arguments: Value = serde_json::from_str(&packets.text).unwrap();
    assert_eq!(arguments["content"], prose(10_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_of_nested_arguments_of_2_000_characters_are_in_the_table() {
    let step_of = |at: usize| {
        let fields =
            element("id", &at.to_string()) + &element("title", &prose(60)) + &element("done", "false");
        element("item", &fields)
    };
    let steps: String = (0..16).map(step_of).collect();
    let parameters = element("plan", &(element("name", "release") + &element("steps", &steps)));
    let item =
        object(json!({"id": {"type": "integer"}, "title": {"type": "string"}, "done": {"type": "boolean"}}));
    let plan = object(json!({"name": {"type": "string"}, "steps": {"type": "array", "items": item}}));
    let tools = json!([tool("plan", &object(json!({"plan": plan})))]);
    for (step, packets) in at_every_pace(block(&invoke("plan", &parameters)), tools).await {
        let pieces = &packets.arguments;
        assert!(pieces.tiny() <= 0.20 && pieces.normal() >= 0.75, "{step} us: {pieces:?}");
        let arguments: Value = serde_json::from_str(&packets.text).unwrap();
        assert_eq!(arguments["plan"]["steps"].as_array().unwrap().len(), 16);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_of_five_parallel_calls_are_in_the_table() {
    let cities = ["Paris", "Reykjavik", "Oslo", "Buenos Aires", "Rome"];
    let invokes: String = cities
        .iter()
        .map(|city| invoke("weather", &(element("location", city) + &element("days", "3"))))
        .collect();
    let tools = json!([tool(
        "weather",
        &object(json!({"location": {"type": "string"}, "days": {"type": "integer"}}))
    )]);
    for (step, packets) in at_every_pace(block(&invokes), tools).await {
        assert!(packets.arguments.tiny() <= 0.15, "{step} us: {:?}", packets.arguments);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_of_reasoning_and_then_a_call_are_in_the_table() {
    let parameters = element("path", "notes/today.txt") + &element("content", &prose(300));
    let script = format!("<mm:think>{}</mm:think>{}", prose(400), block(&invoke("write", &parameters)));
    for (step, packets) in at_every_pace(script, write_file()).await {
        assert_eq!(packets.reasoning.0.iter().sum::<usize>(), 400);
        for pieces in [&packets.reasoning, &packets.arguments] {
            let shares = (pieces.tiny(), pieces.normal(), pieces.large());
            assert!(shares.0 <= 0.10 && shares.1 >= 0.85 && shares.2 <= 0.05, "{step} us: {pieces:?}");
        }
    }
}
