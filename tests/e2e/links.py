#!/usr/bin/env python3
"""Where the papers point: links.py [FOLDER]

Prints a line per link, heading or path that is not there, and closes with `N passed, N failed`. Papers are the *.md
files that git knows or would add. Four kinds of pointers count: relative links with their #heading (as GitHub spells
headings), docs/….md in any file of the tree, folders and files of the tree in words, and names of functions, kernels,
types and metrics in code spans. Pages of docs/log describe days that are over: they may name what is
gone. The other pages say what holds: a table of theirs with a column of what was before or tried belongs to the log."""
import os, re, subprocess, sys

FOLDERS = ("bench", "deploy", "docs", "examples", "fuzz", "include", "models", "src", "tests", "tools", "web")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
LAYERS = ("base", "text", "hub", "tensor", "ops", "lib", "cuda", "kernels", "product", "model", "convert", "cache", "engine", "gpu",
          "open", "chat", "serve", "cli")
FILE = re.compile(rf"(?<![\w/.<-])(?:{'|'.join(LAYERS + FOLDERS)})/[\w./-]*?\w\.(?:cuh|cu|c|h|def|py|sh|mk|txt)\b")
# Files of other projects.
ELSEWHERE = {"docs/gguf.md", "lib/streaming/_deltas.py"}
NAME = re.compile(r"\b(?:ek|EK|evenkeel)_[\w*]+")
# What a name looks like, and what names with a blank to fill in stand for.
PATTERNS = {"ek_noun_verb"}


def files():
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], check=True, capture_output=True, text=True)
    return sorted({f for f in out.stdout.splitlines() if os.path.isfile(f)})


def places(tree):
    """The files and their folders: what a build left behind is none of them."""
    found = {"."}
    for name in tree:
        while name and name not in found:
            found.add(name)
            name = os.path.dirname(name)
    return found


def without_fences(text):
    return re.sub(r"^ *```.*?^ *```", "", text, flags=re.S | re.M)


def headings(text):
    """The anchors of a page: lower case, without punctuation, blanks as hyphens, -1 and so on behind the second."""
    found = {}
    for title in re.findall(r"^#{1,6} (.*)$", without_fences(text), flags=re.M):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title.replace("`", ""))
        slug = re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
        yield slug if found[slug] == 0 else f"{slug}-{found[slug]}"


def broken_link(paper, target, texts, there):
    path, _, anchor = target.partition("#")
    file = os.path.normpath(os.path.join(os.path.dirname(paper), path)) if path else paper
    if file not in there:
        return f"{file} is not there"
    if anchor and file.endswith(".md") and anchor not in set(headings(texts[file])):
        return f"{file} has no heading #{anchor}"
    return None


def paths(text):
    """Folders of the tree in code spans, and files anywhere: without placeholders (OP.h, test_NAME.c) and patterns."""
    text = without_fences(text)
    for span in re.findall(r"`([^`\n]+)`", text):
        path = span.split()[0].rstrip("/")
        if re.fullmatch(rf"({'|'.join(FOLDERS)})/[\w./-]+", path) and not FILE.fullmatch(path):
            yield path
    yield from (f for f in FILE.findall(re.sub(r"\]\([^)\s]+\)", "]", text)) if f not in ELSEWHERE)


def is_path(path, paper, there):
    """From the root, from src, from the folder of the kernels, or from where the paper lies."""
    if re.search(r"(^|[/_])[A-Z]{2,}([/_.]|$)", path.replace(".md", "")):
        return True
    return any(os.path.normpath(p + path) in there for p in ("", "src/", "src/cuda/", os.path.dirname(paper) + "/"))


def names(text):
    """Names of ours in code spans: with * for any end, with _N and _DIM for numbers."""
    for span in re.findall(r"`([^`\n]+)`", without_fences(text)):
        yield from (n for n in NAME.findall(span) if n not in PATTERNS and not re.match(r"evenkeel_\d", n))  # a package's file


def diaries(text):
    """Heads of tables with a column that compares with yesterday's program."""
    for head in re.findall(r"^(\|.*\|)\n\|[-:|]+\|$", text, flags=re.M):
        if re.search(r"\b(before|tried)\b", head):
            yield head


def is_name(name, known):
    pattern = re.sub(r"_(N|DIM)(?=_|$)", r"_\\w+", re.escape(name).replace(r"\*", r"\w*"))
    return name in known["set"] or re.search(f"^{pattern}$", known["lines"], flags=re.M)


def pointers(tree):
    """Every pointer as (file, what it says, what is wrong with it or None)."""
    texts, there = {}, places(tree)
    for name in tree:
        try:
            texts[name] = open(name, encoding="utf-8").read()
        except UnicodeDecodeError:
            continue
    spelled = {n for f, text in texts.items() if not f.endswith(".md") for n in NAME.findall(text)}
    known = {"set": spelled, "lines": "\n".join(spelled)}
    for name, text in texts.items():
        for page in sorted(set(re.findall(r"(?<![\w/.-])docs/[\w/.-]+?\.md\b", text)) - ELSEWHERE):
            yield name, page, None if page in there else "it is not there"
        if not name.endswith(".md"):
            continue
        for target in LINK.findall(without_fences(text)):
            if not re.match(r"[a-z]+:", target):
                yield name, target, broken_link(name, target, texts, there)
        if name.startswith("docs/log/"):
            continue
        for path in paths(text):
            yield name, path, None if is_path(path, name, there) else "it is not there"
        for n in names(text):
            yield name, n, None if is_name(n, known) else "no source has that name"
        for head in diaries(text) if name.startswith("docs/") else ():
            yield name, head, "a comparison with an older program is a page of docs/log"


def main():
    os.chdir(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    passed = failed = 0
    for name, pointer, wrong in pointers(files()):
        if wrong:
            print(f"FAIL {name}: {pointer}: {wrong}")
        passed, failed = passed + (wrong is None), failed + (wrong is not None)
    if passed < 300:
        print(f"FAIL only {passed} pointers were found and lead somewhere")
        failed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
