"""The miniature's byte-level BPE: 256 bytes, merges learned from the synthetic data, M3's 61 added tokens, three padding rows.

Digits are single tokens. `python -m nano.tokenizer OUT` writes `tokenizer.json`; the data is seeded, so it comes out the same.
"""

import json
import random
import sys
from pathlib import Path

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

VOCAB = 2560
ADDED = (Path(__file__).parent / "added_tokens.txt").read_text().splitlines()
FIRST_ADDED = VOCAB - 3 - len(ADDED)
MERGES = FIRST_ADDED - 256
#: The split of M3's vocabulary, with digits one by one.
PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def token_id(content: str) -> int:
    """Id of an added token."""
    return FIRST_ADDED + [line.lstrip("+") for line in ADDED].index(content)


def byte_characters() -> list[str]:
    """The printable character that stands for each byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def splitter() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), behavior="removed", invert=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])


def learn(texts: list[str]) -> list[tuple[str, str]]:
    """Merges in order of their rank."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = splitter()
    trainer = trainers.BpeTrainer(vocab_size=256 + MERGES, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), min_frequency=2, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    merges = [tuple(merge) for merge in json.loads(tokenizer.to_str())["model"]["merges"]]
    if len(merges) < MERGES:
        raise SystemExit(f"the corpus gives {len(merges)} merges; {MERGES} are needed")
    return merges[:MERGES]


def document(merges: list[tuple[str, str]]) -> dict:
    """`tokenizer.json` as the engine and the tokenizers library read it."""
    tokens = byte_characters() + [left + right for left, right in merges]
    if len(set(tokens)) != FIRST_ADDED:
        raise SystemExit("two merges spell the same token")
    added = [
        {"id": FIRST_ADDED + index, "content": line.removeprefix("+"), "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": not line.startswith("+")}
        for index, line in enumerate(ADDED)
    ]
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Removed", "invert": True},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        ]},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)}, "merges": [list(merge) for merge in merges],
        },
    }


def main() -> None:
    from .corpus import sample_text  # The corpus needs a tokenizer for its other uses.

    rng = random.Random(17)
    texts = [text for _ in range(40_000) for text in sample_text(rng)]
    out = Path(sys.argv[1])
    out.write_text(json.dumps(document(learn(texts)), ensure_ascii=False, indent=1) + "\n")
    print(f"{out}: {MERGES} merges from {sum(map(len, texts)):,} characters")


if __name__ == "__main__":
    main()
