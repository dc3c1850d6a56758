#!/usr/bin/env python3
"""The graph of the files under src: no circle where files must be readable one by one, none across folders. And no struct
of more members than a reader can know.

  check_graph.py [BUILD_DIR]             says what is wrong, and exits 1 if anything is
  check_graph.py --list [BUILD_DIR]      every folder with its files and what it uses, and all circles of files; exits 0
  check_graph.py --why A B [BUILD_DIR]   each use of B (a file or a folder) by A

A node is a header with its source of the same name (x.h and x.c, x.cuh and x.cu); a file without a twin is one alone.
With --alone before the other words every file is a node of its own.
An edge is an include of a header, or a symbol that an object of BUILD_DIR (build/release) refers to and another one
defines: calls, and tables of functions. A folder is a node of its own, whatever folder holds it; but kernels of one
processor (folders x86 and arm) belong to the folder whose operators they compute.
"""
import glob
import os
import re
import subprocess
import sys

ROOMS = ("src/cuda", "src/gpu", "src/engine")  # no circle between files inside of one
MAX_FILES = 45  # of one folder, before a warning
MAX_MEMBERS = 60  # of a struct
# These stand before functions of the C library in one program: others that call malloc do not mean them.
IN_PLACE_OF_LIBC = ("src/helper/in_place_of_libc.c",)
SOURCES = (".c", ".h", ".cu", ".cuh", ".S", ".def", ".inc")
# What is compiled for one processor has no object on others, nor has what stands in for a part that this build has.
OTHER_PROCESSORS = re.compile(r"/(x86|arm)/|/absent\.c$")


def files_of(root):
    found = []
    for folder, folders, names in os.walk(os.path.join(root, "src")):
        folders.sort()
        found += [os.path.relpath(os.path.join(folder, n), root) for n in sorted(names) if n.endswith(SOURCES)]
    return found


def folder(name):
    return re.sub(r"/(x86|arm)(/.*)?$", "", os.path.dirname(name))


class Graph:
    def __init__(self, root, build, alone):
        self.files = files_of(root)
        self.alone = alone
        self.names = {}  # node: its files
        self.edges = {}  # node: {node: why}
        self.missing = []  # sources without an object
        for path in self.files:
            self.names.setdefault(self.node(path), []).append(path)
        self.edges = {name: {} for name in self.names}
        self.read_includes(root)
        self.read_symbols(root, build)

    def node(self, path):
        return path if self.alone else os.path.splitext(path)[0]

    def add(self, a, b, why):
        a, b = self.node(a), self.node(b)
        if a != b:
            self.edges[a].setdefault(b, []).append(why)

    def read_includes(self, root):
        known = set(self.files)
        for path in self.files:
            with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
                for line in file:
                    said = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
                    if not said:
                        continue
                    for base in ("src", folder(path)):  # -Isrc, or beside the file
                        target = os.path.normpath(os.path.join(base, said[1]))
                        if target in known:
                            self.add(path, target, f"{path} includes {target}")
                            break

    def read_symbols(self, root, build):
        objects = {}
        for path in self.files:
            if path.endswith((".c", ".S")):
                stem = os.path.join(root, build, os.path.splitext(path)[0])
                # one of NAME_isa.c for each instruction set
                made = sorted(glob.glob(stem + ("_*.o" if stem.endswith("_isa") else ".o")))
                objects.update((m, path) for m in made)
                if not made and not OTHER_PROCESSORS.search(path):
                    self.missing.append(path)
        if not objects:
            return
        said = subprocess.run(["nm", "-A", "-P", "-g", *objects], check=True, capture_output=True, text=True).stdout
        defined, used = {}, []
        for line in said.splitlines():
            made, symbol, kind = re.match(r"(.*): (\S+) (\S)", line).groups()
            if kind in "Uwv":
                used.append((objects[made], symbol))
            elif objects[made] not in IN_PLACE_OF_LIBC:
                defined[symbol] = objects[made]
        for path, symbol in used:
            if symbol in defined:
                self.add(path, defined[symbol], f"{path} uses {symbol} of {defined[symbol]}")

    def folders(self):
        edges = {folder(name): {} for name in self.names}
        for a, targets in self.edges.items():
            for b, why in targets.items():
                if folder(a) != folder(b):
                    edges[folder(a)].setdefault(folder(b), []).extend(why)
        return edges


