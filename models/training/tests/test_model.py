"""The training model against the golden answers that the engine's scalar reference is held to, in float32 on random weights."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from nano import layers
from nano.batches import Batch
from nano.checkpoint import load
from nano.config import read
from nano.layers import gemma_norm, linear
from nano.model import LONG_SPARSE, SHORT, Nano

PROJECT = Path(__file__).parents[3]
SHARED = Path(os.environ.get("M3_SHARED", PROJECT / "../shared"))


def golden_path(relative: str) -> Path:
    """In the project, else in the shared folder beside it; what lies in neither skips the test."""
    for folder in (PROJECT / "tests/data/golden", SHARED / "data/golden"):
        if (folder / relative).exists():
            return folder / relative
    pytest.skip(f"{relative} is neither in tests/data/golden nor in a shared folder")


@pytest.fixture(autouse=True)
def float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "DTYPE", torch.float32)


def model(name: str) -> Nano:
    folder = golden_path(f"ckpt/{name}")
    made = Nano(read(json.loads((folder / "config.json").read_text())))
    load(made, folder)
    return made.eval()


def batch(ids: torch.Tensor, block: int) -> Batch:
    """One document, padded to whole blocks."""
    count = ids.shape[0]
    length = (count + block - 1) // block * block
    padded = torch.zeros(length, dtype=torch.long)
    padded[:count] = ids
    nothing = torch.zeros(0)
    return Batch(
        ids=padded, targets=padded, weights=torch.zeros(length), positions=torch.arange(length), doc=torch.zeros(length), starts=torch.tensor([0, length]),
        pictures=nothing, clips=nothing, slots=nothing, document=torch.zeros(1, length, dtype=torch.long), asked=nothing, kinds=["text"], longest=length,
    )


@torch.no_grad()
@pytest.mark.parametrize(("name", "case", "how"), [
    ("text", "text_200", SHORT), ("long16", "text_1000", LONG_SPARSE), ("long128", "text_2700", LONG_SPARSE), ("vl", "text_24", SHORT),
])
def test_logits_are_the_golden_ones(name: str, case: str, how: str) -> None:
    golden = load_file(golden_path(f"golden/{name}/{case}.safetensors"))
    nano = model(name)
    given = batch(golden["input_ids"].long(), nano.sizes.block if how == LONG_SPARSE else 1)
    hidden = gemma_norm(nano(given, how).hidden, nano.norm)[: golden["input_ids"].shape[0]]
    logits = linear(hidden, nano.head)
    if "positions" in golden:
        logits = logits[golden["positions"].long()]
    assert (logits - golden["logits"]).abs().max() < 1e-4


@torch.no_grad()
def test_dense_attention_would_miss_the_sparse_answers() -> None:
    golden = load_file(golden_path("golden/long16/text_1000.safetensors"))
    nano = model("long16")
    hidden = gemma_norm(nano(batch(golden["input_ids"].long(), 1), SHORT).hidden, nano.norm)
    logits = linear(hidden, nano.head)[golden["positions"].long()]
    assert (logits - golden["logits"]).abs().max() > 1e-2


def places(height: int, width: int) -> torch.Tensor:
    """Merge order of a picture's patches."""
    rows = [(0, 2 * hb + a, 2 * wb + b) for hb in range(height // 2) for wb in range(width // 2) for a in range(2) for b in range(2)]
    return torch.tensor(rows, dtype=torch.float32)


@torch.no_grad()
def test_tower_and_projector_give_the_golden_features() -> None:
    golden = load_file(golden_path("golden/vl/images.safetensors"))
    vision = model("vl").vision
    at = 0
    for _, height, width in golden["grid_thw"].tolist():
        count = height * width
        rows = golden["patches"][at : at + count]
        out = vision.tower(rows, places(height, width), [(count, count)], lambda function, *arguments: function(*arguments))
        assert (out - golden["tower_out"][at : at + count]).abs().max() < 5e-5
        features = vision.project(out)
        assert (features - golden["features"][at // 4 : (at + count) // 4]).abs().max() < 5e-5
        at += count
