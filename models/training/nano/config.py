"""Sizes of the miniature, and its `config.json` in the released naming."""

import json
from dataclasses import dataclass
from typing import Any

from .tokenizer import VOCAB, token_id


@dataclass(frozen=True)
class Sizes:
    """Widths and counts. Everything not named here is fixed by M3: block 128, rotary 64, head 128, top-4 experts."""

    hidden: int = 256
    layers: int = 7
    dense_layers: int = 1
    heads: int = 4
    groups: int = 2
    head: int = 128
    rotary: int = 64
    theta: float = 5_000_000.0
    block: int = 128
    top_blocks: int = 4
    experts: int = 16
    chosen: int = 4
    expert: int = 64
    shared: int = 64
    dense: int = 768
    vocab: int = VOCAB
    context: int = 20480
    vision: int = 160
    vision_heads: int = 2
    vision_layers: int = 2
    vision_mlp: int = 640
    projector: int = 256

    def sparse(self, layer: int) -> bool:
        return layer >= self.dense_layers


#: For tests on a CPU: every part is there, nothing is large.
TINY = Sizes(hidden=64, layers=3, heads=2, groups=1, experts=8, dense=128, projector=64)


def read(config: dict[str, Any]) -> Sizes:
    """Sizes from a `config.json` of shape A."""
    text, vision = config["text_config"], config["vision_config"]
    sparse = text["sparse_attention_config"]
    return Sizes(
        hidden=text["hidden_size"], layers=text["num_hidden_layers"], dense_layers=text["moe_layer_freq"].count(0), heads=text["num_attention_heads"],
        groups=text["num_key_value_heads"], head=text["head_dim"], rotary=text["rotary_dim"], theta=float(text["rope_theta"]),
        block=sparse["sparse_block_size"], top_blocks=sparse["sparse_topk_blocks"], experts=text["num_local_experts"], chosen=text["num_experts_per_tok"],
        expert=text["intermediate_size"], shared=text["shared_intermediate_size"], dense=text["dense_intermediate_size"], vocab=text["vocab_size"],
        context=min(text["max_position_embeddings"], 32768), vision=vision["hidden_size"], vision_heads=vision["num_attention_heads"],
        vision_layers=vision["num_hidden_layers"], vision_mlp=vision["intermediate_size"], projector=config["projector_hidden_size"],
    )


def model_config(sizes: Sizes) -> dict[str, Any]:
    """Shape A of `config.json`."""
    sparse = [int(sizes.sparse(layer)) for layer in range(sizes.layers)]
    merge = {"image_token_compression_method": "patch_merge", "spatial_merge_size": 2, "temporal_patch_size": 2}
    attention = {
        "use_sparse_attention": True, "sparse_attention_freq": sparse, "sparse_disable_index_value": sparse, "sparse_index_dim": sizes.head,
        "sparse_num_index_heads": sizes.groups, "sparse_topk_blocks": sizes.top_blocks, "sparse_block_size": sizes.block,
        "sparse_score_type": "max", "sparse_init_block": 0, "sparse_local_block": 1,
    }
    text = {
        "architectures": ["MiniMaxM3SparseForCausalLM"], "hidden_size": sizes.hidden, "vocab_size": sizes.vocab,
        "max_position_embeddings": sizes.context, "num_hidden_layers": sizes.layers, "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.groups, "head_dim": sizes.head, "rotary_dim": sizes.rotary, "partial_rotary_factor": sizes.rotary / sizes.head,
        "rope_theta": int(sizes.theta), "rms_norm_eps": 1e-6, "use_gemma_norm": True, "use_qk_norm": True, "qk_norm_type": "per_head",
        "attention_output_gate": False, "tie_word_embeddings": False, "hidden_act": "swigluoai", "swiglu_alpha": 1.702, "swiglu_limit": 7.0,
        "dense_intermediate_size": sizes.dense, "intermediate_size": sizes.expert, "shared_intermediate_size": sizes.shared,
        "num_local_experts": sizes.experts, "num_experts_per_tok": sizes.chosen, "n_shared_experts": 1, "scoring_func": "sigmoid",
        "use_routing_bias": True, "routed_scaling_factor": 2.0, "moe_layer_freq": sparse, "num_mtp_modules": 0,
        "sparse_attention_config": attention,
    }
    vision = {
        "model_type": "clip_vision_model", "hidden_size": sizes.vision, "num_hidden_layers": sizes.vision_layers,
        "num_attention_heads": sizes.vision_heads, "intermediate_size": sizes.vision_mlp, "patch_size": 14, "image_size": 2016,
        "num_channels": 3, "hidden_act": "gelu", "layer_norm_eps": 1e-5, "position_embedding_type": "rope", "rope_mode": "3d",
        "rope_theta": 10000.0, "attention_dropout": 0.0, "projection_dim": sizes.hidden, "vision_segment_max_frames": 4,
        "img_token_compression_config": merge,
    }
    return {
        "architectures": ["MiniMaxM3SparseForConditionalGeneration"], "model_type": "minimax_m3_vl", "torch_dtype": "bfloat16",
        "text_config": text, "vision_config": vision, "img_token_compression_config": merge,
        "image_token_index": token_id("]<]image[>["), "video_token_index": token_id("]<]video[>["),
        "projector_hidden_size": sizes.projector, "projector_hidden_act": "gelu", "multimodal_projector_bias": True,
        "process_image_mode": "dynamic_res", "vision_feature_layer": -1, "vision_feature_select_strategy": "full",
    }


def other_files(sizes: Sizes) -> dict[str, str]:
    """The small JSON files beside the weights."""
    generation = {"bos_token_id": token_id("]~!b["), "eos_token_id": token_id("[e~["), "do_sample": True, "temperature": 1.0, "top_p": 0.95}
    preprocessor = {
        "patch_size": 14, "merge_size": 2, "temporal_patch_size": 2, "min_pixels": 3136, "max_pixels": 451584,
        "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711],
    }
    tokenizer = {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": sizes.context, "add_prefix_space": False,
        "bos_token": "]~!b[", "eos_token": "[e~[", "pad_token": "]!p~[", "unk_token": "]!d~[",
    }
    values = {
        "config.json": model_config(sizes), "generation_config.json": generation, "preprocessor_config.json": preprocessor,
        "tokenizer_config.json": tokenizer,
    }
    return {name: json.dumps(value, indent=2) + "\n" for name, value in values.items()}