def components(edges):
    """Strongly connected components of more than one node (Tarjan, without recursion)."""
    index, low, on, stack, found = {}, {}, set(), [], []
    for start in sorted(edges):
        if start in index:
            continue
        index[start] = low[start] = len(index)
        stack.append(start)
        on.add(start)
        work = [(start, iter(sorted(edges[start])))]
        while work:
            at, rest = work[-1]
            for b in rest:
                if b not in index:
                    index[b] = low[b] = len(index)
                    stack.append(b)
                    on.add(b)
                    work.append((b, iter(sorted(edges[b]))))
                    break
                if b in on:
                    low[at] = min(low[at], index[b])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[at])
                if low[at] == index[at]:
                    part = []
                    while not part or part[-1] != at:
                        part.append(stack.pop())
                        on.discard(part[-1])
                    if len(part) > 1:
                        found.append(sorted(part))
    return found


def shortest_circle(edges, part):
    inside, best = set(part), None
    for start in part:
        before, queue = {start: None}, [start]
        for at in queue:
            if start in edges[at]:
                path = [at]
                while before[path[-1]] is not None:
                    path.append(before[path[-1]])
                path.reverse()
                if best is None or len(path) < len(best):
                    best = path
                break
            for b in sorted(edges[at]):
                if b in inside and b not in before:
                    before[b] = at
                    queue.append(b)
    return best


def print_circles(edges, what):
    """Each knot of nodes that reach one another, with its shortest circle. Returns how many there are."""
    parts = components(edges)
    for part in parts:
        print(f"circle of {len(part)} {what}: {' '.join(part)}")
        path = shortest_circle(edges, part)
        for a, b in zip(path, path[1:] + path[:1]):
            why = edges[a][b]
            more = f" (and {len(why) - 1} more uses)" if len(why) > 1 else ""
            calls = [w for w in why if " uses " in w]
            print(f"  {a} -> {b}: {(calls or why)[0]}{more}")
    return len(parts)


def within(edges, room):
    kept = {a for a in edges if a.startswith(room + "/")}
    return {a: {b: why for b, why in edges[a].items() if b in kept} for a in kept}


def struct_members(text):
    """(name, members) of each struct; a struct inside of one is one member."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"^[ \t]*#(?:.*\\\n)*.*$", "", text, flags=re.M)
    for start in re.finditer(r"\bstruct\s*(\w*)\s*\{", text):
        at, depth, own = start.end(), 1, ""
        while depth and at < len(text):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            own += text[at] if depth == 1 and text[at] != "}" else ""
            at += 1
        while re.search(r"\([^()]*\)|\[[^\[\]]*\]", own):  # commas of parameters divide no members
            own = re.sub(r"\([^()]*\)|\[[^\[\]]*\]", "", own)
        yield start[1] or re.match(r"\s*(\w*)", text[at:])[1], sum(1 + m.count(",") for m in own.split(";") if m.strip())


def print_large_structs(graph, root):
    large = 0
    for path in graph.files:
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            for name, members in struct_members(file.read()):
                if members > MAX_MEMBERS:
                    print(f"{path}: struct {name} has {members} members, more than {MAX_MEMBERS}: one for each subject")
                    large += 1
    return large


def say_why(graph, a, b):
    def under(name, what):
        return what in (name, folder(name), *graph.names[name])

    lines = [w for x in sorted(graph.edges) if under(x, a) for y, why in sorted(graph.edges[x].items()) if under(y, b) for w in why]
    print("\n".join(lines) or f"{a} does not use {b}")


def main(words):
    root = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    listing, why, alone = False, None, False
    if words[:1] == ["--root"]:  # another tree, for the test of this script
        root, words = words[1], words[2:]
    if words[:1] == ["--alone"]:
        alone, words = True, words[1:]
    if words[:1] == ["--list"]:
        listing, words = True, words[1:]
    elif words[:1] == ["--why"]:
        why, words = [w.rstrip("/") for w in words[1:3]], words[3:]
    graph = Graph(root, words[0] if words else "build/release", alone)
    folders = graph.folders()
    if why:
        say_why(graph, *why)
        return 0
    bad = 0
    if graph.missing:
        print(f"{len(graph.missing)} sources have no object in the build, so calls are unknown: {graph.missing[0]} …")
        bad += 1
    held = {}
    for path in graph.files:
        held[os.path.dirname(path)] = held.get(os.path.dirname(path), 0) + 1
    if listing:
        for name in sorted(folders):
            print(f"{held[name]:4} files {name} -> {' '.join(sorted(folders[name]))}")
        print_circles(graph.edges, "files")
        print_circles(folders, "folders")
    for name, count in sorted(held.items()):
        if count > MAX_FILES:
            print(f"warning: {name} holds {count} files, more than {MAX_FILES}: are they one subject?")
    if not listing:
        bad += print_large_structs(graph, root)
        bad += print_circles(folders, "folders")
        for room in ROOMS:
            bad += print_circles(within(graph.edges, room), "files")
    return 0 if listing or not bad else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
