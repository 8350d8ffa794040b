"""What `attention.py` measures: {label: (row, shape, overrides)}. M3 at TP8 (8 heads on 1 KV head), some at TP1."""

RANK, FULL = "M3 TP8", "M3 TP1"

VARIANTS = {
    "rope_angles": ("rope_angles", RANK, {}),
    "store_few": ("norm_rope_store", RANK, {"BLOCK_T": 1, "num_warps": 1}),
    "store_many": ("norm_rope_store", RANK, {"BLOCK_T": 16, "num_warps": 4}),
    "store_many_8": ("norm_rope_store", RANK, {"BLOCK_T": 8, "num_warps": 4}),
    "select_few": ("select_blocks", RANK, {"ROWS": 1, "num_warps": 4}),
    "select_few_8": ("select_blocks", RANK, {"ROWS": 1, "num_warps": 8}),
    "select_many": ("select_blocks", RANK, {"ROWS": 8, "num_warps": 8}),
    "select_many_4": ("select_blocks", RANK, {"ROWS": 4, "num_warps": 4}),
    "sparse_count": ("sparse_count", RANK, {}),
    "sparse_offsets": ("sparse_offsets", RANK, {}),
    "sparse_fill": ("sparse_fill", RANK, {}),
    "sparse_merge_prefill": ("sparse_merge_prefill", RANK, {}),
    "sparse_merge_prefill_16": ("sparse_merge_prefill", RANK, {"BLOCK_R": 16, "num_warps": 8}),
    "sparse_merge_prefill_4": ("sparse_merge_prefill", RANK, {"BLOCK_R": 4, "num_warps": 4}),
    "dense_merge": ("dense_merge", RANK, {}),
    "full_attend_prefill": ("sparse_attend_prefill", FULL, {}),
    "full_count": ("sparse_count", FULL, {}),
    "full_score_prefill": ("index_score_prefill", FULL, {}),
    "full_score_decode": ("index_score_decode", FULL, {}),
}
for stages in (4, 6, 7):
    for warps in (4, 8):
        VARIANTS[f"score_decode_s{stages}w{warps}"] = (
            "index_score_decode", RANK, {"STAGES": stages, "num_warps": warps},
        )  # fmt: skip
for block_m, warps, stages in ((128, 8, 3), (128, 8, 5), (128, 4, 3), (256, 8, 3), (64, 4, 3), (64, 4, 4)):
    VARIANTS[f"score_prefill_m{block_m}w{warps}s{stages}"] = (
        "index_score_prefill", RANK, {"BLOCK_M": block_m, "num_warps": warps, "STAGES": stages},
    )  # fmt: skip
for splits in (4, 8, 16):
    VARIANTS[f"sparse_merge_{splits}"] = ("sparse_merge_decode", RANK, {"SPLITS": splits})
    for stages, warps in ((1, 4), (3, 4), (4, 4), (3, 8)):
        if splits < 16 or stages == 1:
            VARIANTS[f"sparse_decode_{splits}_s{stages}w{warps}"] = (
                "sparse_attend_decode", RANK, {"SPLITS": splits, "STAGES": stages, "num_warps": warps},
            )  # fmt: skip
for rows, warps, stages in ((128, 8, 3), (128, 8, 2), (128, 8, 4), (64, 4, 3), (64, 4, 2), (128, 4, 3), (256, 8, 3)):
    VARIANTS[f"sparse_prefill_r{rows}w{warps}s{stages}"] = (
        "sparse_attend_prefill", RANK, {"ROWS": rows, "num_warps": warps, "STAGES": stages},
    )  # fmt: skip
for block_m, block_n, warps, stages in ((128, 128, 8, 3), (128, 128, 8, 2), (128, 64, 8, 3), (128, 64, 8, 4), (64, 128, 4, 3), (64, 64, 4, 3)):
    VARIANTS[f"dense_prefill_m{block_m}n{block_n}w{warps}s{stages}"] = (
        "dense_attend_prefill", RANK, {"BLOCK_M": block_m, "BLOCK_N": block_n, "num_warps": warps, "STAGES": stages},
    )  # fmt: skip
for stages, warps in ((1, 4), (3, 4), (4, 4), (3, 8)):
    VARIANTS[f"dense_decode_s{stages}w{warps}"] = ("dense_attend_decode", RANK, {"STAGES": stages, "num_warps": warps})
