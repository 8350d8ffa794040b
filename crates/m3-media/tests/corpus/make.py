"""Makes the corpus of odd pictures and what Pillow sees in them; `cargo xtask pictures` runs it.

Files that Pillow writes come from Pillow, the rest is written byte by byte here. `expected.txt` gets one line per
file: its name, how near a decoder must come (0: equal; n: no sample further off than n), the size, and the digest of
the RGB bytes after exif_transpose and convert("RGB"). Where a difference is allowed, NAME.expected.png holds them.
A line of "refused" names a file that no decoder here may accept, with a part of the sentence that says why.
"""

import hashlib
import io
import pathlib
import struct
import sys
import zlib

from PIL import Image, ImageOps

FOLDER = pathlib.Path(sys.argv[1])
lines = []


def scene(width, height, mode="RGB"):
    """A picture with a gradient, edges and full colours, different in every corner."""
    picture = Image.new("RGB", (width, height))
    for y in range(height):
        for x in range(width):
            colour = (255 * x // max(width - 1, 1), 255 * y // max(height - 1, 1), 128)
            if x < width // 3 and y < height // 4:
                colour = (250, 10, 20)
            if x > 2 * width // 3 and y < height // 3:
                colour = (5, 240, 30)
            picture.putpixel((x, y), colour)
    return picture.convert(mode)


def put(name, data, near=0, plain=False):
    """`plain`: Pillow shall see the file without the chunk in front of the pixels."""
    (FOLDER / name).write_bytes(data)
    seen = data[:33] + data[data.index(b"IDAT") - 4:] if plain else data
    picture = Image.open(io.BytesIO(seen))
    picture.seek(0)
    sixteen = picture.mode.startswith("I")
    picture = ImageOps.exif_transpose(picture)
    if sixteen:  # convert("RGB") would clip; the values are scaled instead
        picture = picture.point(lambda value: value / 256).convert("L")
    rgb = picture.convert("RGB")
    digest = hashlib.sha256(rgb.tobytes()).hexdigest()
    lines.append(f"{name} {near} {rgb.width} {rgb.height} {digest}")
    if near:
        rgb.save(FOLDER / f"{name}.expected.png", optimize=True)


def saved(picture, kind, **options):
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def refused(name, data, sentence):
    (FOLDER / name).write_bytes(data)
    lines.append(f"{name} refused {sentence}")


# --- PNG, by hand: Pillow writes neither all depths nor Adam7 ---

def chunk(kind, body, crc=None):
    crc = zlib.crc32(kind + body) if crc is None else crc
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", crc)


def png(width, height, depth, colour, samples, before=b"", after=b"", adam7=False, header_crc=None, data_crc=None):
    """`samples(x, y)` gives a tuple of values of `depth` bits."""
    signature = b"\x89PNG\r\n\x1a\n"
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, int(adam7)), header_crc)
    passes = [(0, 0, 1, 1)]
    if adam7:
        passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    raw = bytearray()
    for left, top, across, down in passes:
        for y in range(top, height, down):
            bits = "".join(format(v, f"0{depth}b") for x in range(left, width, across) for v in samples(x, y))
            if bits:
                bits += "0" * (-len(bits) % 8)
                raw += b"\0" + bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))
    data = chunk(b"IDAT", zlib.compress(bytes(raw), 9), data_crc)
    return signature + header + before + data + after + chunk(b"IEND", b"")


