"""Folders of real shape with random weights: made by `evenkeel convert --synthetic`, damped, read without copying.

Random weights amplify every rounding from layer to layer, so the gains of the norms that close a residual branch are
multiplied by `damp`: a layer then changes its input by a share, as a trained one does. The gains of queries are
multiplied by SCORES: heads of 256 random numbers have scores of +-16, and see one key alone. That of the last norm is
multiplied by LAST: a tied embedding gives a token's own logit 28 of a cap of 30, and nothing else a probability."""
import json
import os
import shutil
import subprocess

import numpy as np

CLOSING = ("post_attention_layernorm.weight", "post_feedforward_layernorm.weight", "post_per_layer_input_norm.weight")
SCORES, LAST = 0.25, 0.5


def widen(u16):
    """bf16, as uint16, to float32."""
    return (u16.astype(np.uint32) << 16).view(np.float32)


def narrow(x):
    """float32 to bf16, to nearest even, as uint16. Not for NaN."""
    u = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


class Folder:
    """Tensors of all .safetensors of a folder, mapped. Names are without what stands before the text model."""

    def __init__(self, path, mode="r"):
        self.path = path
        with open(os.path.join(path, "config.json")) as f:
            self.config = json.load(f)
        self.text = self.config["text_config"]
        self.at, self.names = {}, []
        for name in sorted(os.listdir(path)):
            if name.endswith(".safetensors"):
                self._map(os.path.join(path, name), mode)

    def _map(self, file, mode):
        with open(file, "rb") as f:
            n = int.from_bytes(f.read(8), "little")
            head = json.loads(f.read(n))
        data = np.memmap(file, dtype=np.uint8, mode=mode)
        for name, t in head.items():
            if name == "__metadata__":
                continue
            first, end = (8 + n + x for x in t["data_offsets"])
            if t["dtype"] not in ("BF16", "F32"):
                raise RuntimeError(f"{file}: {name} is {t['dtype']}, BF16 and F32 can be read")
            kind = np.uint16 if t["dtype"] == "BF16" else np.float32
            self.names.append(name)
            self.at[name.replace("model.language_model.", "")] = data[first:end].view(kind).reshape(t["shape"])

    def __contains__(self, name):
        return name in self.at

    def stored(self, name):
        return self.at[name]

    def get(self, name, which=slice(None)):
        """A tensor, or some of its first dimension, as float32."""
        x = self.at[name][which]
        return widen(x) if x.dtype == np.uint16 else np.asarray(x)

    def n_bytes(self):
        return sum(x.nbytes for x in self.at.values())

    def damp(self, factor):
        for name, x in self.at.items():
            gain = factor if name.endswith(CLOSING) else SCORES if name.endswith("self_attn.q_norm.weight") else 1
            gain = LAST if name == "norm.weight" else gain
            if gain != 1:
                y = self.get(name) * np.float32(gain)
                x[...] = narrow(y) if x.dtype == np.uint16 else y


def make(program, model, layers, damp, path):
    """A damped folder at path, anew."""
    if os.path.isdir(path):
        shutil.rmtree(path)
    call = [program, "convert", "--synthetic", model, "--type", "bf16"] + (["--layers", str(layers)] if layers else [])
    done = subprocess.run(call + [path], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(call)}: {done.stderr.strip()}")
    folder = Folder(path, "r+")
    folder.damp(damp)
    return Folder(path)


def prompt(length, seed=7):
    """Token ids. A shorter prompt begins a longer one."""
    ids = np.random.default_rng(seed).integers(1000, 200000, length)
    ids[0] = 2
    return ids


def embed_scale(hidden, rule):
    """What rows of the embedding are multiplied by. bf16: sqrt(hidden) rounded to bf16, as transformers has it where the
    checkpoint is loaded in bf16; f32: not rounded; ulp: one unit of float32 in the last place above bf16's, which shows
    how much the model amplifies a rounding."""
    s = np.sqrt(np.float32(hidden))
    if rule == "f32":
        return s
    s = widen(narrow(np.array([s])))[0]
    return s if rule == "bf16" else np.nextafter(s, np.float32(np.inf))
