"""The text decoder of transformers in float32 on a GPU, at sizes that do not fit there in float32: weights stay in
bf16, and a layer's are widened while it runs. The arithmetic is transformers' own, with eager attention."""
import warnings

import numpy as np
import torch
import transformers
from transformers.models.gemma4 import modeling_gemma4 as gemma4
from transformers.models.gemma4.configuration_gemma4 import Gemma4Config, Gemma4TextConfig

from folder import embed_scale

warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # nothing writes there
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
torch.set_grad_enabled(False)

ROOM = 24 << 30  # of the device: activations, scores of attention, one layer in float32


def tensor(stored):
    """bf16, or float32 as stored, on the CPU without a copy."""
    if stored.dtype == np.uint16:
        return torch.from_numpy(stored.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(stored)


def settings(c):
    """text_config for its class, which takes no integer where it wants a float."""
    floats = ("final_logit_softcapping", "rms_norm_eps")
    return {k: float(v) if k in floats and v is not None else v for k, v in c.items() if k != "model_type"}


def eager(config):
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    return config


class Decoder:
    name = f"transformers {transformers.__version__}"

    def __init__(self, folder, device="cuda"):
        self.f, self.device, self.gaps = folder, device, []
        config = eager(Gemma4TextConfig(**settings(folder.text)))
        with torch.device("meta"):
            self.m = gemma4.Gemma4ForCausalLM(config).eval()
        self._load(self.m.model, config)

    def _load(self, text, config):
        """Weights of the text model, and of its embedding as the head."""
        folder, self.text = self.f, text
        free = torch.cuda.mem_get_info()[0] if self.device == "cuda" else 0
        self.hold = self.device if folder.n_bytes() + ROOM < free else "cpu"
        text.rotary_emb = type(text.rotary_emb)(config).to(self.device)
        used = set()
        self._fixed(used)
        for i, layer in enumerate(text.layers):
            self._layer(layer, f"layers.{i}.", used)
        self.m.lm_head.weight = text.embed_tokens.weight
        absent = {n for n, t in list(text.named_parameters()) + list(text.named_buffers()) if t.is_meta} - used
        left = {n for n in folder.at if not n.startswith("model.")} - used
        if absent or left:
            raise RuntimeError(f"the folder has no {sorted(absent)[:3]}, transformers no {sorted(left)[:3]}")

    def _wide(self, name):
        return tensor(self.f.stored(name)).to(self.device).float()

    def _fixed(self, used):
        """What lies outside of the layers stays in float32."""
        for path, module in self.text.named_modules():
            if path.startswith("layers.") or path.startswith("rotary_emb"):
                continue
            for own in [n for n, t in module._parameters.items() if t is not None]:
                name = f"{path}.{own}" if path else own
                module._parameters[own] = torch.nn.Parameter(self._wide(name), requires_grad=False)
                used.add(name)
            if hasattr(module, "embed_scale"):
                width = module.weight.shape[1] if path == "embed_tokens" else self.f.text["hidden_size_per_layer_input"]
                module.embed_scale = torch.tensor(float(embed_scale(width, "bf16")), device=self.device)

    def _layer(self, layer, pre, used):
        parts = []
        for path, module in layer.named_modules():
            for table in (module._parameters, module._buffers):
                for own in list(table):
                    name = pre + (f"{path}.{own}" if path else own)
                    if name in self.f:
                        parts.append((table, own, tensor(self.f.stored(name)).to(self.hold)))
                        used.add(name)

        def widen(*_):
            for table, own, held in parts:
                t = held.to(self.device).float()
                table[own] = torch.nn.Parameter(t, requires_grad=False) if isinstance(
                    table[own], torch.nn.Parameter) else t

        def drop(*_):
            for table, own, _ in parts:
                t = torch.empty(0, device=self.device)
                table[own] = torch.nn.Parameter(t, requires_grad=False) if isinstance(
                    table[own], torch.nn.Parameter) else t

        layer.register_forward_pre_hook(widen)
        layer.register_forward_hook(drop)
        if hasattr(layer, "router"):
            layer.router.proj.register_forward_hook(self._gap)

    def _gap(self, module, given, scores):
        n = self.f.text["top_k_experts"]
        top = torch.topk(scores.double(), n + 1, dim=-1).values
        self.gaps.append((top[:, n - 1] - top[:, n]).cpu().numpy())

    def _scale(self, scale):
        e = self.text.embed_tokens
        e.embed_scale = torch.tensor(float(embed_scale(e.weight.shape[1], scale)), device=self.device)

    def logits(self, ids, last, scale="bf16", **content):
        self.gaps = []
        self._scale(scale)
        x = torch.tensor(np.asarray(ids)[None].tolist(), device=self.device)
        z = self.m(input_ids=x, use_cache=False, logits_to_keep=last, **content).logits[0]
        if z.shape[0] != last or z.dtype != torch.float32:
            raise RuntimeError(f"transformers gave {tuple(z.shape)} of {z.dtype}")
        return z.double().cpu().numpy(), np.array(self.gaps)


class Senses(Decoder):
    """The whole model of a folder with towers."""

    def __init__(self, folder, device="cuda"):
        self.f, self.device, self.gaps = folder, device, []
        c = {k: v for k, v in folder.config.items() if k not in ("architectures", "model_type", "dtype")}
        config = Gemma4Config(**{**c, "text_config": settings(folder.text)})
        for part in (config, config.text_config, config.vision_config):
            eager(part)
        # The sounds' attention reads its mask as bools. The mask that "eager" makes holds floats, 0 for what is seen.
        if config.audio_config is not None:
            config.audio_config._attn_implementation = "sdpa"
        with torch.device("meta"):
            self.m = gemma4.Gemma4ForConditionalGeneration(config).eval()
        model, text = self.m.model, config.text_config
        model.vision_tower = self._filled(gemma4.Gemma4VisionModel(config.vision_config), "model.vision_tower.")
        model.embed_vision = self._filled(gemma4.Gemma4MultimodalEmbedder(config.vision_config, text), "model.embed_vision.")
        if config.audio_config is not None:
            model.audio_tower = self._filled(gemma4.Gemma4AudioModel(config.audio_config), "model.audio_tower.")
            model.embed_audio = self._filled(gemma4.Gemma4MultimodalEmbedder(config.audio_config, text), "model.embed_audio.")
        self._load(model.language_model, text)

    def _filled(self, module, begin):
        """module with the folder's weights; a name too many or too few is an error."""
        state = {n.removeprefix(begin): tensor(x).float() for n, x in self.f.at.items() if n.startswith(begin)}
        module.load_state_dict(state, strict=True)
        return module.float().eval().to(self.device)

    def _there(self, x):
        return torch.from_numpy(np.ascontiguousarray(x)).to(self.device)[None]

    def image(self, patches, places):
        """What the model is called with for a picture, and its rows in the text model."""
        given = {"pixel_values": self._there(patches), "image_position_ids": self._there(places.astype(np.int64))}
        rows = self.m.model.get_image_features(**given, return_dict=True).pooler_output
        rows = torch.cat(rows) if isinstance(rows, (tuple, list)) else rows
        return given, rows.reshape(-1, rows.shape[-1]).double().cpu().numpy()

    def sound(self, mel):
        given = {"input_features": self._there(mel), "input_features_mask": self._there(np.ones(len(mel), bool))}
        out = self.m.model.get_audio_features(**given, return_dict=True)
        return given, out.pooler_output[out.attention_mask].double().cpu().numpy()

    def kinds(self, kinds):
        return {"mm_token_type_ids": self._there(np.asarray(kinds, np.int64))}
