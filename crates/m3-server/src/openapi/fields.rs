//! The fields of request bodies, for the document. A plain table: name, type, meaning.
//!
//! A type is JSON's name, several with `|` between them; `:least..most` limits a number, `enum:a|b` lists values, `any`
//! says nothing.

/// Name, type, meaning.
pub(super) type Field = (&'static str, &'static str, &'static str);

/// A body.
pub(super) struct Body {
    pub(super) name: &'static str,
    pub(super) required: &'static [&'static str],
    pub(super) groups: &'static [&'static [Field]],
    /// Also takes the fields that have no effect.
    pub(super) takes_accepted: bool,
}

/// What chat and completions share.
#[rustfmt::skip]
pub(super) const GENERATION: &[Field] = &[
    ("model", "string", "a name this server goes by; absent means the one it has"),
    ("temperature", "number:0..2", "0 is greedy; default: the model's"),
    ("top_p", "number:0..1", "default: the model's"),
    ("top_k", "integer:-1..", "0 and -1 are off"),
    ("min_p", "number:0..1", ""),
    ("seed", "integer", "makes the answer repeatable"),
    ("repetition_penalty", "number:0..100", "1 is off"),
    ("presence_penalty", "number:-2..2", ""),
    ("frequency_penalty", "number:-2..2", ""),
    ("logit_bias", "object", "token ids to numbers from -100 to 100"),
    ("allowed_token_ids", "array", "only these are sampled"),
    ("bad_words", "array", "texts that are not said"),
    ("max_tokens", "integer:0..", "most tokens of an answer"),
    ("max_completion_tokens", "integer:0..", "wins over max_tokens"),
    ("min_tokens", "integer:0..", "no stop counts before"),
    ("stop", "string|array", "ends the content"),
    ("stop_regex", "string|array", "expressions that end the content behind what they match"),
    ("stop_token_ids", "array", ""),
    ("include_stop_str_in_output", "boolean", ""),
    ("no_stop_trim", "boolean", "the same"),
    ("skip_special_tokens", "boolean", "control tokens are no text; on by default"),
    ("ignore_eos", "boolean", "go on to max_tokens"),
    ("n", "integer:1..128", "answers to each prompt"),
    ("best_of", "integer:1..128", "answers of which the n likeliest are given"),
    ("prompt_logprobs", "integer:0..", "alternatives to each token of the prompt"),
    ("repetition_detection", "object", "ends an answer that goes round in circles"),
    ("stream", "boolean", ""),
    ("stream_options", "object", "include_usage, continuous_usage_stats"),
    ("stream_interval", "integer:1..", "tokens that a packet waits for"),
    ("return_tokens_as_token_ids", "boolean", ""),
    ("priority", "integer", "lower goes first"),
    ("cache_salt", "string", "keeps prefixes in the cache apart"),
    ("extra_key", "string", "the same"),
    ("mm_processor_kwargs", "object", "max_long_side_pixel, fps, max_frames of all images and videos"),
    ("media_io_kwargs", "object", "image and video: the same by kind"),
    ("images_config", "object", "max_long_side_pixel of all images"),
    ("videos_config", "object", "fps, max_frames, max_long_side_pixel of all videos"),
    ("request_id", "string", "becomes part of the answer's id"),
    ("rid", "string", "the same"),
];

/// What the answer must be.
#[rustfmt::skip]
const FORMS: &[Field] = &[
    ("response_format", "object", "type is text, json_object, json_schema or structural_tag"),
    ("structured_outputs", "object", "json, json_object, regex, choice, grammar or structural_tag"),
    ("guided_json", "any", "a JSON schema, or its text"),
    ("guided_json_object", "boolean", "any JSON object"),
    ("guided_regex", "string", "the content matches it as a whole"),
    ("guided_choice", "array", "the content is one of these texts"),
    ("guided_grammar", "string", "Lark, or EBNF with ::="),
    ("json_schema", "any", "a JSON schema, or its text"),
    ("regex", "string", "the content matches it as a whole"),
    ("ebnf", "string", "a grammar with ::="),
    ("structural_tag", "any", "free text with tagged parts"),
];

