"""Gemma 4's vision tower (form E: clipped linears) for training, and the frozen text decoder behind it.

Names of parameters are the Hugging Face names below `model.`; spec of the arithmetic: transformers'
modeling_gemma4.py. Pictures of one batch have one size, so nothing is padded or masked.
"""
import dataclasses
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import model as M  # noqa: E402
import quant  # noqa: E402

PATCH, POOL, VOID = 16, 3, 0


@dataclasses.dataclass
class Config:
    hidden_size: int = 192
    intermediate_size: int = 384
    num_hidden_layers: int = 6
    num_attention_heads: int = 6
    head_dim: int = 32
    position_embedding_size: int = 1024
    rope_theta: float = 100.0


class Clipped(nn.Module):
    """A linear between two clamps. The bounds are found after training (ship.py); until then they are infinite."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out, bias=False)
        nn.init.normal_(self.linear.weight, std=n_in ** -0.5)
        self.bounds = None      # (input_min, input_max, output_min, output_max)
        self.seen = None        # the same four while bounds are looked for

    def forward(self, x):
        if self.bounds:
            x = x.clamp(self.bounds[0], self.bounds[1])
        y = F.linear(x, self.linear.weight.to(x.dtype))
        if self.seen is not None:
            self.seen = [min(self.seen[0], x.min().item()), max(self.seen[1], x.max().item()), min(self.seen[2], y.min().item()), max(self.seen[3], y.max().item())]
        return y.clamp(self.bounds[2], self.bounds[3]) if self.bounds else y


def attention(q, k, v, causal):
    """[b, heads, n, d], scale 1."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=1.0)
    s = (q @ k.transpose(2, 3)).float()
    if causal:
        s = s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).tril(), float("-inf"))
    return s.softmax(-1).to(v.dtype) @ v


