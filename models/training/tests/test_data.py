"""The data writes M3's format as the chat template does, is what it was for a seed, and answers its own questions."""

import json
import random
from pathlib import Path
from typing import Any

import jinja2
import pytest

from nano.arithmetic import add_steps, arithmetic, is_held_out, multiply_steps, subtract_steps
from nano.corpus import TASKS, Encoder
from nano.example import Example, segments
from nano.pictures import SIDE
from nano.png import avi, png, rows_of
from nano.recall import needle_lines
from nano.tokenizer import FIRST_ADDED, token_id
from nano.words import held_out

MODEL = Path(__file__).parents[2] / "m3-nano"


def template() -> jinja2.Template:
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.from_string((MODEL / "chat_template.jinja").read_text())


def rendered(example: Example) -> str:
    messages: list[dict[str, Any]] = []
    for message in example.messages:
        calls = [{"function": call} for call in message.get("tool_calls", [])]
        messages.append({**message, "tool_calls": calls} if calls else message)
    tools = [{"function": tool} for tool in example.tools]
    return template().render(messages=messages, tools=tools, thinking_mode=example.mode)


@pytest.mark.parametrize("task", sorted(TASKS))
def test_conversations_are_written_as_the_template_writes_them(task: str) -> None:
    rng = random.Random(7)
    for _ in range(60):
        example = TASKS[task](rng, False)
        assert "".join(text for text, _ in segments(example)) == rendered(example)


def test_long_needles_are_tokens_of_their_text() -> None:
    encoder, rng = Encoder(str(MODEL / "tokenizer.json")), random.Random(3)
    for length in (1024, 4096):
        tokens = encoder.long_needle(rng, length, 2)
        assert length - 64 < len(tokens.ids) <= length
        text = encoder.tokenizer.decode(tokens.ids.tolist(), skip_special_tokens=False)
        assert encoder.encode(text) == tokens.ids.tolist()


def test_only_answers_weigh_fully() -> None:
    encoder = Encoder(str(MODEL / "tokenizer.json"))
    example = Example("chat", [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}])
    tokens = encoder.tokens(example)
    learned = encoder.tokenizer.decode([int(token) for token, weight in zip(tokens.ids, tokens.weights, strict=True) if weight == 1.0], skip_special_tokens=False)
    assert learned == "</mm:think>Hi[e~["


def test_digits_are_single_tokens_and_markers_keep_their_place() -> None:
    encoder = Encoder(str(MODEL / "tokenizer.json"))
    assert len(encoder.encode("48213")) == 5
    assert token_id("]!p~[") == FIRST_ADDED and token_id("[e~[") == FIRST_ADDED + 20 and token_id("</mm:think>") == FIRST_ADDED + 60


def test_worked_steps_end_in_the_result() -> None:
    assert add_steps(347, 285) == "7+5=12, 4+8+1=13, 3+2+1=6 -> 632"
    assert subtract_steps(632, 285) == "2+10-5=7, 3-1+10-8=4, 6-1-2=3 -> 347"
    assert multiply_steps(47, 8) == "7*8=56, 4*8=32, 32+5=37 -> 376"
    rng = random.Random(5)
    for _ in range(500):
        example = arithmetic(rng, False, "adaptive")
        result = example.messages[-1]["content"].split(" = ")[1]
        assert example.messages[-1]["reasoning_content"].endswith(f"-> {result}")


def test_held_out_examples_never_train() -> None:
    rng = random.Random(11)
    for _ in range(300):
        left, _, right = arithmetic(rng, False).messages[-1]["content"].split(" = ")[0].split(" ")
        assert not is_held_out(int(left), int(right))
        example = TASKS["tools"](rng, True)
        assert all(held_out(tool["name"]) for tool in example.tools)


def test_seeds_decide() -> None:
    assert [needle_lines(random.Random(9), 5, 1) for _ in range(2)][0] == needle_lines(random.Random(9), 5, 1)


def test_pictures_are_drawn_alike_with_and_without_torch() -> None:
    torch = pytest.importorskip("torch")
    from nano.batches import padded
    from nano.raster import draw

    rng = random.Random(2)
    for _ in range(20):
        example = TASKS["vision"](rng, False)
        for picture in example.pictures:
            drawn = draw(torch.from_numpy(padded(picture))[None])[0].byte().numpy()
            differing = sum(row.tobytes() != mine for row, mine in zip(drawn, rows_of(picture), strict=True))
            assert differing <= 2, "rows may differ where an edge falls on a pixel's middle"


def test_files_hold_what_was_drawn() -> None:
    picture = [[-1, 128, 0, 0, 0], [0, 0, 56, 56, 12]]
    assert png(picture).startswith(b"\x89PNG")
    assert len(avi([picture] * 8)) > 8 * 3 * SIDE * SIDE
