#!/usr/bin/env python3
"""What a table of registers was made from: a line `NAME HASH` for each file of kernels, of its text and that of all it
includes without comments and blanks. check_cuda.sh compares them with those in tools/cuda/registers."""
import glob
import hashlib
import os
import re

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
texts = {}


def text_of(path):
    if path not in texts:
        with open(path, encoding="utf-8") as f:
            bare = COMMENT.sub(" ", f.read())
        texts[path] = (" ".join(bare.split()), [os.path.join("src", i) for i in INCLUDE.findall(bare)])
    return texts[path]


def closure(path, seen):
    if path in seen or not os.path.exists(path):
        return
    seen.append(path)
    for one in text_of(path)[1]:
        closure(one, seen)


for source in sorted(glob.glob("src/cuda/kernels/*/*.cu"), key=os.path.basename):
    seen = []
    closure(source, seen)
    whole = "\n".join(text_of(p)[0] for p in sorted(seen))
    print(os.path.basename(source)[:-3], hashlib.sha256(whole.encode()).hexdigest()[:12])
