"""Small pictures and clips of coloured shapes with questions about them. A picture is a list of `[shape, colour, x, y, radius]`.

The first entry is the background `[-1, grey level, 0, 0, 0]`. `inside` is the one definition of the shapes; `raster.py` draws on the
GPU by the same inequalities.
"""

import random

from .example import IMAGE, VIDEO, Example

SIDE = 112
COLOURS = {
    "red": (220, 30, 30), "green": (30, 170, 50), "blue": (40, 60, 225), "yellow": (240, 220, 40), "white": (250, 250, 250),
    "black": (10, 10, 10), "purple": (150, 40, 190), "orange": (250, 140, 20),
}
SHAPES = ["circle", "square", "triangle", "cross", "diamond"]
NAMES = list(COLOURS)
PLACES = [["top left", "top", "top right"], ["left", "centre", "right"], ["bottom left", "bottom", "bottom right"]]
COUNTS = ["zero", "one", "two", "three", "four", "five"]
Picture = list[list[float]]


def inside(shape: int, dx: float, dy: float, radius: float) -> bool:
    """Whether a point at this offset from the centre belongs to the shape."""
    across, down = abs(dx), abs(dy)
    if shape == 0:
        return dx * dx + dy * dy <= radius * radius
    if shape == 1:
        return max(across, down) <= radius * 0.85
    if shape == 2:
        return -radius <= dy <= radius * 0.8 and across <= (dy + radius) * 0.55
    if shape == 3:
        return min(across, down) <= radius * 0.32 and max(across, down) <= radius
    return across + down <= radius * 1.1


def background(rng: random.Random) -> list[float]:
    return [-1, rng.choice([90, 110, 128, 140, 160, 180]), 0, 0, 0]


def placed(rng: random.Random, shape: int, colour: int, row: int, column: int) -> list[float]:
    """An object in one of nine places, not quite in its middle."""
    x, y = 19 + 37 * column + rng.randint(-3, 3), 19 + 37 * row + rng.randint(-3, 3)
    return [shape, colour, x, y, rng.randint(11, 15)]


def scene(rng: random.Random, count: int) -> tuple[Picture, list[tuple[int, int, int, int]]]:
    """`count` objects in different places: the picture, and (shape, colour, row, column) of each."""
    places = rng.sample([(row, column) for row in range(3) for column in range(3)], count)
    facts = [(rng.randrange(len(SHAPES)), rng.randrange(len(NAMES)), row, column) for row, column in places]
    return [background(rng)] + [placed(rng, *fact) for fact in facts], facts


def article(words: str) -> str:
    return ("an " if words[0] in "aeiou" else "a ") + words


def single(rng: random.Random) -> tuple[list[Picture], str, str]:
    picture, [(shape, colour, row, column)] = scene(rng, 1)
    what = f"{NAMES[colour]} {SHAPES[shape]}"
    question, answer = rng.choice([
        (rng.choice(["What is in the picture?", "What do you see?", "Describe the picture.", "这是什么?"]), article(what).capitalize() + "."),
        (rng.choice([f"What colour is the {SHAPES[shape]}?", "Which colour is it?", "What color is this?"]), NAMES[colour].capitalize() + "."),
        (rng.choice(["What shape is it?", "Which shape is in the picture?"]), article(SHAPES[shape]).capitalize() + "."),
        (rng.choice([f"Where is the {SHAPES[shape]}?", f"Where is the {what}?", "Where is it?"]), PLACES[row][column].capitalize() + "."),
    ])
    return [picture], f"{IMAGE}{question}", answer


def several(rng: random.Random) -> tuple[list[Picture], str, str]:
    """Up to five objects: how many, or the colour, shape or place of one that the question names uniquely."""
    picture, facts = scene(rng, rng.randint(1, 5))
    if rng.random() < 0.45:
        question = rng.choice(["How many shapes are there?", "How many objects do you see?", "Count the shapes.", "有几个图形?"])
        return [picture], f"{IMAGE}{question}", COUNTS[len(facts)].capitalize() + "."
    shape, colour, row, column = rng.choice(facts)
    asked = []
    if sum(fact[0] == shape for fact in facts) == 1:
        asked += [(f"What colour is the {SHAPES[shape]}?", NAMES[colour]), (f"Where is the {SHAPES[shape]}?", PLACES[row][column])]
    if sum(fact[1] == colour for fact in facts) == 1:
        asked += [(f"What shape is {NAMES[colour]}?", article(SHAPES[shape])), (f"Where is the {NAMES[colour]} shape?", PLACES[row][column])]
    asked.append((f"What is at the {PLACES[row][column]}?", article(f"{NAMES[colour]} {SHAPES[shape]}")))
    question, answer = rng.choice(asked)
    return [picture], f"{IMAGE}{question}", answer.capitalize() + "."


def two(rng: random.Random) -> tuple[list[Picture], str, str]:
    """Two pictures with one object each."""
    (first, [a]), (second, [b]) = scene(rng, 1), scene(rng, 1)
    ordinal, fact = rng.choice([("first", a), ("second", b)])
    what = f"{NAMES[fact[1]]} {SHAPES[fact[0]]}"
    asked = [
        (f"What is in the {ordinal} picture?", article(what)),
        (f"What colour is the shape in the {ordinal} picture?", NAMES[fact[1]]),
        (f"What shape is in the {ordinal} picture?", article(SHAPES[fact[0]])),
    ]
    if a[0] != b[0]:
        asked.append((f"Which picture has the {SHAPES[fact[0]]}?", f"the {ordinal}"))
    if a[1] != b[1]:
        asked.append((f"Which picture has the {NAMES[fact[1]]} shape?", f"the {ordinal}"))
    question, answer = rng.choice(asked)
    return [first, second], f"{IMAGE}{IMAGE}{question}", answer.capitalize() + "."


def clip(rng: random.Random) -> tuple[list[Picture], str, str]:
    """Eight frames, one a second; two, three or four scenes follow each other, changing between pairs of frames."""
    scenes = rng.choice([2, 3, 4])
    colours = rng.sample(range(len(NAMES)), scenes)
    shape = rng.randrange(len(SHAPES))
    cuts = sorted(rng.sample(range(1, 4), scenes - 1))
    ground = background(rng)
    drawn = [placed(rng, shape if rng.random() < 0.7 else rng.randrange(len(SHAPES)), colour, rng.randrange(3), rng.randrange(3)) for colour in colours]
    frames = [[ground, drawn[sum(cut <= pair for cut in cuts)]] for pair in range(4) for _ in range(2)]
    order = ", ".join(NAMES[colour] for colour in colours)
    question, answer = rng.choice([
        ("In which order do the colours appear?", order), ("Which colours appear, in order?", order),
        ("Which colour comes first?", NAMES[colours[0]]), ("Which colour comes last?", NAMES[colours[-1]]),
    ])
    return frames, f"{VIDEO}{question}", answer.capitalize() + "."


def vision(rng: random.Random, _test: bool) -> Example:
    make = rng.choices([single, several, two, clip], [0.25, 0.4, 0.15, 0.2])[0]
    frames, question, answer = make(rng)
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    example = Example(f"vision_{make.__name__}", messages, rng.choice(["adaptive", "adaptive", "disabled"]))
    if make is clip:
        example.videos.append(frames)
    else:
        example.pictures += frames
    return example
