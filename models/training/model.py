"""Gemma 4's text decoder for training: PyTorch, packed documents, optional fake quantisation.

The arithmetic is that of transformers' Gemma4ForCausalLM (verify.py compares the two); names of
parameters are the Hugging Face names. Documents are packed into rows; `start[b, t]` is the
position where t's document begins, and attention never crosses it.
"""
import dataclasses

import torch
import torch.nn as nn
import torch.nn.functional as F

import quant

try:
    from torch.nn.attention.flex_attention import BlockMask, flex_attention
except ImportError:         # an old torch, CPU smoke tests only
    flex_attention = None

SLIDING, FULL = "sliding_attention", "full_attention"
BLOCK = 128


@dataclasses.dataclass
class Config:
    vocab_size: int = 4096
    hidden_size: int = 256
    intermediate_size: int = 384
    num_hidden_layers: int = 15
    period: int = 5
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    global_head_dim: int = 128
    sliding_window: int = 512
    num_kv_shared_layers: int = 5
    hidden_size_per_layer_input: int = 64
    final_logit_softcapping: float = 30.0
    rms_norm_eps: float = 1e-6
    double_wide: bool = True

    def kinds(self):
        return [FULL if (i + 1) % self.period == 0 else SLIDING for i in range(self.num_hidden_layers)]

    def first_shared(self):
        return self.num_hidden_layers - self.num_kv_shared_layers

    def donor(self, i):
        k = self.kinds()
        return max(j for j in range(self.first_shared()) if k[j] == k[i])


def rms(x, w=None, eps=1e-6):
    y = x.float()
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps)
    return (y if w is None else y * w.float()).to(x.dtype)


class Norm(nn.Module):
    def __init__(self, n, value=1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.full((n,), value))

    def forward(self, x):
        return rms(x, self.weight)


class Linear(nn.Module):
    """A Linear that, when `bits` is set, computes as the shipped model will: weights rounded to
    the MLX affine grid, activations to int8 per 64, gradients straight through both."""

    def __init__(self, n_in, n_out, std=None):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_out, n_in) * (std or n_in ** -0.5))
        self.bits = 0

    def forward(self, x):
        w = self.weight
        if self.bits:
            w, x = quant.fake_weight(w, self.bits), quant.fake_activation(x)
        return F.linear(x, w.to(x.dtype))


class Attention(nn.Module):
    def __init__(self, c, i):
        super().__init__()
        self.full = c.kinds()[i] == FULL
        self.own = i < c.first_shared()
        self.d = c.global_head_dim if self.full else c.head_dim
        self.n, self.kv, self.window = c.num_attention_heads, c.num_key_value_heads, c.sliding_window
        h, scale = c.hidden_size, self.d ** -0.25     # q_norm * k_norm starts as the usual 1/sqrt(d)
        self.q_proj = Linear(h, self.n * self.d)
        self.q_norm = Norm(self.d, scale)
        if self.own:
            self.k_proj = Linear(h, self.kv * self.d)
            self.v_proj = Linear(h, self.kv * self.d)
            self.k_norm = Norm(self.d, scale)
        self.o_proj = Linear(self.n * self.d, h)

    def forward(self, x, rope, masks, shared):
        b, t, _ = x.shape
        q = rotate(self.q_norm(self.q_proj(x).view(b, t, self.n, self.d)), rope).transpose(1, 2)
        if self.own:
            k = rotate(self.k_norm(self.k_proj(x).view(b, t, self.kv, self.d)), rope).transpose(1, 2)
            v = rms(self.v_proj(x).view(b, t, self.kv, self.d)).transpose(1, 2)
        else:
            k, v = shared
        mask = masks[FULL if self.full else SLIDING]
        if isinstance(mask, torch.Tensor):
            g = self.n // self.kv
            s = (q @ k.repeat_interleave(g, 1).transpose(2, 3)).float().masked_fill(~mask, float("-inf"))
            o = s.softmax(-1).to(v.dtype) @ v.repeat_interleave(g, 1)
        else:
            o = flex_attention(q, k, v, block_mask=mask, scale=1.0, enable_gqa=self.n != self.kv)
        return self.o_proj(o.transpose(1, 2).reshape(b, t, -1)), (k, v)