#[rustfmt::skip]
const THINKING: &[Field] = &[
    ("thinking", "object", "type is adaptive, enabled or disabled; budget_tokens"),
    ("enable_thinking", "boolean", ""),
    ("reasoning_effort", "any", "none and up"),
    ("reasoning", "object", "effort, enabled, exclude, max_tokens"),
    ("thinking_token_budget", "integer", "most tokens of reasoning"),
    ("chat_template_kwargs", "object", "variables of the template, thinking_mode among them"),
    ("include_reasoning", "boolean", "off: thought and not sent"),
    ("separate_reasoning", "boolean", "off: reasoning stands in the content"),
    ("reasoning_split", "boolean", "the same"),
    ("stream_reasoning", "boolean", "off: in one piece"),
];

#[rustfmt::skip]
const CHAT: &[Field] = &[
    ("messages", "array", "the conversation"),
    ("tools", "array", "functions the model may call"),
    ("tool_choice", "string|object", "auto, none, required, a tool, or allowed_tools"),
];

#[rustfmt::skip]
const COMPLETION: &[Field] = &[
    ("prompt", "string|array", "text, token ids, or a list of either"),
    ("logprobs", "integer:0..", "alternatives per token"),
    ("echo", "boolean", "repeat the prompt in front of the answer"),
];

#[rustfmt::skip]
const RAW: &[Field] = &[
    ("parse_special", "boolean", "marker texts are control tokens; on by default"),
    ("truncate_prompt_tokens", "integer:-1..", "keep the last tokens of a prompt; -1 = as many as fit"),
];

/// Ids beside the texts.
const IDS: &[Field] = &[("return_token_ids", "boolean", "")];

/// Fields of chat that the APIs built on it pass on.
#[rustfmt::skip]
const PASSED: &[Field] = &[
    ("parallel_tool_calls", "boolean", "off: one call ends the answer"),
    ("logprobs", "boolean", ""),
    ("top_logprobs", "integer:0..", "alternatives per token"),
    ("add_generation_prompt", "boolean", ""),
    ("continue_final_message", "boolean", "the last message is the beginning of the answer"),
    ("echo", "boolean", "repeat that beginning"),
];

/// Without effect in these APIs.
#[rustfmt::skip]
const SILENT_RESPONSES: &[Field] = &[
    ("prompt_cache_options", "any", "repeated in the response, without effect"),
    ("access_programs", "any", "repeated in the response, without effect"),
    ("client_metadata", "any", "without effect"),
];
#[rustfmt::skip]
const SILENT_MESSAGES: &[Field] = &[
    ("cache_control", "any", "without effect: the prefix cache finds equal prompts by itself"),
    ("diagnostics", "any", "without effect"),
    ("inference_geo", "any", "without effect"),
    ("betas", "any", "without effect"),
    ("speed", "any", "without effect"),
];

#[rustfmt::skip]
const RESPONSES: &[Field] = &[
    ("input", "string|array", "text or items"),
    ("instructions", "string", "a system message for this response only"),
    ("previous_response_id", "string", "goes on from a stored response"),
    ("store", "boolean", "keep the response; on by default"),
    ("background", "boolean", "answer at once and go on alone"),
    ("include", "array", "reasoning.encrypted_content, message.output_text.logprobs"),
    ("max_output_tokens", "integer:0..", "most tokens of the response"),
    ("text", "object", "format, verbosity"),
    ("tools", "array", "functions, flat"),
    ("tool_choice", "string|object", "auto, none, required, a tool, or allowed_tools"),
    ("truncation", "enum:auto|disabled", "auto leaves out the oldest turns of a conversation that is too long"),
];

