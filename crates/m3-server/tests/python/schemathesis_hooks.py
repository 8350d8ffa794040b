"""Makes most of the generated bodies ones that the server should take, so that answers are checked and not refusals alone.

Loaded by schemathesis (`SCHEMATHESIS_HOOKS`). A generated body keeps its numbers and switches, which the description
bounds exactly; texts, lists and objects, of which it says little, are given values that mean something. What is sent
and what comes back is counted, and the share of accepted requests is held to a least one where it is asked for
(`M3_LEAST_ACCEPTED`, in percent).
"""

import atexit
import collections
import json
import os
import zlib

import schemathesis

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "weather", "description": "the weather", "parameters": SCHEMA}}
MESSAGES = [
    [{"role": "user", "content": "hi"}],
    [{"role": "system", "content": "be brief"}, {"role": "user", "content": [{"type": "text", "text": "a word?"}]}],
    [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}, {"role": "user", "content": "3"}],
]
# One of these for each field that is kept; a field that is neither here nor a number or switch is left out.
CHAT = {
    "messages": MESSAGES,
    "tools": [[TOOL]],
    "tool_choice": ["auto", "none"],
    "reasoning_effort": ["low", "none", "high"],
    "thinking": [{"type": "adaptive"}, {"type": "disabled"}],
    "reasoning": [{"effort": "low"}, {"enabled": False}],
    "chat_template_kwargs": [{"thinking_mode": "disabled"}],
}
SHARED = {
    "stop": ["zzz", ["a b", "c d"]],
    "stop_regex": ["[0-9]{9}"],
    "stop_token_ids": [[5, 6]],
    "logit_bias": [{"7": 1.5}, {}],
    "bad_words": [["bad"]],
    "seed": [0, 1, 2**40],
    "user": ["someone"],
    "metadata": [{"a": "b"}],
    "cache_salt": ["salt"],
    "stream_options": [{"include_usage": True}],
    "repetition_detection": [{"max_pattern_size": 4, "min_count": 8}],
}
BODIES = {
    "/v1/chat/completions": {**SHARED, **CHAT},
    "/v1/completions": {**SHARED, "prompt": ["Once", [1, 2, 3], ["a", "b"]]},
    "/v1/responses": {
        **SHARED,
        "input": ["hi", [{"role": "user", "content": "hi"}]],
        "instructions": ["be brief"],
        "reasoning": [{"effort": "low"}],
        "tool_choice": ["auto"],
        "truncation": ["auto", "disabled"],
        "include": [["reasoning.encrypted_content"]],
    },
    "/v1/messages": {
        "messages": [[{"role": "user", "content": "hi"}], [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]],
        "system": ["be brief"],
        "stop_sequences": [["zzz"]],
        "thinking": [{"type": "disabled"}],
        "tools": [[{"name": "weather", "input_schema": SCHEMA}]],
        "tool_choice": [{"type": "auto"}],
    },
    "/generate": {
        "text": ["Once"],
        "sampling_params": [{"max_new_tokens": 4}, {"max_new_tokens": 2, "temperature": 0, "ignore_eos": True}],
    },
    "/tokenize": {"prompt": ["a text"]},
    "/detokenize": {"tokens": [[1, 2, 3], []]},
    "/parse_function_call": {"text": ["plain"], "tools": [[TOOL]], "tool_call_parser": ["auto"]},
    "/separate_reasoning": {"text": ["<mm:think>a</mm:think>b"], "thinking_mode": ["adaptive"]},
    "/abort_request": {"rid": ["nobody"]},
    "/invocations": {**SHARED, **CHAT},
}
for path, same in [
    ("/v1/chat/completions/render", "/v1/chat/completions"),
    ("/apply-template", "/v1/chat/completions"),
    ("/v1/messages/count_tokens", "/v1/messages"),
    ("/v1/tokenize", "/tokenize"),
    ("/v1/detokenize", "/detokenize"),
]:
    BODIES[path] = BODIES[same]
