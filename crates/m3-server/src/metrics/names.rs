//! Which histogram goes by which names. A plain table; what is measured is in `mod.rs`.

use super::{Histogram, ServerMetrics};

/// Where it is, its names, and what it tells.
type Row = (fn(&ServerMetrics) -> &Histogram, &'static [&'static str], &'static str);

/// Names of SGLang's and vLLM's whose meaning is the same, older ones of dashboards in use among them.
pub(super) const HISTOGRAMS: &[Row] = &[
    (
        |metrics| &metrics.time_to_first_token,
        &[
            "m3_time_to_first_token_seconds",
            "sglang:time_to_first_token_seconds",
            "vllm:time_to_first_token_seconds",
        ],
        "request received to first token",
    ),
    (
        |metrics| &metrics.inter_token,
        &[
            "m3_inter_token_latency_seconds",
            "sglang:inter_token_latency_seconds",
            "vllm:inter_token_latency_seconds",
            "vllm:time_per_output_token_seconds",
        ],
        "between two tokens of an answer",
    ),
    (
        |metrics| &metrics.time_per_output_token,
        &[
            "m3_time_per_output_token_seconds",
            "sglang:request_time_per_output_token_seconds",
            "vllm:request_time_per_output_token_seconds",
        ],
        "mean of an answer, after its first token",
    ),
    (
        |metrics| &metrics.end_to_end,
        &[
            "m3_e2e_request_latency_seconds",
            "sglang:e2e_request_latency_seconds",
            "vllm:e2e_request_latency_seconds",
        ],
        "request received to the answer's end",
    ),
    (
        |metrics| &metrics.queue_time,
        &["m3_queue_time_seconds", "sglang:queue_time_seconds", "vllm:request_queue_time_seconds"],
        "arrival to first planned step",
    ),
    (
        |metrics| &metrics.prefill_time,
        &["m3_prefill_time_seconds", "vllm:request_prefill_time_seconds"],
        "first step to first token",
    ),
    (
        |metrics| &metrics.decode_time,
        &["m3_decode_time_seconds", "vllm:request_decode_time_seconds"],
        "first token to the end",
    ),
    (
        |metrics| &metrics.compute_time,
        &["m3_compute_time_seconds", "vllm:request_inference_time_seconds"],
        "first step to the end",
    ),
    (
        |metrics| &metrics.prompt_tokens,
        &["m3_request_prompt_tokens", "sglang:prompt_tokens_histogram", "vllm:request_prompt_tokens"],
        "prompt lengths",
    ),
    (
        |metrics| &metrics.uncached_tokens,
        &[
            "m3_request_uncached_tokens",
            "sglang:uncached_prompt_tokens_histogram",
            "vllm:request_prefill_kv_computed_tokens",
        ],
        "tokens of a prompt that were not cached",
    ),
    (
        |metrics| &metrics.generation_tokens,
        &[
            "m3_request_generation_tokens",
            "sglang:generation_tokens_histogram",
            "vllm:request_generation_tokens",
        ],
        "answer lengths",
    ),
    (
        |metrics| &metrics.asked_answers,
        &["m3_request_asked_answers", "vllm:request_params_n"],
        "answers that a request asks for",
    ),
    (
        |metrics| &metrics.asked_tokens,
        &["m3_request_asked_tokens", "vllm:request_params_max_tokens"],
        "most tokens of an answer, of requests that say so",
    ),
];
