"""Parameters under the released tensor names, both ways."""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from .config import other_files
from .model import Attention, Experts, Feed, Nano

#: Names of the vision layers' parameters here and in the released files.
VISION = {
    "norm1": "layer_norm1.weight", "norm1_bias": "layer_norm1.bias", "norm2": "layer_norm2.weight", "norm2_bias": "layer_norm2.bias",
    "fc1": "mlp.fc1.weight", "fc1_bias": "mlp.fc1.bias", "fc2": "mlp.fc2.weight", "fc2_bias": "mlp.fc2.bias",
    **{key: f"self_attn.{name}_proj.weight" for key, name in [("q", "q"), ("k", "k"), ("v", "v"), ("o", "out")]},
    **{f"{key}_bias": f"self_attn.{name}_proj.bias" for key, name in [("q", "q"), ("k", "k"), ("v", "v"), ("o", "out")]},
}
PROJECTOR = {
    "project1": "multi_modal_projector.linear_1", "project2": "multi_modal_projector.linear_2", "merge1": "patch_merge_mlp.linear_1",
    "merge2": "patch_merge_mlp.linear_2",
}


def attention(prefix: str, a: Attention) -> dict[str, Tensor]:
    names = {key: f"{key}_proj.weight" for key in "qkvo"} | {"q_norm": "q_norm.weight", "k_norm": "k_norm.weight"}
    if hasattr(a, "iq"):
        names |= {"iq": "index_q_proj.weight", "ik": "index_k_proj.weight", "iq_norm": "index_q_norm.weight", "ik_norm": "index_k_norm.weight"}
    return {f"{prefix}.self_attn.{name}": getattr(a, key) for key, name in names.items()}


def feed(prefix: str, f: Feed) -> dict[str, Tensor]:
    return {f"{prefix}.{name}_proj.weight": getattr(f, name) for name in ("gate", "up", "down")}


def views(model: Nano) -> dict[str, Tensor]:
    """Released name to the tensor (or a view of it) that holds its values."""
    text, vision = "language_model.model", "vision_tower.vision_model"
    out: dict[str, Tensor] = {f"{text}.embed_tokens.weight": model.embed, "language_model.lm_head.weight": model.head, f"{text}.norm.weight": model.norm}
    for index, layer in enumerate(model.layers):
        prefix = f"{text}.layers.{index}"
        out |= {f"{prefix}.input_layernorm.weight": layer.norm1, f"{prefix}.post_attention_layernorm.weight": layer.norm2}
        out |= attention(prefix, layer.attention)
        m = layer.mlp
        if isinstance(m, Experts):
            moe = f"{prefix}.block_sparse_moe"
            out |= {f"{moe}.gate.weight": m.router, f"{moe}.e_score_correction_bias": m.bias} | feed(f"{moe}.shared_experts", m.shared)
            for expert in range(m.w1.shape[0]):
                out |= {f"{moe}.experts.{expert}.{name}.weight": getattr(m, name)[expert] for name in ("w1", "w2", "w3")}
        else:
            out |= feed(f"{prefix}.mlp", m)
    v = model.vision
    out |= {f"{vision}.embeddings.patch_embedding.weight": v.patch, f"{vision}.pre_layrnorm.weight": v.pre, f"{vision}.pre_layrnorm.bias": v.pre_bias}
    for index, layer in enumerate(v.layers):
        out |= {f"{vision}.encoder.layers.{index}.{name}": getattr(layer, key) for key, name in VISION.items()}
    for key, name in PROJECTOR.items():
        out |= {f"{name}.weight": getattr(v, key), f"{name}.bias": getattr(v, f"{key}_bias")}
    return out


def wide(name: str) -> bool:
    """Tensors that the released files keep in fp32."""
    return name.endswith(("gate.weight", "e_score_correction_bias", "patch_embedding.weight")) and "gate_proj" not in name


def save(model: Nano, folder: Path) -> None:
    """Weights and the JSON files; tokenizer and template are placed by hand of the caller."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for name, value in views(model).items():
        value = value.detach().cpu()
        if name.endswith("patch_embedding.weight"):
            value = value.reshape(-1, 3, 2, 14, 14)
        tensors[name] = value.float().clone() if wide(name) else value.to(torch.bfloat16).clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    for name, text in other_files(model.sizes).items():
        (folder / name).write_text(text)


@torch.no_grad()
def load(model: Nano, folder: Path) -> None:
    tensors = {name: value for path in sorted(folder.glob("*.safetensors")) for name, value in load_file(path).items()}
    text_only = not any(name.startswith("vision_tower") for name in tensors)
    for name, value in views(model).items():
        if text_only and not name.startswith("language_model"):
            continue
        value.copy_(tensors[name].reshape(value.shape))
