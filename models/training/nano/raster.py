"""Draws picture specifications on the training device and cuts them into patch rows as the server's pre-processing does."""

import torch
from torch import Tensor

from .pictures import COLOURS, SIDE

MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)
PATCH, MERGE = 14, 2
GRID = SIDE // PATCH


def draw(spec: Tensor) -> Tensor:
    """`[P, 1 + objects, 5]` to levels 0..255 `[P, SIDE, SIDE, 3]`; the first entry is the background, shape -2 is nothing."""
    place = torch.arange(SIDE, device=spec.device, dtype=torch.float32)
    palette = torch.tensor(list(COLOURS.values()), device=spec.device, dtype=torch.float32)
    shape, colour, x, y, radius = (spec[:, 1:, i, None, None] for i in range(5))
    dx, dy = place[None, None, None, :] - x, place[None, None, :, None] - y
    across, down = dx.abs(), dy.abs()
    kinds = [
        dx * dx + dy * dy <= radius * radius,
        torch.maximum(across, down) <= radius * 0.85,
        (dy >= -radius) & (dy <= radius * 0.8) & (across <= (dy + radius) * 0.55),
        (torch.minimum(across, down) <= radius * 0.32) & (torch.maximum(across, down) <= radius),
        across + down <= radius * 1.1,
    ]
    image = spec[:, 0, 1, None, None, None].expand(-1, SIDE, SIDE, 3).clone()
    covered = torch.stack([(shape == kind) & inside for kind, inside in enumerate(kinds)]).any(0)
    for item in range(covered.shape[1]):
        fill = palette[colour[:, item, 0, 0].long().clamp(min=0)][:, None, None, :]
        image = torch.where(covered[:, item, :, :, None], fill, image)
    return image


def patches(frames: Tensor) -> Tensor:
    """Pairs of frames `[T, 2, SIDE, SIDE, 3]` to rows `[T, 64, 1176]` in merge order; a row is channel, time, y, x."""
    mean, std = (torch.tensor(values, device=frames.device) for values in (MEAN, STD))
    levels = (frames / 255.0 - mean) / std
    side = GRID // MERGE
    cut = levels.reshape(-1, 2, side, MERGE, PATCH, side, MERGE, PATCH, 3)
    return cut.permute(0, 2, 5, 3, 6, 8, 1, 4, 7).reshape(frames.shape[0], GRID * GRID, -1)


def picture_rows(spec: Tensor, noise: float) -> Tensor:
    """Pictures `[P, objects, 5]` to `[P, 64, 1176]`: the one frame fills both time slots."""
    image = noisy(draw(spec), noise)
    return patches(torch.stack([image, image], 1))


def clip_rows(spec: Tensor, noise: float) -> Tensor:
    """Clips `[V, 8, objects, 5]` to `[V, 256, 1176]`."""
    frames = noisy(draw(spec.flatten(0, 1)), noise).unflatten(0, (-1, 2))
    return patches(frames).unflatten(0, (spec.shape[0], -1)).flatten(1, 2)


def noisy(image: Tensor, noise: float) -> Tensor:
    return (image + torch.randn_like(image) * noise).clamp(0, 255) if noise else image


def coordinates(times: int) -> Tensor:
    """Grid coordinates (t, y, x) of `times * 64` patches in merge order."""
    rows = [
        (t, MERGE * hb + a, MERGE * wb + b)
        for t in range(times) for hb in range(GRID // MERGE) for wb in range(GRID // MERGE) for a in range(MERGE) for b in range(MERGE)
    ]
    return torch.tensor(rows, dtype=torch.float32)


def cell_labels(spec: Tensor) -> Tensor:
    """What lies in each merged cell of pictures `[P, objects, 5]`: 0 for nothing, else 1 + shape * 8 + colour. `[P, 16]`."""
    side = GRID // MERGE
    cell = (spec[:, 1:, 3] // (MERGE * PATCH)).long() * side + (spec[:, 1:, 2] // (MERGE * PATCH)).long()
    label = torch.where(spec[:, 1:, 0] >= 0, 1 + spec[:, 1:, 0] * len(COLOURS) + spec[:, 1:, 1], 0.0).long()
    empty = torch.zeros(spec.shape[0], side * side, dtype=torch.long, device=spec.device)
    return empty.scatter_reduce(1, cell.clamp(0, side * side - 1), label, "amax")
