#!/usr/bin/env python3
"""`make quick`: the unit tests of what changed, and the checks of includes and layout. Usage: quick.py BUILD_DIR [--passed]

What changed: files that are not as they were when this last passed (BUILD_DIR/green), or, before it ever did, not as git
has them: since the branch left its upstream, or in the last commit if there is nothing else.

Which tests: an object is touched if its source changed or one of the headers that its dependency file names. A test is as
far from the change as its program must go from symbol to symbol to a touched object; what has no object yet is read for its
includes. The nearest run first, the quickest of them before others, as many as fit into SECONDS (110) by the times of the
last run, and what did not fit is named."""
import glob
import hashlib
import os
import re
import subprocess
import sys

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
BUILD = sys.argv[1]
SECONDS = float(os.environ.get("SECONDS_OF_QUICK", "110"))
FOR_BUILDING = 3  # seconds to compile and link a test program
FAR = 3  # uses from a test to the change; beyond it nearly every test reaches nearly every file
ALWAYS = ["check_includes.sh", "check_format.sh", "check_banned.sh", "check_graph.sh"]
JOBS = os.cpu_count() or 1


def out(*words):
    said = subprocess.run(words, capture_output=True, text=True)
    return said.stdout.splitlines() if said.returncode == 0 else []


def state():
    """Every file of the tree but models, with a digest of what it holds."""
    files = {}
    for path in out("git", "ls-files", "-co", "--exclude-standard", ":!models"):
        if os.path.isfile(path):
            with open(path, "rb") as file:
                files[path] = hashlib.sha256(file.read()).hexdigest()
    return files


def changed(now):
    try:
        with open(f"{BUILD}/green") as file:
            before = dict(reversed(line.rstrip("\n").split(" ", 1)) for line in file)
        return sorted(p for p in {*now, *before} if now.get(p) != before.get(p)), "since the last green run"
    except OSError:
        pass
    for base, said in ((out("git", "merge-base", "HEAD", "@{upstream}"), "since the upstream's commit"), (["HEAD~1"], "in the last commit")):
        found = {*(out("git", "diff", "--name-only", base[0]) if base else []), *out("git", "ls-files", "-o", "--exclude-standard")}
        if found:
            return sorted(found), said
    return [], "against git"


def times():
    found = {}
    for table in ("tools/check/times", f"{BUILD}/times"):
        if os.path.exists(table):
            with open(table) as file:
                found.update({w[1]: float(w[0]) for w in map(str.split, file) if len(w) > 1 and w[0] != "#"})
    return found


def objects():
    """Each source that has an object or is a test's, and the files that it is made of."""
    made = {}
    for d in glob.glob(f"{BUILD}/src/**/*.d", recursive=True) + glob.glob(f"{BUILD}/tests/**/*.d", recursive=True):
        if not os.path.exists(d[:-1] + "o"):
            continue
        with open(d) as file:
            words = file.read().replace("\\\n", " ").split("\n")[0].split()[1:]
        if words and os.path.exists(words[0]):  # not of a file that has moved
            made[os.path.normpath(words[0])] = {os.path.normpath(w) for w in words}
    return made


def includes(path, seen):
    """What a source without an object includes of ours, directly or not."""
    with open(path, encoding="utf-8", errors="replace") as file:
        for name in re.findall(r'^#include "([^"]+)"', file.read(), re.M):
            for base in ("src", os.path.dirname(path)):
                at = os.path.normpath(os.path.join(base, name))
                if os.path.exists(at) and at not in seen:
                    seen.add(at)
                    includes(at, seen)
    return seen


def symbols(sources):
    """Who defines and who uses a symbol: {source: set of sources whose symbols it uses}."""
    of = {}
    for s in sources:  # NAME_isa.c has an object for each instruction set
        stem = f"{BUILD}/{os.path.splitext(s)[0]}"
        of.update((o, s) for o in (glob.glob(stem + "_*.o") if stem.endswith("_isa") else [stem + ".o"]) if os.path.exists(o))
    defined, used = {}, []
    if of:
        for line in out("nm", "-A", "-P", "-g", *of):
            made, name, kind = re.match(r"(.*): (\S+) (\S)", line).groups()
            if kind in "Uwv":
                used.append((of[made], name))
            elif name != "main":
                defined.setdefault(name, of[made])
    uses = {}
    for source, name in used:
        if name in defined:
            uses.setdefault(source, set()).add(defined[name])
    return uses


