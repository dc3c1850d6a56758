#!/usr/bin/env python3
"""Logits of `evenkeel logits` beside a reference's, on models of real shape with random weights.

    compare.py [--senses] --program EVENKEEL --reference numpy|transformers [--device cpu,cuda] [--tokens 1300,9000]
               [--damp X] [--work DIR] MODEL[:LAYERS] ...

A line per model, prompt, scale of the embedding, setting and device; exits 1 where exact arithmetic is further than
LIMIT (and ROUNDINGS) from the reference, or where two devices differ by a bit. --senses: prompts with a picture and a sound, through
towers of the published shapes, instead of words."""
import argparse
import concurrent.futures
import filecmp
import gc
import importlib
import os
import shutil
import subprocess
import sys
import time
import traceback

import numpy as np

import folder as folders
import senses

ROWS = 60  # last positions that are compared
LIMIT = 1e-6  # mean divergence of exact arithmetic, nats
OWN = 3  # times as far from the reference as the reference is from itself: deep models of random weights amplify a unit beyond LIMIT
ROUNDINGS, FLOOR = 300, 1e-11  # and so many times what one unit in the embedding's scale costs the reference
NEAR = 1e-5  # of router scores: float32 decides such a pair by its roundings
DAMP = {"26b": 0.02}  # of a model that 0.1 leaves too rough: a choice of experts that turns moves all that follows
SETTINGS = (("exact", ["--weights", "exact", "--kv", "f32"]), ("default", []), ("f16", ["--kv", "f16"]))


def log_softmax(z):
    z = z - z.max(1, keepdims=True)
    return z - np.log(np.exp(z).sum(1, keepdims=True))


def divergence(ref, got):
    """KL of each row, nats."""
    p = log_softmax(ref)
    return (np.exp(p) * (p - log_softmax(got))).sum(1)


