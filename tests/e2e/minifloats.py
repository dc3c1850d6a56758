"""Writes a bf16 folder of safetensors again with its projections as floats of 4 or 8 bits, as quantisers of PyTorch and
MLX models lay them out, and beside each the float32 values that the stored codes stand for. Standard library only; the
formats' values are computed here from their definitions (OCP Microscaling, OCP FP8, NVIDIA's NVFP4)."""
import array, functools, json, math, os, re, shutil, struct
from bisect import bisect

E2M1 = [0, .5, 1, 1.5, 2, 3, 4, 6]
E4M3 = [(m / 8 + 1) * 2.0 ** (e - 7) if e else m * 2.0 ** -9 for e in range(16) for m in range(8)][:127]
E5M2 = [(m / 4 + 1) * 2.0 ** (e - 15) if e else m * 2.0 ** -16 for e in range(31) for m in range(4)]
BETWEEN = {id(t): [(a + b) / 2 for a, b in zip(t, t[1:])] for t in (E2M1, E4M3, E5M2)}
GAIN = 2.0 ** -8  # a power of two: dividing by its inverse and multiplying with it are the same

# kind -> quantization section, and what it shares its codes with
CT = lambda form: ("quantization_config", {"quant_method": "compressed-tensors", "format": form})
MLX = lambda mode, bits, group: ("quantization", {"mode": mode, "bits": bits, "group_size": group})
MODELOPT = lambda algo: ("quantization_config", {"quant_method": "modelopt", "quant_algo": algo})
KINDS = {
    "nvfp4": CT("nvfp4-pack-quantized"), "nvfp4-modelopt": MODELOPT("NVFP4"), "nvfp4-mlx": MLX("nvfp4", 4, 16),
    "mxfp4": CT("mxfp4-pack-quantized"), "mxfp4-mlx": MLX("mxfp4", 4, 32),
    "mxfp8": CT("mxfp8-quantized"), "mxfp8-mlx": MLX("mxfp8", 8, 32),
    "fp8-row": CT("float-quantized"), "fp8-tensor": MODELOPT("FP8"), "fp8-tiles": ("quantization_config", {"quant_method": "fp8", "weight_block_size": [128, 128]}),
    "fp8-e5m2": CT("float-quantized"),
}


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def to_bf16(x):
    u = struct.unpack("<I", struct.pack("<f", x))[0]
    return (u + 0x7fff + (u >> 16 & 1)) >> 16


def widen(h):
    return struct.unpack("<f", struct.pack("<I", h << 16))[0]


def floats(bits):
    """bf16 as float32, which has two more bytes in front."""
    raw = bits.tobytes()
    low, high = raw[::2], raw[1::2]
    assert b"\x7f" not in high and b"\xff" not in high, "an infinity or NaN"
    out = bytearray(2 * len(raw))
    out[2::4], out[3::4] = low, high
    return array.array("f", bytes(out))


@functools.lru_cache(maxsize=1024)
def decoded(e2m1, scale):
    """What each code stands for: of E2M1 float32, of E4M3 in bf16."""
    table, half = (E2M1, 8) if e2m1 else (E4M3, 128)
    signed = [*table, *[0.0] * (half - len(table)), *[-v for v in table]]
    return [v * scale if e2m1 else widen(to_bf16(v * scale)) for v in signed]


