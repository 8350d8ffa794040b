//! Which histogram goes by which names. A plain table; what is measured is in `mod.rs`.

use super::{Histogram, ServerMetrics};

/// Where it is, what it tells, and its names.
type Row = (fn(&ServerMetrics) -> &Histogram, &'static str, &'static [&'static str]);

/// Names of SGLang's and vLLM's whose meaning is the same, older ones of dashboards in use among them.
#[rustfmt::skip]
pub(super) const HISTOGRAMS: &[Row] = &[
    (|all| &all.time_to_first_token, "request received to first token",
        &["m3_time_to_first_token_seconds", "sglang:time_to_first_token_seconds", "vllm:time_to_first_token_seconds"]),
    (|all| &all.inter_token, "between two tokens of an answer",
        &["m3_inter_token_latency_seconds", "sglang:inter_token_latency_seconds", "vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"]),
    (|all| &all.time_per_output_token, "mean of an answer, after its first token",
        &["m3_time_per_output_token_seconds", "sglang:request_time_per_output_token_seconds", "vllm:request_time_per_output_token_seconds"]),
    (|all| &all.end_to_end, "request received to the answer's end",
        &["m3_e2e_request_latency_seconds", "sglang:e2e_request_latency_seconds", "vllm:e2e_request_latency_seconds"]),
    (|all| &all.queue_time, "arrival to first planned step",
        &["m3_queue_time_seconds", "sglang:queue_time_seconds", "vllm:request_queue_time_seconds"]),
    (|all| &all.prefill_time, "first step to first token",
        &["m3_prefill_time_seconds", "vllm:request_prefill_time_seconds"]),
    (|all| &all.decode_time, "first token to the end",
        &["m3_decode_time_seconds", "vllm:request_decode_time_seconds"]),
    (|all| &all.compute_time, "first step to the end",
        &["m3_compute_time_seconds", "vllm:request_inference_time_seconds"]),
    (|all| &all.prompt_tokens, "prompt lengths",
        &["m3_request_prompt_tokens", "sglang:prompt_tokens_histogram", "vllm:request_prompt_tokens"]),
    (|all| &all.uncached_tokens, "tokens of a prompt that were not cached",
        &["m3_request_uncached_tokens", "sglang:uncached_prompt_tokens_histogram", "vllm:request_prefill_kv_computed_tokens"]),
    (|all| &all.generation_tokens, "answer lengths",
        &["m3_request_generation_tokens", "sglang:generation_tokens_histogram", "vllm:request_generation_tokens"]),
    (|all| &all.asked_answers, "answers that a request asks for",
        &["m3_request_asked_answers", "vllm:request_params_n"]),
    (|all| &all.asked_tokens, "most tokens of an answer, of requests that say so",
        &["m3_request_asked_tokens", "vllm:request_params_max_tokens"]),
];
