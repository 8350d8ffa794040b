"""The arithmetic of M3's layers as plain functions over flat token rows `[N, width]`, so that each compiles once for all layers.

Parameters are fp32 and rounded to bf16 where they are used; the residual stream is bf16, as in the engine. Attention itself is elsewhere.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

DTYPE = torch.bfloat16


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return F.linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))


def gemma_norm(x: Tensor, weight: Tensor) -> Tensor:
    """fp32 inside, one rounding at the end; the weight is stored around 0."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6) * (1.0 + weight.float())).to(x.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Half-split pairs of the first `2 * cos.shape[-1]` dims of `[N, heads, head]`; the others pass."""
    half = cos.shape[-1]
    wide = x.float()
    a, b = wide[..., :half], wide[..., half : 2 * half]
    c, s = cos[:, None, :], sin[:, None, :]
    return torch.cat([a * c - b * s, b * c + a * s, wide[..., 2 * half :]], -1).to(x.dtype)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    gate = gate.float().clamp(max=7.0)
    return (up.float().clamp(-7.0, 7.0) + 1.0) * gate * torch.sigmoid(1.702 * gate)


def project(x: Tensor, norm: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, q_norm: Tensor, k_norm: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
    """Queries, keys, values `[N, heads, head]`, and the normed input that the index branch shares."""
    head = q_norm.shape[0]
    h = gemma_norm(x, norm)
    joint = linear(h, torch.cat([wq, wk, wv]))
    q, k, v = joint.split([wq.shape[0], wk.shape[0], wv.shape[0]], -1)
    q = rotate(gemma_norm(q.unflatten(-1, (-1, head)), q_norm), cos, sin)
    k = rotate(gemma_norm(k.unflatten(-1, (-1, head)), k_norm), cos, sin)
    return q, k, v.unflatten(-1, (-1, head)), h


def index_project(h: Tensor, wq: Tensor, wk: Tensor, q_norm: Tensor, k_norm: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Index queries `[N, groups, head]` and the one index key `[N, 1, head]`."""
    head = q_norm.shape[0]
    q = rotate(gemma_norm(linear(h, wq).unflatten(-1, (-1, head)), q_norm), cos, sin)
    return q, rotate(gemma_norm(linear(h, wk)[:, None, :], k_norm), cos, sin)


def finish_dense(x: Tensor, attended: Tensor, wo: Tensor, norm: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    x = x + linear(attended.flatten(1), wo)
    h = gemma_norm(x, norm)
    return x + linear(swiglu(linear(h, gate), linear(h, up)).to(x.dtype), down)


def choose(scores: Tensor, bias: Tensor, count: int) -> Tensor:
    """Mask of the `count` largest biased scores of each row; ties go to the lower expert."""
    biased = scores + bias
    ahead = biased[:, None, :] > biased[:, :, None]
    index = torch.arange(biased.shape[1], device=biased.device)
    tied = (biased[:, None, :] == biased[:, :, None]) & (index[None, None, :] < index[None, :, None])
    return (ahead | tied).sum(-1) < count


def finish_moe(
    x: Tensor, attended: Tensor, wo: Tensor, norm: Tensor, router: Tensor, bias: Tensor, w1: Tensor, w3: Tensor, w2: Tensor,
    gate: Tensor, up: Tensor, down: Tensor, count: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Every expert is computed for every token and weighted, which at this width is one wide product. Also the load and the balance loss."""
    experts, width, hidden = w1.shape
    x = x + linear(attended.flatten(1), wo)
    h = gemma_norm(x, norm)
    scores = torch.sigmoid(F.linear(h.float(), router))
    mask = choose(scores.detach(), bias, count)
    weights = torch.where(mask, scores, 0.0)
    weights = 2.0 * weights / weights.sum(-1, keepdim=True)
    hidden_gate = linear(h, torch.cat([w1.reshape(-1, hidden), gate]))
    hidden_up = linear(h, torch.cat([w3.reshape(-1, hidden), up]))
    act = swiglu(hidden_gate, hidden_up)
    routed = (act[:, : experts * width].unflatten(-1, (experts, width)) * weights[..., None]).flatten(1)
    joint = torch.cat([routed, act[:, experts * width :]], -1).to(x.dtype)
    x = x + linear(joint, torch.cat([w2.permute(1, 0, 2).reshape(hidden, -1), down], -1))
    load = mask.float().mean(0)
    share = (scores / scores.sum(-1, keepdim=True)).mean(0)
    return x, load, (load * share).sum() * experts / count


def head_loss(x: Tensor, norm: Tensor, head: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Weighted sum of cross-entropies."""
    logits = linear(gemma_norm(x, norm), head).float()
    return (F.cross_entropy(logits, targets, reduction="none") * weights).sum()


def vision_project(x: Tensor, norm: Tensor, norm_bias: Tensor, weight: Tensor, bias: Tensor, heads: int, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
    """Queries, keys, values of the tower; `weight` is q, k and v on top of each other."""
    h = F.layer_norm(x.float(), (x.shape[-1],), norm, norm_bias, 1e-5).to(x.dtype)
    q, k, v = (part.unflatten(-1, (heads, -1)) for part in linear(h, weight, bias).chunk(3, -1))
    return rotate(q, cos, sin), rotate(k, cos, sin), v


def vision_finish(x: Tensor, attended: Tensor, wo: Tensor, bo: Tensor, norm: Tensor, norm_bias: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    x = x + linear(attended.flatten(1), wo, bo)
    h = F.layer_norm(x.float(), (x.shape[-1],), norm, norm_bias, 1e-5).to(x.dtype)
    return x + linear(F.gelu(linear(h, w1, b1)), w2, b2)
