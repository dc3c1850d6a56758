"""Loads every configuration of folders with transformers' own classes, strict about types as they are.

    python3 tools/golden/load_configs.py FOLDER...

Needs transformers (5.17 is what docs name); torch only for models' processors. Of each folder: config.json and the
configurations inside it, generation_config.json, the tokenizer, and where they lie there, the processor and its parts.
A number that is a float in the class and an integer in the file counts as a failure, also where the class does not say
so itself. The last line is "N passed, 0 failed"; the status is 1 if something failed.
"""
import inspect
import json
import os
import sys
import typing

import transformers
from transformers import AutoConfig, AutoTokenizer, GenerationConfig

COUNT = {"passed": 0, "failed": 0}


def attempt(what, load):
    try:
        load()
    except Exception as e:  # whatever a class raises is its verdict
        COUNT["failed"] += 1
        print(f"FAIL {what}: {type(e).__name__}: {' '.join(str(e).split())[:300]}")
        return
    COUNT["passed"] += 1
    print(f"ok   {what}")


def wants_float(hint):
    parts = typing.get_args(hint) or (hint,)
    return float in parts and int not in parts


def hints_of(kind):
    """Types of fields. Those of a base that are only names, of modules that are not imported there, are left out."""
    hints = {}
    for c in reversed(kind.__mro__):
        hints.update({k: v for k, v in inspect.get_annotations(c).items() if not isinstance(v, str)})
    return hints


def check_types(config, written):
    """Fields that the class calls floats, against the file's own numbers."""
    hints = hints_of(type(config))
    for key, value in written.items():
        if isinstance(value, int) and not isinstance(value, bool) and wants_float(hints.get(key)):
            raise TypeError(f"{key} is {value}, {type(config).__name__} wants a float")


def load_config(folder):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        written = json.load(f)
    config = AutoConfig.from_pretrained(folder)
    check_types(config, written)
    for part in ("text_config", "vision_config", "audio_config"):
        if isinstance(written.get(part), dict):
            check_types(getattr(config, part), written[part])
    again = type(config).from_dict(json.loads(config.to_json_string(use_diff=False)))
    if again.to_dict() != config.to_dict():
        raise ValueError("it is another configuration after it was written and read again")


def load_generation(folder):
    config = GenerationConfig.from_pretrained(folder)
    config.validate()
    for key in ("temperature", "top_p"):
        value = getattr(config, key)
        if value is not None and not isinstance(value, float):
            raise TypeError(f"{key} is {value}, not a float")


def load_tokenizer(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if not tokenizer("Hello there").input_ids:
        raise ValueError("a text has no tokens")


def load_folder(folder):
    has = lambda name: os.path.exists(os.path.join(folder, name))
    if has("config.json"):
        attempt(f"{folder}: config.json", lambda: load_config(folder))
    if has("generation_config.json"):
        attempt(f"{folder}: generation_config.json", lambda: load_generation(folder))
    if has("tokenizer.json"):
        attempt(f"{folder}: tokenizer", lambda: load_tokenizer(folder))
    if has("processor_config.json"):
        attempt(f"{folder}: processor_config.json", lambda: transformers.AutoProcessor.from_pretrained(folder))
    elif has("preprocessor_config.json"):
        attempt(f"{folder}: preprocessor_config.json",
                lambda: transformers.AutoFeatureExtractor.from_pretrained(folder))


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    print("transformers", transformers.__version__)
    for folder in sys.argv[1:]:
        if not os.path.isdir(folder):
            COUNT["failed"] += 1
            print(f"FAIL {folder}: no folder")
            continue
        load_folder(folder)
    print(f"{COUNT['passed']} passed, {COUNT['failed']} failed")
    sys.exit(1 if COUNT["failed"] else 0)


if __name__ == "__main__":
    main()