class MLP(nn.Module):
    def __init__(self, c, i):
        super().__init__()
        n = c.intermediate_size * (2 if c.double_wide and i >= c.first_shared() else 1)
        self.gate_proj, self.up_proj = Linear(c.hidden_size, n), Linear(c.hidden_size, n)
        self.down_proj = Linear(n, c.hidden_size)

    def forward(self, x):
        return self.down_proj(gelu(self.gate_proj(x)) * self.up_proj(x))


def gelu(x):
    return F.gelu(x, approximate="tanh")


class Layer(nn.Module):
    def __init__(self, c, i):
        super().__init__()
        h, p, small = c.hidden_size, c.hidden_size_per_layer_input, 0.3
        self.self_attn, self.mlp = Attention(c, i), MLP(c, i)
        self.input_layernorm, self.pre_feedforward_layernorm = Norm(h), Norm(h)
        self.post_attention_layernorm, self.post_feedforward_layernorm = Norm(h, small), Norm(h, small)
        if p:
            self.per_layer_input_gate, self.per_layer_projection = Linear(h, p), Linear(p, h)
            self.post_per_layer_input_norm = Norm(h, small)
        self.layer_scalar = nn.Parameter(torch.ones(1))

    def forward(self, h, ple, rope, masks, shared):
        a, kv = self.self_attn(self.input_layernorm(h), rope, masks, shared)
        h = h + self.post_attention_layernorm(a)
        h = h + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(h)))
        if ple is not None:
            y = gelu(self.per_layer_input_gate(h)) * ple
            h = h + self.post_per_layer_input_norm(self.per_layer_projection(y))
        return h * self.layer_scalar.to(h.dtype), kv


class Embedding(nn.Module):
    def __init__(self, n, d, std):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n, d) * std)
        self.bits = 0

    def table(self):
        return quant.fake_weight(self.weight, self.bits) if self.bits else self.weight


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, p, L = c.hidden_size, c.hidden_size_per_layer_input, c.num_hidden_layers
        self.c = c
        self.embed_tokens = Embedding(c.vocab_size, h, h ** -0.5)
        if p:
            self.embed_tokens_per_layer = Embedding(c.vocab_size, L * p, p ** -0.5)
            self.per_layer_model_projection = Linear(h, L * p)
            self.per_layer_projection_norm = Norm(p)
        self.layers = nn.ModuleList([Layer(c, i) for i in range(L)])
        self.norm = Norm(h)

    def hidden(self, ids, rope, masks, dtype):
        """The post-norm hidden states, and the keys and values of the last owning layers."""
        c = self.c
        table = self.embed_tokens.table()
        h = F.embedding(ids, table).to(dtype) * c.hidden_size ** 0.5
        ple = None
        if c.hidden_size_per_layer_input:
            p, L = c.hidden_size_per_layer_input, c.num_hidden_layers
            tok = F.embedding(ids, self.embed_tokens_per_layer.table()).to(dtype) * p ** 0.5
            ctx = (self.per_layer_model_projection(h) * c.hidden_size ** -0.5).view(*ids.shape, L, p)
            ple = (self.per_layer_projection_norm(ctx) + tok.view(*ids.shape, L, p)) * 2 ** -0.5
        kept = {}
        for i, layer in enumerate(self.layers):
            kind = c.kinds()[i]
            shared = kept[kind] if i >= c.first_shared() else None
            h, kv = layer(h, None if ple is None else ple[:, :, i], rope[kind], masks, shared)
            if i < c.first_shared():
                kept[kind] = kv
        return self.norm(h), kept, table

    def logits(self, h, table):
        if self.embed_tokens.bits:
            h = quant.fake_activation(h)
        z = F.linear(h, table.to(h.dtype)).float()
        k = self.c.final_logit_softcapping
        return k * torch.tanh(z / k)

    def loss(self, ids, targets, weights, start, rope, dtype=torch.bfloat16):
        """(weighted loss, (loss, accuracy) on what the model must produce). Weights are 0, a light
        prompt weight, or 1. The masks are built here, inside the compiled graph."""
        masks = (block_masks if ids.is_cuda else dense_masks)(self.c, start)
        h, _, table = self.hidden(ids, rope, masks, dtype)
        z = self.logits(h, table)
        ce = F.cross_entropy(z.view(-1, z.shape[-1]), targets.reshape(-1), reduction="none").view_as(targets)
        answer = (weights >= 1).float()
        hit = (z.argmax(-1) == targets).float() * answer
        return (ce * weights).sum() / weights.sum(), ((ce * answer).sum() / answer.sum(), hit.sum() / answer.sum())

    def set_bits(self, bits):
        """bits(name) -> 0, 4 or 8 for every quantised module."""
        for name, m in self.named_modules():
            if isinstance(m, (Linear, Embedding)):
                m.bits = bits(name)


