"""Muon for matrices, Adam for everything else, with parameters of one shape updated together."""

import torch
from torch import Tensor, nn

#: Parameters that are matrices but no linear maps between hidden spaces.
ADAM = ("embed", "head", "router", "patch", "probe")


def orthogonal(matrix: Tensor) -> Tensor:
    """Newton-Schulz towards the nearest orthogonal matrix, batched over the first axis."""
    x = matrix.bfloat16()
    flip = x.shape[-2] > x.shape[-1]
    x = x.mT if flip else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x.mT if flip else x


class Optimiser:
    """`step(scale)` applies the gradients with learning rates times `scale` and clears them."""

    def __init__(self, model: nn.Module, muon: float = 0.02, adam: float = 0.003, embed: float = 0.01) -> None:
        self.muon_rate, self.momentum = muon, 0.95
        self.groups: dict[tuple[int, ...], list[nn.Parameter]] = {}
        slow, fast = [], []
        for name, parameter in model.named_parameters():
            if parameter.ndim >= 2 and name.split(".")[-1] not in ADAM:
                self.groups.setdefault(tuple(parameter.shape), []).append(parameter)
            else:
                (fast if name == "embed" else slow).append(parameter)
        self.buffers = {shape: torch.zeros(len(group), *shape, device=group[0].device) for shape, group in self.groups.items()}
        fused = fast[0].is_cuda
        self.adam = torch.optim.Adam([{"params": slow, "lr": adam}, {"params": fast, "lr": embed}], betas=(0.9, 0.98), eps=1e-10, fused=fused)
        self.rates = [group["lr"] for group in self.adam.param_groups]

    def step(self, scale: float) -> None:
        for group, rate in zip(self.adam.param_groups, self.rates, strict=True):
            group["lr"] = rate * scale
        self.adam.step()
        for shape, group in self.groups.items():
            self.update(shape, group, scale)
        for group in [*self.groups.values(), *(group["params"] for group in self.adam.param_groups)]:
            for parameter in group:
                parameter.grad = None

    @torch.no_grad()
    def update(self, shape: tuple[int, ...], group: list[nn.Parameter], scale: float) -> None:
        """Parameters that got no gradient (the index branch in short batches) stay where they are."""
        used = [index for index, parameter in enumerate(group) if parameter.grad is not None]
        if not used:
            return
        gradient = torch.stack([group[index].grad for index in used])
        which = torch.tensor(used, device=gradient.device) if len(used) < len(group) else slice(None)
        buffer = self.buffers[shape][which]
        buffer = buffer.lerp(gradient, 1 - self.momentum)
        self.buffers[shape][which] = buffer
        nesterov = gradient.lerp(buffer, self.momentum)
        flat = nesterov.reshape(-1, *shape[-2:])
        rate = self.muon_rate * scale * max(1.0, shape[-2] / shape[-1]) ** 0.5
        change = orthogonal(flat).float().view(len(used), *shape)
        parameters = [group[index] for index in used]
        torch._foreach_mul_(parameters, 1 - 0.1 * self.muon_rate * scale)
        torch._foreach_add_(parameters, list(change.unbind(0)), alpha=-rate)
