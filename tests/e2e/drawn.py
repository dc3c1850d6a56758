"""Pictures and sounds that tests make up. Python standard library only."""
import struct, zlib

GIF = bytes.fromhex("47494638396102000100800000000000ffffff2c0000000002000100000202440a003b")  # 2 x 1 pixels, black and white


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_of(width, height, rows, level=6):
    """rows: each begins with a byte that says how it is filtered."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, level)) + chunk(b"IEND", b"")


def png(width, height, rgb):
    return png_of(width, height, b"".join(b"\0" + rgb[3 * width * y:3 * width * (y + 1)] for y in range(height)))


def wav(samples, rate=16000):
    """samples: whole numbers of 16 bits, of one channel."""
    data = b"".join(struct.pack("<h", s) for s in samples)
    return b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, rate, 2 * rate, 2, 16) + b"data" + struct.pack("<I", len(data)) + data


def hum(seconds, seed=0, rate=16000):
    """A sound that is another one for each seed."""
    return wav((((i * (37 + seed)) % 601 - 300) * 60 for i in range(int(seconds * rate))), rate)