def read(folder):
    """name -> (shape, bf16 bits as array)"""
    data = open(os.path.join(folder, "model.safetensors"), "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + n])
    head.pop("__metadata__", None)
    return {k: (e["shape"], array.array("H", data[8 + n + e["data_offsets"][0]:8 + n + e["data_offsets"][1]])) for k, e in head.items()}


def save(path, tensors):
    head, at = {}, 0
    for name, (kind, shape, data) in tensors.items():
        head[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            f.write(data)


def encode(values, table, scale, codes):
    """Appends codes; a NaN is no value of a model."""
    mid, half = BETWEEN[id(table)], 128 if len(table) > 8 else 8
    inverse = 1 / scale if scale else 0
    codes.extend([bisect(mid, abs(x) * inverse) + (half if x < 0 else 0) for x in values])


def grouped(values, kind, gain):
    """NVFP4 and MX: codes, bytes of scales, values."""
    nv, table, group = kind == "nvfp4", E4M3 if kind == "mxfp8" else E2M1, 16 if kind == "nvfp4" else 32
    codes, scales, out = [], bytearray(), array.array("f")
    for at in range(0, len(values), group):
        some = values[at:at + group]
        top = max(map(abs, some)) / table[-1]
        if nv:
            byte = bisect(BETWEEN[id(E4M3)], top / gain)
            scale = E4M3[byte] * gain
        else:
            byte = max(0, math.frexp(top)[1] + 127 - (math.frexp(top)[0] <= .5)) if top else 0
            scale = 2.0 ** (byte - 127)
        first = len(codes)
        encode(some, table, scale, codes)
        scales.append(byte)
        of = decoded(table is E2M1, scale)
        out.extend([of[c] for c in codes[first:]])
    return codes, bytes(scales), out


def tiled(values, rows, k, kind):
    """fp8: codes, scales as floats, their shape, values."""
    table = E5M2 if kind == "fp8-e5m2" else E4M3
    tall, wide = {"fp8-tensor": (rows, k), "fp8-tiles": (128, 128)}.get(kind, (1, k))
    lines, columns, codes, scales = -(-rows // tall), -(-k // wide), [], []
    for y in range(lines):
        for x in range(columns):
            top = max(max(map(abs, values[r * k + x * wide:r * k + min(k, (x + 1) * wide)])) for r in range(y * tall, min(rows, (y + 1) * tall)))
            scales.append(f32(top / table[-1]) or 1.0)
    out, of = array.array("f"), [{} for _ in scales]  # what codes stand for, by scale
    for r in range(rows):
        for x in range(columns):
            i, first = r // tall * columns + x, len(codes)
            encode(values[r * k + x * wide:r * k + min(k, (x + 1) * wide)], table, scales[i], codes)
            for c in set(codes[first:]) - of[i].keys():
                of[i][c] = widen(to_bf16(f32((-table[c - 128] if c >= 128 else table[c]) * scales[i])))
            out.extend([of[i][c] for c in codes[first:]])
    return codes, scales, [lines, columns], out


def module(kind, name, rows, k, values):
    """The tensors of a module, and its values."""
    base = kind.split("-")[0]
    if base == "fp8":
        codes, scales, shape, out = tiled(values, rows, k, kind)
        inverse = kind == "fp8-tiles"
        one = kind == "fp8-tensor"
        return {name + ".weight": ("F8_E5M2" if kind == "fp8-e5m2" else "F8_E4M3", [rows, k], bytes(codes)),
                name + (".weight_scale_inv" if inverse else ".weight_scale"): ("F32", [] if one else shape, array.array("f", scales).tobytes()),
                name + ".input_scale": ("F32", [], struct.pack("<f", 0.5))}, out
    codes, scales, out = grouped(values, base, 1.0 if kind.endswith("-mlx") else GAIN)  # MLX's files have none
    packed = bytes(codes) if base == "mxfp8" else bytes(a | b << 4 for a, b in zip(codes[::2], codes[1::2]))
    group = 16 if base == "nvfp4" else 32
    if kind.endswith("-mlx"):
        return {name + ".weight": ("U32", [rows, len(packed) // rows // 4], packed), name + ".scales": ("U8", [rows, k // group], scales)}, out
    modelopt = kind.endswith("-modelopt")
    t = {name + (".weight" if modelopt or base == "mxfp8" else ".weight_packed"): ("F8_E4M3" if base == "mxfp8" else "U8", [rows, len(packed) // rows], packed),
         name + ".weight_scale": ("F8_E4M3" if base == "nvfp4" else "U8", [rows, k // group], scales)}
    if base == "nvfp4":
        t[name + (".weight_scale_2" if modelopt else ".weight_global_scale")] = ("F32", [] if modelopt else [1], struct.pack("<f", GAIN if modelopt else 1 / GAIN))
    return t, out


def write(source, to, twin, kind, layers=None, head=0):
    """The projections of the first `layers` layers, all of them otherwise; the values to `twin` unless it is None. head: with a
    head of its own, whose row r is row r + head of the embedding."""
    stored, wide = {}, {}
    for name, (shape, bits) in read(source).items():
        at = re.match(r"model\.layers\.(\d+)\.(self_attn\.[qkvo]_proj|mlp\.\w+_proj)\.weight", name)
        if at and (layers is None or int(at[1]) < layers):
            t, values = module(kind, name[:-len(".weight")], shape[0], shape[1], floats(bits).tolist())
            stored.update(t)
            wide[name] = ("F32", shape, values.tobytes())
        else:
            stored[name] = ("BF16", shape, bits.tobytes())
            wide[name] = ("F32", shape, floats(bits).tobytes())
        if head and name == "model.embed_tokens.weight":
            turned = bits[head * shape[1]:] + bits[:head * shape[1]]
            t, values = module(kind, "lm_head", shape[0], shape[1], floats(turned).tolist())
            stored.update(t)
            wide["lm_head.weight"] = ("F32", shape, values.tobytes())
    for folder, tensors in ((to, stored), (twin, wide)):
        if not folder:
            continue
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.safetensors"))
        save(os.path.join(folder, "model.safetensors"), tensors)
    config = json.load(open(os.path.join(to, "config.json")))
    key, section = KINDS[kind]
    config[key] = section
    json.dump(config, open(os.path.join(to, "config.json"), "w"))
