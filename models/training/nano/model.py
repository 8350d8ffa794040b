"""The miniature's parameters and its forward pass for training, with the released architecture's tensor shapes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from . import attention, layers
from .batches import Batch
from .config import Sizes
from .raster import cell_labels, clip_rows, coordinates, picture_rows

#: How a batch attends: flat short documents, long rows read densely, long rows read through the index branch.
SHORT, LONG_DENSE, LONG_SPARSE = "short", "long_dense", "long_sparse"


@dataclass
class Output:
    """Final hidden rows, the index branch's loss, the balance loss, expert loads per layer, the vision probe's loss."""

    hidden: Tensor
    index: Tensor
    balance: Tensor
    loads: list[Tensor]
    probe: Tensor


def normal(*shape: int, scale: float) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape) * scale)


def zeros(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(*shape))


class Attention(nn.Module):
    def __init__(self, s: Sizes, sparse: bool) -> None:
        super().__init__()
        scale = s.hidden**-0.5
        self.q, self.o = normal(s.heads * s.head, s.hidden, scale=scale), zeros(s.hidden, s.heads * s.head)
        self.k, self.v = (normal(s.groups * s.head, s.hidden, scale=scale) for _ in range(2))
        self.q_norm, self.k_norm = zeros(s.head), zeros(s.head)
        if sparse:
            self.iq, self.ik = normal(s.groups * s.head, s.hidden, scale=scale), normal(s.head, s.hidden, scale=scale)
            self.iq_norm, self.ik_norm = zeros(s.head), zeros(s.head)


class Feed(nn.Module):
    """A gated MLP."""

    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.gate, self.up = (normal(width, hidden, scale=hidden**-0.5) for _ in range(2))
        self.down = zeros(hidden, width)


class Experts(nn.Module):
    def __init__(self, s: Sizes) -> None:
        super().__init__()
        self.router = normal(s.experts, s.hidden, scale=s.hidden**-0.5)
        self.w1, self.w3 = (normal(s.experts, s.expert, s.hidden, scale=s.hidden**-0.5) for _ in range(2))
        self.w2 = zeros(s.experts, s.hidden, s.expert)
        self.shared = Feed(s.hidden, s.shared)
        self.register_buffer("bias", torch.zeros(s.experts))


class Layer(nn.Module):
    def __init__(self, s: Sizes, sparse: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = zeros(s.hidden), zeros(s.hidden)
        self.attention = Attention(s, sparse)
        self.mlp: nn.Module = Experts(s) if sparse else Feed(s.hidden, s.dense)


class VisionLayer(nn.Module):
    def __init__(self, width: int, mlp: int) -> None:
        super().__init__()
        scale = width**-0.5
        self.norm1, self.norm2 = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))
        self.norm1_bias, self.norm2_bias = zeros(width), zeros(width)
        self.q, self.k, self.v = (normal(width, width, scale=scale) for _ in range(3))
        self.q_bias, self.k_bias, self.v_bias = (zeros(width) for _ in range(3))
        self.o, self.o_bias = zeros(width, width), zeros(width)
        self.fc1, self.fc1_bias = normal(mlp, width, scale=scale), zeros(mlp)
        self.fc2, self.fc2_bias = zeros(width, mlp), zeros(width)


class Vision(nn.Module):
    """Tower, projector and merge."""

    def __init__(self, s: Sizes) -> None:
        super().__init__()
        self.sizes = s
        self.patch = normal(s.vision, 1176, scale=1176**-0.5)
        self.pre, self.pre_bias = nn.Parameter(torch.ones(s.vision)), zeros(s.vision)
        self.layers = nn.ModuleList(VisionLayer(s.vision, s.vision_mlp) for _ in range(s.vision_layers))
        between = s.projector
        self.project1, self.project1_bias = normal(between, s.vision, scale=s.vision**-0.5), zeros(between)
        self.project2, self.project2_bias = normal(s.hidden, between, scale=between**-0.5), zeros(s.hidden)
        self.merge1, self.merge1_bias = normal(between, 4 * s.hidden, scale=(4 * s.hidden) ** -0.5), zeros(between)
        self.merge2, self.merge2_bias = normal(s.hidden, between, scale=between**-0.5), zeros(s.hidden)
        #: Thrown away after training: reads what lies in each cell.
        self.probe, self.probe_bias = zeros(41, s.hidden), zeros(41)

    def angles(self, places: Tensor) -> Tensor:
        """Grid places (t, y, x) `[N, 3]` to angles `[N, 3 * frequencies]`."""
        wide = self.sizes.vision // self.sizes.vision_heads
        count = int(wide / 3 / 2)
        frequencies = 10000.0 ** (-2.0 * torch.arange(count, dtype=torch.float64) / (2 * count))
        return (places.double()[:, :, None] * frequencies).flatten(1).float()

    def forward(self, pictures: Tensor, clips: Tensor, call: Callable[..., Any]) -> Tensor:
        """Rows `[P, 64, 1176]` and `[V, 256, 1176]` to features `[(P + 4 V) * 16, hidden]`."""
        rows = torch.cat([pictures.flatten(0, 1), clips.flatten(0, 1)])
        places = torch.cat([coordinates(1).repeat(pictures.shape[0], 1), coordinates(4).repeat(clips.shape[0], 1)])
        split = pictures.shape[0] * pictures.shape[1]
        return call(self.project, self.tower(rows, places, [(split, 64), (rows.shape[0] - split, 256)], call))

    def tower(self, rows: Tensor, places: Tensor, runs: list[tuple[int, int]], call: Callable[..., Any]) -> Tensor:
        """Patch rows to tower outputs; `runs` says how many rows attend in runs of which length, in order."""
        angle = self.angles(places).to(rows.device)
        cos, sin = angle.cos(), angle.sin()
        x = layers.linear(rows.to(layers.DTYPE), self.patch)
        x = torch.nn.functional.layer_norm(x.float(), (x.shape[-1],), self.pre, self.pre_bias, 1e-5).to(x.dtype)
        for layer in self.layers:
            weight, bias = torch.cat([layer.q, layer.k, layer.v]), torch.cat([layer.q_bias, layer.k_bias, layer.v_bias])
            q, k, v = call(layers.vision_project, x, layer.norm1, layer.norm1_bias, weight, bias, self.sizes.vision_heads, cos, sin)
            parts, at = [], 0
            for count, length in runs:
                if count:
                    parts.append(attention.segments(q[at : at + count], k[at : at + count], v[at : at + count], length))
                at += count
            x = call(layers.vision_finish, x, torch.cat(parts), layer.o, layer.o_bias, layer.norm2, layer.norm2_bias, layer.fc1, layer.fc1_bias, layer.fc2, layer.fc2_bias)
        return x

    def project(self, x: Tensor) -> Tensor:
        gelu = torch.nn.functional.gelu
        u = layers.linear(gelu(layers.linear(x, self.project1, self.project1_bias)), self.project2, self.project2_bias)
        z = u.reshape(-1, 4 * u.shape[-1])
        return layers.linear(gelu(layers.linear(z, self.merge1, self.merge1_bias)), self.merge2, self.merge2_bias)


class Nano(nn.Module):
    def __init__(self, sizes: Sizes, compiled: bool = False) -> None:
        super().__init__()
        self.sizes, self.compiled = sizes, compiled
        self.embed, self.head = normal(sizes.vocab, sizes.hidden, scale=0.5), zeros(sizes.vocab, sizes.hidden)
        self.norm = zeros(sizes.hidden)
        self.layers = nn.ModuleList(Layer(sizes, sizes.sparse(index)) for index in range(sizes.layers))
        self.vision = Vision(sizes)
        self.functions: dict[Any, Callable[..., Any]] = {}
        frequencies = sizes.theta ** (-2.0 * torch.arange(sizes.rotary // 2, dtype=torch.float64) / sizes.rotary)
        table = torch.arange(sizes.context, dtype=torch.float64)[:, None] * frequencies
        self.register_buffer("cos", table.cos().float(), persistent=False)
        self.register_buffer("sin", table.sin().float(), persistent=False)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The function, compiled once for all layers on a GPU."""
        if not self.compiled:
            return function(*arguments)
        if function not in self.functions:
            self.functions[function] = torch.compile(function, dynamic=False)
        return self.functions[function](*arguments)

    def forward(self, batch: Batch, how: str, noise: float = 0.0) -> Output:
        x = self.embed[batch.ids].to(layers.DTYPE)
        probe = x.new_zeros((), dtype=torch.float32)
        if batch.pictures.shape[0] + batch.clips.shape[0]:
            features = self.vision(picture_rows(batch.pictures, noise), clip_rows(batch.clips, noise), self.call)
            spare = torch.cat([x, x.new_zeros(1, x.shape[1])])
            x = spare.index_copy(0, batch.slots, features)[:-1]
            probe = self.probe(batch, features)
        cos, sin = self.cos[batch.positions], self.sin[batch.positions]
        total = Output(x, probe.new_zeros(()), probe.new_zeros(()), [], probe)
        for layer in self.layers:
            self.layer(layer, total, batch, how, cos, sin)
        return total

    def probe(self, batch: Batch, features: Tensor) -> Tensor:
        """Cross-entropy of reading the cells off the features; empty cells count a quarter."""
        pairs = batch.clips[:, ::2].flatten(0, 1)
        labels = torch.cat([cell_labels(batch.pictures).flatten(), cell_labels(pairs).flatten()])
        guess = layers.linear(features, self.vision.probe, self.vision.probe_bias).float()
        weight = torch.ones(41, device=labels.device)
        weight[0] = 0.25
        return torch.nn.functional.cross_entropy(guess, labels, weight)

    def layer(self, layer: Layer, total: Output, batch: Batch, how: str, cos: Tensor, sin: Tensor) -> None:
        a, m, x = layer.attention, layer.mlp, total.hidden
        q, k, v, h = self.call(layers.project, x, layer.norm1, a.q, a.k, a.v, a.q_norm, a.k_norm, cos, sin)
        sparse = isinstance(m, Experts)
        if how == SHORT or not sparse:
            attended = attention.documents(q, k, v, batch.starts, batch.longest)
        else:
            attended = self.long(a, q, k, v, h, total, batch, how, cos, sin)
        if isinstance(m, Experts):
            total.hidden, load, balance = self.call(
                layers.finish_moe, x, attended, a.o, layer.norm2, m.router, m.bias, m.w1, m.w3, m.w2, m.shared.gate, m.shared.up, m.shared.down,
                self.sizes.chosen,
            )
            total.loads.append(load)
            total.balance = total.balance + balance
        else:
            assert isinstance(m, Feed)
            total.hidden = self.call(layers.finish_dense, x, attended, a.o, layer.norm2, m.gate, m.up, m.down)

    def long(self, a: Attention, q: Tensor, k: Tensor, v: Tensor, h: Tensor, total: Output, batch: Batch, how: str, cos: Tensor, sin: Tensor) -> Tensor:
        """Attention of a sparse layer over long rows, adding the index branch's loss. The branch's input is detached."""
        iq, ik = self.call(layers.index_project, h.detach(), a.iq, a.ik, a.iq_norm, a.ik_norm, cos, sin)
        rows, block = batch.document.shape[0], self.sizes.block
        shaped = [part.unflatten(0, (rows, -1)) for part in (q, k, v)]
        iq, ik = iq.unflatten(0, (rows, -1)), ik.unflatten(0, (rows, -1))[:, :, 0]
        if self.training:
            total.index = total.index + attention.index_loss(shaped[0], shaped[1], iq, ik, batch.asked, batch.document, block)
        if how == LONG_DENSE:
            return attention.documents(q, k, v, batch.starts, batch.longest)
        first = batch.document[:, ::block]
        chosen = attention.select(iq.detach(), ik.detach(), first, block, self.sizes.top_blocks)
        return attention.sparse(*shaped, chosen, block).flatten(0, 1)