def ramp(depth, channels):
    top = (1 << depth) - 1
    return lambda x, y: tuple((x * 37 + y * 101 + c * 59) * (top // 251 + 1) % (top + 1) for c in range(channels))


def pngs():
    names = {0: "grey", 2: "rgb", 4: "grey_alpha", 6: "rgba"}
    channels = {0: 1, 2: 3, 4: 2, 6: 4}
    for colour, depths in [(0, (1, 2, 4, 8, 16)), (2, (8, 16)), (4, (8, 16)), (6, (8, 16))]:
        for depth in depths:
            data = png(13, 9, depth, colour, ramp(depth, channels[colour]))
            put(f"png_{names[colour]}_{depth}.png", data)
    for depth in (1, 2, 4, 8):
        count = min(1 << depth, 200)
        palette = chunk(b"PLTE", bytes((i * 7 + c * 90) % 256 for i in range(count) for c in range(3)))
        index = lambda x, y, count=count: ((x * 5 + y * 3) % count,)
        put(f"png_palette_{depth}.png", png(13, 9, depth, 3, index, palette))
        clear = chunk(b"tRNS", bytes([0, 128, 255, 7][:min(4, count)]))
        put(f"png_palette_{depth}_transparent.png", png(13, 9, depth, 3, index, palette + clear))
    put("png_grey_transparent.png", png(13, 9, 8, 0, ramp(8, 1), chunk(b"tRNS", struct.pack(">H", 37))))
    put("png_rgb_transparent.png", png(13, 9, 8, 2, ramp(8, 3), chunk(b"tRNS", struct.pack(">HHH", 37, 96, 155))))
    for depth in (1, 8, 16):
        put(f"png_adam7_grey_{depth}.png", png(13, 9, depth, 0, ramp(depth, 1), adam7=True))
    put("png_adam7_rgba.png", png(9, 13, 8, 6, ramp(8, 4), adam7=True))
    put("png_adam7_1x1.png", png(1, 1, 8, 2, ramp(8, 3), adam7=True))
    for width, height in [(1, 1), (1, 40), (40, 1), (200, 1), (1, 200), (3, 600), (600, 3)]:
        put(f"png_{width}x{height}.png", png(width, height, 8, 2, ramp(8, 3)))
    # Pillow refuses what unpacks to more than 1 MiB; here such chunks are skipped, so the picture is read.
    bomb = zlib.compress(b"\0" * 20_000_000, 9)
    put("png_text_bomb.png", png(13, 9, 8, 2, ramp(8, 3), chunk(b"zTXt", b"Comment\0\0" + bomb)), plain=True)
    put("png_profile_bomb.png", png(13, 9, 8, 2, ramp(8, 3), chunk(b"iCCP", b"x\0\0" + bomb)), plain=True)
    put("png_gamma.png", png(13, 9, 8, 2, ramp(8, 3), chunk(b"gAMA", struct.pack(">I", 100000))))
    put("png_trailing_garbage.png", png(13, 9, 8, 2, ramp(8, 3)) + b"\0garbage" * 9)
    put("png_unknown_chunk.png", png(13, 9, 8, 2, ramp(8, 3), chunk(b"teSt", b"123")))
    turned = Image.Exif()
    turned[0x112] = 6
    put("png_exif_6.png", saved(scene(24, 16), "PNG", exif=turned))
    put("png_animated.png", saved(scene(24, 16), "PNG", save_all=True, append_images=[scene(24, 16).rotate(180)]))
    good = png(13, 9, 8, 2, ramp(8, 3))
    refused("png_truncated.png", good[:len(good) // 2], "broken PNG")
    refused("png_header_only.png", good[:33], "broken PNG")
    refused("png_signature_only.png", good[:8], "broken PNG")
    refused("png_bad_header_crc.png", png(13, 9, 8, 2, ramp(8, 3), header_crc=1), "broken PNG")
    refused("png_bad_data_crc.png", png(13, 9, 8, 2, ramp(8, 3), data_crc=1), "broken PNG")
    refused("png_0x9.png", png(0, 9, 8, 2, ramp(8, 3)), "PNG")
    refused("png_rows_missing.png", good[:16] + struct.pack(">II", 13, 900) + good[24:29]
            + struct.pack(">I", zlib.crc32(good[12:16] + struct.pack(">II", 13, 900) + good[24:29])) + good[33:], "broken PNG")


def exif_block(orientation, big=True, kind=3):
    order, mark = (">", b"MM\0*") if big else ("<", b"II*\0")
    value = struct.pack(order + "HH", orientation, 0) if kind == 3 else struct.pack(order + "I", orientation)
    entry = struct.pack(order + "HHI", 0x112, kind, 1) + value
    return b"Exif\0\0" + mark + struct.pack(order + "IH", 8, 1) + entry + struct.pack(order + "I", 0)


def jpegs():
    def jpeg(name, picture, near=4, **options):
        put(name, saved(picture, "JPEG", **options), near)

    for orientation in range(1, 9):
        jpeg(f"jpeg_exif_{orientation}.jpg", scene(24, 16), quality=90, exif=exif_block(orientation))
    jpeg("jpeg_exif_little_endian_6.jpg", scene(24, 16), quality=90, exif=exif_block(6, big=False))
    jpeg("jpeg_exif_0.jpg", scene(24, 16), quality=90, exif=exif_block(0))
    jpeg("jpeg_exif_9.jpg", scene(24, 16), quality=90, exif=exif_block(9))
    jpeg("jpeg_exif_broken.jpg", scene(24, 16), quality=90, exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")
    jpeg("jpeg_exif_grey_8.jpg", scene(24, 16, "L"), quality=90, exif=exif_block(8))
    for ratio in ("4:4:4", "4:2:2", "4:2:0"):
        jpeg(f"jpeg_{ratio.replace(':', '')}.jpg", scene(37, 29), quality=90, subsampling=ratio)
    jpeg("jpeg_grey.jpg", scene(37, 29, "L"), quality=90)
    jpeg("jpeg_cmyk.jpg", scene(37, 29, "CMYK"), quality=95)
    jpeg("jpeg_progressive.jpg", scene(37, 29), quality=90, progressive=True)
    jpeg("jpeg_progressive_grey.jpg", scene(37, 29, "L"), quality=90, progressive=True)
    jpeg("jpeg_progressive_cmyk.jpg", scene(37, 29, "CMYK"), quality=95, progressive=True)
    jpeg("jpeg_restarts.jpg", scene(64, 48), quality=90, restart_marker_blocks=2)
    jpeg("jpeg_rgb.jpg", scene(37, 29), quality=90, keep_rgb=True)
    jpeg("jpeg_quality_1.jpg", scene(37, 29), quality=1)
    for width, height in [(1, 1), (1, 50), (50, 1), (9, 17), (16, 16), (400, 2)]:
        jpeg(f"jpeg_{width}x{height}.jpg", scene(width, height), quality=90)
    # The chroma of the last column and row is interpolated with the block's padding here, and not by libjpeg.
    jpeg("jpeg_8x8.jpg", scene(8, 8), near=12, quality=90)
    good = saved(scene(37, 29), "JPEG", quality=90)
    put("jpeg_trailing_garbage.jpg", good + b"\0garbage" * 9, 4)
    put("jpeg_comment.jpg", good[:2] + b"\xff\xfe\0\x06hey!" + good[2:], 4)
    put("jpeg_fill_bytes.jpg", good[:2] + b"\xff\xff" + good[2:], 4)
    refused("jpeg_truncated.jpg", good[:len(good) * 2 // 3], "broken JPEG")
    refused("jpeg_header_only.jpg", good[:good.index(b"\xff\xda")], "broken JPEG")
    progressive = saved(scene(37, 29), "JPEG", quality=90, progressive=True)
    refused("jpeg_progressive_truncated.jpg", progressive[:len(progressive) // 2], "broken JPEG")


def gifs():
    first, second = scene(24, 16, "P"), scene(24, 16).rotate(180).convert("P")
    put("gif.gif", saved(first, "GIF"))
    put("gif_animated.gif", saved(first, "GIF", save_all=True, append_images=[second], duration=50))
    put("gif_interlaced.gif", saved(scene(24, 19, "P"), "GIF", interlace=1))
    put("gif_transparent.gif", saved(first, "GIF", transparency=3))
    put("gif_grey.gif", saved(scene(24, 16, "L"), "GIF"))
    data = bytearray(saved(scene(6, 5, "P"), "GIF", interlace=0))
    data[6:10] = struct.pack("<HH", 15, 11)
    at = data.index(b"\x2c")
    data[at + 1:at + 5] = struct.pack("<HH", 4, 3)
    put("gif_small_frame.gif", bytes(data))
    data[6:10] = struct.pack("<HH", 3, 3)
    put("gif_frame_beyond_screen.gif", bytes(data))
    good = saved(first, "GIF")
    refused("gif_truncated.gif", good[:len(good) - len(good) // 5], "broken GIF")
    refused("gif_no_frame.gif", b"GIF89a" + struct.pack("<HHBBB", 4, 4, 0, 0, 0) + b";", "broken GIF")


def webps():
    put("webp_lossless.webp", saved(scene(37, 29), "WEBP", lossless=True))
    put("webp_lossless_alpha.webp", saved(scene(37, 29, "RGBA"), "WEBP", lossless=True, exact=True))
    put("webp_lossy.webp", saved(scene(37, 29), "WEBP", quality=80), 1)
    veiled = scene(37, 29, "RGBA")
    veiled.putalpha(scene(37, 29, "L"))
    put("webp_lossy_alpha.webp", saved(veiled, "WEBP", quality=80), 1)
    put("webp_exif_8.webp", saved(scene(24, 16), "WEBP", lossless=True, exif=exif_block(8)))
    frames = [scene(24, 16).rotate(180)]
    put("webp_animated.webp", saved(scene(24, 16), "WEBP", lossless=True, save_all=True, append_images=frames))
    put("webp_1x1.webp", saved(scene(1, 1), "WEBP", lossless=True))
    put("webp_1x90.webp", saved(scene(1, 90), "WEBP", lossless=True))
    good = saved(scene(37, 29), "WEBP", lossless=True)
    refused("webp_truncated.webp", good[:len(good) // 2], "broken WEBP")
    refused("webp_header_only.webp", good[:12], "broken WEBP")


def bmp(bits, rows, palette=b"", compression=0, masks=b"", width=13, height=9):
    offset = 14 + 40 + len(masks) + len(palette)
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, compression, len(rows), 0, 0, len(palette) // 4, 0)
    return b"BM" + struct.pack("<IHHI", offset + len(rows), 0, 0, offset) + info + masks + palette + rows


def bmps():
    put("bmp_1.bmp", saved(scene(13, 9, "1"), "BMP"))
    put("bmp_8.bmp", saved(scene(13, 9, "P"), "BMP"))
    put("bmp_grey.bmp", saved(scene(13, 9, "L"), "BMP"))
    put("bmp_24.bmp", saved(scene(13, 9), "BMP"))
    put("bmp_32.bmp", saved(scene(13, 9, "RGBA"), "BMP"))
    put("bmp_top_down.bmp", bmp(24, bytes(i * 7 % 256 for i in range(40 * 9)), height=-9))
    fives = b"".join(struct.pack("<H", (x * 97 + y * 1031) & 0x7fff) for y in range(9) for x in range(14))
    put("bmp_555.bmp", bmp(16, fives), 1)
    palette = b"".join(bytes([i * 3 % 256, i * 5 % 256, i * 7 % 256, 0]) for i in range(256))
    runs = b"".join(bytes([6, row * 9, 7, row * 9 + 4, 0, 0]) for row in range(9)) + b"\0\1"
    put("bmp_runs.bmp", bmp(8, runs, palette, compression=1))
    good = saved(scene(13, 9), "BMP")
    refused("bmp_truncated.bmp", good[:len(good) // 2], "broken BMP")
    refused("bmp_header_only.bmp", good[:20], "broken BMP")


def others():
    refused("empty.png", b"", "the image is empty")
    refused("zeros.jpg", b"\0" * 64, "in no known format")
    refused("noise.png", bytes(i * 73 % 251 for i in range(200)), "in no known format")
    refused("svg.png", b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>', "is SVG")
    refused("svg_bare.svg", b"\xef\xbb\xbf  <svg/>", "is SVG")
    refused("avif.jpg", b"\0\0\0\x1cftypavif\0\0\0\0avifmif1miaf", "is AVIF")
    refused("avif_generic.jpg", b"\0\0\0\x1cftypmif1\0\0\0\0mif1avifmiaf", "is AVIF")
    refused("heic.jpg", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "is HEIC")
    refused("tiff.tif", saved(scene(4, 4), "TIFF"), "is TIFF")
    refused("icon.ico", saved(scene(16, 16), "ICO"), "is an icon")
    refused("page.png", b"<!DOCTYPE html><html></html>", "is an HTML page")
    refused("answer.png", b'{"error": "not found"}', "is JSON")
    refused("document.png", b"%PDF-1.7\n", "is PDF")
    refused("video.png", b"\0\0\0\x18ftypisom\0\0\0\0isommp41", "is a video")
    refused("jpeg_xl.jpg", b"\xff\x0a\0\0", "is JPEG XL")
    refused("wave.webp", b"RIFF\0\0\0\0WAVEfmt ", "is WAV")


for old in FOLDER.iterdir():
    if old.suffix not in (".py", ".txt") or old.name == "expected.txt":
        old.unlink()
for make in (pngs, jpegs, gifs, webps, bmps, others):
    make()
(FOLDER / "expected.txt").write_text("\n".join(sorted(lines)) + "\n")
print(f"{len(lines)} pictures")
