"""The requests of two load generators that cannot be installed without GPU packages, byte for byte.

Plain script: `M3_BINARY=… python test_bench.py`; it starts the server it needs. The bodies are what `sglang.bench_serving`
(0.5.23) and `vllm bench serve` send with their defaults, as their sources say; what is checked of the answers is what
these programs read. docs/clients.md names the fields.
"""

import http.client
import json
import urllib.parse

from scripted import NAME, assert_idle, run_all, scripted

TEXT = "again and again "
TOKENS = 12
MODEL = NAME.encode()

SGLANG_GENERATE = (
    b'{"text": "The quick", "sampling_params": {"temperature": 0.0, "max_new_tokens": 12, "ignore_eos": true}, '
    b'"stream": true, "lora_path": null, "return_logprob": false, "return_routed_experts": false, "logprob_start_len": -1}'
)
SGLANG_COMPLETIONS = (
    b'{"model": "' + MODEL + b'", "prompt": "The quick", "best_of": 1, "max_tokens": 12, "stream": true, '
    b'"temperature": 0.0, "ignore_eos": true}'
)
SGLANG_CHAT = (
    b'{"model": "' + MODEL + b'", "messages": [{"role": "user", "content": "The quick"}], "max_completion_tokens": 12, '
    b'"stream": true, "temperature": 0.0, "ignore_eos": true}'
)
VLLM_COMPLETIONS = (
    b'{"model": "' + MODEL + b'", "prompt": "The quick", "repetition_penalty": 1.0, "max_tokens": 12, "logprobs": null, '
    b'"stream": true, "stream_options": {"include_usage": true}, "ignore_eos": true}'
)
VLLM_CHAT = (
    b'{"model": "' + MODEL + b'", "messages": [{"role": "user", "content": [{"type": "text", "text": "The quick"}]}], '
    b'"max_completion_tokens": 12, "stream": true, "stream_options": {"include_usage": true}, "ignore_eos": true}'
)


def request(base, method, path, body=None):
    address = urllib.parse.urlsplit(base)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
    headers = {"Content-Type": "application/json", "x-request-id": "bench-0"} if body else {}
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    assert answer.status == 200, f"{method} {path}: {answer.status} {text}"
    return text


def events(text):
    """Data of every event; comments and all else would stop one of these programs, which read line by line."""
    lines = [line for line in text.splitlines() if line]
    assert all(line.startswith("data: ") for line in lines), lines
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def endless():
    return scripted(TEXT, eos=None)


def check_text(text):
    assert text and (TEXT * 20).startswith(text), repr(text)


def test_sglang_generate():
    with endless() as base:
        got = events(request(base, "POST", "/generate", SGLANG_GENERATE))
        check_text(got[-1]["text"])
        for earlier, later in zip(got, got[1:]):
            assert later["text"].startswith(earlier["text"]), "the text is cumulative"
            assert later["meta_info"]["completion_tokens"] >= earlier["meta_info"]["completion_tokens"]
        assert got[-1]["meta_info"]["completion_tokens"] == TOKENS and got[-1]["meta_info"]["prompt_tokens"] > 0
        ids = SGLANG_GENERATE.replace(b'"text": "The quick"', b'"input_ids": [40, 41, 42]')
        assert events(request(base, "POST", "/generate", ids))[-1]["meta_info"]["prompt_tokens"] == 3


def test_sglang_openai():
    with endless() as base:
        # It indexes `choices[0]` of every event: without `stream_options` no event may lack choices.
        got = events(request(base, "POST", "/v1/completions", SGLANG_COMPLETIONS))
        check_text("".join(event["choices"][0]["text"] for event in got))
        deltas = [event["choices"][0]["delta"] for event in events(request(base, "POST", "/v1/chat/completions", SGLANG_CHAT))]
        check_text("".join((delta.get("reasoning_content") or "") + (delta.get("content") or "") for delta in deltas))


def test_sglang_side_requests():
    with endless() as base:
        assert json.loads(request(base, "GET", "/v1/models"))["data"][0]["id"] == NAME
        states = json.loads(request(base, "GET", "/server_info")).get("internal_states")
        assert states is None or isinstance(states[0], dict)
        request(base, "POST", "/flush_cache?timeout=30.0")
        request(base, "POST", "/flush_cache")


def test_vllm():
    with endless() as base:
        for path, body in [("/v1/completions", VLLM_COMPLETIONS), ("/v1/chat/completions", VLLM_CHAT)]:
            got = events(request(base, "POST", path, body))
            # A usage event counts only where its choices are empty.
            *chunks, last = got
            assert last["choices"] == [] and last["usage"]["completion_tokens"] == TOKENS, last
            assert last["usage"]["prompt_tokens"] > 0 and all(chunk["choices"] for chunk in chunks)
            said = [chunk["choices"][0] for chunk in chunks]
            check_text("".join(choice["text"] if "text" in choice else choice["delta"].get("content") or "" for choice in said))
        request(base, "POST", "/reset_prefix_cache")
        assert_idle(base)


if __name__ == "__main__":
    run_all(dict(globals()), "the requests of sglang.bench_serving and vllm bench serve")
