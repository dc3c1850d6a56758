"""The text decoder in numpy: a second implementation, from the formulas of docs/numerics/model.md with no order of
additions in mind. Products are BLAS's in float32, sums of norms and of softmax float64."""
import numpy as np

from folder import embed_scale

QUERIES = 512  # of a block of attention: a head's scores are QUERIES x keys
EXPERTS = "experts.gate_up_proj", "experts.down_proj"


def rms(x, eps, gain=None):
    y = x * (1 / np.sqrt(np.mean(np.square(x, dtype=np.float64), axis=-1, keepdims=True) + eps)).astype(np.float32)
    return y if gain is None else y * gain


def gelu(x):
    inner = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x * x * x)
    return np.float32(0.5) * x * (1 + np.tanh(inner))


def softmax(x):
    y = np.exp(x - x.max(-1, keepdims=True))
    return y / y.sum(-1, keepdims=True, dtype=np.float64).astype(np.float32)


class Decoder:
    name = "numpy"

    def __init__(self, folder):
        self.f, self.c = folder, folder.text
        self.eps = float(self.c["rms_norm_eps"])

    def linear(self, x, name):
        return x @ self.f.get(name).T

    def turns(self, kind, width, n):
        """cos and sin of every position and pair of a head."""
        r = self.c["rope_parameters"][kind]
        share = r.get("partial_rotary_factor", 1.0) if r["rope_type"] == "proportional" else 1.0
        pairs = int(share * width) // 2
        rate = np.zeros(width // 2)
        rate[:pairs] = float(r["rope_theta"]) ** (-2.0 * np.arange(pairs) / width)
        angle = np.arange(n)[:, None] * rate
        return np.cos(angle).astype(np.float32)[:, None], np.sin(angle).astype(np.float32)[:, None]

    @staticmethod
    def turn(x, cs):
        half = x.shape[-1] // 2
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * cs[0] - b * cs[1], b * cs[0] + a * cs[1]], -1)

    def attention(self, q, k, v, window):
        n, heads, _ = q.shape
        group = heads // k.shape[1]
        out = np.empty_like(q)
        for at in range(0, n, QUERIES):
            end = min(at + QUERIES, n)
            first = max(0, at - window + 1) if window else 0
            i, j = np.arange(at, end)[:, None], np.arange(first, end)[None]
            seen = (j <= i) & ((i - j < window) if window else True)
            for h in range(heads):
                s = q[at:end, h] @ k[first:end, h // group].T
                out[at:end, h] = softmax(np.where(seen, s, np.float32(-np.inf))) @ v[first:end, h // group]
        return out.reshape(n, -1)

    def keys_and_values(self, x, pre, width, cs):
        k = self.linear(x, pre + "k_proj.weight").reshape(len(x), -1, width)
        v = self.linear(x, pre + "v_proj.weight").reshape(k.shape) if pre + "v_proj.weight" in self.f else k
        return self.turn(rms(k, self.eps, self.f.get(pre + "k_norm.weight")), cs), rms(v, self.eps)

    def experts(self, r, pre, gaps):
        """The sum of a row's experts; gaps: how far the first expert that is not chosen is behind the last that is."""
        c, f = self.c, self.f
        g = rms(r, self.eps) * f.get(pre + "router.scale") * np.float32(c["hidden_size"] ** -0.5)
        p = softmax(self.linear(g, pre + "router.proj.weight"))
        order = np.argsort(-p, axis=1, kind="stable")
        n = c["top_k_experts"]
        ranked = np.take_along_axis(p, order[:, : n + 1], 1).astype(np.float64)
        gaps.append(np.log(ranked[:, n - 1]) - np.log(ranked[:, n]))
        chosen, weight = order[:, :n], ranked[:, :n] / ranked[:, :n].sum(1, keepdims=True)
        each = f.get(pre + "router.per_expert_scale")
        x = rms(r, self.eps, f.get(pre + "pre_feedforward_layernorm_2.weight"))
        out = np.zeros_like(x)
        for e in np.unique(chosen):
            row, place = np.nonzero(chosen == e)
            both = x[row] @ f.get(pre + EXPERTS[0], e).T
            half = both.shape[1] // 2
            y = (gelu(both[:, :half]) * both[:, half:]) @ f.get(pre + EXPERTS[1], e).T
            out[row] += (weight[row, place] * each[e]).astype(np.float32)[:, None] * y
        return out

    def per_layer(self, h, ids):
        """What per-layer embeddings give each layer: rows x layers x size, or None."""
        size, layers = self.c.get("hidden_size_per_layer_input") or 0, self.c["num_hidden_layers"]
        if not size:
            return None
        token = self.f.get("embed_tokens_per_layer.weight", ids) * np.sqrt(np.float32(size))
        context = self.linear(h, "per_layer_model_projection.weight") * np.float32(h.shape[1] ** -0.5)
        context = rms(context.reshape(-1, layers, size), self.eps, self.f.get("per_layer_projection_norm.weight"))
        return (context + token.reshape(context.shape)) * np.float32(2**-0.5)

    def layer(self, i, h, inputs, kept, gaps):
        c, f, pre, kind = self.c, self.f, f"layers.{i}.", self.c["layer_types"][i]
        att, window = pre + "self_attn.", 0 if kind == "full_attention" else c["sliding_window"]
        x = rms(h, self.eps, f.get(pre + "input_layernorm.weight"))
        q = self.linear(x, att + "q_proj.weight").reshape(len(x), c["num_attention_heads"], -1)
        cs = self.turns(kind, q.shape[-1], len(x))
        if i < c["num_hidden_layers"] - (c.get("num_kv_shared_layers") or 0):
            kept[kind] = self.keys_and_values(x, att, q.shape[-1], cs)
        o = self.attention(self.turn(rms(q, self.eps, f.get(att + "q_norm.weight")), cs), *kept[kind], window)
        h = h + rms(self.linear(o, att + "o_proj.weight"), self.eps, f.get(pre + "post_attention_layernorm.weight"))
        x = rms(h, self.eps, f.get(pre + "pre_feedforward_layernorm.weight"))
        x = gelu(self.linear(x, pre + "mlp.gate_proj.weight")) * self.linear(x, pre + "mlp.up_proj.weight")
        m = self.linear(x, pre + "mlp.down_proj.weight")
        if c.get("enable_moe_block"):
            m = rms(m, self.eps, f.get(pre + "post_feedforward_layernorm_1.weight")) + rms(
                self.experts(h, pre, gaps), self.eps, f.get(pre + "post_feedforward_layernorm_2.weight"))
        h = h + rms(m, self.eps, f.get(pre + "post_feedforward_layernorm.weight"))
        if inputs is not None:
            x = gelu(self.linear(h, pre + "per_layer_input_gate.weight")) * inputs[:, i]
            h = h + rms(self.linear(x, pre + "per_layer_projection.weight"), self.eps,
                        f.get(pre + "post_per_layer_input_norm.weight"))
        return h * f.get(pre + "layer_scalar")

    def logits(self, ids, last, scale="bf16"):
        """Logits of the last positions in float64, and with experts the gaps of the router: layers x positions."""
        kept, gaps = {}, []
        h = self.f.get("embed_tokens.weight", ids) * embed_scale(self.c["hidden_size"], scale)
        inputs = self.per_layer(h, ids)
        for i in range(self.c["num_hidden_layers"]):
            h = self.layer(i, h, inputs, kept, gaps)
        h = rms(h[-last:], self.eps, self.f.get("norm.weight"))
        some = 16384
        z = np.concatenate([h @ self.f.get("embed_tokens.weight", slice(s, s + some)).T
                            for s in range(0, self.c["vocab_size"], some)], 1).astype(np.float64)
        cap = self.c.get("final_logit_softcapping")
        return (cap * np.tanh(z / cap) if cap else z), np.array(gaps)
