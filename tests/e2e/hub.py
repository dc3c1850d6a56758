"""pull, list, rm and --model REPO against a server that plays the Hugging Face Hub (hub_server.py). Every failure must
be exit 1 and one line that says what to do, leave nothing half under a final name, and be resumed by the same command.

usage: hub.py EVENKEEL MODEL_DIR [WORD]       only the cases with WORD in their names

The output's last line is `N passed, N failed`.
"""
import concurrent.futures
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time

import hub_failures  # its cases
from hub_case import CASES, Case, HUB, MB, MODEL, PROGRAM, ROOT, SMALL, VERBOSE, Wrong, case, check, noise


# ------------------------------------------------------------------ what is fetched

@case
def a_model_and_nothing_else(c):
    c.serve({**SMALL, "model-00001-of-00002.safetensors": noise(30000, 2), "model-00002-of-00002.safetensors": noise(9 * MB, 3),
             "model.safetensors.index.json": b'{"weight_map":{}}', "model.safetensors": noise(5000, 9),
             "chat_template.jinja": b"x", "README.md": b"no", "pytorch_model.bin": noise(5000, 4),
             "original/weights.safetensors": noise(5000, 5), "copy.json": SMALL["config.json"]}, token="hf_secret")
    path = c.good(HF_TOKEN=" hf_secret\n")
    names = [*SMALL, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
             "model.safetensors.index.json", "chat_template.jinja", "copy.json"]
    check(path == c.check_layout(names), f"the path is {path}")
    for role, _, _, token in c.repo.requests:
        check((token == "hf_secret") == (role == "hub"), f"a request to the {role} has the token {token}")
    check(any(r[0] == "cdn" for r in c.repo.requests), "nothing came from the other origin")
    before = c.repo.count("resolve")
    check(c.good(HF_TOKEN="hf_secret") == path and c.repo.count("resolve") == before, "fetched again")
    with open(os.path.join(c.home, "token"), "w") as f:
        f.write("hf_secret\n")
    c.good()
    check(c.good(HF_HUB_OFFLINE="1", HF_ENDPOINT="http://127.0.0.1:9") == path, "offline")


@case
def another_cache_and_a_mirror_below_a_path(c):
    c.serve({**SMALL, "model.safetensors": noise(5000, 6)})
    elsewhere = os.path.join(c.home, "else where")
    c.good(HF_HUB_CACHE=elsewhere, HF_ENDPOINT=HUB.url + "//")
    check(not os.path.exists(os.path.join(c.home, "hub")) and os.listdir(elsewhere), "HF_HUB_CACHE is not honoured")
    c.failed(c.pull(HF_ENDPOINT="ftp://x"), ["HF_ENDPOINT"])


@case
def gguf_by_quantisation_and_by_file(c):
    files = {f"m-{q}.gguf": noise(6000 + i, i) for i, q in enumerate(("Q4_K_M", "Q4_K_M_L", "q8_0", "UD-Q4_K_XL"))}
    files.update({f"BF16/m-BF16-0000{i}-of-00003.gguf": noise(7000 + i, i) for i in (1, 2, 3)})
    files.update({"mmproj-q8_0.gguf": noise(5000, 8), "m-mtp-q8_0.gguf": noise(5001, 8), "a b-Q6_K.gguf": noise(5002, 8),
                  "README.md": b"x", "n-Q5_0.gguf": b"1", "o-Q5_0.gguf": b"2", "p-Q3_K-00001-of-00002.gguf": b"3"})
    c.serve(files)
    check(c.good(":q4_k_m").endswith("/m-Q4_K_M.gguf"), "Q4_K_M")
    c.check_layout(["m-Q4_K_M.gguf"])
    check(c.good(":bf16").endswith("/BF16/m-BF16-00001-of-00003.gguf"), "BF16")
    check(c.good(":Q8_0").endswith("/m-q8_0.gguf"), "a projection or a drafter was taken for Q8_0")
    check(c.good(":BF16/m-BF16-00002-of-00003.gguf").endswith("/BF16/m-BF16-00001-of-00003.gguf"), "a part by name")
    check(c.good(":Q4_K_XL").endswith("/m-UD-Q4_K_XL.gguf"), "a part of the name")
    check(c.good(":a b-Q6_K.gguf").endswith("/a b-Q6_K.gguf"), "a name with a blank")
    c.check_layout(["m-Q4_K_M.gguf", "m-q8_0.gguf", "m-UD-Q4_K_XL.gguf", "a b-Q6_K.gguf",
                    *(f"BF16/m-BF16-0000{i}-of-00003.gguf" for i in (1, 2, 3))])
    c.bad(["several models", "m-Q4_K_M.gguf (0.0 GB)"])
    c.bad(["several files with Q5_0", "n-Q5_0.gguf", "o-Q5_0.gguf"], ":Q5_0")
    c.bad(["no quantisation Q9", "m-q8_0.gguf"], ":Q9")
    c.bad(["p-Q3_K-00002-of-00002.gguf is missing"], ":Q3_K")
    p = c.run("tokenize", "--model", c.repo_name + ":Q5_0", HF_ENDPOINT="http://127.0.0.1:9")
    c.failed(p, [f"`evenkeel pull {c.repo_name}:Q5_0` fetches it"], command="tokenize")
    listed = json.loads(c.run("list", "--json").out)
    check([m["repo"] for m in listed["models"]] == [c.repo_name] and listed["models"][0]["revision"] == "main", "list")
    check(listed["models"][0]["what"].startswith("GGUF: BF16/m-BF16-00001-of-00003.gguf, a b-Q6_K.gguf, m-Q4_K_M.gguf"), str(listed))



