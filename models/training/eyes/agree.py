"""Compares features of the program with those of PyTorch, on shipped weights and one picture.

    evenkeel features --model models/pocket --image P.png --image-tokens 70 --out P.f32
    python3 models/training/eyes/agree.py models/pocket SEED INDEX P.f32     (P.png: draw.py SEED INDEX, scale 1)
"""
import json
import os
import sys

import numpy as np
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import export  # noqa: E402
import quant  # noqa: E402

import draw  # noqa: E402
import paint  # noqa: E402
import tower as T  # noqa: E402


def load(folder):
    """The shipped tower, clamps included."""
    eyes = T.Eyes(T.Config(), 256)
    t = {k[len("model."):]: torch.from_numpy(quant.from_bf16(v.reshape(-1)).reshape(v.shape).copy()) for k, v in export.read_safetensors(os.path.join(folder, "model.safetensors")).items() if "vision" in k}
    eyes.load_state_dict({k: v for k, v in t.items() if k.endswith("weight") or k.endswith("table")})
    for name, m in eyes.named_modules():
        if isinstance(m, T.Clipped):
            m.bounds = tuple(t[f"{name}.{k}"].item() for k in ("input_min", "input_max", "output_min", "output_max"))
    return eyes.eval()


@torch.no_grad()
def main():
    folder, seed, index, path = sys.argv[1:5]
    s = draw.scene(int(seed), int(index))
    wide, high = s["size"]
    patches = paint.paint(*(torch.from_numpy(x) for x in paint.flatten([s])), wide, high)
    eyes = load(folder)
    mine = eyes.project(eyes.pooled(patches, wide // 16, high // 16, torch.float32))[0].numpy()
    theirs = np.fromfile(path, np.float32).reshape(mine.shape)
    print(json.dumps({"rows": len(mine), "largest": float(np.abs(mine).max()), "rms": float((mine ** 2).mean() ** .5), "largest difference": float(np.abs(mine - theirs).max())}), draw.shown(s))


if __name__ == "__main__":
    main()
