"""`python -m nano.train --out DIR --seconds N`: trains the miniature for a span of wall-clock time and writes checkpoint and log.

Progress is time, not steps, so a run always ends decayed. `--resume DIR` goes on from a folder's `state.pt`; `--from-weights DIR` starts
the late phase from released-format weights.
"""

import argparse
import json
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from . import checkpoint
from .batches import Batch, Feeder, Shape
from .config import TINY, Sizes
from .evaluate import exact, held_out
from .layers import head_loss
from .model import LONG_DENSE, LONG_SPARSE, SHORT, Nano
from .optimiser import Optimiser

BALANCE, PROBE = 0.01, 0.3
#: Where long documents begin to be read through the index branch.
SPARSE_FROM = 0.45


def plan(progress: float, long: bool) -> Any:
    """Shares of the tasks in short batches, or lengths of long documents, at a point of training."""
    if long:
        return [1024, 2048, 2048, 4096] if progress < 0.25 else [1024, 2048, 4096, 8192] if progress < SPARSE_FROM else [2048, 4096, 8192, 16384, 16384]
    if progress < 0.08:
        return {"repeat": 0.3, "tools": 0.15, "arithmetic": 0.15, "vision": 0.2, "needle": 0.1, "copying": 0.1}
    return {"repeat": 0.01, "tools": 0.28, "arithmetic": 0.23, "vision": 0.25, "needle": 0.05, "copying": 0.08, "chat": 0.05, "mixed": 0.05}


def rate(progress: float) -> float:
    """Warm-up, level, and a linear fall over the last 55 %."""
    return min(1.0, progress / 0.01 + 0.02, max(0.0, (1.0 - progress) / 0.55) + 0.01)


