"""Attention over packed documents, block-sparse attention over an index branch's choice, and that branch's loss.

Two layouts: short batches are one flat row of documents (`starts` marks where they begin); long batches are rows of whole blocks
`[rows, length]` in which a document starts at a block's edge, so that a block of the row is a block of the document.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

_compiled: dict[str, Any] = {}


def documents(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int) -> Tensor:
    """Causal attention inside each document of a flat row; `q` `[N, heads, head]`, `k`, `v` `[N, groups, head]`."""
    repeat = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
    if q.is_cuda:
        return torch.ops.aten._flash_attention_forward(q, k, v, starts, starts, longest, longest, 0.0, True, False, scale=q.shape[-1] ** -0.5)[0]
    place = torch.arange(q.shape[0])
    document = torch.bucketize(place, starts.long(), right=True)
    mask = (document[:, None] == document[None, :]) & (place[None, :] <= place[:, None])
    out = F.scaled_dot_product_attention(q.transpose(0, 1)[None], k.transpose(0, 1)[None], v.transpose(0, 1)[None], attn_mask=mask)
    return out[0].transpose(0, 1)


def segments(q: Tensor, k: Tensor, v: Tensor, length: int) -> Tensor:
    """Attention in both directions inside runs of `length` rows."""
    shaped = [part.unflatten(0, (-1, length)).transpose(1, 2) for part in (q, k, v)]
    return F.scaled_dot_product_attention(*shaped).transpose(1, 2).flatten(0, 1)


@torch.no_grad()
def select(iq: Tensor, ik: Tensor, first_block: Tensor, block: int, top: int, chunk: int = 2048) -> Tensor:
    """Blocks each query reads: bool `[rows, groups, length, blocks]`. `iq` `[rows, length, groups, head]`, `ik` `[rows, length, head]`,
    `first_block` `[rows, blocks]` the first block of the document a block belongs to."""
    rows, length, groups, _ = iq.shape
    blocks = length // block
    ids = torch.arange(blocks, device=iq.device)
    out = torch.zeros(rows, groups, length, blocks, dtype=torch.bool, device=iq.device)
    for row in range(rows):
        for at in range(0, length, chunk):
            end = min(at + chunk, length)
            scores = torch.einsum("qgd,kd->gqk", iq[row, at:end], ik[row, :end]).unflatten(-1, (-1, block)).amax(-1).float()
            own = torch.arange(at, end, device=iq.device) // block
            near = ids[: end // block]
            allowed = (near[None] < own[:, None]) & (near[None] >= first_block[row, own][:, None])
            scores = scores.masked_fill(~allowed[None], -1e30)
            best = scores.topk(min(top - 1, end // block), -1).indices
            part = torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, best, True) & allowed[None]
            out[row, :, at:end, : end // block] = part | (near[None] == own[:, None])[None]
    return out


def sparse(q: Tensor, k: Tensor, v: Tensor, chosen: Tensor, block: int) -> Tensor:
    """Causal attention over the chosen blocks; `q` `[rows, length, heads, head]`."""
    rows, length, heads, _ = q.shape
    groups = k.shape[2]
    per_group = heads // groups
    tiles = chosen.unflatten(2, (-1, block)).any(3).repeat_interleave(per_group, 1)
    count = tiles.sum(-1, dtype=torch.int32)
    order = torch.argsort(tiles.to(torch.int8), dim=-1, descending=True, stable=True).to(torch.int32)

    def mask(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return chosen[b, h // per_group, i, j // block] & (j <= i)

    plan = BlockMask.from_kv_blocks(count, order, BLOCK_SIZE=block, mask_mod=mask, seq_lengths=(length, length))
    if not q.is_cuda:  # Flex attention has no backward pass there.
        dense = chosen.repeat_interleave(block, -1).repeat_interleave(per_group, 1).tril()
        k, v = k.repeat_interleave(per_group, 2), v.repeat_interleave(per_group, 2)
        return F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=dense).transpose(1, 2)
    run = _compiled.setdefault("flex", torch.compile(flex_attention, dynamic=False))
    return run(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), block_mask=plan, enable_gqa=True).transpose(1, 2)


def index_loss(q: Tensor, k: Tensor, iq: Tensor, ik: Tensor, asked: Tensor, document: Tensor, block: int) -> Tensor:
    """KL from the attention's mass per block to the index branch's softmax over blocks, for the queries `asked` `[rows, S]`.

    The newest block is always read, so it takes no part; a query counts by the mass it sends elsewhere. `document` `[rows, length]`.
    """
    rows, length, heads, width = q.shape
    groups = k.shape[2]
    take = asked[:, :, None, None].expand(-1, -1, heads, width)
    keys = torch.arange(length, device=q.device)
    own = asked // block
    visible = (document.gather(1, asked)[:, :, None] == document[:, None, :]) & (keys[None, None, :] <= asked[:, :, None])
    remote = visible & (keys[None, None, :] // block < own[:, :, None])
    with torch.no_grad():
        queries = q.gather(1, take).unflatten(2, (groups, -1))
        logits = torch.einsum("bsgpd,bkgd->bsgpk", queries, k).float() * width**-0.5
        mass = logits.masked_fill(~visible[:, :, None, None], -1e30).softmax(-1).masked_fill(~remote[:, :, None, None], 0.0)
        mass = mass.unflatten(-1, (-1, block)).sum(-1).mean(3)
        weight = mass.sum(-1)
        target = mass / weight.clamp(min=1e-9)[..., None]
    index_queries = iq.gather(1, asked[:, :, None, None].expand(-1, -1, groups, width))
    scores = torch.einsum("bsgd,bkd->bsgk", index_queries, ik)
    scores = scores.masked_fill(~remote[:, :, None], -30000.0).unflatten(-1, (-1, block)).amax(-1).float() * width**-0.5
    known = remote.unflatten(-1, (-1, block)).any(-1)[:, :, None]
    guess = scores.masked_fill(~known, -1e4).log_softmax(-1)
    distance = (target * (target.clamp(min=1e-9).log() - guess)).masked_fill(~known, 0.0).sum(-1)
    importance = weight + 0.01
    return (distance * importance).sum() / importance.sum()
