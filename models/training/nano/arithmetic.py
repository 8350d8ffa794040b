"""Short arithmetic, worked in columns inside `<mm:think>`, in all three thinking modes. English and Chinese questions."""

import random

from .example import Example
from .words import NAMES, NOUNS

OPERATIONS = ("+", "-", "*")


def add_steps(left: int, right: int) -> str:
    """Columns from the ones: `7+5=12, 4+8+1=13, 3+2+1=6 -> 632`."""
    steps, carry, a, b = [], 0, str(left)[::-1], str(right)[::-1]
    for place in range(max(len(a), len(b))):
        terms = [digits[place] for digits in (a, b) if place < len(digits)] + (["1"] if carry else [])
        total = sum(map(int, terms))
        carry = total // 10
        steps.append("+".join(terms) + f"={total}")
    return ", ".join(steps) + f" -> {left + right}"


def subtract_steps(left: int, right: int) -> str:
    """Columns from the ones; a column that borrows is written with its ten: `12-5=7, 13-8=5, 5-2=3 -> 357`."""
    steps, borrow, a, b = [], 0, str(left)[::-1], str(right)[::-1]
    for place, digit in enumerate(a):
        top, bottom = int(digit), int(b[place]) if place < len(b) else 0
        text = f"{top}-1" if borrow else f"{top}"
        value = top - borrow - bottom
        borrow = int(value < 0)
        steps.append((f"{text}+10-{bottom}" if borrow else f"{text}-{bottom}") + f"={value % 10}")
    return ", ".join(steps) + f" -> {left - right}"


def multiply_steps(left: int, right: int) -> str:
    """`left` has up to two digits, `right` one: `7*8=56, 4*8=32, 32+5=37 -> 376`."""
    ones, tens = left % 10, left // 10
    steps = [f"{ones}*{right}={ones * right}"]
    if tens:
        product, carry = tens * right, ones * right // 10
        steps += [f"{tens}*{right}={product}", f"{product}+{carry}={product + carry}"]
    return ", ".join(steps) + f" -> {left * right}"


def steps(left: int, operation: str, right: int) -> str:
    return {"+": add_steps, "-": subtract_steps, "*": multiply_steps}[operation](left, right)


def numbers(rng: random.Random, operation: str, small: bool) -> tuple[int, int, int]:
    """Operands and the result. One sum in seven of those from ten on is held out of training, see `is_held_out`."""
    top = rng.choice([10, 30, 100]) if small else rng.choice([10, 100, 100, 1000, 1000])
    left, right = rng.randrange(top), rng.randrange(rng.choice([10, top]))
    if operation == "-":
        left, right = max(left, right), min(left, right)
        return left, right, left - right
    if operation == "*":
        left, right = rng.randrange(10 if small else 100), rng.randrange(10)
        return left, right, left * right
    return left, right, left + right


def is_held_out(left: int, right: int) -> bool:
    return left >= 10 and (left * 31 + right * 17) % 7 == 0


def question(rng: random.Random, left: int, operation: str, right: int) -> str:
    name, noun = rng.choice(NAMES), rng.choice(NOUNS) + "s"
    word = {"+": "plus", "-": "minus", "*": "times"}[operation]
    han = {"+": "加", "-": "减", "*": "乘"}[operation]
    told = {
        "+": f"{name} has {left} {noun} and gets {right} more. How many {noun} does {name} have now?",
        "-": f"{name} has {left} {noun} and gives away {right}. How many {noun} are left?",
        "*": f"There are {left} boxes with {right} {noun} each. How many {noun} are there?",
    }[operation]
    sign = rng.choice(["x", "*"]) if operation == "*" else operation
    plain = f"{left} {sign} {right}"
    return rng.choice([
        f"What is {plain}?", f"What is {plain}?", f"{plain} = ?", f"Compute {plain}.", f"{left}{sign}{right}", f"{plain}",
        f"What is {left} {word} {right}?", f"Calculate {left} {word} {right}.", told, told, f"{left} {han} {right} 等于多少?", f"计算 {plain}",
        f"How much is {plain}?", f"Please work out {plain}.",
    ])


def arithmetic(rng: random.Random, test: bool, mode: str | None = None) -> Example:
    mode = mode or rng.choices(["adaptive", "enabled", "disabled"], [0.45, 0.3, 0.25])[0]
    while True:
        operation = rng.choices(OPERATIONS, [0.4, 0.35, 0.25])[0]
        left, right, result = numbers(rng, operation, mode == "disabled")
        if is_held_out(left, right) == test:
            break
    answer = {"role": "assistant", "content": f"{left} {operation} {right} = {result}"}
    if mode != "disabled":
        answer["reasoning_content"] = steps(left, operation, right)
    return Example("arithmetic", [{"role": "user", "content": question(rng, left, operation, right)}, answer], mode)
