"""The server as the official `openai` client sees it.

Plain script: `python test_openai.py BASE_URL [MODEL]`, BASE_URL with or without `/v1`.
Needs a running server and nothing about what the model says: only shapes, counts, errors and equalities are checked.
"""

import asyncio
import base64
import json
import struct
import sys
import time
import urllib.request
import zlib

import openai

BASE = sys.argv[1].rstrip("/").removesuffix("/v1")
CLIENT = openai.OpenAI(base_url=f"{BASE}/v1", api_key="EMPTY", max_retries=0)
MODEL = sys.argv[2] if len(sys.argv) > 2 else CLIENT.models.list().data[0].id
HELLO = [{"role": "user", "content": "Say something."}]
WEATHER = [{
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a place",
        "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]},
    },
}]


def chat(**fields):
    fields.setdefault("messages", HELLO)
    fields.setdefault("max_tokens", 24)
    fields.setdefault("temperature", 0)
    return CLIENT.chat.completions.create(model=MODEL, **fields)


def metric(name, label=""):
    text = urllib.request.urlopen(f"{BASE}/metrics").read().decode()
    for line in text.splitlines():
        if line.startswith(name) and label in line:
            return float(line.rsplit(" ", 1)[1])
    raise AssertionError(f"no metric {name} {label}")


def assert_no_leak():
    deadline = time.monotonic() + 60
    while metric("m3_requests_running") + metric("m3_requests_waiting") + metric("m3_pages{", '"leased"') > 0:
        assert time.monotonic() < deadline, "requests or pages are still held"
        time.sleep(0.1)
    held = metric("m3_pages{", '"free"') + metric("m3_pages{", '"cached"')
    assert held == metric("m3_pages_total"), "pages are missing"


def fold(chunks):
    """What a client makes of a stream: reasoning, content, calls, finish reason, usage."""
    reasoning, content, calls, finish, usage, roles = "", "", [], None, None, 0
    for chunk in chunks:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            delta = choice.delta
            roles += delta.role is not None
            thought = getattr(delta, "reasoning_content", None)
            assert not (thought and delta.content), "reasoning and content in one delta"
            reasoning += thought or ""
            content += delta.content or ""
            for call in delta.tool_calls or []:
                if call.id:
                    calls.append([call.function.name, ""])
                calls[call.index][1] += call.function.arguments or ""
            finish = choice.finish_reason or finish
    assert roles == 1, f"{roles} roles"
    return reasoning, content, calls, finish, usage


def whole(answer):
    message = answer.choices[0].message
    calls = [[call.function.name, call.function.arguments] for call in message.tool_calls or []]
    reasoning = getattr(message, "reasoning_content", None) or ""
    return reasoning, message.content or "", calls, answer.choices[0].finish_reason, answer.usage


def test_models():
    card = CLIENT.models.retrieve(MODEL)
    assert card.id == MODEL and card.max_model_len > 0


def test_stream_equals_whole():
    for fields in [{}, {"tools": WEATHER}, {"extra_body": {"thinking": {"type": "enabled"}}}, {"seed": 5, "temperature": 1}]:
        answer = whole(chat(**fields))
        stream = fold(chat(stream=True, stream_options={"include_usage": True}, **fields))
        assert stream[:4] == answer[:4], f"{fields}: {stream[:4]} != {answer[:4]}"
        assert stream[4].completion_tokens == answer[4].completion_tokens
        assert stream[4].prompt_tokens == answer[4].prompt_tokens


def test_tool_history():
    messages = HELLO + [
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"location": "Paris"}'}},
        ]},
        {"role": "tool", "tool_call_id": "c1", "content": "18C"},
    ]
    assert chat(messages=messages, tools=WEATHER).usage.prompt_tokens > chat().usage.prompt_tokens
    for name, arguments in whole(chat(messages=messages, tools=WEATHER, max_tokens=200))[2]:
        assert isinstance(name, str) and isinstance(json.loads(arguments), dict)
    messages[2]["tool_call_id"] = "other"
    expect(openai.BadRequestError, lambda: chat(messages=messages, tools=WEATHER), "tool_call_id")


def expect(kind, call, part):
    try:
        call()
    except kind as error:
        assert part in str(error), f"{part!r} not in {error}"
        assert error.body["message"] and "param" in error.body
        return
    raise AssertionError(f"{kind.__name__} expected")


def png(width, height, level):
    """A grey PNG as a data URI."""
    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + bytes([level]) * width) * height)
    file = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(file).decode()


def picture(url, **fields):
    return {"type": "image_url", "image_url": {"url": url, **fields}}