# ------------------------------------------------------------------ processes

@case
def interrupted_it_goes_on(c):
    c.serve(speed=6 * MB)
    p = c.start("pull", c.repo_name, "--connections", "2")
    while c.repo.sent < 3 * MB and p.poll() is None:
        time.sleep(0.02)
    p.send_signal(signal.SIGINT)
    p.out, p.err = p.communicate(timeout=10)
    c.failed(p, ["interrupted", f"`evenkeel pull {c.repo_name}` goes on"])
    kept = c.check_partial(least=100000)
    c.repo.speed = None
    asked = len(c.repo.requests)
    c.good()
    check(c.repo.first_range(asked) == kept, "what was there came again")
    c.check_layout([*SMALL, "model.safetensors"])


@case
def killed_it_goes_on(c):
    c.serve(speed=8 * MB)
    p = c.start("pull", c.repo_name)
    while c.repo.sent < 4 * MB and p.poll() is None:
        time.sleep(0.02)
    p.kill()
    p.communicate()
    c.check_partial()
    c.repo.speed = None
    c.good()
    c.check_layout([*SMALL, "model.safetensors"])


@case
def two_processes_share_the_work(c):
    files = {f"model-0000{i}-of-00006.safetensors": noise(3 * MB + i, 20 + i) for i in range(1, 7)}
    c.serve({**SMALL, **files}, speed=12 * MB)
    both = [c.start("pull", c.repo_name, "--connections", "2") for _ in range(2)]
    for p in both:
        p.out, p.err = p.communicate(timeout=30)
    for p in both:
        check(p.returncode == 0, p.err)
    check(both[0].out == both[1].out, "two paths")
    c.check_layout([*SMALL, *files])
    total = sum(map(len, set(c.repo.files.values())))
    check(c.repo.sent == total, f"{c.repo.sent} bytes were sent of {total}")


def on_terminal(c, argv, answer=b""):
    """The exit status and what a terminal shows."""
    master, slave = pty.openpty()
    os.write(master, answer)
    p = subprocess.Popen([PROGRAM, *argv], stdin=slave, stdout=subprocess.PIPE, stderr=slave, env=c.env())
    os.close(slave)
    shown = b""
    try:
        while part := os.read(master, 65536):
            shown += part
    except OSError:  # the other end is closed
        pass
    os.close(master)
    out = p.communicate(timeout=30)[0]
    return p.returncode, shown.decode(errors="replace"), out.decode()


