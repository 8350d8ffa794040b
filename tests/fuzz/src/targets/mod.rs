//! What is tried, and what has to hold of it. Each target is a function of its input's bytes: what it needs at random
//! (where to cut, which token) is drawn from a generator that starts at their hash.

mod answer;
mod grammar;
mod output;
mod request;
mod stream;
mod template;

use std::sync::{Arc, OnceLock};

use fastrand::Rng;
use m3_core::text::grammar::{GrammarCompiler, Vocabulary};
use m3_core::text::parse::Markers;
use m3_core::text::tokenizer::Tokenizer;

use crate::{Target, corpus};

/// Mark before every tag of a call.
const NS: &str = "]<]minimax[>[";

/// All targets, each with the share of a run's time that suits the cost of its inputs.
pub fn all() -> Vec<(Box<dyn Target>, u32)> {
    vec![
        (Box::new(output::Output), 1),
        (Box::new(answer::Answer), 1),
        (Box::new(template::Template::default()), 1),
        (Box::new(grammar::Grammar), 2),
        (Box::new(request::Requests::default()), 3),
        (Box::new(stream::Streams::default()), 2),
    ]
}

/// The bundled model's text side.
struct World {
    tokenizer: Arc<Tokenizer>,
    markers: Markers,
    compiler: GrammarCompiler,
}

/// Loaded once.
///
/// # Panics
/// When the bundled model cannot be read: nothing can be tried then.
#[allow(clippy::expect_used, reason = "nothing can be tried without the bundled model")]
fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let tokenizer =
            Arc::new(Tokenizer::from_dir(&crate::server::bundled()).expect("the bundled tokenizer"));
        let added = tokenizer.added_tokens().iter().map(|token| (token.id, token.content.as_str()));
        let markers = Markers::from_added_tokens(added);
        let vocabulary = Arc::new(Vocabulary::new(&tokenizer, &markers).expect("the bundled vocabulary"));
        World { tokenizer, markers, compiler: GrammarCompiler::new(vocabulary) }
    })
}

/// A generator that the input alone decides.
fn rng_of(input: &[u8]) -> Rng {
    Rng::with_seed(corpus::hash(input))
}

/// The input as a head line of words and a text.
fn head_and_text(input: &[u8]) -> (String, String) {
    let (head, text) = crate::mutate::cut(input);
    (String::from_utf8_lossy(head).into_owned(), String::from_utf8_lossy(text).into_owned())
}

/// Text without digits and quoted parts: messages of one kind look alike.
fn without_values(text: &str) -> String {
    let mut quoted = false;
    let keep = |letter: &char| {
        if *letter == '`' || *letter == '"' {
            quoted = !quoted;
        }
        !quoted && !letter.is_ascii_digit()
    };
    text.chars().filter(keep).take(80).collect()
}

/// Words of M3's markup and pieces of them.
fn markup() -> Vec<String> {
    let tags = [
        "<tool_call>",
        "</tool_call>",
        "<invoke name=\"f\">",
        "<invoke name='g'>",
        "<invoke>",
        "</invoke>",
        "<s>",
        "</s>",
        "<n>",
        "</n>",
        "<o>",
        "</o>",
        "<l>",
        "</l>",
        "<item>",
        "</item>",
        "<filename>",
        "</filename>",
        "<a/>",
        "<parameter name=\"s\">",
        "</parameter>",
    ];
    let whole = tags.iter().map(|tag| format!("{NS}{tag}"));
    let parts = [
        "<mm:think>",
        "</mm:think>",
        "<mm:",
        "nk>",
        NS,
        "]<]",
        "]<]minimax[>",
        "STOP",
        "ST",
        "12",
        "3.0",
        "1e400",
        "null",
    ];
    let parts = parts.iter().chain(&tags).map(|text| (*text).to_owned());
    let call =
        format!("{NS}<tool_call>\n{NS}<invoke name=\"f\">{NS}<s>x{NS}</s>{NS}</invoke>\n{NS}</tool_call>");
    whole.chain(parts).chain([call]).collect()
}
