"""Batches of a fixed number of tokens, packed by worker processes, and their way to the training device."""

import multiprocessing as mp
import queue
import random
import threading
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .corpus import Encoder, Tokens, sample

OBJECTS = 6
FRAMES = 8


@dataclass
class Shape:
    """What every batch holds: `tokens` in all, rows of `row` tokens in long batches, places for pictures and clips in short ones."""

    tokens: int = 98304
    row: int = 16384
    pictures: int = 256
    clips: int = 44
    asked: int = 384
    longest: int = 1024


@dataclass
class Batch:
    """Tensors of one batch. `targets[i]` follows `ids[i]` and counts `weights[i]`; `doc[i]` numbers the documents of the batch."""

    ids: Tensor
    targets: Tensor
    weights: Tensor
    positions: Tensor
    doc: Tensor
    starts: Tensor
    pictures: Tensor
    clips: Tensor
    slots: Tensor
    document: Tensor
    asked: Tensor
    kinds: list[str]
    longest: int

    def to(self, device: str) -> "Batch":
        moved = {f.name: getattr(self, f.name) for f in fields(self)}
        for name, value in moved.items():
            if isinstance(value, Tensor):
                moved[name] = (value.pin_memory() if device == "cuda" else value).to(device, non_blocking=True)
        return Batch(**moved)


def padded(spec: list[list[float]]) -> np.ndarray:
    out = np.full((OBJECTS, 5), -2.0, np.float32)
    out[: len(spec)] = spec
    return out