def turn(x, cos, sin):
    """x [b, n, heads, 2, 2, d/4]: two axes, each a half-split rotation; cos, sin [n, 1, 2, d/4]."""
    a, b = x[..., 0, :], x[..., 1, :]
    return torch.stack([a * cos - b * sin, b * cos + a * sin], -2)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, n = c.hidden_size, c.num_attention_heads * c.head_dim
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = Clipped(h, n), Clipped(h, n), Clipped(h, n), Clipped(n, h)
        self.q_norm, self.k_norm = M.Norm(c.head_dim, c.head_dim ** -0.25), M.Norm(c.head_dim, c.head_dim ** -0.25)
        self.d = c.head_dim

    def forward(self, x, cos, sin):
        b, n, _ = x.shape

        def heads(y):
            return y.view(b, n, -1, self.d)

        def turned(y):
            return turn(y.float().view(b, n, -1, 2, 2, self.d // 4), cos, sin).view(b, n, -1, self.d).to(x.dtype).transpose(1, 2)
        q, k = turned(self.q_norm(heads(self.q_proj(x)))), turned(self.k_norm(heads(self.k_proj(x))))
        v = M.rms(heads(self.v_proj(x))).transpose(1, 2)
        return self.o_proj(attention(q, k, v, False).transpose(1, 2).reshape(b, n, -1))


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj, self.up_proj = Clipped(c.hidden_size, c.intermediate_size), Clipped(c.hidden_size, c.intermediate_size)
        self.down_proj = Clipped(c.intermediate_size, c.hidden_size)

    def forward(self, x):
        return self.down_proj(M.gelu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        h = c.hidden_size
        self.self_attn, self.mlp = Attention(c), MLP(c)
        self.input_layernorm, self.pre_feedforward_layernorm = M.Norm(h), M.Norm(h)
        self.post_attention_layernorm, self.post_feedforward_layernorm = M.Norm(h, .3), M.Norm(h, .3)

    def forward(self, h, cos, sin):
        h = h + self.post_attention_layernorm(self.self_attn(self.input_layernorm(h), cos, sin))
        return h + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(h)))


class Eyes(nn.Module):
    """Pixels to soft tokens."""

    def __init__(self, c, text_hidden):
        super().__init__()
        self.c = c
        self.vision_tower = nn.Module()
        self.vision_tower.patch_embedder = nn.Module()
        self.vision_tower.patch_embedder.input_proj = nn.Linear(3 * PATCH * PATCH, c.hidden_size, bias=False)
        self.vision_tower.patch_embedder.position_embedding_table = nn.Parameter(torch.zeros(2, c.position_embedding_size, c.hidden_size))
        nn.init.normal_(self.vision_tower.patch_embedder.input_proj.weight, std=(3 * PATCH * PATCH) ** -0.5)
        nn.init.normal_(self.vision_tower.patch_embedder.position_embedding_table[:, :64].data, std=.3)
        self.vision_tower.encoder = nn.Module()
        self.vision_tower.encoder.layers = nn.ModuleList([Layer(c) for _ in range(c.num_hidden_layers)])
        self.embed_vision = nn.Module()
        self.embed_vision.embedding_projection = nn.Linear(c.hidden_size, text_hidden, bias=False)

    def places(self, wide, high, device):
        """(x, y, cos, sin) of a grid of patches."""
        y, x = torch.meshgrid(torch.arange(high, device=device), torch.arange(wide, device=device), indexing="ij")
        x, y = x.reshape(-1), y.reshape(-1)
        d = self.c.head_dim // 2
        f = self.c.rope_theta ** (-torch.arange(0, d, 2, device=device).float() / d)
        angle = torch.stack([x[:, None] * f, y[:, None] * f], 1)[:, None]
        return x, y, angle.cos(), angle.sin()

    def pooled(self, patches, wide, high, dtype, fast=False):
        """patches uint8 [b, high * wide, 768] -> [b, tokens, hidden], normalised. fast: by the compiled layers."""
        e = self.vision_tower.patch_embedder
        x, y, cos, sin = self.places(wide, high, patches.device)
        pixels = ((patches.float() * (1 / 255)) - .5) * 2
        table = e.position_embedding_table
        h = F.linear(pixels.to(dtype), e.input_proj.weight.to(dtype)) + (table[0][x] + table[1][y]).to(dtype)
        for layer in self.vision_tower.encoder.layers:
            h = (layer if fast else layer.forward)(h, cos, sin)
        b = h.shape[0]
        h = h.float().view(b, high // POOL, POOL, wide // POOL, POOL, -1).mean((2, 4)).flatten(1, 2) * self.c.hidden_size ** .5
        return M.rms(h).to(dtype)

    def project(self, pooled):
        return F.linear(pooled, self.embed_vision.embedding_projection.weight.to(pooled.dtype))


class DecoderLayer(nn.Module):
    """One layer of the frozen decoder over short rows: causal, no window, no packing."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, h, ple, cos, sin, k, v):
        l, a = self.layer, self.layer.self_attn
        x, (b, t, _) = l.input_layernorm(h), h.shape
        q = M.rotate(a.q_norm(a.q_proj(x).view(b, t, a.n, a.d)), (cos, sin)).transpose(1, 2)
        if a.own:
            k = M.rotate(a.k_norm(a.k_proj(x).view(b, t, a.kv, a.d)), (cos, sin)).transpose(1, 2)
            v = M.rms(a.v_proj(x).view(b, t, a.kv, a.d)).transpose(1, 2)
        g = a.n // a.kv
        o = attention(q, k.repeat_interleave(g, 1), v.repeat_interleave(g, 1), True)
        h = h + l.post_attention_layernorm(a.o_proj(o.transpose(1, 2).reshape(b, t, -1)))
        h = h + l.post_feedforward_layernorm(l.mlp(l.pre_feedforward_layernorm(h)))
        y = M.gelu(l.per_layer_input_gate(h)) * ple
        h = h + l.post_per_layer_input_norm(l.per_layer_projection(y))
        return h * l.layer_scalar.to(h.dtype), k, v


def rounded(self, x):
    """A Linear whose weights are the shipped ones: only what enters it is rounded, as the engine does."""
    return F.linear(quant.fake_activation(x), self.weight.to(x.dtype))


class Decoder(nn.Module):
    def __init__(self, weights, dtype, device):
        """weights: {name: array} of the shipped folder, decoded."""
        super().__init__()
        c = M.Config()
        self.c, m = c, M.Model(c)
        m.load_state_dict({k[len("model."):]: torch.from_numpy(v.copy()) for k, v in weights.items()})
        self.m = m.to(device=device, dtype=dtype).requires_grad_(False)
        for x in m.modules():
            if isinstance(x, M.Linear):
                x.forward = rounded.__get__(x)
        self.layers = nn.ModuleList([DecoderLayer(l) for l in m.layers])
        self.dtype = dtype

    def hidden(self, ids, soft, at, fast=False):
        """ids [b, t] with VOID at soft positions; soft [b, n, hidden]; at [b, t]: which soft row, or -1."""
        c, m, dtype = self.c, self.m, self.dtype
        h = F.embedding(ids, m.embed_tokens.weight).to(dtype) * c.hidden_size ** .5
        rows = soft.gather(1, at.clamp_min(0)[..., None].expand(-1, -1, soft.shape[-1]))
        h = torch.where((at >= 0)[..., None], rows.to(dtype), h)
        p, L = c.hidden_size_per_layer_input, c.num_hidden_layers
        tok = F.embedding(ids, m.embed_tokens_per_layer.weight).to(dtype) * p ** .5
        ctx = (m.per_layer_model_projection(h) * c.hidden_size ** -.5).view(*ids.shape, L, p)
        ple = (m.per_layer_projection_norm(ctx) + tok.view(*ids.shape, L, p)) * 2 ** -.5
        rope, kept, none = M.rope_tables(c, ids.shape[1], ids.device), {}, h[:, :0]
        for i, layer in enumerate(self.layers):
            kind = c.kinds()[i]
            k, v = kept[kind] if i >= c.first_shared() else (none, none)
            h, k, v = (layer if fast else layer.forward)(h, ple[:, :, i], *rope[kind], k, v)
            if i < c.first_shared():
                kept[kind] = (k, v)
        return m.norm(h)

    def logits(self, h):
        z = F.linear(quant.fake_activation(h), self.m.embed_tokens.weight.to(h.dtype)).float()
        k = self.c.final_logit_softcapping
        return k * torch.tanh(z / k)


class Probe(nn.Module):
    """A reader of the tower used in training only: what kind, colour, shape, how many, which characters."""
    SIZES = {"kind": 4, "color": 10, "shape": 8, "count": 9, **{f"char{i}": 37 for i in range(5)}}

    def __init__(self, hidden, heads=6):
        super().__init__()
        self.ask = nn.Parameter(torch.randn(len(self.SIZES), hidden) * .5)
        self.k, self.v = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 2 * hidden), nn.Linear(2 * hidden, hidden)
        self.heads = heads
        self.out = nn.ModuleList([nn.Linear(hidden, n) for n in self.SIZES.values()])

    def forward(self, x, targets):
        """x [b, n, hidden]; targets [b, 9], -1 where a question does not arise. (loss, right [9], asked [9])"""
        b, n, h = x.shape
        x = x.float()
        q = self.ask.view(1, -1, self.heads, h // self.heads).transpose(1, 2).expand(b, -1, -1, -1)
        k, v = (f(x).view(b, n, self.heads, -1).transpose(1, 2) for f in (self.k, self.v))
        o = attention(q * (h // self.heads) ** -.5, k, v, False).transpose(1, 2).reshape(b, -1, h)
        o = o + self.down(F.gelu(self.up(o)))
        loss, right, asked = 0.0, [], []
        for i, f in enumerate(self.out):
            z, t = f(o[:, i]), targets[:, i]
            loss = loss + F.cross_entropy(z, t, ignore_index=-1, reduction="sum") / b
            right.append(((z.argmax(-1) == t) & (t >= 0)).sum())
            asked.append((t >= 0).sum())
        return loss, torch.stack(right), torch.stack(asked)
