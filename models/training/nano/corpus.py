"""The mixture of tasks, and examples as tokens with loss weights. Every example follows from a seed."""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from .arithmetic import arithmetic
from .chat import DEVELOPERS, chat
from .example import Example, expanded, segments
from .pictures import vision
from .recall import copying, needle_answer, needle_parts, needle_question, random_repeat, short_needle
from .tokenizer import ADDED, token_id
from .tools import tools
from .words import filler_sentence

def mixed(rng: random.Random, test: bool) -> Example:
    """Two to four requests of different kinds in one conversation."""
    messages: list[dict] = []
    for _ in range(rng.randint(2, 4)):
        make = rng.choice([chat, chat, arithmetic, copying])
        while (part := make(rng, test)).mode != "adaptive":
            pass
        messages += [message for message in part.messages if message["role"] != "system"]
    return Example("mixed", messages)


TASKS: dict[str, Callable[[random.Random, bool], Example]] = {
    "tools": tools, "arithmetic": arithmetic, "vision": vision, "needle": short_needle, "copying": copying, "chat": chat, "mixed": mixed,
}
SPLIT = re.compile("(" + "|".join(re.escape(line.removeprefix("+")) for line in sorted(ADDED, key=len, reverse=True)) + ")")


def varied(rng: random.Random, example: Example) -> Example:
    """One in ten of the tasks that never reason is asked to, and does so in a word; one in ten has another system message."""
    if example.messages[0]["role"] != "system" and rng.random() < 0.1:
        example.messages.insert(0, {"role": "system", "content": rng.choice(DEVELOPERS)})
    if example.mode == "adaptive" and example.kind.split("_")[0] not in ("arithmetic", "tools", "chat", "mixed") and rng.random() < 0.1:
        example.mode = "enabled"
        example.messages[-1]["reasoning_content"] = "I answer this directly."
    return example


def sample(rng: random.Random, weights: dict[str, float], test: bool = False) -> Example:
    """An example by task shares. The share `repeat` gives random tokens twice."""
    kind = rng.choices(list(weights), list(weights.values()))[0]
    if kind == "repeat":
        return random_repeat(rng, 2400, 96)
    return varied(rng, TASKS[kind](rng, test))


def sample_text(rng: random.Random) -> list[str]:
    """Ordinary text of one example, cut at added tokens: what merges are learned from."""
    shares = {"tools": 0.4, "arithmetic": 0.15, "vision": 0.1, "needle": 0.12, "copying": 0.05, "chat": 0.15, "mixed": 0.03}
    example = sample(rng, shares)
    text = "".join(piece for piece, _ in segments(example))
    return [part for part in SPLIT.split(text) if part and not SPLIT.fullmatch(part)]


@dataclass
class Tokens:
    """An example as the model sees it. `weights[i]` belongs to the prediction OF token i."""

    kind: str
    ids: np.ndarray
    weights: np.ndarray
    pictures: list[list[list[float]]]
    videos: list[list[list[list[float]]]]


class Encoder:
    """Turns examples into tokens; keeps a pool of encoded filler sentences for long haystacks."""

    def __init__(self, path: str) -> None:
        self.tokenizer = Tokenizer.from_file(path)
        self.filler: list[list[int]] = []
        self.image, self.video = token_id("]<]image[>["), token_id("]<]video[>[")

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def tokens(self, example: Example) -> Tokens:
        if example.raw is not None:
            weights = np.zeros(len(example.raw), np.float32)
            weights[example.raw_from :] = 1.0
            return Tokens(example.kind, np.array(example.raw, np.int32), weights, [], [])
        ids: list[int] = []
        weights: list[float] = []
        for text, weight in segments(example):
            piece = self.encode(expanded(text, len(example.videos)))
            ids += piece
            weights += [weight] * len(piece)
        array, loss = np.array(ids, np.int32), np.array(weights, np.float32)
        loss[(array == self.image) | (array == self.video)] = 0.0
        loss[0] = 0.0
        return Tokens(example.kind, array, loss, example.pictures, example.videos)

    def long_needle(self, rng: random.Random, length: int, decoys: int) -> Tokens:
        """A needle in a haystack of filler, `length` tokens in all at most."""
        if not self.filler:
            pool = random.Random(5)
            self.filler = [self.encode(filler_sentence(pool)) for _ in range(20_000)]
        needles, key, value = needle_parts(rng, decoys)
        question = {"role": "user", "content": needle_question(rng, key)}
        answer = {"role": "assistant", "content": needle_answer(key, value)}
        pieces = segments(Example("needle", [question, answer], rng.choice(["adaptive", "adaptive", "disabled"])))
        head, tail = pieces[0][0].split("]~b]user\n", 1)
        start, end = self.encode(head + "]~b]user\n"), self.encode(tail)
        rest = [(self.encode(text), weight) for text, weight in pieces[1:]]
        middle = [self.encode(needle) for needle in needles]
        room = length - len(start) - len(end) - sum(len(ids) for ids, _ in rest) - sum(map(len, middle))
        hay: list[list[int]] = []
        while (line := rng.choice(self.filler)) and len(line) <= room:
            hay.append(line)
            room -= len(line)
        for needle in middle:
            hay.insert(rng.randint(0, len(hay)), needle)
        ids = start + [token for line in hay for token in line] + end
        weights = [0.002] * len(ids)
        for piece, weight in rest:
            ids += piece
            weights += [weight] * len(piece)
        weights[0] = 0.0
        return Tokens("needle_long", np.array(ids, np.int32), np.array(weights, np.float32), [], [])
