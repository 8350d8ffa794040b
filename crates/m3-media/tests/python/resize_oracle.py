"""Makes tests/data/resize.json and small pictures beside it: what the pinned torch and Pillow resize made-up pictures to.

Run by `cargo xtask resize-oracle`; the Rust tests read its output and need no Python. torch's 8-bit bicubic resizing with
antialiasing is what the released processor uses. Pillow's differs from it by rounding; how far is recorded.
"""

import hashlib
import json
import pathlib
import sys

import numpy as np
import PIL.Image
import torch


def picture(kind: str, width: int, height: int) -> np.ndarray:
    """The same picture that the Rust test makes: bytes [height, width, 3]."""
    index = np.arange(height * width * 3, dtype=np.uint64)
    x, y, colour = index // 3 % width, index // 3 // width, index % 3
    if kind == "noise":
        value = index * 2654435761 % 2**32
        value ^= value >> 15
        value = value * 2246822519 % 2**32
        value ^= value >> 13
    elif kind == "edges":  # full contrast, so that overshoot is clipped
        value = ((x // 5 + y // 3 + colour) % 2) * 255
    elif kind == "ramp":
        value = x * 7 + y * 3 + colour * 50
    else:
        raise ValueError(kind)
    return (value & 255).astype(np.uint8).reshape(height, width, 3)


def by_torch(pixels: np.ndarray, width: int, height: int) -> np.ndarray:
    planes = torch.from_numpy(pixels).permute(2, 0, 1).unsqueeze(0).contiguous()
    resized = torch.nn.functional.interpolate(
        planes, size=(height, width), mode="bicubic", align_corners=False, antialias=True
    )
    return resized[0].permute(1, 2, 0).contiguous().numpy()


def by_pillow(pixels: np.ndarray, width: int, height: int) -> np.ndarray:
    return np.asarray(PIL.Image.fromarray(pixels).resize((width, height), PIL.Image.Resampling.BICUBIC))


# Width and height before and after; the sizes that the rules choose, and some that they would not.
SHAPES = [
    ((20, 20), (56, 56)), ((20, 20), (112, 112)), ((42, 42), (56, 56)), ((70, 70), (56, 56)),
    ((61, 70), (56, 56)), ((210, 33), (224, 28)), ((31, 20), (84, 56)), ((100, 100), (112, 112)),
    ((640, 480), (644, 476)), ((1024, 768), (756, 560)), ((1024, 768), (1036, 756)), ((1920, 1080), (896, 504)),
    ((1920, 1080), (1932, 1092)), ((1920, 1080), (1008, 560)), ((1920, 1080), (756, 420)), ((4000, 3000), (756, 560)),
    ((30, 4000), (28, 4004)), ((30, 4000), (28, 2016)), ((1, 150), (28, 140)), ((150, 1), (2016, 28)),
    ((1999, 10), (1988, 28)), ((1, 1), (56, 56)), ((2, 3), (112, 140)), ((13, 13), (56, 56)),
    ((640, 360), (644, 364)), ((640, 480), (640, 112)), ((640, 480), (112, 480)), ((600, 2000), (500, 224)),
    ((2000, 600), (224, 500)), ((673, 671), (672, 672)), ((5000, 700), (700, 112)), ((257, 511), (252, 504)),
]
PICTURES = [((61, 70), (56, 56)), ((31, 20), (84, 56)), ((210, 33), (112, 28))]


def main(folder: pathlib.Path) -> None:
    rows = []
    for kind in ["noise", "edges", "ramp"]:
        for (width, height), (new_width, new_height) in SHAPES:
            pixels = picture(kind, width, height)
            expected = by_torch(pixels, new_width, new_height)
            off = np.abs(expected.astype(int) - by_pillow(pixels, new_width, new_height)).max()
            rows.append({
                "kind": kind, "from": [width, height], "to": [new_width, new_height],
                "before": hashlib.sha256(pixels.tobytes()).hexdigest()[:32],
                "torch": hashlib.sha256(expected.tobytes()).hexdigest()[:32],
                "pillow_off": int(off),
            })
    versions = {"torch": torch.__version__.split("+")[0], "pillow": PIL.__version__}
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    (folder / "resize.json").write_text(f'{{"versions": {json.dumps(versions)}, "rows": [\n{lines}\n]}}\n')
    for (width, height), (new_width, new_height) in PICTURES:
        resized = by_pillow(picture("edges", width, height), new_width, new_height)
        name = f"pillow_{width}x{height}_{new_width}x{new_height}.png"
        PIL.Image.fromarray(resized).save(folder / name, optimize=True)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