#[rustfmt::skip]
const MESSAGES: &[Field] = &[
    ("messages", "array", "the conversation, in blocks"),
    ("system", "string|array", ""),
    ("max_tokens", "integer:0..", "most tokens of the message; not needed to count"),
    ("stop_sequences", "array", ""),
    ("tools", "array", "with input_schema"),
    ("tool_choice", "object", "type is auto, any, tool or none"),
    ("output_config", "object", "effort, format"),
    ("output_format", "object", "the older name of output_config.format"),
];

#[rustfmt::skip]
const GENERATE: &[Field] = &[
    ("text", "string|array", "a prompt or several"),
    ("input_ids", "array", "the same as token ids"),
    ("image_data", "string|object|array", "images of the prompt: addresses, base64 or objects with url"),
    ("video_data", "string|object|array", "videos of the prompt, likewise"),
    ("sampling_params", "object|array", "max_new_tokens, temperature and so on"),
    ("return_logprob", "boolean|array", ""),
    ("logprob_start_len", "integer|array", "scores of the prompt from this token on"),
    ("top_logprobs_num", "integer|array", "alternatives per token"),
    ("return_text_in_logprobs", "boolean", ""),
    ("stream", "boolean", "every chunk has everything so far"),
    ("rid", "string|array", "ids to abort by"),
];

/// All of them.
#[rustfmt::skip]
pub(super) const BODIES: &[Body] = &[
    Body { name: "ChatRequest", required: &["messages"], groups: &[CHAT, PASSED, THINKING, GENERATION, IDS, FORMS], takes_accepted: true },
    Body { name: "CompletionRequest", required: &["prompt"], groups: &[COMPLETION, RAW, GENERATION, IDS, FORMS], takes_accepted: true },
    Body { name: "ResponsesRequest", required: &["input"], groups: &[RESPONSES, PASSED, THINKING, GENERATION, IDS, FORMS, SILENT_RESPONSES], takes_accepted: true },
    Body { name: "MessagesRequest", required: &["messages"], groups: &[PASSED, THINKING, GENERATION, IDS, FORMS, SILENT_MESSAGES, MESSAGES], takes_accepted: true },
    Body { name: "GenerateRequest", required: &[], groups: &[RAW, GENERATION, FORMS, GENERATE], takes_accepted: true },
    Body { name: "AnyRequest", required: &[], groups: &[], takes_accepted: false },
    Body { name: "TokenizeRequest", required: &[], groups: &[CHAT, PASSED, THINKING, GENERATION, IDS, FORMS, &[
        ("prompt", "string", "a raw text"), ("text", "string", "the same"), ("parse_special", "boolean", ""),
        ("messages", "array", "a conversation, with every field of chat"), ("return_token_strs", "any", "they are always given")]],
        takes_accepted: true },
    Body { name: "DetokenizeRequest", required: &["tokens"], groups: &[&[
        ("tokens", "array", "token ids"), ("skip_special_tokens", "boolean", ""), ("model", "string", "")]], takes_accepted: false },
    Body { name: "ParseCallRequest", required: &["text"], groups: &[&[
        ("text", "string", ""), ("tools", "array", ""), ("tool_call_parser", "string", "minimax-m3")]], takes_accepted: false },
    Body { name: "ParseReasoningRequest", required: &["text"], groups: &[&[
        ("text", "string", ""), ("thinking_mode", "enum:adaptive|enabled|disabled", ""),
        ("reasoning_parser", "string", "minimax-m3")]], takes_accepted: false },
    Body { name: "AbortRequest", required: &[], groups: &[&[
        ("rid", "string", "the id of a request"), ("abort_all", "boolean", "")]], takes_accepted: false },
    Body { name: "LoggingRequest", required: &[], groups: &[&[
        ("level", "string", "error, warn, info, debug, trace, or filters"), ("log_level", "string", "the same")]], takes_accepted: false },
];
