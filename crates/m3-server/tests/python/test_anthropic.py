"""/v1/messages as the official `anthropic` client sees it.

Plain script: `python test_anthropic.py BASE_URL`, BASE_URL with or without `/v1`.
Needs a running server and nothing about what the model says: only shapes, order, counts and equalities are checked.
"""

import json
import sys
import time
import urllib.request

import anthropic

BASE = sys.argv[1].rstrip("/").removesuffix("/v1")
CLIENT = anthropic.Anthropic(base_url=BASE, api_key="EMPTY", max_retries=0)
MODEL = json.load(urllib.request.urlopen(f"{BASE}/v1/models"))["data"][0]["id"]
HELLO = [{"role": "user", "content": "Say something."}]
WEATHER = [{
    "name": "get_weather", "description": "Weather of a place",
    "input_schema": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]},
}]


def fields(extra=None, **more):
    """`extra` goes into the body past the client's own parameters."""
    return {"model": MODEL, "max_tokens": 24, "messages": HELLO, "extra_body": {"temperature": 0} | (extra or {})} | more


def blocks(message):
    said = []
    for block in message.content:
        if block.type == "thinking":
            said.append((block.type, block.thinking, block.signature))
        elif block.type == "text":
            said.append((block.type, block.text))
        else:
            said.append((block.type, block.name, json.dumps(block.input)))
    return said


def test_stream_equals_whole():
    for more in [{}, {"tools": WEATHER}, {"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"system": "Be brief."}]:
        whole = CLIENT.messages.create(**fields(**more))
        with CLIENT.messages.stream(**fields(**more)) as stream:
            kinds = [event.type for event in stream]
            streamed = stream.get_final_message()
        assert kinds[0] == "message_start" and kinds[-1] == "message_stop"
        assert blocks(streamed) == blocks(whole), f"{more}: {blocks(streamed)} != {blocks(whole)}"
        assert streamed.stop_reason == whole.stop_reason
        assert streamed.usage.output_tokens == whole.usage.output_tokens


def test_counts():
    counted = CLIENT.messages.count_tokens(model=MODEL, messages=HELLO, tools=WEATHER, system="Be kind.")
    usage = CLIENT.messages.create(**fields(tools=WEATHER, system="Be kind.")).usage
    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)


def test_endings():
    cut = CLIENT.messages.create(**fields({"ignore_eos": True}, max_tokens=3))
    assert cut.stop_reason == "max_tokens" and cut.usage.output_tokens == 3


def test_tool_history():
    history = HELLO + [
        {"role": "assistant", "content": [
            {"type": "text", "text": "One moment."},
            {"type": "thinking", "thinking": "hm", "signature": "x"},
            {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"location": "Paris"}},
        ]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "18C"}]},
    ]
    CLIENT.messages.create(**fields(messages=history, tools=WEATHER))
    history[2]["content"][0]["tool_use_id"] = "toolu_other"
    expect(anthropic.BadRequestError, lambda: CLIENT.messages.create(**fields(messages=history, tools=WEATHER)), "toolu_other")


def expect(kind, call, part):
    try:
        call()
    except kind as error:
        assert part in str(error), f"{part!r} not in {error}"
        assert error.body["type"] == "error" and error.request_id
        return
    raise AssertionError(f"{kind.__name__} expected")


def test_errors():
    image = [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}]}]
    expect(anthropic.BadRequestError, lambda: CLIENT.messages.create(**fields(messages=image)), "messages[0].content[0]")
    expect(anthropic.BadRequestError, lambda: CLIENT.messages.create(**fields({"temperature": 9})), "temperature")
    expect(anthropic.NotFoundError, lambda: CLIENT.messages.create(**fields(model="no-such")), "no-such")
    hosted = [{"type": "web_search_20250305", "name": "web_search"}]
    expect(anthropic.BadRequestError, lambda: CLIENT.messages.create(**fields(tools=hosted)), "web_search")


def main():
    tests = [(name, test) for name, test in globals().items() if name.startswith("test_")]
    for name, test in tests:
        start = time.monotonic()
        test()
        print(f"{name}: ok ({time.monotonic() - start:.2f} s)", flush=True)
    print(f"{len(tests)} tests passed against {BASE} with anthropic {anthropic.__version__}")


if __name__ == "__main__":
    main()