def test_images():
    def seen(*parts, **fields):
        text = {"type": "text", "text": "What is this?"}
        return chat(messages=[{"role": "user", "content": [*parts, text]}], **fields)

    def tokens(answer):
        return answer.usage.prompt_tokens_details.image_tokens

    one = seen(picture(png(640, 480, 90)))
    assert tokens(one) == 391 and one.choices[0].message is not None
    assert tokens(seen(picture(png(640, 480, 90)), picture(png(100, 100, 200)), picture(png(20, 20, 0)))) == 391 + 16 + 4
    sizes = [tokens(seen(picture(png(1024, 768, 9), max_long_side_pixel=side))) for side in (252, 504, 1008)]
    assert sizes == sorted(sizes) and len(set(sizes)) == 3, sizes
    again = seen(picture(png(640, 480, 90)))
    assert whole(again)[:4] == whole(one)[:4], "the same picture, greedily"
    stream = fold(seen(picture(png(640, 480, 90)), stream=True, stream_options={"include_usage": True}))
    assert stream[:4] == whole(one)[:4] and stream[4].prompt_tokens == one.usage.prompt_tokens
    expect(openai.BadRequestError, lambda: seen(picture("data:image/png;base64,aGk=")), "messages[0].content[0]")
    expect(openai.BadRequestError, lambda: seen(picture("https://example.com/a.png")), "messages[0].content[0]")
    assert chat().usage.completion_tokens > 0, "and the server goes on"


def test_errors():
    expect(openai.BadRequestError, lambda: chat(temperature=5), "temperature")
    expect(openai.BadRequestError, lambda: chat(max_tokens=-1), "max_tokens")
    expect(openai.BadRequestError, lambda: chat(messages=[]), "messages")
    expect(openai.BadRequestError, lambda: chat(messages=[{"role": "alien", "content": "x"}]), "role")
    expect(openai.BadRequestError, lambda: chat(tool_choice="required"), "tool_choice")
    expect(openai.BadRequestError, lambda: chat(messages=[{"role": "user", "content": "word " * 2_000_000}]), "")
    expect(openai.NotFoundError, lambda: CLIENT.chat.completions.create(model="no-such", messages=HELLO), "no-such")


def test_usage_and_limits():
    answer = chat(max_tokens=7, extra_body={"ignore_eos": True})
    assert answer.usage.completion_tokens == 7 and answer.choices[0].finish_reason == "length"
    prompt = [{"role": "user", "content": f"{time.time()} " + "again " * 400}]
    chat(messages=prompt, max_tokens=2)
    assert chat(messages=prompt, max_tokens=2).usage.prompt_tokens_details.cached_tokens > 0


def test_logprobs():
    answer = chat(logprobs=True, top_logprobs=3, max_tokens=5, extra_body={"ignore_eos": True})
    content = answer.choices[0].logprobs.content
    assert len(content) == 5 and all(entry.logprob <= 0 and len(entry.top_logprobs) == 3 for entry in content)
    scored = CLIENT.completions.create(model=MODEL, prompt="The quick brown fox", echo=True, logprobs=1, max_tokens=0)
    logprobs = scored.choices[0].logprobs
    assert scored.choices[0].text == "The quick brown fox"
    assert logprobs.token_logprobs[0] is None and all(value <= 0 for value in logprobs.token_logprobs[1:])
    assert len(logprobs.tokens) == scored.usage.prompt_tokens


def test_completions():
    one = CLIENT.completions.create(model=MODEL, prompt=["a", "b"], max_tokens=6, temperature=0)
    assert [choice.index for choice in one.choices] == [0, 1]
    text = "".join(
        choice.text
        for chunk in CLIENT.completions.create(model=MODEL, prompt="a", max_tokens=6, temperature=0, stream=True)
        for choice in chunk.choices
    )
    assert text == one.choices[0].text


def test_cancel():
    for tokens in range(6):
        stream = chat(stream=True, max_tokens=2000, extra_body={"ignore_eos": True})
        for _, _chunk in zip(range(tokens), stream):
            pass
        stream.close()
    assert_no_leak()


async def many(count):
    client = openai.AsyncOpenAI(base_url=f"{BASE}/v1", api_key="EMPTY", max_retries=0, timeout=600)

    async def one(at):
        fields = {
            "model": MODEL, "max_tokens": 16, "temperature": 0, "extra_body": {"ignore_eos": True},
            "messages": [{"role": "user", "content": "one more " * (at % 16 + 1)}],
        }
        stream = await client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **fields)
        chunks = [chunk async for chunk in stream]
        assert len({chunk.id for chunk in chunks}) == 1
        return fold(chunks)

    answers = await asyncio.gather(*(one(at) for at in range(count)))
    await client.close()
    return answers


def test_many_streams():
    answers = asyncio.run(many(64))
    # Equal prompts are not compared: in bfloat16 the rounding depends on what else is in a step.
    for at, answer in enumerate(answers):
        assert answer[4].completion_tokens == 16 and answer[3] == "length", f"stream {at}: {answer}"
        assert answer[4].prompt_tokens == answers[at % 16][4].prompt_tokens, f"stream {at} counts another prompt"
    assert_no_leak()


def main():
    tests = [(name, test) for name, test in globals().items() if name.startswith("test_")]
    for name, test in tests:
        start = time.monotonic()
        test()
        print(f"{name}: ok ({time.monotonic() - start:.2f} s)", flush=True)
    assert_no_leak()
    print(f"{len(tests)} tests passed against {BASE} with openai {openai.__version__}")


if __name__ == "__main__":
    main()
