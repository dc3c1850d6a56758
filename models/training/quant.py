"""MLX affine quantisation: the exact rule for files, and a straight-through version for training.

A group of 64 elements of a row shares a scale s and a bias b: w = s * code + b. The end of larger
magnitude is kept exactly, and s is chosen so that zero falls on a code.
"""
import numpy as np
import torch

GROUP = 64


def grid(w, bits):
    """(codes, scale, bias) of w [..., groups, 64] in float32, before scales are rounded."""
    n = 2 ** bits - 1
    lo, hi = w.amin(-1, keepdim=True), w.amax(-1, keepdim=True)
    low_end = lo.abs() > hi.abs()
    s = ((hi - lo) / n).clamp_min(1e-7)
    s = torch.where(low_end, s, -s)
    edge = torch.where(low_end, lo, hi)
    q0 = torch.round(edge / s)
    s = torch.where(q0 != 0, edge / torch.where(q0 != 0, q0, torch.ones_like(q0)), s)
    b = torch.where(q0 != 0, edge, torch.zeros_like(edge))
    return torch.round((w - b) / s).clamp(0, n), s, b


def fake_weight(w, bits):
    x = w.detach().float().view(w.shape[0], -1, GROUP)
    q, s, b = grid(x, bits)
    y = q * s.to(torch.bfloat16).float() + b.to(torch.bfloat16).float()
    return w + (y.view_as(w) - w.detach())


def fake_activation(x):
    """int8 per 64 elements, as the engine rounds what enters a quantised Linear."""
    y = x.detach().float().view(*x.shape[:-1], -1, GROUP)
    s = (y.abs().amax(-1, keepdim=True) / 127).clamp_min(1e-20)
    y = (torch.round(y / s) * s).view_as(x)
    return x + (y - x.detach().float()).to(x.dtype)


def pack(codes, bits):
    """Codes [rows, n] to little-endian uint32 words, element j at bits j*bits of its row."""
    c = codes.astype(np.uint32).reshape(codes.shape[0], -1, 32 // bits)
    shifts = np.arange(32 // bits, dtype=np.uint32) * np.uint32(bits)
    return np.bitwise_or.reduce(c << shifts, axis=-1).astype("<u4")


def to_bf16(x):
    """float32 array to bf16 bits, ties to even."""
    u = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype("<u2")


def from_bf16(u):
    return (u.astype(np.uint32) << 16).view(np.float32)


def quantize(w, bits):
    """float32 [rows, n] to (packed uint32, scale bits, bias bits, the values they decode to)."""
    q, s, b = grid(torch.from_numpy(np.ascontiguousarray(w)).float().view(w.shape[0], -1, GROUP), bits)
    q, s, b = q.numpy(), to_bf16(s[..., 0].numpy()), to_bf16(b[..., 0].numpy())
    back = (q * from_bf16(s)[..., None] + from_bf16(b)[..., None]).reshape(w.shape).astype(np.float32)
    return pack(q.reshape(w.shape[0], -1).astype(np.uint32), bits), s, b, back


def plan(name):
    """Bits of a module by its Hugging Face name (without `.weight`): what is sensitive gets 8."""
    if name.endswith(("embed_tokens", "per_layer_model_projection", "per_layer_input_gate", "per_layer_projection",
                      "pre_projection", "post_projection")):
        return 8
    if "k_proj" in name or "v_proj" in name:
        return 8
    return 4
