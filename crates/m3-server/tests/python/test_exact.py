"""The official `openai` and `anthropic` clients against a model whose answers are known: content to the character.

Plain script: `M3_BINARY=… python test_exact.py`; it starts the servers it needs.
"""

import base64
import contextlib
import http.server
import json
import struct
import threading
import zlib

import anthropic
import openai

from scripted import NAME, assert_idle, call, calls, metric, run_all, scripted

CALLED = [("get_weather", {"location": "Paris", "days": 3}), ("get_weather", {"location": "Köln 🌶", "days": 12})]
THOUGHT = "Both, 都要。"
SAID = f"<mm:think>{THOUGHT}</mm:think>One moment. " + calls(*(call(name, **given) for name, given in CALLED))
ANSWER = "Paris has 18 °C and sun 🌞, 科隆 has 12."
SCHEMA = {"type": "object", "properties": {"location": {"type": "string"}, "days": {"type": "integer"}}}
CHAT_TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}]
BLOCK_TOOLS = [{"name": "get_weather", "input_schema": SCHEMA}]
ASK = [{"role": "user", "content": "Weather?"}]


def of_openai(base, **fields):
    return openai.OpenAI(**{"base_url": f"{base}/v1", "api_key": "EMPTY", "max_retries": 0} | fields)


def of_anthropic(base, **fields):
    return anthropic.Anthropic(**{"base_url": base, "api_key": "EMPTY", "max_retries": 0} | fields)


def test_openai_stream_helper():
    with scripted(SAID) as base:
        fields = {"model": NAME, "messages": ASK, "tools": CHAT_TOOLS, "temperature": 0}
        whole = of_openai(base).chat.completions.create(**fields).choices[0]
        with of_openai(base).chat.completions.stream(stream_options={"include_usage": True}, **fields) as stream:
            events = list(stream)
            final = stream.get_final_completion()
        for choice in [whole, final.choices[0]]:
            got = [(each.function.name, json.loads(each.function.arguments)) for each in choice.message.tool_calls]
            assert got == CALLED, got
            assert choice.finish_reason == "tool_calls" and choice.message.content.strip() == "One moment."
            assert choice.message.reasoning_content == THOUGHT
        assert events[-1].type in ("chunk", "tool_calls.function.arguments.done"), events[-1]
        done = [event for event in events if event.type == "tool_calls.function.arguments.done"]
        assert [json.loads(event.arguments) for event in done] == [given for _, given in CALLED]
        assert final.usage.total_tokens == final.usage.prompt_tokens + final.usage.completion_tokens


def test_anthropic_blocks_and_events():
    with scripted(SAID) as asking, scripted(ANSWER) as telling:
        fields = {"model": NAME, "max_tokens": 500, "messages": ASK, "tools": BLOCK_TOOLS}
        whole = of_anthropic(asking).messages.create(**fields)
        with of_anthropic(asking).messages.stream(**fields) as stream:
            streamed = stream.get_final_message()
        for message in [whole, streamed]:
            kinds = [block.type for block in message.content]
            assert kinds == ["thinking", "text", "tool_use", "tool_use"], kinds
            assert message.content[0].thinking == THOUGHT and message.content[1].text.strip() == "One moment."
            assert [(block.name, block.input) for block in message.content[2:]] == CALLED
            assert message.stop_reason == "tool_use"
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": "18 °C"} for block in whole.content if block.type == "tool_use"
        ]
        history = ASK + [{"role": "assistant", "content": whole.content}, {"role": "user", "content": results}]
        told = of_anthropic(telling).messages.create(**fields | {"messages": history})
        assert [block.text for block in told.content] == [ANSWER] and told.stop_reason == "end_turn"
        with of_anthropic(telling).messages.stream(**fields) as stream:
            assert "".join(stream.text_stream) == ANSWER


def test_closing_a_stream_aborts():
    with scripted("again and again ", eos=None, step_us=2000) as base:
        with of_anthropic(base).messages.stream(model=NAME, max_tokens=3000, messages=ASK) as stream:
            assert len(next(stream.text_stream)) > 0
        assert_idle(base)
        stream = of_openai(base).chat.completions.create(model=NAME, messages=ASK, stream=True, max_tokens=3000)
        next(iter(stream))
        stream.close()
        assert_idle(base)
        stream = of_openai(base).responses.create(model=NAME, input="x", stream=True, max_output_tokens=3000)
        next(iter(stream))
        stream.close()
        assert_idle(base)
        assert metric(base, "m3_requests_aborted_total") == 3


