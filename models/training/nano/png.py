"""Pictures as PNG files, drawn by the one definition of the shapes. Standard library only."""

import base64
import struct
import zlib

from .pictures import COLOURS, SIDE, Picture, inside

PALETTE = list(COLOURS.values())


def rows_of(picture: Picture) -> list[bytes]:
    """RGB rows of a picture."""
    level = int(picture[0][1])
    rows = [bytearray(bytes([level]) * 3 * SIDE) for _ in range(SIDE)]
    for shape, colour, x, y, radius in picture[1:]:
        reach = int(radius * 1.1) + 1
        for down in range(max(0, int(y) - reach), min(SIDE, int(y) + reach + 1)):
            for across in range(max(0, int(x) - reach), min(SIDE, int(x) + reach + 1)):
                if inside(int(shape), across - x, down - y, radius):
                    rows[down][3 * across : 3 * across + 3] = bytes(PALETTE[int(colour)])
    return [bytes(row) for row in rows]


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(picture: Picture) -> bytes:
    head = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + row for row in rows_of(picture)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def data_uri(picture: Picture) -> str:
    return "data:image/png;base64," + base64.b64encode(png(picture)).decode()


def listed(kind: bytes, body: bytes) -> bytes:
    return b"LIST" + struct.pack("<I", len(body) + 4) + kind + body


def riff(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)


def avi(frames: list[Picture]) -> bytes:
    """Frames as an uncompressed AVI at one frame a second."""
    images = [b"".join(bgr(row) for row in reversed(rows_of(frame))) for frame in frames]
    size, count = 3 * SIDE * SIDE, len(frames)
    main = struct.pack("<14I", 1_000_000, size, 0, 0x10, count, 0, 1, size, SIDE, SIDE, 0, 0, 0, 0)
    stream = b"vids" + b"DIB " + struct.pack("<3I", 0, 0, 0) + struct.pack("<8I", 1, 1, 0, count, size, 0xFFFFFFFF, 0, 0) + struct.pack("<2H", SIDE, SIDE)
    form = struct.pack("<IiiHHIIiiII", 40, SIDE, SIDE, 1, 24, 0, size, 0, 0, 0, 0)
    header = listed(b"hdrl", riff(b"avih", main) + listed(b"strl", riff(b"strh", stream) + riff(b"strf", form)))
    movie = listed(b"movi", b"".join(riff(b"00db", image) for image in images))
    return b"RIFF" + struct.pack("<I", len(header) + len(movie) + 4) + b"AVI " + header + movie


def bgr(row: bytes) -> bytes:
    out = bytearray(row)
    out[0::3], out[2::3] = row[2::3], row[0::3]
    return bytes(out)


def video_uri(frames: list[Picture]) -> str:
    return "data:video/x-msvideo;base64," + base64.b64encode(avi(frames)).decode()
