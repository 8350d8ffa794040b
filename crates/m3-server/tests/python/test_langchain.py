"""The server as LangChain's `ChatOpenAI` sees it, against a model whose answers are known.

Plain script: `M3_BINARY=… python test_langchain.py`; it starts the servers it needs.
"""

import asyncio
import importlib.metadata
import os

# No telemetry, whatever the environment says.
os.environ["LANGSMITH_TRACING"] = "false"

import openai
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.output_parsers import PydanticToolsParser
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from scripted import NAME, assert_idle, call, calls, metric, run_all, scripted

TWO_CALLS = "<mm:think>Both.</mm:think>One moment. " + calls(
    call("get_weather", location="Paris", days="3"), call("get_weather", location="Köln 🌶", days="12")
)
ANSWER = "Paris has 18 °C and sun, 科隆 has 12."


class Person(BaseModel):
    """A person."""

    name: str
    age: int


@tool
def get_weather(location: str, days: int) -> str:
    """Weather of a place."""
    return f"{location}: {days * 6} degrees"


def model(base, **fields):
    fields = {"model": NAME, "base_url": f"{base}/v1", "api_key": "EMPTY", "max_retries": 0, "temperature": 0} | fields
    return ChatOpenAI(**fields)


def test_answer_usage_and_stream():
    with scripted(ANSWER) as base:
        chat = model(base, stream_usage=True)
        whole = chat.invoke("Weather?")
        assert whole.content == ANSWER, whole
        assert whole.response_metadata["finish_reason"] == "stop"
        usage = whole.usage_metadata
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"] > usage["output_tokens"] > 5
        chunks = list(chat.stream("Weather?"))
        joined = chunks[0]
        for chunk in chunks[1:]:
            joined += chunk
        assert joined.content == ANSWER and len(chunks) > 2
        for kind in ["input_tokens", "output_tokens", "total_tokens"]:
            assert joined.usage_metadata[kind] == usage[kind], f"{kind}: {joined.usage_metadata} != {usage}"
        batch = chat.batch(["a", "b", "c"])
        assert [answer.content for answer in batch] == [ANSWER] * 3


def test_tool_calls_round_trip():
    expected = [("get_weather", {"location": "Paris", "days": 3}), ("get_weather", {"location": "Köln 🌶", "days": 12})]
    with scripted(TWO_CALLS) as asking, scripted(ANSWER) as telling:
        bound = model(asking).bind_tools([get_weather])
        whole = bound.invoke("Weather?")
        joined = None
        for chunk in bound.stream("Weather?"):
            joined = chunk if joined is None else joined + chunk
        for message in [whole, joined]:
            assert [(each["name"], each["args"]) for each in message.tool_calls] == expected, message
            assert not message.invalid_tool_calls
            assert message.response_metadata["finish_reason"] == "tool_calls"
            assert "minimax" not in message.content and message.content.strip() == "One moment."
        results = [get_weather.invoke(each) for each in whole.tool_calls]
        assert [result.content for result in results] == ["Paris: 18 degrees", "Köln 🌶: 72 degrees"]
        history = [HumanMessage("Weather?"), whole, *results]
        last = model(telling).bind_tools([get_weather]).invoke(history)
        assert last.content == ANSWER
        short = model(telling).bind_tools([get_weather]).invoke(history[:1])
        assert last.usage_metadata["input_tokens"] > short.usage_metadata["input_tokens"]
        wrong = [*history[:2], ToolMessage("18", tool_call_id="other"), results[1]]
        expect(openai.BadRequestError, lambda: model(telling).invoke(wrong), "tool_call_id")


def test_pydantic_tools():
    with scripted(calls(call("Person", name="Ada", age="36"))) as base:
        chain = model(base).bind_tools([Person]) | PydanticToolsParser(tools=[Person], first_tool_only=True)
        assert chain.invoke("Who?") == Person(name="Ada", age=36)


def test_structured_output():
    with scripted('{"name":"Ada","age":36}') as base:
        for method in ["json_schema", "json_mode"]:
            chain = model(base).with_structured_output(Person, method=method)
            assert chain.invoke("Who is it? Answer in JSON.") == Person(name="Ada", age=36), method


def test_async_and_abort():
    async def some(base):
        got = []
        async for chunk in model(base, max_tokens=2000).astream("Go on."):
            got.append(chunk.content)
            if len("".join(got)) > 20:
                break
        return "".join(got)

    with scripted("again and again ", eos=None, step_us=2000) as base:
        got = asyncio.run(some(base))
        assert ("again and again " * 200).startswith(got), got
        assert_idle(base)
        assert metric(base, "m3_requests_aborted_total") == 1


def expect(kind, action, part):
    try:
        action()
    except kind as error:
        assert part in str(error), f"{part!r} not in {error}"
        return
    raise AssertionError(f"{kind.__name__} expected")


def test_errors():
    with scripted(ANSWER, "--api-key", "secret") as base:
        expect(openai.AuthenticationError, lambda: model(base).invoke("x"), "key")
        keyed = {"api_key": "secret"}
        assert model(base, **keyed).invoke("x").content == ANSWER
        expect(openai.NotFoundError, lambda: model(base, model="no-such", **keyed).invoke("x"), "no-such")
        expect(openai.BadRequestError, lambda: model(base, **keyed | {"temperature": 9}).invoke("x"), "temperature")
        expect(openai.BadRequestError, lambda: list(model(base, **keyed).stream([("user", "word " * 3_000_000)])), "")


if __name__ == "__main__":
    run_all(dict(globals()), f"langchain-openai {importlib.metadata.version('langchain-openai')}")
