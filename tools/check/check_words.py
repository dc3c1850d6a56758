#!/usr/bin/env python3
"""One word has one meaning (docs/ARCHITECTURE.md, Words): names in C that had several. Comments, and the text of kernels,
which is hashed, are not looked at.

  check_words.py [--root TREE]   says where a banned word stands, and exits 1 if there is one
"""
import os
import re
import sys

# folders, words of a name (most: of most_rows and rows_most), what is said instead
BANNED = (
    (("src", "tests", "bench", "fuzz"), "most", "max; at_most is allowed"),
    (("src", "tests", "bench", "fuzz"), "told", "arrived, reported"),
    (("src/cache",), "given|settled|leave|tell|pay|debt", "queued, written, dequeue, send or report, charge, backoff"),
    (("src/gpu/several", "src/gpu/fit"), "piece|pieces", "microbatch"),
    (("src/gpu/weights", "src/gpu/several", "src/gpu/fit", "src/gpu/recipe"), "cut", "shard, of a device's outputs"),
    (("src/hub",), "piece|pieces", "range, of a download"),
    (("src/tensor",), "part|parts", "file, of several that are one model"),
    (("src/base/fair_queue", "src/engine/media"), "place|share", "turn; fraction"),
)
ALLOWED = {"at_most"}
HASHED = "src/cuda/kernels"
TOKEN = re.compile(r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|^[ \t]*#[ \t]*include[^\n]*|[A-Za-z_]\w*|\n""", re.S | re.M)


def names(text):
    """(line, name) of each identifier of a C source."""
    line = 1
    for token in TOKEN.finditer(text):
        if re.match(r"[A-Za-z_]", token[0]):
            yield line, token[0]
        line += token[0].count("\n")


def main(words):
    root = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    if words[:1] == ["--root"]:  # another tree, for the test of this script
        root = words[1]
    bad = 0
    for top in ("src", "tests", "bench", "fuzz"):
        for folder, _, files in sorted(os.walk(os.path.join(root, top))):
            if "node_modules" in folder:
                continue
            for path in sorted(os.path.relpath(os.path.join(folder, f), root) for f in files):
                if not path.endswith((".c", ".h", ".def")) or path.startswith(HASHED):
                    continue
                bans = [(f"(^|_)({w})(_|$)", why) for where, w, why in BANNED if path.startswith(where)]
                with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
                    for line, name in names(file.read()):
                        for pattern, why in bans:
                            if re.search(pattern, name) and name not in ALLOWED:
                                print(f"{path}:{line}: {name}: say {why}")
                                bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
