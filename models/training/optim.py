"""Muon for matrices, AdamW for tables and norms, both with float32 masters."""
import torch

COEFF = (3.4445, -4.7750, 2.0315)


def orthogonal(g, steps=5):
    """Newton-Schulz: g [n, rows, cols] towards its nearest semi-orthogonal matrix, in bf16."""
    a, b, c = COEFF
    x = g.to(torch.bfloat16)
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.transpose(-1, -2)
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        s = x @ x.transpose(-1, -2)
        x = a * x + (b * s + c * (s @ s)) @ x
    return x.transpose(-1, -2) if tall else x


class Muon:
    def __init__(self, params, lr=0.01, momentum=0.95, decay=0.01):
        groups = {}
        for p in params:
            groups.setdefault(tuple(p.shape), []).append(p)
        self.groups = list(groups.values())
        self.buffers = [torch.zeros(len(g), *g[0].shape, device=g[0].device) for g in self.groups]
        self.lr, self.momentum, self.decay = lr, momentum, decay

    @torch.no_grad()
    def step(self, factor):
        lr = self.lr * factor
        for group, buf in zip(self.groups, self.buffers):
            g = torch.stack([p.grad for p in group])
            buf.lerp_(g, 1 - self.momentum)
            u = orthogonal(g.lerp(buf, self.momentum)).float()
            u = u * max(1.0, u.shape[-2] / u.shape[-1]) ** 0.5
            torch._foreach_mul_(group, 1 - lr * self.decay)
            torch._foreach_add_(group, list(u.unbind()), alpha=-lr)


def split(model):
    """(matrices for Muon, [(params, lr)] for AdamW)."""
    matrices, tables, ple, norms = [], [], [], []
    for name, p in model.named_parameters():
        if p.ndim == 2 and "embed" not in name and "centroid" not in name:
            matrices.append(p)
        elif "per_layer" in name and p.ndim == 2:
            ple.append(p)
        elif p.ndim == 2:
            tables.append(p)
        else:
            norms.append(p)
    return matrices, [(tables, 2e-3), (ple, 4e-3), (norms, 2e-3)]


class Optimizer:
    def __init__(self, model, muon_lr=0.01):
        matrices, rest = split(model)
        self.muon = Muon(matrices, muon_lr)
        self.base = [lr for g, lr in rest if g]
        kw = {"fused": True} if next(model.parameters()).is_cuda else {}
        self.adam = torch.optim.AdamW([{"params": g, "lr": lr} for g, lr in rest if g], betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0, **kw)

    def step(self, factor):
        self.muon.step(factor)
        for g, lr in zip(self.adam.param_groups, self.base):
            g["lr"] = lr * factor
        self.adam.step()

    def state(self):
        return {"muon": self.muon.buffers, "adam": self.adam.state_dict()}

    def load(self, s):
        for a, b in zip(self.muon.buffers, s["muon"]):
            a.copy_(b)
        self.adam.load_state_dict(s["adam"])
