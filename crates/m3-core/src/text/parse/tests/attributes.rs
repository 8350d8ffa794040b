//! Tags with attributes where the grammar has none: whatever stands between the angle brackets, no key of the
//! arguments may carry markup.

use super::*;

fn counted() -> ParserOptions {
    tools(json!({"k": {"type": "integer"}, "s": {"type": "string"}, "x y=z": {"type": "integer"}}))
}

#[test]
fn an_element_with_an_attribute_keeps_its_value_and_its_own_name() {
    for (elements, expected) in [
        ("⟨<k type=\"int\">3⟨</k>⟨<s>a⟨</s>", json!({"k": 3, "s": "a"})),
        ("⟨<s type='string' lang=en>a⟨</s>⟨<k>3⟨</k>", json!({"s": "a", "k": 3})),
        ("⟨<o>⟨<inner type=\"x\">v⟨</inner>⟨</o>", json!({"o": {"inner": "v"}})),
        ("⟨<k nullable=\"no\"/>⟨<s>a⟨</s>", json!({"k": "", "s": "a"})),
    ] {
        assert_eq!(arguments(&counted(), elements), expected, "{elements}");
    }
}

#[test]
fn a_name_attribute_without_a_name_is_no_key() {
    let got = arguments(&counted(), "⟨<parameter name=\"\">3⟨</parameter>⟨<k>3⟨</k>");
    assert_eq!(got, json!({"parameter": "3", "k": 3}));
}

#[test]
fn a_declared_parameter_that_looks_like_a_tag_with_attributes_is_still_itself() {
    assert_eq!(arguments(&counted(), "⟨<x y=z>3⟨</x y=z>"), json!({"x y=z": 3}));
    assert_eq!(arguments(&counted(), "⟨<first name>3⟨</first name>"), json!({"first name": "3"}));
}

#[test]
fn a_call_without_a_name_inside_an_unclosed_call_is_no_parameter() {
    let text =
        ns("⟨<tool_call>⟨<invoke name=\"f\">⟨<k>3⟨</k>⟨<invoke name=\"\">⟨<k>4⟨</k>⟨</invoke>⟨</tool_call>");
    let got = outcome(&counted(), &text);
    assert_eq!(calls(&got.parsed), [("f", json!({"k": 3}))]);
    assert_eq!((got.faults.unclosed_calls, got.faults.nameless_calls), (1, 1));
    let inside = ns("⟨<tool_call>⟨<invoke name=\"f\">⟨<k>⟨<invoke name=\"\">⟨</invoke>⟨</tool_call>");
    assert_eq!(calls(&outcome(&counted(), &inside).parsed), [("f", json!({}))]);
}

#[test]
fn a_closing_tag_with_a_name_attribute_closes_the_older_form() {
    let got = arguments(&counted(), "⟨<parameter name=\"k\">3⟨</parameter name=\"k\">⟨<s>a⟨</s>");
    assert_eq!(got, json!({"k": 3, "s": "a"}));
}

#[test]
fn a_recovered_parameter_never_has_markup_for_a_key() {
    for closing in ["//", "//{", "/a b=c", "/parameter name=\"q\""] {
        let elements = format!("⟨junk⟨<{closing}>⟨<k>3⟨</k>");
        assert_eq!(arguments(&counted(), &elements), json!({"k": 3}), "{elements}");
    }
}
