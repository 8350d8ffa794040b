//! Where the grammar holds: after thinking, in all three modes, and only in calls when text is free.

use super::*;

fn id(text: &str) -> u32 {
    world().tokenizer.token_id(text).unwrap()
}

fn say(mask: &mut GrammarMask, text: &str) {
    for token in world().tokenizer.encode_ordinary(text).unwrap() {
        assert!(allowed(mask).contains(&token), "{text:?} is barred");
        mask.accept(token);
    }
}

fn json_mask(thinking: ThinkingMode) -> GrammarMask {
    let content = Content::Schema(json!({"type": "boolean"}));
    start(GrammarSpec { thinking, ..content_spec(content) }).unwrap()
}

#[test]
fn thinking_is_free_and_its_end_begins_the_grammar() {
    let mut mask = json_mask(ThinkingMode::Enabled);
    let first = allowed(&mut mask);
    assert!(!first.contains(&id(END)), "an answer cannot end while it thinks");
    assert!(first.len() > world().tokenizer.vocab_len() / 2);
    say(&mut mask, "anything { at all \n");
    mask.accept(id("</mm:think>"));
    assert!(!allowed(&mut mask).contains(&id(END)));
    say(&mut mask, "true");
    assert_eq!(allowed(&mut mask), [id(END)]);
}

#[test]
fn an_undecided_answer_may_think_first() {
    for opening in [&["<mm:think>", "</mm:think>"][..], &["</mm:think>"], &[]] {
        let mut mask = json_mask(ThinkingMode::Adaptive);
        let first = allowed(&mut mask);
        assert!(first.contains(&id("<mm:think>")) && first.contains(&id("</mm:think>")));
        assert!(!first.contains(&id(END)));
        for token in opening {
            assert!(allowed(&mut mask).contains(&id(token)), "{opening:?}");
            mask.accept(id(token));
        }
        assert!(!allowed(&mut mask).contains(&id("<mm:think>")) || opening.is_empty());
        say(&mut mask, "false");
        assert_eq!(allowed(&mut mask), [id(END)]);
    }
}

#[test]
fn without_thinking_the_grammar_holds_at_once() {
    let mut mask = json_mask(ThinkingMode::Disabled);
    let first = allowed(&mut mask);
    assert!(!first.contains(&id("<mm:think>")) && !first.contains(&id("</mm:think>")));
    say(&mut mask, "true");
    assert_eq!(allowed(&mut mask), [id(END)]);
}

#[test]
fn the_closer_counts_as_a_token_only() {
    let mut mask = json_mask(ThinkingMode::Enabled);
    say(&mut mask, "</mm:think");
    let closing = world().tokenizer.encode_ordinary(">").unwrap();
    assert!(!allowed(&mut mask).contains(&closing[0]));
    assert!(allowed(&mut mask).contains(&id("</mm:think>")));
}

fn lazy() -> GrammarMask {
    let (mut spec, _) =
        tool(json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}));
    spec.lazy = true;
    spec.calls.as_mut().unwrap().parallel = true;
    start(GrammarSpec { thinking: ThinkingMode::Adaptive, ..spec }).unwrap()
}

#[test]
fn free_text_stays_free_until_a_call_begins() {
    let mut mask = lazy();
    assert!(allowed(&mut mask).contains(&id(END)));
    say(&mut mask, "Sure, <tool_call> is a word");
    for _ in 0..2 {
        mask.accept(id("]<]minimax[>["));
        assert_eq!(allowed(&mut mask), [id("<tool_call>")]);
        mask.accept(id("<tool_call>"));
        say(&mut mask, "\n");
        mask.accept(id("]<]minimax[>["));
        say(&mut mask, "<invoke name=\"f\">");
        mask.accept(id("]<]minimax[>["));
        say(&mut mask, "<n>");
        assert!(!allowed(&mut mask).contains(&id(END)));
        say(&mut mask, "42");
        mask.accept(id("]<]minimax[>["));
        say(&mut mask, "</n>");
        mask.accept(id("]<]minimax[>["));
        say(&mut mask, "</invoke>\n");
        mask.accept(id("]<]minimax[>["));
        assert!(allowed(&mut mask).contains(&id("</tool_call>")));
        mask.accept(id("</tool_call>"));
        assert!(allowed(&mut mask).contains(&id(END)));
    }
    say(&mut mask, "and more text");
}

#[test]
fn the_marker_of_calls_cannot_be_spelled_in_free_text() {
    let mut mask = lazy();
    say(&mut mask, "]<]minimax[>");
    let last = world().tokenizer.encode_ordinary("[").unwrap();
    assert!(!allowed(&mut mask).contains(&last[0]));
}

#[test]
fn markup_inside_reasoning_is_no_call() {
    let mut mask = lazy();
    mask.accept(id("<mm:think>"));
    mask.accept(id("]<]minimax[>["));
    say(&mut mask, "anything");
    mask.accept(id("</mm:think>"));
    mask.accept(id("]<]minimax[>["));
    assert_eq!(allowed(&mut mask), [id("<tool_call>")]);
}

#[test]
fn content_or_calls_are_one_or_the_other() {
    let (spec, _) = tool(json!({"type": "object"}));
    let both = GrammarSpec { content: Some(Content::Schema(json!({"type": "null"}))), ..spec };
    let mut mask = start(both.clone()).unwrap();
    say(&mut mask, "null");
    assert_eq!(allowed(&mut mask), [id(END)]);
    let mut mask = start(both).unwrap();
    mask.accept(id("]<]minimax[>["));
    assert_eq!(allowed(&mut mask), [id("<tool_call>")]);
}

#[test]
fn no_added_token_stands_in_a_string() {
    let content = Content::Schema(json!({"type": "string"}));
    let mut mask = start(content_spec(content)).unwrap();
    say(&mut mask, "\"a");
    let all = allowed(&mut mask);
    let added: Vec<_> =
        world().tokenizer.added_tokens().iter().filter(|token| all.contains(&token.id)).collect();
    assert_eq!(added, Vec::<&crate::text::tokenizer::AddedToken>::new());
}
