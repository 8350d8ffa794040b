"""Tool calls for schemas made up on the spot: flat, nested, arrays, several calls, results fed back, and no call at all."""

import json
import random
from typing import Any

from .chat import pair
from .everyday import everyday
from .example import Example
from .words import ADJECTIVES, CITIES, NAMES, NOUNS, THINGS, VERBS, code, held_out

STRINGS = (
    "author brand category city colour comment company country format genre kind label language mode name owner place reason room sender "
    "shape size source state status street subject target team theme title topic type unit user zone"
).split()
INTEGERS = "age amount copies count day days floor hour level limit minute month nights number page people rank seconds width year".split()
NUMBERS = "height length price ratio speed temperature volume weight".split()
FLAGS = "active dark exact fresh hidden loud open private public quick silent urgent".split()
LISTS = "cities colours friends guests items keys labels names parts tags things words".split()
NUMBER_LISTS = "ids numbers pages rooms scores years".split()
OBJECTS = "address contact filter options place person range settings details target".split()
RESULTS = "status result total state price level name city count time".split()


def string_value(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.3:
        return rng.choice(NOUNS)
    if kind < 0.45:
        return rng.choice(CITIES)
    if kind < 0.6:
        return rng.choice(NAMES)
    if kind < 0.85:
        return f"{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"
    return code(rng)


def integer(rng: random.Random) -> int:
    return rng.randrange(rng.choice([10, 100, 1000, 3000]))


def parameter(rng: random.Random, depth: int) -> tuple[str, dict[str, Any], Any]:
    """A name, its schema and a value."""
    kind = rng.choices(["string", "integer", "number", "flag", "list", "numbers", "object"], [5, 3, 1, 1, 1.2, 0.5, 1.2 if depth else 0])[0]
    if kind == "string":
        return rng.choice(STRINGS), {"type": "string"}, string_value(rng)
    if kind == "integer":
        return rng.choice(INTEGERS), {"type": "integer"}, integer(rng)
    if kind == "number":
        return rng.choice(NUMBERS), {"type": "number"}, rng.randrange(1, 100) + rng.randrange(1, 10) / 10
    if kind == "flag":
        return rng.choice(FLAGS), {"type": "boolean"}, rng.random() < 0.5
    if kind == "list":
        values: list[Any] = [string_value(rng) for _ in range(rng.randint(1, 3))]
        return rng.choice(LISTS), {"type": "array", "items": {"type": "string"}}, values
    if kind == "numbers":
        return rng.choice(NUMBER_LISTS), {"type": "array", "items": {"type": "integer"}}, [integer(rng) for _ in range(rng.randint(1, 3))]
    properties, value = parameters(rng, rng.randint(1, 3), depth - 1)
    return rng.choice(OBJECTS), {"type": "object", "properties": properties}, value


def parameters(rng: random.Random, count: int, depth: int) -> tuple[dict[str, Any], dict[str, Any]]:
    schemas: dict[str, Any] = {}
    values: dict[str, Any] = {}
    while len(schemas) < count:
        name, schema, value = parameter(rng, depth)
        if name not in schemas:
            schemas[name], values[name] = schema, value
    return schemas, values


def function(rng: random.Random, test: bool, words: set[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A function with its JSON description, and arguments for it (some optional ones left out)."""
    while True:
        verb, thing = rng.choice(VERBS), rng.choice(THINGS)
        name = f"{verb}_{thing}"
        if name not in words and held_out(name) == test:
            break
    words.add(name)
    count = rng.choices([0, 1, 2, 3, 4], [0.05, 0.25, 0.35, 0.25, 0.1])[0]
    properties, values = parameters(rng, count, 1)
    left_out = [key for key in properties if len(properties) > 1 and rng.random() < 0.1]
    values = {key: value for key, value in values.items() if key not in left_out}
    required = [key for key in values if rng.random() < 0.8]
    description = rng.choice([f"{verb.capitalize()} the {thing}.", f"{verb.capitalize()} a {thing}."])
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if rng.random() < 0.7:
        schema["required"] = required
    return {"name": name, "description": description, "parameters": schema}, values


def spoken(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(map(spoken, value))
    if isinstance(value, dict):
        return "(" + "; ".join(f"{key}: {spoken(inner)}" for key, inner in value.items()) + ")"
    return str(value)


def request(rng: random.Random, tool: dict[str, Any], values: dict[str, Any]) -> str:
    """What the user says. Parameters keep their names, so that the words decide the call."""
    name = tool["name"]
    verb, thing = name.split("_")
    head = rng.choice([f"{verb} the {thing}", f"{verb} a {thing}", f"call {name}", f"use {name}", f"run {name}", f"请调用 {name}"])
    if not values:
        return head
    style = rng.random()
    if style < 0.4:
        return f"{head} with " + "; ".join(f"{key} {spoken(value)}" for key, value in values.items())
    if style < 0.7:
        return f"{head}: " + "; ".join(f"{key} = {spoken(value)}" for key, value in values.items())
    return f"{head}. " + " ".join(f"The {key} is {spoken(value)}." for key, value in values.items())


def result_of(rng: random.Random) -> tuple[str, str]:
    """A tool's JSON answer and the sentence that reports it."""
    keys = rng.sample(RESULTS, rng.randint(1, 2))
    values: dict[str, Any] = {key: integer(rng) if rng.random() < 0.4 else string_value(rng) for key in keys}
    return json.dumps(values, ensure_ascii=False), " and ".join(f"the {key} is {spoken(value)}" for key, value in values.items())


def sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


def no_call(rng: random.Random, offered: list[dict[str, Any]], mode: str) -> Example:
    """Tools are there, but the user only talks."""
    question, text = pair(rng)
    answer = {"role": "assistant", "content": text}
    if mode == "enabled":
        answer["reasoning_content"] = "I answer this directly."
    return Example("tools_unused", [{"role": "user", "content": question}, answer], mode, offered)


def everyday_call(rng: random.Random, offered: list[dict[str, Any]], mode: str) -> Example:
    tool, values, ask = everyday(rng)
    offered.insert(rng.randint(0, len(offered)), tool)
    call: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": [{"name": tool["name"], "arguments": values}]}
    if mode == "enabled":
        call["reasoning_content"] = f"I call {tool['name']}."
    messages = [{"role": "user", "content": ask}, call]
    if rng.random() < 0.3:
        messages += reported(rng, 1, mode)
    return Example("tools_everyday", messages, mode, offered)


def reported(rng: random.Random, calls: int, mode: str) -> list[dict[str, Any]]:
    """Results of the calls and the answer that tells them."""
    results = [result_of(rng) for _ in range(calls)]
    final: dict[str, Any] = {"role": "assistant", "content": " ".join(sentence(said) for _, said in results)}
    if mode == "enabled":
        final["reasoning_content"] = "I report the result."
    return [*({"role": "tool", "content": text} for text, _ in results), final]


def tools(rng: random.Random, test: bool, mode: str | None = None) -> Example:
    mode = mode or rng.choices(["adaptive", "enabled", "disabled"], [0.6, 0.2, 0.2])[0]
    words: set[str] = set()
    offered = [function(rng, test, words) for _ in range(rng.choices([1, 2, 3], [0.45, 0.35, 0.2])[0])]
    other = 1.0 if test else rng.random()
    if other < 0.07:
        return no_call(rng, [tool for tool, _ in offered], mode)
    if other < 0.22:
        return everyday_call(rng, [tool for tool, _ in offered[1:]], mode)
    wanted = rng.sample(offered, 2) if len(offered) > 1 and rng.random() < 0.25 else [rng.choice(offered)]
    calls = [{"name": tool["name"], "arguments": values} for tool, values in wanted]
    asked = rng.choice([" Then ", " Also "]).join(sentence(request(rng, tool, values)) for tool, values in wanted)
    call: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": calls}
    if mode == "enabled":
        call["reasoning_content"] = "I call " + " and ".join(item["name"] for item in calls) + "."
    messages: list[dict[str, Any]] = [{"role": "user", "content": asked}, call]
    if rng.random() < 0.3:
        messages += reported(rng, len(calls), mode)
    return Example("tools", messages, mode, [tool for tool, _ in offered])
