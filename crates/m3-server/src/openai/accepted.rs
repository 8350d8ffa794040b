//! Fields that are accepted and have no effect here. docs/serving.md lists the same names; a test compares them.

use super::fields::Fields;

/// Name and why nothing needs to happen.
pub const ACCEPTED: &[(&str, &str)] = &[
    ("user", "nobody here counts by user"),
    ("safety_identifier", "nobody here counts by user"),
    ("metadata", "nothing is stored"),
    ("store", "nothing is stored"),
    ("service_tier", "there is one"),
    ("prompt_cache_key", "the prefix cache finds equal prompts by itself"),
    ("prompt_cache_retention", "the prefix cache keeps what it has room for"),
    ("session_id", "the prefix cache finds equal prompts by itself"),
    ("cache_prompt", "prompts are always cached; cache_salt keeps them apart"),
    ("verbosity", "the model has no such control"),
    ("add_special_tokens", "no token is ever put around a prompt"),
    ("spaces_between_special_tokens", "none are put in"),
    ("mask_sensitive_info", "texts are never changed"),
];

/// Takes all of them.
pub fn take_accepted(fields: &mut Fields) {
    for (name, _) in ACCEPTED {
        fields.take_value(name);
    }
}
