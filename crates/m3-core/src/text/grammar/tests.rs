//! Grammars against what they promise: whatever a random walk through the masks writes is read by the parser, or by a
//! JSON reader, as a value that the schema allows.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};

use super::*;
use crate::request::TokenMask;
use crate::text::detokenize::Detokenizer;
use crate::text::parse::{Markers, OutputParser, Parsed, ParserOptions, Piece, ThinkingMode, ToolSet, fold};
use crate::text::tokenizer::Tokenizer;

mod conditions;
mod content;
mod faults;
mod markup;
mod phases;
mod property;

pub(super) struct World {
    pub(super) tokenizer: Arc<Tokenizer>,
    pub(super) markers: Markers,
    pub(super) compiler: GrammarCompiler,
}

/// The bundled model's tokenizer, loaded once.
pub(super) fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/random/m3-nano");
        let tokenizer = Arc::new(Tokenizer::from_dir(&dir).unwrap());
        let added = tokenizer.added_tokens().iter().map(|token| (token.id, token.content.as_str()));
        let markers = Markers::from_added_tokens(added);
        let vocabulary = Arc::new(Vocabulary::new(&tokenizer, &markers).unwrap());
        World { tokenizer, markers, compiler: GrammarCompiler::new(vocabulary) }
    })
}

pub(super) const END: &str = "[e~[";

/// A small generator of random numbers, so that walks repeat.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

pub(super) fn content_spec(content: Content) -> GrammarSpec {
    GrammarSpec {
        content: Some(content),
        calls: None,
        lazy: false,
        thinking: ThinkingMode::Disabled,
        reads_calls: false,
    }
}

pub(super) fn tool(parameters: Value) -> (GrammarSpec, Arc<ToolSet>) {
    let list = json!([{"type": "function", "function": {"name": "f", "parameters": parameters}}]);
    let typing = Arc::new(ToolSet::from_json(&list).unwrap());
    let rules = CallRules {
        tools: vec![CallableTool { name: "f".into(), parameters: Some(parameters), strict: true }],
        typing: Arc::clone(&typing),
        markers: world().markers.clone(),
        parallel: false,
    };
    let spec = GrammarSpec {
        content: None,
        calls: Some(rules),
        lazy: false,
        thinking: ThinkingMode::Disabled,
        reads_calls: true,
    };
    (spec, typing)
}

/// The mask at the present step, as ids.
pub(super) fn allowed(mask: &mut GrammarMask) -> Vec<u32> {
    let length = world().tokenizer.vocab_len();
    let mut words = vec![0; length.div_ceil(32)];
    mask.fill(&mut words);
    (0..length as u32).filter(|id| words[*id as usize / 32] & (1 << (id % 32)) != 0).collect()
}

pub(super) fn start(spec: GrammarSpec) -> Result<GrammarMask, GrammarError> {
    let end = world().tokenizer.token_id(END).unwrap();
    Ok(GrammarMask::new(Arc::new(world().compiler.compile(spec)?), Arc::from([end])))
}

/// Follows random allowed tokens to the end; `None` when it does not come in time.
pub(super) fn walk(mask: &mut GrammarMask, random: &mut Random, most: usize) -> Option<Vec<u32>> {
    let end = world().tokenizer.token_id(END).unwrap();
    let mut ids = Vec::new();
    while ids.len() < most {
        let all = allowed(mask);
        let text = world().tokenizer.decode(&ids, false);
        assert!(!all.is_empty(), "nothing is allowed after {text:?}");
        // Ends, closing tags and short texts are taken more often than a uniform draw would.
        let hurried = ids.len() > most / 2 || random.below(4) == 0;
        let brief: Vec<u32> = all.iter().copied().filter(|id| closes(*id)).collect();
        let pool = if hurried && !brief.is_empty() { &brief } else { &all };
        let token = pool[random.below(pool.len())];
        if token == end {
            return Some(ids);
        }
        mask.accept(token);
        ids.push(token);
    }
    None
}

fn closes(id: u32) -> bool {
    let markers = &world().markers;
    let bytes = world().tokenizer.token_bytes(id).unwrap();
    Some(id) == markers.namespace.token
        || world().tokenizer.token_id(END) == Some(id)
        || bytes.starts_with(b"</")
        || [&b"\""[..], b"}", b"]", b"\"}", b"\"]"].contains(&bytes)
}

pub(super) fn parse(ids: &[u32], thinking_mode: ThinkingMode, tools: Arc<ToolSet>) -> Parsed {
    let options =
        ParserOptions { thinking_mode, tools, markers: world().markers.clone(), ..Default::default() };
    let mut parser = OutputParser::new(options);
    let mut detokenizer = Detokenizer::new(Arc::clone(&world().tokenizer));
    let mut deltas = Vec::new();
    for id in ids {
        let text = detokenizer.push(*id);
        deltas.extend(parser.push(Piece { token: Some(*id), text: &text }));
    }
    deltas.extend(parser.finish());
    fold(deltas)
}

fn first_error(validator: &jsonschema::Validator, value: &Value) -> Option<String> {
    validator.validate(value).err()?.next().map(|error| error.to_string())
}

/// Walks through calls of a tool with these parameters and validates every one.
pub(super) fn check_calls(parameters: &Value, seeds: std::ops::Range<u64>) -> usize {
    let validator = jsonschema::validator_for(parameters).unwrap();
    let (spec, typing) = tool(parameters.clone());
    let compiled = Arc::new(match world().compiler.compile(spec) {
        Ok(compiled) => compiled,
        Err(error) => panic!("{error}: {parameters}"),
    });
    let end = world().tokenizer.token_id(END).unwrap();
    let mut complete = 0;
    for seed in seeds {
        let mut mask = GrammarMask::new(Arc::clone(&compiled), Arc::from([end]));
        let Some(ids) = walk(&mut mask, &mut Random(seed), 1500) else { continue };
        complete += 1;
        let text = world().tokenizer.decode(&ids, false);
        let parsed = parse(&ids, ThinkingMode::Disabled, Arc::clone(&typing));
        assert_eq!(parsed.tool_calls.len(), 1, "{text:?}");
        assert_eq!(parsed.content, None, "{text:?}");
        let arguments: Value = serde_json::from_str(&parsed.tool_calls[0].arguments).unwrap();
        if let Some(error) = first_error(&validator, &arguments) {
            panic!("{error}\nschema {parameters}\ntext {text:?}\narguments {arguments}");
        }
    }
    complete
}

/// Walks through JSON texts of a schema and validates every one.
pub(super) fn check_json(schema: &Value, seeds: std::ops::Range<u64>) -> usize {
    let validator = jsonschema::validator_for(schema).unwrap();
    let mut complete = 0;
    let compiled = Arc::new(match world().compiler.compile(content_spec(Content::Schema(schema.clone()))) {
        Ok(compiled) => compiled,
        Err(error) => panic!("{error}: {schema}"),
    });
    let end = world().tokenizer.token_id(END).unwrap();
    for seed in seeds {
        let mut mask = GrammarMask::new(Arc::clone(&compiled), Arc::from([end]));
        let Some(ids) = walk(&mut mask, &mut Random(seed), 1500) else { continue };
        complete += 1;
        let text = world().tokenizer.decode(&ids, false);
        let value: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?} {schema}"));
        if let Some(error) = first_error(&validator, &value) {
            panic!("{error}\nschema {schema}\ntext {text:?}");
        }
    }
    complete
}