class Program:
    """One run per setting, device and prompt; results are files of the work folder."""

    def __init__(self, path, work):
        self.path, self.work = path, work

    def logits(self, folder, ids, label, options, device):
        return self.call(["logits", "--ids", ",".join(map(str, ids)), "--last", str(ROWS)] + options, folder, label, device)

    def call(self, call, folder, label, device):
        """The file of the result, or None and the program's last line."""
        out = os.path.join(self.work, f"{call[0]}-{label}-{device.replace(':', '-')}")
        call = [self.path, *call, "--model", folder.path, "--device", device, "--out", out]
        done = subprocess.run(call, capture_output=True, text=True)
        if done.returncode:
            return None, (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return out, None


def read(path):
    return np.fromfile(path, dtype="<f4").reshape(ROWS, -1).astype(np.float64)


def ties(gaps, kl, n):
    """Where the choice of an expert hangs on roundings: in all of the prompt, and in rows that differ by more than LIMIT."""
    layer, at = np.unravel_index(np.argmin(gaps), gaps.shape)
    lines = [f"router: {gaps.size} choices, {(gaps < NEAR).sum()} nearer than {NEAR:g}; nearest {gaps[layer, at]:.1e} in "
             f"layer {layer} at position {at}"]
    for row in np.nonzero((gaps[:, n - ROWS:] < NEAR).any(0) & (kl > LIMIT))[0]:
        own = gaps[:, n - ROWS + row]
        lines.append(f"router: position {n - ROWS + row}: divergence {kl[row]:.1e}, nearest choice {own.min():.1e} in "
                     f"layer {own.argmin()}")
    return lines


class Comparison:
    def __init__(self, a):
        self.a, self.bad = a, 0
        self.program = Program(a.program, a.work)
        self.reference = importlib.import_module("forward_" + a.reference)

    def say(self, *text):
        print(*text, flush=True)

    def fail(self, text):
        self.bad += 1
        self.say("FAIL", text)

    def settings(self, folder, ids, name, content=()):
        """Runs all settings. Returns label, device and file of each that ran. content: options of pictures and sounds."""
        out = []
        for label, options in SETTINGS:
            first = None
            for device in self.a.device.split(","):
                t = time.time()
                path, error = self.program.logits(folder, ids, label, [*options, *content], device)
                if not path:
                    self.fail(f"{name} {len(ids)} {label} {device}: {error}")
                    continue
                self.say(f"# {name} {len(ids)} {label} {device}: {time.time() - t:.1f} s")
                if first is None:
                    first = path
                    out.append((label, device, path))
                elif filecmp.cmp(first, path, shallow=False):
                    self.say(f"# {name} {len(ids)} {label}: {device} has the bits of {out[-1][1]}")
                else:
                    self.fail(f"{name} {len(ids)} {label}: {device} differs from {out[-1][1]}")
        return out

    def prompt(self, folder, decoder, n, name):
        ids, refs = folders.prompt(n), {}
        for scale in self.a.scale.split(","):
            t = time.time()
            refs[scale] = decoder.logits(ids, ROWS, scale)
            self.say(f"# {name} {n} {decoder.name}, scale {scale}: {time.time() - t:.1f} s")
        return ids, refs

    def report(self, name, n, refs, ran, floats=True):
        """n: tokens, or what the prompt holds. floats: exact arithmetic has floats alone."""
        best = np.inf
        base = next(iter(refs))
        for scale in list(refs)[1:]:
            kl, same = divergence(refs[base][0], refs[scale][0]), refs[base][0].argmax(1) == refs[scale][0].argmax(1)
            self.say(f"| {name} | {n} | the reference itself | - | {base} beside {scale} | {kl.mean():.1e} | {kl.max():.1e} | "
                     f"{np.abs(refs[base][0] - refs[scale][0]).max():.1e} | {same.sum()} of {ROWS} |")
        for label, device, path in ran:
            got = read(path)
            if not np.isfinite(got).all():
                self.fail(f"{name} {n} {label} {device}: not finite")
            for scale, (ref, gaps) in refs.items():
                if scale == "ulp":
                    continue
                kl = divergence(ref, got)
                same = int((got.argmax(1) == ref.argmax(1)).sum())
                self.say(f"| {name} | {n} | {label} | {device} | {scale} | {kl.mean():.1e} | {kl.max():.1e} | "
                         f"{np.abs(got - ref).max():.1e} of {np.abs(ref).max():.1f} | {same} of {ROWS} |")
                if label == "exact":
                    best = min(best, kl.mean())
                    if gaps.size:
                        for line in ties(gaps, kl, gaps.shape[1]):
                            self.say("#", name, n, "scale", scale, line)
        bound = LIMIT
        if "ulp" in refs and base == "bf16":
            own = divergence(refs[base][0], refs["ulp"][0]).mean()
            bound = max(LIMIT, OWN * own)
            if not refs[base][1].size:  # a choice of experts that hangs on a rounding costs more than roundings
                bound = min(bound, max(FLOOR, ROUNDINGS * own))
        if floats and not best <= bound:
            self.fail(f"{name} {n}: exact arithmetic is {best:.1e} from the reference, at most {bound:.1e} is right")

    def folder(self, spec):
        model, _, layers = spec.partition(":")
        path = os.path.join(self.a.work, "real-" + spec.replace(":", "-"))
        if self.a.keep and os.path.isdir(path):
            return folders.Folder(path)
        t = time.time()
        damp = self.a.damp or (0.1 if self.a.senses else DAMP.get(model, 0.1))
        folder = folders.make(self.a.program, model, int(layers or 0), damp, path)
        if self.a.senses:
            senses.add(folder, model, self.a.tower_layers)
            folder = folders.Folder(path)
        self.say(f"# {spec}: {folder.n_bytes() / 1e9:.2f} GB made in {time.time() - t:.1f} s, damped by {damp:g}")
        return folder

    def models(self):
        """The next folder is made while one is compared. What one model fails at leaves the others compared."""
        specs = self.a.model
        with concurrent.futures.ThreadPoolExecutor(1) as maker:
            ahead = maker.submit(self.folder, specs[0])
            for spec, after in zip(specs, specs[1:] + [None]):
                made = ahead
                concurrent.futures.wait([made])
                ahead = maker.submit(self.folder, after) if after else None
                try:
                    self.model(spec, made.result())
                except Exception:
                    self.fail(f"{spec}: {traceback.format_exc()}")

    def model(self, spec, folder):
        model, _, layers = spec.partition(":")
        name = model + (f", {layers} layers" if layers else "")
        try:
            (self.seen if self.a.senses else self.read)(folder, model, name)
        finally:
            if not self.a.keep:
                shutil.rmtree(folder.path)

    def read(self, folder, model, name):
        lengths = [int(x) for x in self.a.tokens.split(",")]
        decoder = self.reference.Decoder(folder)
        done = [self.prompt(folder, decoder, n, name) for n in lengths]
        del decoder
        self.free()
        for n, (ids, refs) in zip(lengths, done):
            self.report(name, n, refs, self.settings(folder, ids, name))

    def features(self, folder, name, what, want, moved, options):
        """Rows of a tower beside the reference's. moved: the reference's rows of an input that is moved by one unit in the
        last place."""
        first = None
        self.say(f"| {name} | {what} | rows of the tower | the reference itself | input beside input + 1 unit | | | "
                 f"{np.abs(moved - want).max():.1e} of {np.abs(want).max():.1f} | |")
        for device in self.a.device.split(","):
            path, error = self.program.call(["features", "--weights", "exact", *options], folder, what[0], device)
            if not path:
                self.fail(f"{name} {what}: {error}")
                continue
            got = np.fromfile(path, dtype="<f4").reshape(want.shape).astype(np.float64)
            self.say(f"| {name} | {what} | rows of the tower | {device} | - | | | "
                     f"{np.abs(got - want).max():.1e} of {np.abs(want).max():.1f} | |")
            if first and not filecmp.cmp(first, path, shallow=False):
                self.fail(f"{name} {what}: devices differ")
            first = first or path

    def seen(self, folder, model, name):
        decoder, work = self.reference.Senses(folder), self.a.work
        jobs = []
        for budget, size in ((280, (960, 672)), (1120, (1920, 1344))):
            rgb, path = senses.picture(*size), os.path.join(work, f"picture-{budget}.png")
            senses.save_png(path, rgb)
            pixels, at = senses.patches(rgb)
            given, rows = decoder.image(pixels, at)
            moved = decoder.image(senses.moved(pixels), at)[1]
            options, parts = ["--image", path, "--image-tokens", str(budget)], [("image", len(rows))]
            jobs.append([f"picture of {len(rows)} tokens", (rows, moved), options, parts, given, budget == 280])
        if "audio_config" in folder.config:
            samples, path = senses.sound(12.3), os.path.join(work, "sound.wav")
            senses.save_wav(path, samples)
            mel = senses.log_mel(samples)
            given, rows = decoder.sound(mel)
            jobs.append([f"sound of {len(rows)} tokens", (rows, decoder.sound(senses.moved(mel))[1]), ["--audio", path], [("audio", len(rows))], given, True])
        done = []
        for what, rows, options, parts, given, floats in jobs:
            ids = list(folders.prompt(200))
            for kind, n in parts:
                ids += senses.content(kind, n)
            ids = np.array(ids + list(folders.prompt(301)[200:]))
            kinds = (ids == senses.TOKENS["image"]) + 3 * (ids == senses.TOKENS["audio"])
            refs = {s: decoder.logits(ids, ROWS, s, **given, **decoder.kinds(kinds)) for s in self.a.scale.split(",")}
            done.append((what, rows, options, ids, refs, floats))
        del decoder, given
        jobs.clear()
        self.free()
        for what, rows, options, ids, refs, floats in done:
            self.features(folder, name, what, *rows, options)
            self.report(name, what, refs, self.settings(folder, ids, name + " " + what.split()[0], options), floats)

    @staticmethod
    def free():
        """The device's memory is the program's from here on."""
        torch = sys.modules.get("torch")
        if torch and torch.cuda.is_available():
            gc.collect()
            torch.cuda.empty_cache()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--program", required=True)
    p.add_argument("--reference", choices=("numpy", "transformers"), required=True)
    p.add_argument("--device", default="cpu", help="of evenkeel; of several the first is compared with the others")
    p.add_argument("--tokens", default="1300,9000")
    p.add_argument("--scale", default="bf16,f32,ulp", help="of the embedding in the reference")
    p.add_argument("--damp", type=float, help="default: 0.1, for 26B-A4B's text 0.02")
    p.add_argument("--work", required=True)
    p.add_argument("--senses", action="store_true", help="pictures and sounds")
    p.add_argument("--tower-layers", type=int, help="of each tower at most so many")
    p.add_argument("--keep", action="store_true", help="uses a folder that is there, and leaves it")
    p.add_argument("model", nargs="+")
    a = p.parse_args()
    c = Comparison(a)
    c.say("| model | tokens | arithmetic | device | scale | mean KL | max KL | logits | first choices |")
    c.models()
    return 1 if c.bad else 0


if __name__ == "__main__":
    sys.exit(main())