class Packer:
    """Fills one batch."""

    def __init__(self, shape: Shape, encoder: Encoder) -> None:
        self.shape, self.encoder = shape, encoder
        self.ids = np.zeros(shape.tokens, np.int32)
        self.weights = np.zeros(shape.tokens, np.float32)
        self.positions = np.zeros(shape.tokens, np.int32)
        self.doc = np.zeros(shape.tokens, np.int32)
        self.starts, self.kinds, self.at = [0], [], 0
        self.pictures: list[np.ndarray] = []
        self.clips: list[np.ndarray] = []
        self.slots: list[list[int]] = [[], []]

    def fits_media(self, tokens: Tokens) -> bool:
        return len(self.pictures) + len(tokens.pictures) <= self.shape.pictures and len(self.clips) + len(tokens.videos) <= self.shape.clips

    def add(self, tokens: Tokens, length: int) -> None:
        """Puts a document at the end; it takes `length` places, padding included."""
        n, at = len(tokens.ids), self.at
        self.ids[at : at + n] = tokens.ids
        self.weights[at : at + n - 1] = tokens.weights[1:]
        self.positions[at : at + length] = np.arange(length)
        self.doc[at : at + length] = len(self.kinds)
        self.kinds.append(tokens.kind)
        for spec in tokens.pictures:
            self.pictures.append(padded(spec))
        for frames in tokens.videos:
            self.clips.append(np.stack([padded(frame) for frame in frames]))
        for index, token in enumerate((self.encoder.image, self.encoder.video)):
            self.slots[index] += (np.nonzero(tokens.ids == token)[0] + at).tolist()
        self.at += length
        self.starts.append(self.at)

    def finish(self, longest: int, rows: int = 0, asked: np.ndarray | None = None) -> dict[str, Any]:
        """Pads the rest with one document of weight 0."""
        shape = self.shape
        if self.at < shape.tokens:
            rest = shape.tokens - self.at
            self.positions[self.at :] = np.arange(rest) % longest
            self.doc[self.at :] = len(self.kinds)
            self.kinds.append("padding")
            while self.at < shape.tokens:
                self.at = min(self.at + longest, shape.tokens)
                self.starts.append(self.at)
        media = rows == 0
        free_pictures, free_clips = (shape.pictures - len(self.pictures), shape.clips - len(self.clips)) if media else (0, 0)
        empty = padded([[-1, 128, 0, 0, 0]])
        pictures = self.pictures + [empty] * free_pictures
        clips = self.clips + [np.stack([empty] * FRAMES)] * free_clips
        nowhere = shape.tokens
        slots = self.slots[0] + [nowhere] * (free_pictures * 16) + self.slots[1] + [nowhere] * (free_clips * 64)
        return {
            "ids": self.ids, "targets": np.roll(self.ids, -1).astype(np.int64), "weights": self.weights, "positions": self.positions, "doc": self.doc,
            "starts": np.array(self.starts, np.int32),
            "pictures": np.stack(pictures) if pictures else np.zeros((0, OBJECTS, 5), np.float32),
            "clips": np.stack(clips) if clips else np.zeros((0, FRAMES, OBJECTS, 5), np.float32),
            "slots": np.array(slots, np.int64), "kinds": self.kinds, "longest": longest,
            "document": self.documents(rows), "asked": asked if asked is not None else np.zeros((0, 0), np.int64),
        }

    def documents(self, rows: int) -> np.ndarray:
        """For long batches, at each token the row's block where its document begins."""
        if not rows:
            return np.zeros((0, 0), np.int64)
        begin = np.arange(self.shape.tokens) - self.positions
        return (begin.reshape(rows, -1) % self.shape.row // 128).astype(np.int64)


def short_batch(rng: random.Random, encoder: Encoder, shape: Shape, shares: dict[str, float], test: bool) -> dict[str, Any]:
    packer, waiting = Packer(shape, encoder), 0
    while waiting < 8:
        tokens = encoder.tokens(sample(rng, shares, test))
        if packer.at + len(tokens.ids) <= shape.tokens and len(tokens.ids) <= shape.longest and packer.fits_media(tokens):
            packer.add(tokens, len(tokens.ids))
        else:
            waiting += 1
            if not packer.fits_media(tokens):
                shares = {kind: share for kind, share in shares.items() if kind != "vision"} or shares
    return packer.finish(shape.longest)


def long_batch(rng: random.Random, encoder: Encoder, shape: Shape, lengths: list[int], exact: bool = False) -> dict[str, Any]:
    """Rows of needles in haystacks; `exact` takes every length as it is and uses no decoys (evaluation)."""
    packer, rows = Packer(shape, encoder), shape.tokens // shape.row
    for row in range(rows):
        while (room := (row + 1) * shape.row - packer.at) >= 128:
            length = min(rng.choice(lengths), room)
            length = length if exact else max(256, int(length * rng.uniform(0.6, 1.0)))
            length = min((length + 127) // 128 * 128, room)
            if length < 256:
                packer.add(Tokens("padding", np.zeros(1, np.int32), np.zeros(1, np.float32), [], []), room)
                continue
            packer.add(encoder.long_needle(rng, length, 0 if exact else rng.choice([0, 0, 0, 1, 2, 4])), length)
    asked = np.zeros((rows, shape.asked), np.int64)
    for row in range(rows):
        answers = np.nonzero(packer.weights[row * shape.row : (row + 1) * shape.row] >= 0.1)[0]
        taken = answers[: shape.asked * 3 // 4] if len(answers) < shape.asked else np.array(rng.sample(answers.tolist(), shape.asked * 3 // 4))
        rest = [rng.randrange(shape.row) for _ in range(shape.asked - len(taken))]
        asked[row] = np.concatenate([taken, rest])
    return packer.finish(shape.row, rows, asked)


def tensors(batch: dict[str, Any]) -> Batch:
    return Batch(**{key: torch.from_numpy(value) if isinstance(value, np.ndarray) else value for key, value in batch.items()})


def work(seed: int, path: str, shape: Shape, long: bool, plan: Any, progress: Any, out: Any) -> None:
    """A worker's loop: `plan(progress, long)` gives the shares or lengths of the next batch."""
    rng, encoder = random.Random(seed), Encoder(path)
    while True:
        now = plan(progress.value, long)
        out.put(long_batch(rng, encoder, shape, now) if long else short_batch(rng, encoder, shape, now, False))


class Feeder:
    """Worker processes for short and long batches, and a thread for each kind that moves batches to the device ahead of need."""

    def __init__(self, seed: int, path: str, shape: Shape, plan: Any, workers: tuple[int, int], device: str) -> None:
        context = mp.get_context("spawn")
        self.progress = context.Value("d", 0.0)
        self.ready: dict[bool, queue.Queue[Batch]] = {}
        self.processes = []
        for long, count in zip((False, True), workers, strict=True):
            raw = context.Queue(3 * count)
            for index in range(count):
                arguments = (seed * 1000 + index + 500 * long, path, shape, long, plan, self.progress, raw)
                self.processes.append(context.Process(target=work, args=arguments, daemon=True))
            self.ready[long] = queue.Queue(4)
            threading.Thread(target=self.move, args=(raw, self.ready[long], device), daemon=True).start()
        for process in self.processes:
            process.start()

    def move(self, raw: Any, ready: "queue.Queue[Batch]", device: str) -> None:
        while True:
            ready.put(tensors(raw.get()).to(device))

    def next(self, long: bool) -> Batch:
        return self.ready[long].get()

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
