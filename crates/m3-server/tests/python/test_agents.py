"""The server as the OpenAI Agents SDK sees it, over chat completions and over responses.

Plain script: `M3_BINARY=… python test_agents.py`; it starts the servers it needs. The model's answers are known: one
server asks for tools, another one tells the end, and an agent is moved from one to the other when its tool has run.
"""

import asyncio
import importlib.metadata

import openai
from agents import (
    Agent, AgentHooks, MaxTurnsExceeded, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, RunConfig, Runner,
    function_tool, set_tracing_disabled,
)

from scripted import NAME, call, calls, run_all, scripted

set_tracing_disabled(True)

ASKS = "<mm:think>Look.</mm:think>" + calls(call("get_weather", location="Köln 🌶", days="3"))
TELLS = "It is 18 °C in Köln 🌶."
KINDS = [OpenAIChatCompletionsModel, OpenAIResponsesModel]
RAN = []
# One loop for all runs: clients keep connections that belong to it.
LOOP = asyncio.Runner()


@function_tool(strict_mode=False)
def get_weather(location: str, days: int) -> str:
    """Weather of a place."""
    RAN.append((location, days))
    return "18 °C"


def model(kind, base, **fields):
    client = openai.AsyncOpenAI(**{"base_url": f"{base}/v1", "api_key": "EMPTY", "max_retries": 0} | fields)
    return kind(model=NAME, openai_client=client)


class MovesOn(AgentHooks):
    """Gives the agent its next model when a tool has run."""

    def __init__(self, following):
        self.following = following

    async def on_tool_end(self, context, agent, tool, result):
        agent.model = self.following


def weather_agent(kind, asking, telling):
    settings = ModelSettings(temperature=0, max_tokens=500, include_usage=True)
    hooks = MovesOn(model(kind, telling))
    return Agent("weather", "Be brief.", model=model(kind, asking), tools=[get_weather], hooks=hooks, model_settings=settings)


def check(result, kind):
    assert result.final_output == TELLS, result.final_output
    assert RAN == [("Köln 🌶", 3)], RAN
    kinds = [item.type for item in result.new_items if item.type != "reasoning_item"]
    assert kinds == ["tool_call_item", "tool_call_output_item", "message_output_item"], f"{kind.__name__}: {kinds}"
    usage = result.context_wrapper.usage
    assert usage.requests == 2 and usage.output_tokens > 5
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    RAN.clear()


def test_tool_runs_and_its_result_goes_back():
    with scripted(ASKS) as asking, scripted(TELLS) as telling:
        for kind in KINDS:
            check(LOOP.run(Runner.run(weather_agent(kind, asking, telling), "Weather?")), kind)


def test_streamed_run_is_the_same():
    async def run(agent):
        result = Runner.run_streamed(agent, "Weather?")
        text = ""
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                text += event.data.delta
        return result, text

    with scripted(ASKS) as asking, scripted(TELLS) as telling:
        for kind in KINDS:
            result, text = LOOP.run(run(weather_agent(kind, asking, telling)))
            assert text.strip() == TELLS, f"{kind.__name__}: {text!r}"
            check(result, kind)


def test_handoff():
    with scripted(calls(call("transfer_to_writer"))) as asking, scripted(TELLS) as telling:
        for kind in KINDS:
            writer = Agent("writer", model=model(kind, telling))
            triage = Agent("triage", model=model(kind, asking), handoffs=[writer])
            result = LOOP.run(Runner.run(triage, "Write."))
            assert result.last_agent is writer and result.final_output == TELLS


def test_an_agent_that_never_ends_is_ended_by_the_client():
    with scripted(ASKS) as asking:
        for kind in KINDS:
            agent = Agent("weather", model=model(kind, asking), tools=[get_weather])
            try:
                LOOP.run(Runner.run(agent, "Weather?", max_turns=3))
            except MaxTurnsExceeded:
                assert len(RAN) == 3
                RAN.clear()
            else:
                raise AssertionError("MaxTurnsExceeded expected")


def test_conversation_goes_on():
    with scripted(TELLS) as telling:
        for kind in KINDS:
            agent = Agent("a", model=model(kind, telling))
            first = LOOP.run(Runner.run(agent, "Weather?"))
            second = LOOP.run(Runner.run(agent, first.to_input_list() + [{"role": "user", "content": "And?"}]))
            assert second.final_output == TELLS
            assert second.context_wrapper.usage.input_tokens > first.context_wrapper.usage.input_tokens


def test_errors_are_the_client_s_classes():
    with scripted(TELLS, "--api-key", "secret") as base:
        for kind in KINDS:
            expect(openai.AuthenticationError, Agent("a", model=model(kind, base)))
            hot = ModelSettings(temperature=9)
            expect(openai.BadRequestError, Agent("a", model=model(kind, base, api_key="secret"), model_settings=hot))


def expect(error, agent):
    try:
        LOOP.run(Runner.run(agent, "x", run_config=RunConfig(tracing_disabled=True)))
    except error:
        return
    raise AssertionError(f"{error.__name__} expected")


if __name__ == "__main__":
    run_all(dict(globals()), f"openai-agents {importlib.metadata.version('openai-agents')}")
