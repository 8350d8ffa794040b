"""What `attention.py` measures: {label: (row, shape, overrides)}. M3 at TP8 (8 heads on 1 KV head)."""

RANK = "M3 TP8"

VARIANTS = {
    "rope_angles": ("rope_angles", RANK, {}),
    "store_few": ("norm_rope_store", RANK, {"BLOCK_T": 1, "num_warps": 1}),
    "store_many": ("norm_rope_store", RANK, {"BLOCK_T": 16, "num_warps": 4}),
    "select_few": ("select_blocks", RANK, {"ROWS": 1, "WIDEST": 8192, "num_warps": 8}),
    "select_many": ("select_blocks", RANK, {"ROWS": 16, "WIDEST": 1024, "num_warps": 4}),
    "sparse_count": ("sparse_count", RANK, {}),
    "sparse_offsets": ("sparse_offsets", RANK, {}),
    "sparse_fill": ("sparse_fill", RANK, {}),
    "sparse_merge_prefill": ("sparse_merge_prefill", RANK, {"BLOCK_R": 4}),
    "sparse_merge_8": ("sparse_merge_decode", RANK, {"SPLITS": 8}),
    "sparse_merge_4": ("sparse_merge_decode", RANK, {"SPLITS": 4}),
    "dense_merge": ("dense_merge", RANK, {}),
    "score_decode_s6w4": ("index_score_decode", RANK, {"STAGES": 6, "num_warps": 4}),
    "dense_prefill_m128n128w8s2": ("dense_attend_prefill", RANK, {"STAGES": 2}),
}
for splits, stages in ((4, 3), (8, 3)):
    VARIANTS[f"sparse_decode_{splits}_s{stages}"] = ("sparse_attend_decode", RANK, {"SPLITS": splits, "STAGES": stages})
for blocks, warps, stages in ((8, 4, 3), (4, 4, 3)):
    VARIANTS[f"score_prefill_b{blocks}w{warps}s{stages}"] = (
        "index_score_prefill", RANK, {"BLOCKS": blocks, "num_warps": warps, "STAGES": stages},
    )  # fmt: skip
for rows, warps, stages in ((64, 4, 3), (64, 4, 1), (128, 8, 3)):
    VARIANTS[f"sparse_prefill_r{rows}w{warps}s{stages}"] = (
        "sparse_attend_prefill", RANK, {"ROWS": rows, "num_warps": warps, "STAGES": stages},
    )  # fmt: skip
for stages in (3,):
    VARIANTS[f"dense_decode_s{stages}"] = ("dense_attend_decode", RANK, {"STAGES": stages})