class Trainer:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.device = options, options.device
        torch.manual_seed(options.seed)
        sizes = TINY if options.tiny else Sizes()
        self.shape = Shape(2048, 1024, 4, 1, 64, 768) if options.tiny else Shape()
        self.model = Nano(sizes, compiled=self.device == "cuda").to(self.device)
        self.optimiser = Optimiser(self.model)
        self.step, self.done, self.log = 0, 0.0, []
        self.losses: dict[str, Any] = defaultdict(float)
        if options.from_weights:
            checkpoint.load(self.model, Path(options.from_weights))
            self.done = options.start or 0.6
        if options.resume:
            self.restore(Path(options.resume))
            self.done = self.done if options.start is None else options.start
        self.feeder = Feeder(options.seed + self.step, options.tokenizer, self.shape, plan, (options.workers, max(1, options.workers // 4)), self.device)

    def restore(self, folder: Path) -> None:
        state = torch.load(folder / "state.pt", map_location=self.device, weights_only=False)
        self.model.load_state_dict(state["model"])
        self.optimiser.adam.load_state_dict(state["adam"])
        for shape, value in state["muon"].items():
            self.optimiser.buffers[shape].copy_(value)
        self.step, self.done, self.log = state["step"], state["done"], state["log"]

    def how(self, progress: float) -> str:
        """Which kind of batch this step takes."""
        long_share = 9 if progress < SPARSE_FROM else 6
        if self.step % long_share:
            return SHORT
        return LONG_DENSE if progress < SPARSE_FROM else LONG_SPARSE

    def loss(self, batch: Batch, how: str) -> torch.Tensor:
        output = self.model(batch, how, noise=3.0 if how == SHORT else 0.0)
        answer = self.model.call(head_loss, output.hidden, self.model.norm, self.model.head, batch.targets, batch.weights)
        answer = answer / batch.weights.sum().clamp(min=1.0)
        with torch.no_grad():
            for layer, load in zip([layer for layer in self.model.layers if hasattr(layer.mlp, "router")], output.loads, strict=True):
                layer.mlp.bias.add_(0.001 * torch.sign(load.mean() - load))
        for name, value in (("answer", answer), ("index", output.index), ("balance", output.balance), ("probe", output.probe)):
            self.losses[f"{how}/{name}"] = value.detach()
        self.hidden = output.hidden.detach()
        return answer + output.index / 6 + BALANCE * output.balance + PROBE * output.probe

    def warm_up(self) -> None:
        """Compiles everything on one batch of each sort, outside the clock; nothing is learned from it."""
        for how in (SHORT, LONG_DENSE, LONG_SPARSE):
            begun = time.time()
            self.loss(self.feeder.next(how != SHORT), how).backward()
            if self.device == "cuda":
                torch.cuda.synchronize()
            print(f"warm-up {how}: {time.time() - begun:.1f} s", flush=True)
        for parameter in self.model.parameters():
            parameter.grad = None

    def profile(self) -> None:
        """Prints where the time of a few steps goes."""
        for how, count in ((SHORT, 4), (LONG_SPARSE, 2)):
            with torch.profiler.profile(activities=list(torch.profiler.supported_activities())) as profiler:
                begun = time.time()
                for _ in range(count):
                    self.loss(self.feeder.next(how != SHORT), how).backward()
                    self.optimiser.step(0.0)
                torch.cuda.synchronize()
                print(f"{how}: {(time.time() - begun) / count * 1e3:.1f} ms a step")
            for event in sorted(profiler.key_averages(), key=lambda e: -e.self_device_time_total)[:28]:
                print(f"{event.self_device_time_total / count / 1e3:8.2f} ms {event.count // count:5d} {event.key[:90]}")

    def run(self) -> None:
        self.warm_up()
        if self.options.profile:
            self.profile()
        start, begun, options = time.time(), self.done, self.options
        last_log, tokens = start, 0
        while True:
            now = time.time()
            progress = begun + (options.end - begun) * (now - start) / options.seconds
            if progress >= options.end or (options.steps and self.step >= options.steps):
                break
            self.feeder.progress.value = self.done = progress
            how = self.how(progress)
            batch = self.feeder.next(how != SHORT)
            self.loss(batch, how).backward()
            self.optimiser.step(rate(progress))
            self.step, tokens = self.step + 1, tokens + self.shape.tokens
            if self.step <= 3 or self.step % options.every == 0:
                last_log, tokens = self.report(batch, how, progress, now, last_log, tokens, start)
        self.feeder.stop()
        self.finish()

    def report(self, batch: Batch, how: str, progress: float, now: float, last: float, tokens: int, start: float) -> tuple[float, int]:
        entry = {"step": self.step, "progress": round(progress, 4), "how": how} | {key: round(float(value), 4) for key, value in self.losses.items()}
        now = time.time()
        entry |= {"seconds": round(now - start, 1), "tokens_per_second": round(tokens / max(now - last, 1e-3))}
        entry["exact"] = {kind: round(hits / count, 3) for kind, (hits, count) in exact(self.model, batch, self.hidden).items()}
        self.log.append(entry)
        print(json.dumps(entry), flush=True)
        return time.time(), 0

    def finish(self) -> None:
        out = Path(self.options.out)
        checkpoint.save(self.model, out)
        (out / "log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in self.log))
        if self.options.state:
            Path(self.options.state).mkdir(parents=True, exist_ok=True)
            state = {"model": self.model.state_dict(), "adam": self.optimiser.adam.state_dict(), "muon": self.optimiser.buffers, "step": self.step, "done": self.done, "log": self.log}
            torch.save(state, Path(self.options.state) / "state.pt")
        scores = held_out(self.model, self.options.tokenizer, self.shape, self.device, self.options.tests)
        (out / "scores.json").write_text(json.dumps(scores, indent=1) + "\n")
        print(json.dumps(scores, indent=1), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    option = partial(parser.add_argument)
    option("--out", required=True)
    option("--tokenizer", required=True)
    option("--seconds", type=float, default=540.0)
    option("--steps", type=int, default=0)
    option("--every", type=int, default=50)
    option("--workers", type=int, default=12)
    option("--seed", type=int, default=1)
    option("--tests", type=int, default=2, help="held-out batches of each sort after training")
    option("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    option("--tiny", action="store_true")
    option("--profile", action="store_true")
    option("--resume")
    option("--from-weights")
    option("--start", type=float, help="progress to go on from instead of the saved one; weights alone stand for 0.6")
    option("--end", type=float, default=1.0, help="progress at which this run stops")
    option("--state", help="folder for the state that --resume reads")
    Trainer(parser.parse_args()).run()


if __name__ == "__main__":
    main()