def rotate(x, rope):
    cos, sin = rope
    a, b = x.float().chunk(2, -1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)


def rope_tables(c, n, device):
    """cos and sin [n, d/2] by layer kind; on full layers a quarter of the pairs turns."""
    pos, out = torch.arange(n, device=device).float(), {}
    d = c.head_dim
    f = 10000.0 ** (-torch.arange(0, d, 2, device=device).float() / d)
    out[SLIDING] = (torch.cos(pos[:, None] * f), torch.sin(pos[:, None] * f))
    d = c.global_head_dim
    turned = int(0.25 * d // 2)
    f = torch.zeros(d // 2, device=device)
    f[:turned] = 1e6 ** (-torch.arange(0, 2 * turned, 2, device=device).float() / d)
    out[FULL] = (torch.cos(pos[:, None] * f), torch.sin(pos[:, None] * f))
    return out


def dense_masks(c, start):
    t = start.shape[1]
    q, k = torch.arange(t, device=start.device)[:, None], torch.arange(t, device=start.device)[None]
    full = (k <= q) & (k[None] >= start[:, :, None])
    return {FULL: full[:, None], SLIDING: (full & (q - k < c.sliding_window))[:, None]}


def block_masks(c, start):
    """The same two masks for flex_attention. Blocks are listed from `start` alone: documents are
    contiguous, so a row of query blocks sees one run of key blocks."""
    start = start.contiguous()
    b, t = start.shape
    n, dev = t // BLOCK, start.device
    row, col = torch.arange(n, device=dev)[:, None], torch.arange(n, device=dev)[None]
    low = start[:, ::BLOCK, None]               # where the first query's document begins
    high = start[:, BLOCK - 1::BLOCK, None]     # where the last query's document begins
    out = {}
    for kind in (FULL, SLIDING):
        window = c.sliding_window if kind == SLIDING else 1 << 30
        seen = (col <= row) & ((col + 1) * BLOCK > low) & ((col + 1) * BLOCK - 1 > row * BLOCK - window)
        whole = (col < row) & (col * BLOCK >= high) & ((row + 1) * BLOCK - 1 - col * BLOCK < window) & seen
        part = seen & ~whole

        def lists(m):
            """Counts and indices [b, 1, n(, n)]; the kernel takes contiguous ones only."""
            order = torch.argsort(m.to(torch.int8), dim=-1, descending=True, stable=True)
            dense = torch.contiguous_format
            return (m.sum(-1)[:, None].to(torch.int32, memory_format=dense).contiguous(),
                    order[:, None].to(torch.int32, memory_format=dense).contiguous())
        pn, pi = lists(part)
        fn, fi = lists(whole)

        if kind == SLIDING:
            def mod(bb, hh, q, k):
                return (k <= q) & (k >= start[bb, q]) & (q - k < c.sliding_window)
        else:
            def mod(bb, hh, q, k):
                return (k <= q) & (k >= start[bb, q])
        out[kind] = BlockMask.from_kv_blocks(pn, pi, fn, fi, BLOCK_SIZE=BLOCK, mask_mod=mod, seq_lengths=(t, t))
    return out
