"""`python -m nano.plots LOG OUT.png`: losses and exact matches of a run over its tokens, from `log.jsonl`."""

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

TOKENS = 98304


def fresh(entries: list[dict[str, Any]], key: str) -> list[tuple[float, float]]:
    """Points where a value was measured anew: entries repeat the last one of other kinds of batches."""
    points: list[tuple[float, float]] = []
    last = None
    for entry in entries:
        value = entry.get(key)
        if value is not None and value != last and entry["step"] > 3:
            points.append((entry["step"] * TOKENS / 1e6, value))
        last = value
    return points


def main() -> None:
    entries = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    figure, axes = plt.subplots(1, 3, figsize=(15, 4.2))
    millions = [entry["step"] * TOKENS / 1e6 for entry in entries]
    for key, label in (("short/answer", "short texts"), ("long_dense/answer", "long, dense"), ("long_sparse/answer", "long, sparse")):
        axes[0].plot(*zip(*fresh(entries, key), strict=True), label=label)
    axes[0].set(title="cross-entropy of weighted tokens", xlabel="million tokens", yscale="log")
    for key, label in (("long_dense/index", "index branch, dense"), ("long_sparse/index", "index branch, sparse"), ("short/probe", "vision probe")):
        axes[1].plot(*zip(*fresh(entries, key), strict=True), label=label)
    axes[1].set(title="index branch's KL (sum of six layers), probe", xlabel="million tokens")
    for kind in ("tools", "arithmetic", "needle", "needle_long", "copying", "vision_single", "vision_several", "vision_clip"):
        shown = [(x, entry["exact"][kind]) for x, entry in zip(millions, entries, strict=True) if kind in entry["exact"]]
        axes[2].plot(*zip(*shown, strict=True), label=kind)
    axes[2].set(title="training examples answered exactly", xlabel="million tokens", ylim=(0, 1.02))
    for axis in axes:
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(sys.argv[2], dpi=80)


if __name__ == "__main__":
    main()
