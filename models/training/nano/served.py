"""The table of the model card: held-out examples answered greedily through `m3 serve`. Standard library only.

`python3 -m nano.served --m3 target/release/m3 --model models/m3-nano` prints it; `cargo xtask nano eval` calls this. Seeds lie apart
from those of training, and sums, function names and needles are held out.
"""

import argparse
import json
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .arithmetic import arithmetic
from .chat import CHINESE, ENGLISH
from .example import IMAGE, VIDEO, Example
from .pictures import vision
from .png import data_uri, video_uri
from .recall import copying, needle_lines
from .server import Server, with_random_index
from .tools import tools

SEED = 20_261_130
MARKERS = re.compile(r"\]<\]|\[>\[|</?mm:think>|\]~b\]|\]~!b\[|\[e~\[|</?tool_call>|<invoke|</invoke>")
#: Mean tokens of a line of the haystack, and of everything around it.
LINE_TOKENS, FRAME_TOKENS = 10.15, 95


@dataclass
class Row:
    """One line of the table."""

    name: str
    right: int
    asked: int
    bar: str
    note: str = ""
    each: tuple[bool, ...] = ()  #: which examples were right, in order: so that two checkpoints can be compared pair by pair

    def line(self) -> str:
        return f"| {self.name} | {100 * self.right / max(1, self.asked):.1f} % | {self.asked} | {self.bar} | {self.note} |"


def row(name: str, each: list[bool], bar: str, note: str = "") -> Row:
    return Row(name, sum(each), len(each), bar, note, tuple(each))


def in_parallel(threads: int, ask: Callable[[Any], Any], examples: Iterable[Any]) -> list[Any]:
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(ask, examples))


def message_of(answer: dict[str, Any]) -> dict[str, Any]:
    return answer["choices"][0]["message"]


def functions(example: Example) -> list[dict[str, Any]]:
    return [{"type": "function", "function": tool} for tool in example.tools]