def distances(files, tests, made):
    """{test: uses from it to a touched object}; tests that reach none are not in it."""
    uses = symbols(made)
    for test in tests:
        if test not in made:  # never compiled: the headers that it includes stand for what it calls
            seen = made[test] = includes(test, {test})
            uses[test] = {h[:-1] + "c" for h in seen if h.endswith(".h") and h[:-1] + "c" in made}
    users = {}
    for a, targets in uses.items():
        for b in targets:
            users.setdefault(b, set()).add(a)
    at = {s: 0 for s, parts in made.items() if parts & files}
    queue = sorted(at)
    for s in queue:
        for user in sorted(users.get(s, ())):
            if user not in at:
                at[user] = at[s] + 1
                queue.append(user)
    helped = {os.path.dirname(s): 0 for s in at if s.startswith("tests/") and not os.path.basename(s).startswith("test_") and at[s] == 0}
    return {t: min(at.get(t, FAR + 1), helped.get(os.path.dirname(t), FAR + 1)) for t in tests}


def scripts(files):
    """Check scripts of what changed: themselves, the Python tests that they run, kernels, papers."""
    found = list(ALWAYS)
    for script in sorted(glob.glob("tools/check/check_*.sh")):
        name = os.path.basename(script)
        with open(script) as file:
            text = file.read()
        if script in files or any(f.startswith("tests/e2e/") and f in text for f in files):
            found.append(name)
    if any(f.startswith(("src/cuda/kernels/", "tests/emulate/", "tests/cuda/device/")) for f in files):
        found.append("check_emulated.sh")
    if any(f.startswith(("python/", "tests/python/")) for f in files):
        found.append("check_python.sh")
    if any(f.startswith(("src/capi/", "examples/engine/", "tests/capi/installed/")) for f in files):
        found.append("check_library.sh")
    if any(f.endswith((".md", "Makefile", ".mk")) for f in files):
        found.append("check_tree.sh")
    return [f"tools/check/{n}" for n in dict.fromkeys(found) if os.path.exists(f"tools/check/{n}")]


def choose(files):
    """The tests to run, and those that did not fit."""
    tests = sorted(glob.glob("tests/*/test_*.c"))
    took, at = times(), distances(set(files), tests, objects())
    fit, left, left_of = [], [], SECONDS * JOBS
    program = {t: t[:-2] for t in tests}
    for t in sorted((t for t in tests if at[t] <= FAR), key=lambda t: (at[t], took.get(program[t], 1))):
        cost = took.get(program[t], 1) + FOR_BUILDING
        if cost <= left_of and took.get(program[t], 1) <= SECONDS:
            left_of -= cost
            fit.append(program[t])
        else:
            left.append(program[t])
    return fit, left


def note(now):
    with open(f"{BUILD}/green.new", "w") as file:
        file.writelines(f"{digest} {path}\n" for path, digest in sorted(now.items()))
    os.replace(f"{BUILD}/green.new", f"{BUILD}/green")


def main():
    os.chdir(ROOT)
    now = state()
    if sys.argv[2:] == ["--passed"]:  # `make check` passed
        note(now)
        return 0
    files, since = changed(now)
    print(f"{len(files)} files changed {since}" + (f": {' '.join(files[:6])}{' …' if len(files) > 6 else ''}" if files else ""))
    fit, left = choose([f for f in files if not f.endswith(".md")]) if files else ([], [])
    checks = scripts(files)
    emulated = f"{BUILD}/tests/emulate/libcuda.so.1"
    programs = [f"{BUILD}/{t}" for t in fit]
    targets = [*programs, f"{BUILD}/lib/ek_lib.a"]  # check_graph.sh reads every object
    if not any(f.endswith((".cu", ".cuh")) for f in files):  # for which nvcc takes minutes
        targets.append(f"{BUILD}/evenkeel")
    if "tools/check/check_emulated.sh" in checks:
        targets += [f"{BUILD}/tests/cuda/device/device", emulated]
    if subprocess.run(["make", "--no-print-directory", f"-j{JOBS}", "WERROR=-Werror", *targets]).returncode:
        return 1
    done = subprocess.run(["tools/check/run.sh", BUILD, *programs], env={**os.environ, "TIER": "quick", "CHECKS": " ".join(checks)}).returncode
    if left:
        print(f"not in 3 minutes: {' '.join(left)} (make check)")
    if done == 0:
        note(now)
    return done


if __name__ == "__main__":
    sys.exit(main())
