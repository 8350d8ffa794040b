"""Copying and needles: what makes induction form, first over short texts and then through the sparse layers."""

import random

from .example import Example
from .words import ADJECTIVES, CITIES, NAMES, NOUNS, THINGS, VERBS, code, filler_sentence


def words_of(rng: random.Random, count: int) -> list[str]:
    pools = [ADJECTIVES, NOUNS, NAMES, CITIES, VERBS, THINGS]
    kind = rng.random()
    if kind < 0.6:
        return [rng.choice(rng.choice(pools)) for _ in range(count)]
    if kind < 0.8:
        return [code(rng) for _ in range(max(1, count // 3))]
    return [str(rng.randrange(10 ** rng.randint(1, 6))) for _ in range(max(1, count // 3))]


def copying(rng: random.Random, _test: bool) -> Example:
    """Repeats, first and last words, in all modes without reasoning."""
    words = words_of(rng, rng.randint(2, 30))
    text = rng.choice([" ", " ", ", "]).join(words)
    kind = rng.random()
    if kind < 0.75:
        ask = rng.choice(["Repeat: ", "Repeat this: ", "Copy this text: ", "Say exactly: ", "重复:"])
        answer = text
    elif kind < 0.88:
        ask, answer = "What is the last word? ", words[-1]
    else:
        ask, answer = "What is the first word? ", words[0]
    messages = [{"role": "user", "content": ask + text}, {"role": "assistant", "content": answer}]
    return Example("copying", messages, rng.choice(["adaptive", "adaptive", "disabled"]))


def random_repeat(rng: random.Random, vocabulary: int, longest: int) -> Example:
    """Random tokens twice: nothing but induction predicts the second half."""
    length = rng.randint(8, longest)
    tokens = [rng.randrange(vocabulary) for _ in range(length)]
    return Example("repeat", [], raw=tokens + tokens, raw_from=length + 1)


def needle_sentence(key: str, value: str) -> str:
    return f"The code of {key} is {value}.\n"


def needle_key(rng: random.Random) -> str:
    return f"{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"


def needle_parts(rng: random.Random, decoys: int) -> tuple[list[str], str, str]:
    """The needle first, then as many decoys with other keys; key and value of the first."""
    keys: list[str] = []
    while len(keys) <= decoys:
        key = needle_key(rng)
        if key not in keys:
            keys.append(key)
    values = ["".join(rng.choice("0123456789") for _ in range(5)) for _ in keys]
    return [needle_sentence(key, value) for key, value in zip(keys, values, strict=True)], keys[0], values[0]


def needle_question(rng: random.Random, key: str) -> str:
    return rng.choice([f"What is the code of {key}?", f"Tell me the code of {key}.", f"Which code has {key}?"])


def needle_answer(key: str, value: str) -> str:
    return f"The code of {key} is {value}"


def needle_lines(rng: random.Random, lines: int, decoys: int) -> tuple[str, str, str]:
    """A user message of about `lines` lines with the needle at a random depth, the question, and the answer."""
    needles, key, value = needle_parts(rng, decoys)
    text = [filler_sentence(rng) for _ in range(lines)]
    for needle in needles:
        text.insert(rng.randint(0, len(text)), needle)
    question = needle_question(rng, key)
    return "".join(text) + question, key, value


def short_needle(rng: random.Random, test: bool) -> Example:
    """Up to about 400 tokens, with decoys: the key decides."""
    message, key, value = needle_lines(rng, rng.randint(0, 14), 0 if test else rng.choice([0, 0, 1, 2, 4]))
    messages = [{"role": "user", "content": message}, {"role": "assistant", "content": needle_answer(key, value)}]
    return Example("needle", messages, rng.choice(["adaptive", "adaptive", "disabled"]))