def calls_of(message: dict[str, Any]) -> str:
    """The calls as one text, so that `1`, `1.0` and `true` differ; arguments that are no JSON match nothing."""
    try:
        return as_text([(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in message.get("tool_calls") or []])
    except json.JSONDecodeError:
        return "arguments that are no JSON"


def as_text(calls: list[tuple[str, Any]]) -> str:
    return json.dumps(calls, sort_keys=True, ensure_ascii=False)


def with_media(example: Example, content: str) -> list[dict[str, Any]]:
    """A user message's parts, media first as the questions have them."""
    parts: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": data_uri(picture)}} for picture in example.pictures]
    parts += [{"type": "video_url", "video_url": {"url": video_uri(frames)}} for frames in example.videos]
    return [*parts, {"type": "text", "text": content.replace(IMAGE, "").replace(VIDEO, "")}]


def answered(server: Server, example: Example, steps: bool = False) -> bool:
    """Whether every assistant turn comes out as expected, each asked for with the expected turns before it; with `steps` the reasoning too."""
    history: list[dict[str, Any]] = []
    ids: list[str] = []
    options: dict[str, Any] = {"chat_template_kwargs": {"thinking_mode": example.mode}}
    if example.tools:
        options["tools"] = functions(example)
    for message in example.messages:
        if message["role"] == "user" and (example.pictures or example.videos):
            message = {**message, "content": with_media(example, message["content"])}
        if message["role"] == "tool":
            message = {**message, "tool_call_id": ids.pop(0)}
        if message["role"] != "assistant":
            history.append(message)
            continue
        given = message_of(server.chat(history, **options))
        wanted = as_text([(call["name"], call["arguments"]) for call in message.get("tool_calls", [])])
        if calls_of(given) != wanted or (given.get("content") or "").strip() != message.get("content", ""):
            return False
        if steps and (given.get("reasoning_content") or "").strip() != message.get("reasoning_content", ""):
            return False
        ids = [call["id"] for call in given.get("tool_calls") or []]
        history.append({key: value for key, value in given.items() if value is not None})
    return True


def sums(server: Server, count: int, threads: int) -> list[Row]:
    rng = random.Random(SEED + 1)
    examples = [arithmetic(rng, True, ["adaptive", "enabled"][index % 2]) for index in range(count)]
    right = in_parallel(threads, lambda example: answered(server, example, steps=True), examples)
    modes = [arithmetic(rng, True, ["enabled", "disabled"][index % 2]) for index in range(count)]

    def obeyed(example: Example) -> bool:
        given = message_of(server.chat(example.messages[:1], chat_template_kwargs={"thinking_mode": example.mode}))
        return bool(given.get("reasoning_content")) == (example.mode == "enabled") and bool(given.get("content"))

    return [row("1 arithmetic with steps", right, "95 %"), row("1 thinking modes obeyed", in_parallel(threads, obeyed, modes), "99 %")]


def tool_calls(server: Server, count: int, threads: int) -> list[Row]:
    rng = random.Random(SEED + 2)
    right = in_parallel(threads, lambda example: answered(server, example), [tools(rng, True) for _ in range(count)])
    return [row("2 tool calls, unseen schemas", right, "95 %", "valid and right, results fed back in three of ten")]


def needles(server: Server, length: int, count: int, threads: int, bar: str, name: str) -> Row:
    rng = random.Random(SEED + length)
    examples = [needle_lines(rng, round((length - FRAME_TOKENS) / LINE_TOKENS), 0) for _ in range(count)]

    def found(example: tuple[str, str, str]) -> tuple[bool, int]:
        answer = server.chat([{"role": "user", "content": example[0]}], max_tokens=32)
        return example[2] in (message_of(answer).get("content") or ""), answer["usage"]["prompt_tokens"]

    results = in_parallel(threads, found, examples)
    tokens = sum(size for _, size in results) / max(1, count)
    return row(f"3 needle at {length // 1024}k{name}", [hit for hit, _ in results], bar, f"{tokens:,.0f} prompt tokens on average")


def sights(server: Server, count: int, threads: int) -> list[Row]:
    rng = random.Random(SEED + 4)
    examples = [vision(rng, True) for _ in range(count)]
    right = in_parallel(threads, lambda example: answered(server, example), examples)
    rows = [row("4 pictures and videos", right, "90 %")]
    kinds = [asked_for(example) for example in examples]
    for kind in sorted(set(kinds)):
        rows.append(row(f"4 of these: {kind}", [hit for hit, its in zip(right, kinds, strict=True) if its == kind], ""))
    return rows


def asked_for(example: Example) -> str:
    """The kind of picture; of those with several shapes also what is asked: their number, a place's shape, a shape's place, or the rest."""
    kind, question = example.kind.removeprefix("vision_"), example.messages[0]["content"]
    if kind != "several":
        return kind
    if "Where is" in question:
        return "several, where one is"
    if "What is at" in question:
        return "several, what is at a place"
    return "several, how many" if re.search("How many|Count|几", question) else "several, colour or shape"


def talk(server: Server, count: int, threads: int) -> list[Row]:
    rng = random.Random(SEED + 5)
    pairs = [(question, answer) for questions, answer in ENGLISH + CHINESE for question in questions.split("|")]
    asked = [rng.choice(pairs) for _ in range(count)]
    right = in_parallel(threads, lambda pair: message_of(server.chat([{"role": "user", "content": pair[0]}])).get("content") == pair[1], asked)
    return [row("5 greetings and questions about itself", right, "", "English and Chinese; questions and answers of the training data, word for word")]


def leaks(server: Server, count: int, threads: int) -> list[Row]:
    """Sampled answers: no marker of the format may be in what a client reads."""
    rng = random.Random(SEED + 6)
    makers = [tools, arithmetic, copying]

    def clean(index_and_example: tuple[int, Example]) -> bool:
        index, example = index_and_example
        options: dict[str, Any] = {"chat_template_kwargs": {"thinking_mode": example.mode}, "temperature": 1, "top_p": 1, "seed": index, "max_tokens": 200}
        if example.tools:
            options["tools"] = functions(example)
        given = message_of(server.chat(example.messages[:1], **options))
        return not MARKERS.search(json.dumps(given, ensure_ascii=False))

    examples = [makers[index % 3](rng, True) for index in range(count)]
    return [row("no marker in sampled answers", in_parallel(threads, clean, enumerate(examples)), "100 %", "temperature 1")]


def measure(options: argparse.Namespace) -> list[Row]:
    count, threads, rows = options.count, options.threads, []
    with Server(options.m3, options.model, options.flags) as server:
        plain: dict[str, Callable[[], list[Row]]] = {
            "1": lambda: sums(server, count, threads), "2": lambda: tool_calls(server, count, threads), "4": lambda: sights(server, count, threads),
            "5": lambda: talk(server, count, threads), "leaks": lambda: leaks(server, options.sampled, threads),
        }
        for name, run in plain.items():
            if name in options.rows:
                rows += show(run())
        if "3" in options.rows:
            for length, asked in options.needles.items():
                rows += show([needles(server, length, asked, threads, "90 %" if length > 8192 else "95 %", "")])
    if "3" in options.rows:
        with tempfile.TemporaryDirectory() as folder:
            with_random_index(options.model, Path(folder))
            with Server(options.m3, Path(folder), options.flags) as server:
                for length, asked in options.random.items():
                    rows += show([needles(server, length, asked, threads, "at most 40 %", ", random index")])
    return rows


def show(rows: list[Row]) -> list[Row]:
    for row in rows:
        print(row.line(), flush=True)
    return rows


def lengths(text: str) -> dict[int, int]:
    """`4096:400,8192:200` as lengths and counts."""
    return {int(length): int(count) for length, count in (item.split(":") for item in text.split(",") if item)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--m3", required=True, help="the engine's program")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--count", type=int, default=400, help="examples in each row")
    parser.add_argument("--sampled", type=int, default=1000)
    parser.add_argument("--needles", type=lengths, default=lengths("4096:400,8192:400,16384:400"))
    parser.add_argument("--random", type=lengths, default=lengths("8192:400,16384:400"))
    parser.add_argument("--rows", default="1,2,3,4,5,leaks", type=lambda text: text.split(","))
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--json", type=Path, help="also writes the rows there")
    parser.add_argument("--least", type=float, help="fails when a row with a bar above it stays below this share")
    parser.add_argument("flags", nargs="*", help="further flags of `m3 serve`, after --")
    options = parser.parse_args()
    print("| row | right | examples | bar | |\n| --- | --- | --- | --- | --- |")
    begun = time.time()
    rows = measure(options)
    print(f"{time.time() - begun:.0f} s", file=sys.stderr)
    if options.json:
        options.json.write_text(json.dumps([row.__dict__ for row in rows], indent=1) + "\n")
    if options.least is not None:
        bad = [row.name for row in rows if row.bar and "at most" not in row.bar and row.right < options.least * row.asked]
        bad += [row.name for row in rows if "at most" in row.bar and row.right > 0.4 * row.asked]
        if bad:
            raise SystemExit("below the bar: " + ", ".join(bad))


if __name__ == "__main__":
    main()
