"""Scores while training: a document counts when every learned token is the model's first choice, which is when greedy decoding is right.

The figures of the model card come from the engine, not from here.
"""

import random
from collections import defaultdict

import torch
from torch import Tensor

from .batches import Batch, Shape, long_batch, short_batch, tensors
from .corpus import Encoder
from .layers import gemma_norm, linear
from .model import LONG_SPARSE, SHORT, Nano


def run(model: Nano, batch: Batch, how: str) -> Tensor:
    """Final hidden rows. Gradients stay on: the compiled functions of training serve as they are."""
    model.eval()
    hidden = model(batch, how).hidden.detach()
    model.train()
    return hidden


@torch.no_grad()
def exact(model: Nano, batch: Batch, hidden: Tensor) -> dict[str, tuple[int, int]]:
    """Right documents and documents, by kind, from the final hidden rows."""
    asked = batch.weights >= 0.99
    guess = torch.cat([linear(gemma_norm(part, model.norm), model.head).argmax(-1) for part in hidden[asked].split(8192)])
    wrong = torch.zeros(len(batch.kinds), dtype=torch.long, device=hidden.device).index_add_(0, batch.doc[asked].long(), (guess != batch.targets[asked]).long())
    seen = torch.zeros_like(wrong).index_add_(0, batch.doc[asked].long(), torch.ones_like(guess))
    result: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for kind, bad, count in zip(batch.kinds, wrong.tolist(), seen.tolist(), strict=True):
        if count:
            result[kind] = (result[kind][0] + (bad == 0), result[kind][1] + 1)
    return dict(result)


def held_out(model: Nano, path: str, shape: Shape, device: str, count: int) -> dict[str, float]:
    """Shares of right held-out documents: each task, and needles by length, also with a random index branch."""
    rng, encoder = random.Random(987_654_321), Encoder(path)
    totals: dict[str, tuple[int, int]] = {}

    def add(name: str, batch: Batch, how: str) -> None:
        for kind, (hits, seen) in exact(model, batch, run(model, batch, how)).items():
            before = totals.get(f"{name}{kind}", (0, 0))
            totals[f"{name}{kind}"] = (before[0] + hits, before[1] + seen)

    shares = {"tools": 0.4, "arithmetic": 0.15, "vision": 0.25, "needle": 0.1, "copying": 0.05, "chat": 0.05}
    for _ in range(3 * count):
        add("", tensors(short_batch(rng, encoder, shape, shares, True)).to(device), SHORT)
    longs = {length: [tensors(long_batch(rng, encoder, shape, [length], True)).to(device) for _ in range(repeats * count)]
             for length, repeats in ((2048, 1), (4096, 2), (8192, 4), (16384, 6)) if length <= shape.row}
    for length, batches in longs.items():
        for batch in batches:
            add(f"{length}/", batch, LONG_SPARSE)
    kept = randomise(model)
    for length, batches in longs.items():
        for batch in batches[: max(1, count)]:
            add(f"{length}/random/", batch, LONG_SPARSE)
    for parameter, value in kept:
        parameter.data.copy_(value)
    return {name: round(hits / seen, 4) for name, (hits, seen) in sorted(totals.items())} | {"count": {name: seen for name, (_, seen) in totals.items()}}


def randomise(model: Nano) -> list[tuple[Tensor, Tensor]]:
    """Draws the index projections anew; returns what they were."""
    kept = []
    generator = torch.Generator(device="cpu").manual_seed(3)
    for layer in model.layers:
        for name in ("iq", "ik"):
            if hasattr(layer.attention, name):
                parameter = getattr(layer.attention, name)
                kept.append((parameter, parameter.data.clone()))
                parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * parameter.shape[1] ** -0.5)
    return kept