def test_a_client_s_timeout_aborts():
    with scripted("again and again ", eos=None, step_us=5000) as base:
        fields = {"model": NAME, "messages": ASK, "max_tokens": 3000}
        expect(openai.APITimeoutError, lambda: of_openai(base, timeout=0.5).chat.completions.create(**fields))
        expect(anthropic.APITimeoutError, lambda: of_anthropic(base, timeout=0.5).messages.create(**fields))
        assert_idle(base)


def test_a_full_queue_is_a_rate_limit():
    flags = ["--max-running-requests", "1", "--max-queued-requests", "1"]
    with scripted("again and again ", *flags, eos=None, step_us=5000) as base:
        fields = {"model": NAME, "messages": ASK, "max_tokens": 3000}
        held = [of_openai(base).chat.completions.create(stream=True, **fields)]
        next(iter(held[0]))
        waiting = threading.Thread(target=lambda: swallow(lambda: of_openai(base, timeout=5).chat.completions.create(**fields)))
        waiting.start()
        while metric(base, "m3_requests_waiting") < 1:
            pass
        expect(openai.RateLimitError, lambda: of_openai(base).chat.completions.create(**fields))
        expect(anthropic.RateLimitError, lambda: of_anthropic(base).messages.create(**fields))
        held[0].close()
        waiting.join()
        assert_idle(base)


def test_a_broken_engine_is_a_server_error():
    with scripted(ANSWER, fault_at=1) as base:
        fields = {"model": NAME, "messages": ASK, "max_tokens": 30}
        expect(openai.InternalServerError, lambda: of_openai(base).chat.completions.create(**fields))
        expect(openai.InternalServerError, lambda: of_openai(base).chat.completions.create(**fields))
        expect(anthropic.APIStatusError, lambda: of_anthropic(base).messages.create(**fields))


def png(width, height):
    """The bytes of a black PNG."""
    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" * (width + 1)) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@contextlib.contextmanager
def picture_server():
    """A server of pictures `/WxH.png` on this machine, and how often it was asked."""
    asked = []

    class Pictures(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            body = png(*map(int, self.path.strip("/").removesuffix(".png").split("x")))
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pictures) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_port, asked
        finally:
            server.shutdown()


def test_pictures_by_url():
    with picture_server() as (port, asked):
        allowed = ["--allowed-media-domains", "localhost", "--allowed-media-networks", "127.0.0.0/8,::1/128"]
        url = f"http://localhost:{port}"
        inside = "data:image/png;base64," + base64.b64encode(png(20, 20)).decode()
        urls = [f"{url}/640x480.png", inside, f"{url}/100x100.png"]
        content = [{"type": "image_url", "image_url": {"url": each}} for each in urls] + [{"type": "text", "text": "What?"}]
        fields = {"model": NAME, "messages": [{"role": "user", "content": content}], "max_tokens": 100}
        with scripted(ANSWER, *allowed, "--allowed-media-ports", str(port)) as base:
            told = of_openai(base).chat.completions.create(**fields)
            assert told.usage.prompt_tokens_details.image_tokens == 391 + 4 + 16, told.usage
            assert told.choices[0].message.content == ANSWER
            blocks = [{"type": "image", "source": {"type": "url", "url": urls[0]}}]
            seen = {"model": NAME, "messages": [{"role": "user", "content": blocks}]}
            assert of_anthropic(base).messages.count_tokens(**seen).input_tokens > 391
        assert sorted(asked) == ["/100x100.png", "/640x480.png", "/640x480.png"], asked
        # An address of this machine is refused even where any remote address is allowed.
        with scripted(ANSWER, "--allow-remote-media", "--allowed-media-ports", str(port)) as base:
            expect(openai.BadRequestError, lambda: of_openai(base).chat.completions.create(**fields))
        assert len(asked) == 3, asked


def test_keys():
    with scripted(ANSWER, "--api-key", "secret") as base:
        fields = {"model": NAME, "messages": ASK, "max_tokens": 100}
        expect(openai.AuthenticationError, lambda: of_openai(base).chat.completions.create(**fields))
        expect(anthropic.AuthenticationError, lambda: of_anthropic(base).messages.create(**fields))
        said = of_openai(base, api_key="secret").chat.completions.create(**fields)
        assert said.choices[0].message.content == ANSWER
        assert of_anthropic(base, api_key="secret").messages.create(**fields).content[0].text == ANSWER


def swallow(action):
    try:
        action()
    except openai.APITimeoutError:
        pass


def expect(kind, action):
    try:
        action()
    except kind:
        return
    raise AssertionError(f"{kind.__name__} expected")


if __name__ == "__main__":
    run_all(dict(globals()), f"openai {openai.__version__} and anthropic {anthropic.__version__}")
