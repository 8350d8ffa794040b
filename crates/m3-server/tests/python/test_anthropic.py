"""/v1/messages as the official `anthropic` client sees it.

Plain script: `python test_anthropic.py BASE_URL`, BASE_URL with or without `/v1`.
Needs a running server and nothing about what the model says: only shapes, order, counts and equalities are checked.
"""

import base64
import json
import struct
import sys
import time
import urllib.request
import zlib

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


def picture(width, height, level):
    """A block with a grey PNG; the declared type is wrong on purpose, since what counts are the bytes."""
    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + bytes([level]) * width) * height)
    file = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    data = base64.b64encode(file).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": data}}


def test_images():
    def asked(*parts):
        return [{"role": "user", "content": [*parts, {"type": "text", "text": "What is this?"}]}]

    def counted(messages):
        return CLIENT.messages.count_tokens(model=MODEL, messages=messages).input_tokens

    plain = counted(asked())
    # 640 x 480 comes to 391 tokens, 100 x 100 to 16, and each picture has two brackets.
    both = asked(picture(640, 480, 90), picture(100, 100, 7))
    assert counted(both) - plain == 391 + 16 + 4, (counted(both), plain)
    whole = CLIENT.messages.create(**fields(messages=both))
    assert whole.usage.input_tokens + (whole.usage.cache_read_input_tokens or 0) == counted(both)
    with CLIENT.messages.stream(**fields(messages=both)) as stream:
        streamed = stream.get_final_message()
    assert blocks(streamed) == blocks(whole)
    looked = HELLO + [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [picture(100, 100, 7)]}]},
    ]
    blind = json.loads(json.dumps(looked))
    blind[2]["content"][0]["content"] = []
    assert counted(looked) - counted(blind) == 16 + 2
    far = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
    expect(anthropic.BadRequestError, lambda: CLIENT.messages.create(**fields(messages=asked(far))), "messages[0].content[0]")


def test_marks_and_choices():
    marked = [WEATHER[0] | {"type": "custom", "cache_control": {"type": "ephemeral"}}]
    for choice in [{"type": "auto", "disable_parallel_tool_use": True}, {"type": "none"}, {"type": "any"}]:
        CLIENT.messages.create(**fields(tools=marked, tool_choice=choice, max_tokens=200))
    plain = CLIENT.messages.count_tokens(model=MODEL, messages=HELLO, tools=WEATHER).input_tokens
    assert CLIENT.messages.count_tokens(model=MODEL, messages=HELLO, tools=marked).input_tokens == plain
    odd = [WEATHER[0] | {"examples": [1]}]
    expect(anthropic.BadRequestError, lambda: CLIENT.messages.create(**fields(tools=odd)), "examples")


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