@case
def a_terminal_has_a_bar_and_a_question(c):
    c.serve({**SMALL, "model.safetensors": noise(MB, 1)}, speed=2 * MB)
    status, shown, out = on_terminal(c, ["pull", c.repo_name])
    check(status == 0 and out.count("\n") == 1, shown)
    check(re.search(r"\r\x1b\[K\[#*\.+\] +\d+ %  .* of 1\.05 MB .*/s .* left  file 3 of 3", shown), repr(shown[-500:]))
    check("%" not in shown.rsplit("\r\x1b[K", 1)[1], "the bar is left there")
    status, shown, out = on_terminal(c, ["rm", c.repo_name], b"n\n")
    check(status == 0 and "nothing is removed" in shown and os.path.exists(c.dir), shown)
    status, shown, out = on_terminal(c, ["rm", c.repo_name], b"y\n")
    check(status == 0 and f"Remove {c.repo_name} (1.05 MB) from the cache? [y/N]" in shown, shown)
    check(out == "1.05 MB freed\n" and not os.path.exists(c.dir), out)


# ------------------------------------------------------------------ the cache

def pocket():
    out = {}
    for name in os.listdir(MODEL):
        path = os.path.join(MODEL, name)
        if os.path.isfile(path) and name.endswith((".json", ".safetensors")) and not name.startswith("golden"):
            with open(path, "rb") as f:
                out[name] = f.read()
    return out


@case
def a_model_by_its_name_needs_no_network(c):
    c.serve(pocket())
    dead = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": None}
    for command in ("tokenize", "generate", "inspect"):
        argv = [c.repo_name] if command == "inspect" else ["--model", c.repo_name]
        argv += ["--ids", "2"] if command == "generate" else []
        c.failed(c.run(command, *argv, **dead), [f"`evenkeel pull {c.repo_name}` fetches it"], command=command)
    path = c.good()
    one = c.run("generate", "--model", c.repo_name, "--ids", "2,3,4", "--max-tokens", "3", "--json", **dead)
    two = c.run("generate", "--model", path, "--ids", "2,3,4", "--max-tokens", "3", "--json", **dead)
    check(one.returncode == 0 and one.out == two.out, one.err)
    check(c.run("inspect", c.repo_name, **dead).returncode == 0, "inspect")
    listed = json.loads(c.run("list", "--json", **dead).out)["models"]
    check(len(listed) == 1 and "Gemma 4" in listed[0]["what"] and listed[0]["path"] == path, str(listed))
    table = c.run("list", **dead).out
    check(c.repo_name in table and c.repo.commit[:8] in table, table)
    os.remove(os.path.realpath(os.path.join(path, "config.json")))
    c.failed(c.run("tokenize", "--model", c.repo_name, **dead), ["config.json is missing", "evenkeel pull"], command="tokenize")


@case
def a_gguf_model_by_its_quantisation(c):
    path = os.path.join(c.home, "m.gguf")
    check(c.run("convert", MODEL, path, "--type", "q8_0").returncode == 0, "convert")
    with open(path, "rb") as f:
        c.serve({"m-Q8_0.gguf": f.read(), "m-Q4_0.gguf": noise(5000, 1), "README.md": b"x"})
    c.good(":q8_0")
    dead = {"HF_ENDPOINT": "http://127.0.0.1:9"}
    one = c.run("generate", "--model", c.repo_name + ":Q8_0", "--ids", "2,3,4", "--max-tokens", "3", "--json", **dead)
    two = c.run("generate", "--model", path, "--ids", "2,3,4", "--max-tokens", "3", "--json", **dead)
    check(one.returncode == 0 and one.out == two.out, one.err)
    check(c.run("tokenize", "--model", c.repo_name, **dead).returncode == 0, "the only one that is there needs no name")
    check("GGUF, q8_0" in json.loads(c.run("list", "--json", **dead).out)["models"][0]["what"], "list")
    p = c.run("convert", c.repo_name + ":Q8_0", os.path.join(c.home, "again"), "--type", "mlx8", **dead)
    check(p.returncode == 0, p.err)


