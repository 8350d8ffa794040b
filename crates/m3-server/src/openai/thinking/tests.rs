//! The precedence that docs/serving.md shows as a table, row by row.

use serde_json::json;

use super::*;
use ThinkingMode::{Adaptive, Disabled, Enabled};

fn read_with(fields: Value, defaults: Value, forced: bool) -> Result<Thinking, ApiError> {
    let mut fields = Fields::new(fields)?;
    let template_kwargs = defaults.as_object().unwrap();
    let thinking = Thinking::take(&mut fields, ThinkingDefaults { template_kwargs, forced })?;
    fields.finish("test")?;
    Ok(thinking)
}

fn read(fields: Value) -> Result<Thinking, ApiError> {
    read_with(fields, json!({}), false)
}

#[test]
fn the_most_explicit_field_decides() {
    // Each row says no while everything below it says yes, and the other way round.
    let rows = |on: bool| {
        let word = if on { "enabled" } else { "disabled" };
        let effort = if on { json!("high") } else { json!("none") };
        vec![
            json!({"chat_template_kwargs": {"thinking_mode": word}}),
            json!({"thinking": {"type": word}}),
            json!({"enable_thinking": on}),
            json!({"reasoning": {"enabled": on}}),
            json!({"reasoning_effort": effort}),
        ]
    };
    for on in [true, false] {
        let (own, others) = (rows(on), rows(!on));
        for at in 0..own.len() - 1 {
            let mut fields = own[at].as_object().unwrap().clone();
            for other in &others[at + 1..] {
                fields.extend(other.as_object().unwrap().clone());
            }
            let mode = read(Value::Object(fields.clone())).unwrap().mode;
            assert_eq!(mode, Some(if on { Enabled } else { Disabled }), "{fields:?}");
        }
    }
    let both = json!({"chat_template_kwargs": {"thinking_mode": "adaptive", "enable_thinking": false}});
    assert_eq!(read(both).unwrap().mode, Some(Adaptive));
    assert_eq!(
        read(json!({"reasoning_effort": "none", "reasoning": {"effort": "high"}})).unwrap().mode,
        Some(Disabled)
    );
}

#[test]
fn nothing_said_leaves_it_to_the_model() {
    let thinking = read(json!({})).unwrap();
    assert_eq!(
        (thinking.mode, thinking.budget, thinking.delivery),
        (None, None, ReasoningDelivery::Separate)
    );
    assert!(thinking.template_kwargs.is_empty() && thinking.stream_reasoning);
    let enabled = read(json!({"enable_thinking": true})).unwrap();
    assert_eq!(enabled.template_kwargs, *json!({"thinking_mode": "enabled"}).as_object().unwrap());
}

#[test]
fn efforts_above_none_change_nothing_and_minimal_is_one_of_them() {
    for effort in ["minimal", "low", "medium", "high", "xhigh", "max", "default", "auto", "what ever"] {
        assert_eq!(read(json!({"reasoning_effort": effort})).unwrap().mode, None, "{effort}");
        assert_eq!(read(json!({"reasoning": {"effort": effort}})).unwrap().mode, None, "{effort}");
    }
    assert_eq!(read(json!({"reasoning_effort": "none"})).unwrap().mode, Some(Disabled));
    assert_eq!(read(json!({"reasoning_effort": 0})).unwrap().mode, Some(Disabled));
    assert_eq!(read(json!({"reasoning_effort": 0.3})).unwrap().mode, None);
}