# Numbers that the description cannot bound: they depend on each other, on the model, or take long.
NUMBERS = {
    "max_tokens": 8,
    "max_completion_tokens": 8,
    "max_output_tokens": 8,
    "min_tokens": 2,
    "n": 2,
    "logprobs": 3,
    "top_logprobs": 3,
    "thinking_token_budget": 16,
    "stream_interval": 4,
    "truncate_prompt_tokens": 64,
    "priority": 5,
}
REQUIRED = {
    "/v1/completions": ["prompt"],
    "/v1/responses": ["input"],
    "/generate": ["text"],
    "/tokenize": ["prompt"],
    "/detokenize": ["tokens"],
    "/parse_function_call": ["text"],
    "/separate_reasoning": ["text"],
    "/abort_request": ["rid"],
}
# These take nothing of what generation takes.
PLAIN = {"/tokenize", "/v1/tokenize", "/detokenize", "/v1/detokenize", "/parse_function_call", "/separate_reasoning"}
# They contradict other fields more often than not.
LEFT_OUT = {
    "best_of",
    "prompt_logprobs",
    "add_generation_prompt",
    "continue_final_message",
    "echo",
    "background",
    "store",
    "top_logprobs_num",
    "logprob_start_len",
}


def mended(path, body, number):
    """The body with its texts, lists and objects replaced; `number` picks among the values."""
    known = BODIES[path]
    made = {}
    for at, (name, value) in enumerate(sorted(body.items())):
        if name in LEFT_OUT:
            continue
        if name in known:
            made[name] = known[name][(number >> at) % len(known[name])]
        elif path in PLAIN:
            continue
        elif isinstance(value, bool):
            made[name] = value
        elif isinstance(value, (int, float)):
            most = NUMBERS.get(name)
            made[name] = value if most is None else min(max(int(value), 1), most)
    wanted = REQUIRED.get(path.removeprefix("/v1") if path in PLAIN else path)
    wanted = wanted or (["messages"] if "messages" in known else [])
    for name in wanted:
        made.setdefault(name, known[name][number % len(known[name])])
    if "max_tokens" in body or path in ("/v1/chat/completions", "/v1/messages", "/v1/completions", "/invocations"):
        made.setdefault("max_tokens", 4)
    if path == "/v1/responses":
        made.setdefault("max_output_tokens", 4)
    if made.get("min_tokens", 0) > made.get("max_tokens", 2):
        del made["min_tokens"]
    if "repetition_penalty" in made:
        made["repetition_penalty"] = min(max(made["repetition_penalty"], 0.5), 2)
    if path in ("/v1/messages", "/v1/responses"):
        made.pop("n", None)
    if "top_logprobs" in made and path != "/v1/responses":
        made["logprobs"] = True
    return made


@schemathesis.hook("map_body")
def map_body(context, body):
    path = context.operation.path
    if not isinstance(body, dict) or path not in BODIES:
        return body
    number = zlib.crc32(json.dumps(body, sort_keys=True, default=str).encode())
    return body if number % 4 == 0 else mended(path, body, number >> 2)


COUNTS = collections.Counter()


@schemathesis.hook("after_call")
def after_call(context, case, response):
    COUNTS["accepted" if response.status_code < 400 else "refused"] += 1
    if case.operation.method.upper() in ("POST", "PUT"):
        COUNTS["posted and " + ("accepted" if response.status_code < 400 else "refused")] += 1
        if response.status_code >= 400 and "M3_SHOW_REFUSALS" in os.environ:
            print(case.operation.path, response.content[:300])


def share(accepted, refused):
    return 100 * accepted / max(accepted + refused, 1)


@atexit.register
def told():
    if not COUNTS:
        return
    everything = share(COUNTS["accepted"], COUNTS["refused"])
    posted = share(COUNTS["posted and accepted"], COUNTS["posted and refused"])
    print(f"accepted: {everything:.1f} % of {COUNTS['accepted'] + COUNTS['refused']} requests, {posted:.1f} % of those with a body")
    least = float(os.environ.get("M3_LEAST_ACCEPTED", "0"))
    if posted < least:
        print(f"at least {least} % of the requests with a body should be accepted")
        os._exit(1)
