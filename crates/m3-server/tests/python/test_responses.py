"""/v1/responses as the official `openai` client sees it.

Plain script: `python test_responses.py BASE_URL [MODEL]`, BASE_URL with or without `/v1`.
Needs a running server and nothing about what the model says: only shapes, order, counts and equalities are checked.
"""

import sys
import time

import openai

BASE = sys.argv[1].rstrip("/").removesuffix("/v1")
CLIENT = openai.OpenAI(base_url=f"{BASE}/v1", api_key="EMPTY", max_retries=0)
MODEL = sys.argv[2] if len(sys.argv) > 2 else CLIENT.models.list().data[0].id
WEATHER = [{
    "type": "function", "name": "get_weather", "strict": False,
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]},
}]


def create(**fields):
    fields.setdefault("input", "Say something.")
    fields.setdefault("max_output_tokens", 24)
    fields.setdefault("temperature", 0)
    return CLIENT.responses.create(model=MODEL, **fields)


def texts(response):
    """What was said, item by item."""
    said = []
    for item in response.output:
        if item.type == "function_call":
            said.append((item.type, item.name, item.arguments))
        else:
            said.append((item.type, "".join(part.text for part in item.content or [])))
    return said


def test_stream_equals_whole():
    for fields in [{}, {"tools": WEATHER}, {"extra_body": {"thinking": {"type": "enabled"}}}, {"instructions": "Be brief."}]:
        whole = create(**fields)
        events = list(create(stream=True, **fields))
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
        last = events[-1]
        assert last.type == ("response.completed" if whole.status == "completed" else "response.incomplete")
        assert texts(last.response) == texts(whole), f"{fields}: {texts(last.response)} != {texts(whole)}"
        assert last.response.usage.output_tokens == whole.usage.output_tokens
        deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        assert deltas == whole.output_text


def test_client_s_own_stream_helper():
    with CLIENT.responses.stream(model=MODEL, input="Say something.", max_output_tokens=24, temperature=0) as stream:
        for _ in stream:
            pass
    events = create(stream=True)
    assert list(events)[-1].response.output_text == create().output_text


def test_conversation():
    first = create(instructions="Be kind.")
    second = create(input="And more.", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    assert CLIENT.responses.retrieve(first.id).output_text == first.output_text
    items = CLIENT.responses.input_items.list(first.id).data
    assert items[0].content[0].text == "Say something."
    CLIENT.responses.delete(first.id)
    expect(openai.NotFoundError, lambda: CLIENT.responses.retrieve(first.id), first.id)
    expect(openai.BadRequestError, lambda: create(previous_response_id=first.id), "previous_response_id")


def test_tool_results_go_back():
    history = [
        {"role": "user", "content": "Weather in Paris?"},
        {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": '{"location": "Paris"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "18C"},
    ]
    assert create(input=history, tools=WEATHER).usage.input_tokens > create(tools=WEATHER).usage.input_tokens
    history[2]["call_id"] = "other"
    expect(openai.BadRequestError, lambda: create(input=history, tools=WEATHER), "other")


def test_background():
    begun = create(background=True, max_output_tokens=2000, extra_body={"ignore_eos": True})
    assert begun.status == "in_progress"
    assert CLIENT.responses.cancel(begun.id).status == "cancelled"
    begun = create(background=True)
    deadline = time.monotonic() + 60
    while (got := CLIENT.responses.retrieve(begun.id)).status == "in_progress":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert texts(got) == texts(create())
    followed = list(CLIENT.responses.retrieve(begun.id, stream=True, starting_after=1))
    assert followed[0].sequence_number == 2 and texts(followed[-1].response) == texts(got)


def expect(kind, call, part):
    try:
        call()
    except kind as error:
        assert part in str(error), f"{part!r} not in {error}"
        return
    raise AssertionError(f"{kind.__name__} expected")


def test_errors():
    expect(openai.BadRequestError, lambda: create(tools=[{"type": "web_search"}]), "web_search")
    expect(openai.BadRequestError, lambda: create(max_output_tokens=-1), "max_output_tokens")
    expect(openai.BadRequestError, lambda: create(input=[{"role": "alien", "content": "x"}]), "input[0]")
    expect(openai.NotFoundError, lambda: CLIENT.responses.create(model="no-such", input="x"), "no-such")
    cut = create(max_output_tokens=3, extra_body={"ignore_eos": True})
    assert cut.status == "incomplete" and cut.incomplete_details.reason == "max_output_tokens"


def main():
    tests = [(name, test) for name, test in globals().items() if name.startswith("test_")]
    for name, test in tests:
        start = time.monotonic()
        test()
        print(f"{name}: ok ({time.monotonic() - start:.2f} s)", flush=True)
    print(f"{len(tests)} tests passed against {BASE} with openai {openai.__version__}")


if __name__ == "__main__":
    main()
