"""Two checkpoints on the same examples, pair by pair: `python3 -m nano.paired A.json B.json`, each written by `nano.served --json`.

Fails when B's share of any row lies more than two points below A's. Standard library only.
"""

import json
import sys
from pathlib import Path

#: Points by which the second may lie below the first.
MOST_LOST = 2.0


def compare(first: list[dict], second: list[dict]) -> tuple[list[str], list[str]]:
    """Lines of a table, and names of the rows in which the second lost too much."""
    others = {row["name"]: row for row in second}
    lines = ["| row | examples | both right | only the first | only the second | difference |", "| --- | --- | --- | --- | --- | --- |"]
    lost = []
    for row in first:
        other = others.get(row["name"])
        if other is None or "random index" in row["name"]:
            continue
        if len(row["each"]) != len(other["each"]):
            raise SystemExit(f"{row['name']} has {len(row['each'])} examples in the first file and {len(other['each'])} in the second")
        pairs = list(zip(row["each"], other["each"], strict=True))
        points = 100 * (other["right"] - row["right"]) / max(1, len(pairs))
        both, left, right = (pairs.count(kind) for kind in ((True, True), (True, False), (False, True)))
        lines.append(f"| {row['name']} | {len(pairs)} | {both} | {left} | {right} | {points:+.1f} |")
        if points < -MOST_LOST:
            lost.append(row["name"])
    if len(lines) == 2:
        raise SystemExit("the files have no row in common")
    return lines, lost


def main() -> None:
    first, second = (json.loads(Path(path).read_text()) for path in sys.argv[1:3])
    lines, lost = compare(first, second)
    print("\n".join(lines))
    if lost:
        raise SystemExit(f"more than {MOST_LOST} points lost in: " + ", ".join(lost))


if __name__ == "__main__":
    main()
