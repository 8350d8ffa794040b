//! What a grammar costs: making it, and the mask of every token, on the released vocabulary. Texts are followed token by
//! token as the tokenizer cuts them, so the states are those of real answers; the device is not part of it.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use m3_core::request::TokenMask;
use m3_core::text::grammar::{
    CallRules, CallableTool, Content, GrammarCompiler, GrammarMask, GrammarSpec, Vocabulary,
};
use m3_core::text::parse::{Markers, ThinkingMode, ToolSet};
use m3_core::text::tokenizer::Tokenizer;
use serde_json::{Value, json};

/// Passes over each text; the first one also fills the matcher's tables.
const PASSES: usize = 20;

/// A token above this is shown.
const SLOW_US: f64 = 50.0;

struct Setup {
    tokenizer: Tokenizer,
    markers: Markers,
    compiler: GrammarCompiler,
}

/// All rows.
pub(super) fn run(vocabulary: &Path) -> Result<Value> {
    let tokenizer = Tokenizer::from_file(vocabulary).context("the released vocabulary")?;
    let added = tokenizer.added_tokens().iter().map(|token| (token.id, token.content.as_str()));
    let markers = Markers::from_added_tokens(added);
    let begun = Instant::now();
    let made = Vocabulary::new(&tokenizer, &markers).map_err(|error| anyhow!("{error}"))?;
    let build_s = begun.elapsed().as_secs_f64();
    println!("trie of {} tokens: {build_s:.2} s", tokenizer.vocab_len());
    let setup = Setup { compiler: GrammarCompiler::new(Arc::new(made)), tokenizer, markers };
    let mut rows = Vec::new();
    for (name, spec, text) in cases(&setup)? {
        rows.push(measure(&setup, name, spec, &text)?);
    }
    Ok(json!({"vocabulary": setup.tokenizer.vocab_len(), "trie_s": build_s, "passes": PASSES, "rows": rows}))
}

fn schema() -> Value {
    json!({"type": "object", "properties": {
        "path": {"type": "string"}, "line": {"type": "integer", "minimum": 1}, "content": {"type": "string"},
        "mode": {"enum": ["append", "replace", "insert"]}, "tags": {"type": "array", "items": {"type": "string"}},
        "owner": {"type": "object", "properties": {"name": {"type": "string"}, "admin": {"type": "boolean"}},
            "required": ["name"], "additionalProperties": false}},
        "required": ["path", "content"], "additionalProperties": false})
}

const PROSE: &str = "fn main() {\n    let total: u64 = (1..=10).map(|n| n * n).sum();\n    println!(\"{total}\");\n}\n\
                     // The quick brown fox jumps over the lazy dog; 汉字 and é as well.\n";

fn cases(setup: &Setup) -> Result<Vec<(&'static str, GrammarSpec, String)>> {
    let content = |content| GrammarSpec {
        content: Some(content),
        calls: None,
        lazy: false,
        thinking: ThinkingMode::Disabled,
        reads_calls: false,
    };
    let long = PROSE.repeat(8);
    let value = json!({"path": "src/main.rs", "line": 12, "content": long, "mode": "replace",
        "tags": ["a", "several words here"], "owner": {"name": "Ada Lovelace", "admin": true}});
    let tools = json!([{"type": "function", "function": {"name": "edit", "parameters": schema()}}]);
    let calls = CallRules {
        tools: vec![CallableTool { name: "edit".into(), parameters: Some(schema()), strict: true }],
        typing: Arc::new(ToolSet::from_json(&tools)?),
        markers: setup.markers.clone(),
        parallel: true,
    };
    let calls = GrammarSpec {
        content: None,
        calls: Some(calls),
        reads_calls: true,
        ..content(Content::Regex("a".into()))
    };
    let ns = "]<]minimax[>[";
    let call = format!(
        "{ns}<tool_call>\n{ns}<invoke name=\"edit\">{ns}<path>src/main.rs{ns}</path>{ns}<line>12{ns}</line>\
         {ns}<content>{long}{ns}</content>{ns}<mode>replace{ns}</mode>{ns}<tags>{ns}<item>a b{ns}</item>{ns}</tags>\
         {ns}<owner>{ns}<name>Ada{ns}</name>{ns}</owner>{ns}</invoke>\n{ns}</tool_call>"
    );
    let any = Content::Schema(json!({"type": "object"}));
    Ok(vec![
        ("json schema", content(Content::Schema(schema())), value.to_string()),
        ("json object", content(any), serde_json::to_string_pretty(&value)?),
        ("tool call in markup", calls, call),
        (
            "regex",
            content(Content::Regex("[a-z ]+: [0-9]{4}-[0-9]{2}".into())),
            "the date is: 2026-11".into(),
        ),
    ])
}

fn measure(setup: &Setup, name: &str, spec: GrammarSpec, text: &str) -> Result<Value> {
    let begun = Instant::now();
    let compiled = Arc::new(setup.compiler.compile(spec).map_err(|error| anyhow!("{name}: {error}"))?);
    let compile_ms = begun.elapsed().as_secs_f64() * 1e3;
    let markup = text.starts_with("]<]minimax[>[");
    let ids =
        if markup { setup.tokenizer.encode_special(text)? } else { setup.tokenizer.encode_ordinary(text)? };
    let mut words = vec![0_u32; setup.tokenizer.vocab_len().div_ceil(32)];
    let (mut cold, mut times) = (Vec::new(), Vec::new());
    for pass in 0..PASSES {
        let mut mask = GrammarMask::new(Arc::clone(&compiled), Arc::from([0]));
        for (at, id) in ids.iter().enumerate() {
            words.fill(0);
            let begun = Instant::now();
            mask.fill(&mut words);
            let filled = begun.elapsed();
            let allowed = words[*id as usize / 32] & (1 << (id % 32)) != 0;
            ensure!(
                allowed,
                "{name}: {:?} is barred",
                setup.tokenizer.decode(&ids[at.saturating_sub(8)..=at], false)
            );
            let begun = Instant::now();
            mask.accept(*id);
            let whole = (filled + begun.elapsed()).as_secs_f64() * 1e6;
            if pass == 0 {
                cold.push(whole)
            } else {
                times.push(whole)
            }
            if pass == 1 && whole > SLOW_US {
                let before = setup.tokenizer.decode(&ids[at.saturating_sub(4)..at], false);
                println!(
                    "{name}: {whole:.0} us for {:?} behind {before:?}",
                    setup.tokenizer.decode(&[*id], false)
                );
            }
        }
    }
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
    println!(
        "{name:>20}: made in {compile_ms:.1} ms; {} tokens; mask and step {:.1} us mean, {:.1} p50, {:.1} p99, {:.1} most; \
         {:.1} us mean in the first pass",
        ids.len(),
        mean(&times),
        at(0.5),
        at(0.99),
        at(1.0),
        mean(&cold)
    );
    Ok(json!({"name": name, "compile_ms": compile_ms, "tokens": ids.len(), "mean_us": mean(&times),
        "p50_us": at(0.5), "p99_us": at(0.99), "max_us": at(1.0), "first_pass_mean_us": mean(&cold)}))
}