@case
def https_and_certificates(c):
    key, cert = (os.path.join(c.home, n) for n in ("key.pem", "cert.pem"))
    made = shutil.which("openssl") and subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", cert],
        capture_output=True).returncode == 0
    if not made:
        return "no certificate can be made here: openssl is not installed"
    c.serve({**SMALL, "model.safetensors": noise(5000, 1)}, redirect=False)
    secure = HUB.add_tls(cert, key)
    c.bad(["certificate"], "", "--retries", "3", HF_ENDPOINT=secure)
    check(not c.repo.requests, "a request without trust")
    c.good(HF_ENDPOINT=secure, CURL_CA_BUNDLE=cert)
    c.check_layout([*SMALL, "model.safetensors"])
    shutil.rmtree(c.dir)
    c.repo.redirect = True
    c.bad(["redirects from https to http"], HF_ENDPOINT=secure, CURL_CA_BUNDLE=cert)
    return None


@case
def rm_takes_what_nothing_else_needs(c):
    c.serve({"m-Q4_0.gguf": noise(5000, 1), "m-Q8_0.gguf": noise(6000, 2), "config.json": b"{}"})
    c.good(":Q4_0")
    c.good(":Q8_0")
    old = c.repo.commit
    c.repo.files["m-Q8_0.gguf"] = noise(7000, 3)
    c.repo.revise()
    c.good(":Q8_0")
    c.good(":Q4_0")
    check(c.repo.count("resolve.*Q4_0") == 2, "what has not changed was fetched again")  # resolve and the other origin
    check(len(os.listdir(os.path.join(c.dir, "snapshots"))) == 2, "the old revision is gone")
    c.failed(c.run("rm", c.repo_name), ["--yes"], command="rm")
    c.failed(c.run("rm", "org/none", "--yes"), ["org/none is not in the cache"], command="rm")
    c.failed(c.run("rm", c.repo_name + ":Q2_K", "--yes"), ["no quantisation Q2_K"], command="rm")
    p = c.run("rm", f"{c.repo_name}@{old}", "--yes")
    check(p.returncode == 0 and p.out == "6.00 KB freed\n", p.out + p.err)
    c.check_layout(["m-Q4_0.gguf", "m-Q8_0.gguf"])
    check(len(c.blobs()) == 2, "the old blob is left")
    p = c.run("rm", f"{c.repo_name}:Q4_0", "--yes")
    check(p.returncode == 0 and len(c.blobs()) == 1, p.err)
    c.check_layout(["m-Q8_0.gguf"])
    p = c.run("rm", c.repo_name, "--yes")
    check(p.returncode == 0 and p.out == "7.00 KB freed\n" and not os.path.exists(c.dir), p.out + p.err)
    check(os.listdir(os.path.join(c.home, "hub", ".locks")) == [], "locks are left")
    check(json.loads(c.run("list", "--json").out)["models"] == [], "list")


@case
def rm_waits_for_nobody(c):
    c.serve(speed=4 * MB)
    p = c.start("pull", c.repo_name)
    while c.repo.sent < MB and p.poll() is None:
        time.sleep(0.02)
    c.failed(c.run("rm", c.repo_name, "--yes"), ["another process is fetching it"], command="rm")
    c.repo.speed = None
    p.send_signal(signal.SIGTERM)
    p.communicate(timeout=10)
    check(p.returncode == 1, f"exit {p.returncode} after SIGTERM")
    listed = json.loads(c.run("list", "--json").out)["models"][0]
    check(listed["incomplete_bytes"] > 0 and "path" not in listed, str(listed))
    check(c.run("rm", c.repo_name, "--yes").returncode == 0 and not os.path.exists(c.dir), "rm")


def main():
    word = sys.argv[3] if len(sys.argv) > 3 else ""
    chosen = [f for f in CASES if word in f.__name__]
    passed = failed = skipped = 0

    def one(f):
        start = time.time()
        try:
            return f.__name__, f(Case(f.__name__)), None, time.time() - start
        except Exception as e:  # a server or a program that hangs is a failure like others
            return f.__name__, None, e if isinstance(e, Wrong) else repr(e), time.time() - start
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for name, skip, wrong, seconds in pool.map(one, chosen):
            passed, failed, skipped = passed + (not wrong and not skip), failed + bool(wrong), skipped + bool(skip)
            if wrong or skip or word or VERBOSE:
                print(f"{'FAIL' if wrong else 'skipped' if skip else 'ok'} {name} ({seconds:.1f} s){': ' if wrong or skip else ''}{wrong or skip or ''}")
    HUB.close()
    shutil.rmtree(ROOT, ignore_errors=True)
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


sys.exit(main())