#[test]
fn wrong_shapes_name_their_field() {
    for (fields, param) in [
        (json!({"reasoning_effort": 3}), "reasoning_effort"),
        (json!({"reasoning_effort": true}), "reasoning_effort"),
        (json!({"reasoning": "high"}), "reasoning"),
        (json!({"reasoning": {"effort": []}}), "reasoning.effort"),
        (json!({"reasoning": {"depth": 10}}), "reasoning.depth"),
        (json!({"reasoning": {"enabled": "yes"}}), "reasoning.enabled"),
        (json!({"reasoning": {"max_tokens": -5}}), "reasoning.max_tokens"),
        (json!({"enable_thinking": "yes"}), "enable_thinking"),
        (json!({"chat_template_kwargs": {"enable_thinking": "no"}}), "chat_template_kwargs.enable_thinking"),
        (json!({"chat_template_kwargs": {"thinking_mode": "x"}}), "chat_template_kwargs.thinking_mode"),
        (json!({"chat_template_kwargs": {"messages": []}}), "chat_template_kwargs.messages"),
        (json!({"thinking": {"type": "sometimes"}}), "thinking.type"),
        (json!({"thinking": {}}), "thinking.type"),
        (json!({"thinking": "enabled"}), "thinking"),
        (json!({"thinking": {"type": "enabled", "budget": 5}}), "thinking.budget"),
        (json!({"thinking_token_budget": 1.5}), "thinking_token_budget"),
        (json!({"include_reasoning": "no"}), "include_reasoning"),
    ] {
        assert_eq!(read(fields.clone()).unwrap_err().param.as_deref(), Some(param), "{fields}");
    }
}

#[test]
fn a_model_that_always_thinks_refuses_not_to() {
    let forced = |fields| read_with(fields, json!({}), true);
    for (fields, param) in [
        (json!({"reasoning_effort": "none"}), "reasoning_effort"),
        (json!({"thinking": {"type": "disabled"}}), "thinking.type"),
        (json!({"thinking": {"type": "disabled"}, "reasoning_effort": "high"}), "thinking.type"),
        (json!({"enable_thinking": false}), "enable_thinking"),
        (
            json!({"chat_template_kwargs": {"thinking_mode": "disabled"}}),
            "chat_template_kwargs.thinking_mode",
        ),
    ] {
        let error = forced(fields.clone()).unwrap_err();
        assert_eq!((error.status.as_u16(), error.param.as_deref()), (400, Some(param)), "{fields}");
    }
    for fields in
        [json!({}), json!({"thinking": {"type": "adaptive"}}), json!({"reasoning_effort": "minimal"})]
    {
        assert_eq!(forced(fields).unwrap().mode, Some(Enabled));
    }
}

#[test]
fn the_first_budget_that_is_given_counts() {
    let budget = |fields| read(fields).unwrap().budget;
    assert_eq!(budget(json!({"thinking_token_budget": 5})), Some(5));
    assert_eq!(budget(json!({"thinking_token_budget": 0})), Some(0));
    assert_eq!(budget(json!({"thinking_token_budget": -1})), None);
    let field = json!({"type": "enabled", "budget_tokens": 7});
    assert_eq!(budget(json!({"thinking": field, "reasoning": {"max_tokens": 9}})), Some(7));
    assert_eq!(budget(json!({"thinking": field, "thinking_token_budget": 5})), Some(5));
    assert_eq!(budget(json!({"reasoning": {"max_tokens": 9}})), Some(9));
}

#[test]
fn where_reasoning_goes_has_one_order() {
    use ReasoningDelivery::{Inline, Omitted, Separate};
    for (fields, delivery) in [
        (json!({"include_reasoning": false, "separate_reasoning": false}), Omitted),
        (json!({"reasoning": {"exclude": true}, "reasoning_split": true}), Omitted),
        (json!({"separate_reasoning": false}), Inline),
        (json!({"reasoning_split": false}), Inline),
        (json!({"reasoning_split": false, "separate_reasoning": true}), Inline),
        (json!({"reasoning_split": true, "separate_reasoning": false}), Separate),
        (json!({"reasoning_split": true, "include_reasoning": true}), Separate),
    ] {
        assert_eq!(read(fields.clone()).unwrap().delivery, delivery, "{fields}");
    }
    assert!(!read(json!({"stream_reasoning": false})).unwrap().stream_reasoning);
}

#[test]
fn defaults_of_the_server_give_way_to_every_field() {
    let read = |fields| {
        read_with(fields, json!({"thinking_mode": "disabled", "model_identity": "X"}), false).unwrap()
    };
    let plain = read(json!({}));
    assert_eq!((plain.mode, &plain.template_kwargs["model_identity"]), (Some(Disabled), &json!("X")));
    assert_eq!(read(json!({"enable_thinking": true})).mode, Some(Enabled));
    // An effort that changes nothing does not turn on what the operator turned off.
    assert_eq!(read(json!({"reasoning_effort": "high"})).mode, Some(Disabled));
}
