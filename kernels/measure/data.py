"""Random weights, routes and answers of one rank of TP8 (M3's widths), on the GPU."""

import torch

EXPERTS, TOP_K, HIDDEN, INNER = 128, 4, 6144, 384
GROUPS = EXPERTS + 1
DEVICE = "cuda"


def weights(rows, columns, form, groups=1):
    """(w, scales or None, function: group -> float32 [rows, columns])."""
    shape = (groups, rows, columns)
    if form == 0:
        w = torch.empty(shape, dtype=torch.bfloat16, device=DEVICE).normal_(std=columns**-0.5)
        return w, None, lambda group: w[group].float()
    w = torch.randint(0, 256, shape, dtype=torch.uint8, device=DEVICE)
    w[(w & 0x7F) == 0x7F] = 1
    scales = torch.randint(112, 119, (groups, rows, columns // 32), dtype=torch.uint8, device=DEVICE)

    def dequantised(group):
        factors = torch.exp2(scales[group].float() - 127).repeat_interleave(32, dim=1)
        return w[group].view(torch.float8_e4m3fn).float() * factors

    return w, scales, dequantised


def random_ids(tokens):
    return torch.rand(tokens, EXPERTS, device=DEVICE).topk(TOP_K).indices.sort(dim=1).values.int().contiguous()


def grouped(ids):
    """(offsets [EXPERTS + 2], rows) as group_rows makes them."""
    tokens = len(ids)
    flat = ids.flatten().long()
    rows = torch.cat([torch.argsort(flat, stable=True), tokens * TOP_K + torch.arange(tokens, device=DEVICE)]).int()
    counts = torch.bincount(flat, minlength=EXPERTS)
    ends = torch.cat([counts, torch.tensor([tokens], device=DEVICE)]).cumsum(0)
    return torch.cat([torch.zeros(1, dtype=torch.long, device=DEVICE), ends]).int().contiguous(), rows


def tiles_of(tokens, block_m):
    """An upper bound of row tiles that does not depend on the routes."""
    places = tokens * (TOP_K + 1)
    routed = tokens * TOP_K
    return min(places, min(EXPERTS, routed) + routed // block_m + -(-tokens // block_m))


def swiglu(gate, up, alpha=1.702, limit=7.0):
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return (up + 1) * gate * torch.sigmoid(alpha * gate)


def wanted_inner(x, offsets, rows, dequantised):
    """float32 [places, INNER] in the order of rows."""
    tokens = len(x)
    token = torch.where(rows < tokens * TOP_K, rows // TOP_K, rows - tokens * TOP_K).long()
    out = torch.empty(len(rows), INNER, device=DEVICE)
    bounds = offsets.tolist()
    for group in range(GROUPS):
        places = slice(bounds[group], bounds[group + 1])
        if bounds[group] < bounds[group + 1]:
            product = x[token[places]].float() @ dequantised(group).T
            out[places] = swiglu(product[:, :INNER], product[:, INNER:])
    return out


def wanted_y(inner, offsets, rows, dequantised):
    """float32 [row numbers, HIDDEN]."""
    out = torch.empty(len(rows), HIDDEN, device=DEVICE)
    bounds = offsets.tolist()
    for group in range(GROUPS):
        places = slice(bounds[group], bounds[group + 1])
        if bounds[group] < bounds[group + 1]:
            out[rows[places].long()] = inner[places].float() @ dequantised(group).T
    return out
