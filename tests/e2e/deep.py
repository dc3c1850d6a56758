#!/usr/bin/env python3
"""A journal at 30,000 tokens of depth, with keys and values in integers: deep.py PROGRAM

A server with --kv i12 answers behind a prompt of 30,000 tokens, cold, cached and beside short requests; `replay` must find
every digest again on each instruction set of this machine, the plain definition among them. The model is tiny, so that the
definition takes seconds. Closes with `N passed, N failed`."""
import os, random, subprocess, sys, tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tiny_model
from counted import check, closing
from client import Server

PROGRAM = sys.argv[1]
DEPTH = 30000


def make_model(folder):
    """One sliding and one full layer of one head, of 16 and 8 dims, and a context that holds the prompt."""
    kinds = ["sliding_attention", "full_attention"]
    tiny_model.LAYERS, tiny_model.HEADS, tiny_model.HEAD, tiny_model.FULL_HEAD, tiny_model.MLP = 2, 1, 16, 8, 32
    tiny_model.KINDS = kinds
    tiny_model.CONFIG |= {"num_hidden_layers": 2, "num_attention_heads": 1, "head_dim": 16, "per_layer_config": {"01": {"head_dim": 8}},
                          "intermediate_size": 32, "max_position_embeddings": 32768, "layer_types": kinds}
    tiny_model.main(folder)


def main():
    with tempfile.TemporaryDirectory() as d:
        model, journal = os.path.join(d, "model"), os.path.join(d, "journal")
        make_model(model)
        rng = random.Random(30)
        text = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(DEPTH))
        ask = {"temperature": 0, "max_tokens": 12, "ignore_eos": True, "evenkeel": {"digest": True}}
        with Server(PROGRAM, "--model", model, "--kv", "i12", "--journal", journal, "--journal-prompts") as s:
            for prompt in (text, text, text[:700], text + " and more"):
                status, _, reply = s.call("POST", "/v1/completions", ask | {"prompt": prompt})
                tokens = reply.get("usage", {}).get("prompt_tokens", 0)
                check("answered", status == 200 and tokens >= min(len(prompt) * 0.9, DEPTH * 0.9), (status, str(reply)[:300]))
        for isa in subprocess.run([PROGRAM, "version", "--isas"], capture_output=True, text=True).stdout.split():
            r = subprocess.run([PROGRAM, "replay", journal, "--model", model, "--kv", "i12", "--isa", isa, "--concurrency", "4"],
                               capture_output=True, text=True, timeout=300)
            last = (r.stdout.strip().splitlines() or [""])[-1]
            check(f"replay on {isa}", r.returncode == 0 and last == "4 agree, 0 differ, 0 skipped", (r.stdout + r.stderr)[-600:])


main()
sys.exit(closing())
