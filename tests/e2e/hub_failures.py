"""Cases of hub.py in which something goes wrong between the program and the hub: connections, statuses, checksums, disks,
replies and names that lie."""
import json
import os
import re
import shutil
import subprocess
import threading
import time

from hub_case import BIG, HUB, MB, SMALL, api_only, case, check, cut_after, noise, times
from hub_server import Repo


@case
def connections_that_break_are_resumed(c):
    c.serve(fault=times(12, cut_after(MB)))
    c.good()
    c.check_layout([*SMALL, "model.safetensors"])
    check(c.repo.sent + 12 * MB <= len(BIG) + 8 * 65536 + 12 * MB, "bytes were fetched twice")
    check(any((r[2] or "").startswith(f"bytes={MB}-") for r in c.repo.requests), "the first piece was not resumed")


@case
def a_server_that_is_gone_is_given_up_and_resumed(c):
    c.serve(fault=gone_after(9 * MB))
    c.bad(["model.safetensors", "without progress", "goes on where"], "", "--retries", "1", "--connections", "1")
    kept = c.check_partial(least=8 * MB)
    c.repo.fault = None
    asked = len(c.repo.requests)
    c.good()
    c.check_layout([*SMALL, "model.safetensors"])
    check(c.repo.first_range(asked) == kept, f"the second pull began at {c.repo.first_range(asked)} instead of {kept}")


def gone_after(n):
    """Every connection to the other origin breaks at byte n of the file."""
    def fault(repo, request):
        if request.server.role != "cdn":
            return False
        first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers["Range"]).groups())
        return last >= n and cut_after(max(0, n - first))(repo, request)
    return fault


@case
def a_wrong_checksum_is_fetched_once_more(c):
    bodies = iter([True])
    lock = threading.Lock()

    def body(name, data):
        with lock:
            spoil = name == "model.safetensors" and next(bodies, False)
        return bytes([data[0] ^ 1]) + data[1:] if spoil else data
    c.serve({**SMALL, "model.safetensors": noise(100000, 7)}, body=body)
    p = c.pull()
    check(p.returncode == 0 and "once more" in p.err, p.err)
    c.check_layout([*SMALL, "model.safetensors"])


@case
def a_checksum_that_stays_wrong_fails(c):
    c.serve({**SMALL, "model.safetensors": noise(100000, 8)},
            body=lambda name, data: data[:-1] + b"?" if name == "config.json" else data)
    c.bad(["config.json", "hash", "twice and discarded"])
    shutil.rmtree(c.dir)  # the other files may have been complete
    c.repo.body = lambda name, data: data[:-1] + b"!" if name == "model.safetensors" else data
    c.bad(["model.safetensors", "hash", "twice and discarded"])
    check(not [b for b in c.blobs() if len(os.path.basename(b)) > 40], "something of the file is left")


@case
def an_incomplete_file_that_is_wrong_is_discarded(c):
    c.serve({**SMALL, "model.safetensors": noise(100000, 9)})
    os.makedirs(os.path.join(c.dir, "blobs"))
    with open(os.path.join(c.dir, "blobs", c.repo.hash("model.safetensors") + ".incomplete"), "wb") as f:
        f.write(b"x" * 50000)
    with open(os.path.join(c.dir, "blobs", c.repo.hash("config.json") + ".incomplete"), "wb") as f:
        f.write(b"x" * 5000)  # longer than the file
    with open(os.path.join(c.dir, "blobs", c.repo.hash("tokenizer_config.json")), "wb") as f:
        f.write(b"{")  # a blob that is damaged
    c.good()
    c.check_layout([*SMALL, "model.safetensors"])


@case
def status_401_403_404(c):
    c.serve(token="hf_right", gated=True)
    c.bad(["is gated (status 401)", f"{HUB.url}/{c.repo_name}", "HF_TOKEN"])
    c.bad(["is gated (status 403)", "token in HF_TOKEN", "accept its conditions"], HF_TOKEN="hf_wrong")
    c.repo.gated = False
    c.bad(["status 401", "no such repository, or it is private", "HF_TOKEN"])
    c.bad(["status 403", "token in HF_TOKEN is not valid"], HF_TOKEN="hf_wrong")
    c.bad(["has a character that no token has"], HF_TOKEN="hf wrong")
    c.repo.token = None
    c.bad(["no revision v9"], "@v9")
    c.good("@" + c.repo.commit)
    HUB.repos.pop(c.repo_name)
    c.bad(["status 404"], HF_TOKEN="hf_any")


@case
def a_file_that_is_listed_but_not_there(c):
    c.serve({**SMALL, "model.safetensors": noise(5000, 1)})
    c.repo.fault = lambda repo, request: "resolve" in request.path and "config.json" in request.path and \
        (request.reply(404, X_Error_Code="EntryNotFound") or True)
    c.bad(["config.json", "404"])


@case
def status_429_waits_as_long_as_it_says(c):
    left = [1, 1]

    def fault(repo, request):
        with repo.lock:
            which = 0 if "/api/" in request.path else 1
            hit, left[which] = left[which] > 0, left[which] - 1
        if hit and which == 0:
            request.reply(429, Retry_After="1")
        elif hit:
            request.reply(429, RateLimit='"resolvers";r=0;t=1')
        return hit
    c.serve({**SMALL, "model.safetensors": noise(5000, 2)}, fault=fault)
    start = time.time()
    c.good()
    check(time.time() - start >= 2, f"{time.time() - start:.2f} s")


@case
def status_429_has_an_end(c):
    c.serve(fault=lambda repo, request: request.reply(429, Retry_After="4000") or True)
    start = time.time()
    c.bad(["429", "67 minutes"])
    c.repo.fault = lambda repo, request: request.reply(429, Retry_After="0") or True
    c.bad(["429", "after 3 tries"], "", "--retries", "2")
    check(c.repo.count("/api/") == 4 and time.time() - start < 5, f"{c.repo.count('/api/')} requests")


@case
def status_500_may_pass(c):
    c.serve({**SMALL, "model.safetensors": noise(5000, 3)}, fault=times(2, lambda repo, r: r.reply(503) or True))
    c.good()
    c.repo.fault = lambda repo, r: r.reply(500) or True
    c.bad(["status 500", "2 tries"], "", "--retries", "1")


@case
def a_full_disk_keeps_what_came(c):
    c.serve()
    c.bad(["model.safetensors", "too large", "what came stays"], "", "--connections", "1", limit=4 * MB)
    c.check_partial(least=4 * MB, most=4 * MB)
    c.good()
    c.check_layout([*SMALL, "model.safetensors"])


@case
def a_disk_without_room_is_refused_first(c):
    c.serve(size={"model.safetensors": 10 ** 15})
    c.bad(["1000000.", "GB are still to fetch", "GB free", "HF_HUB_CACHE"])
    check(c.repo.count("resolve") == 0, "something was fetched")


@case
def a_small_file_system_is_full(c):
    at = os.path.join(c.home, "small")
    os.makedirs(at)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", at], capture_output=True).returncode:
        return "no file system can be mounted here"
    try:
        c.serve()
        c.bad(["GB are still to fetch", "0.01 GB free"], HF_HUB_CACHE=at)
        check(c.repo.count("resolve") == 0, "something was fetched")
        c.repo.size["model.safetensors"] = 9 * MB  # the API says less than what another process then takes
        filler = os.path.join(at, "filler")
        c.repo.fault = times(1, lambda repo, request: open(filler, "wb").write(bytes(6 * MB)) and False)
        c.repo.files["model.safetensors"] = BIG[:9 * MB]
        c.bad(["No space left", "what came stays"], HF_HUB_CACHE=at)
        os.remove(filler)
        c.good(HF_HUB_CACHE=at)
    finally:
        subprocess.run(["umount", at], capture_output=True)
    return None


@case
def a_server_without_ranges(c):
    c.serve(ranges=False)
    c.good()
    c.check_layout([*SMALL, "model.safetensors"])
    shutil.rmtree(c.dir)
    c.bad(["too large"], "", limit=3 * MB)
    c.good()
    c.check_layout([*SMALL, "model.safetensors"])


@case
def a_connection_that_stands_still(c):
    c.serve({**SMALL, "model.safetensors": noise(300000, 4)})

    def stall(repo, request):
        request.send_response(206)
        request.send_header("Content-Range", "bytes 0-299999/300000")
        request.send_header("Content-Length", "300000")
        request.end_headers()
        request.wfile.write(repo.files["model.safetensors"][:1000])
        request.wfile.flush()
        program_ended.wait(60)
        request.cut()
        return True
    program_ended = threading.Event()
    c.repo.fault = times(1, stall)
    start = time.time()
    c.good(HF_HUB_DOWNLOAD_TIMEOUT="1")
    program_ended.set()
    check(time.time() - start < 9.5, "it waited for the server, or for the ten seconds of the default")


@case
def addresses_that_expire_are_asked_for_again(c):
    used, lock = set(), threading.Lock()

    def fault(repo, request):
        path, _, signature = request.path.partition("?")
        if request.server.role == "hub":
            if "model.safetensors" in path:
                request.reply(302, Location=f"{HUB.cdn}{path}?{len(repo.requests)}")
                return True
            return False
        with lock:
            fresh = signature not in used
            used.add(signature)
        request.send_file(repo, "model.safetensors") if fresh else request.reply(403)
        return True
    c.serve(fault=fault)
    c.good("", "--connections", "2")
    c.check_layout([*SMALL, "model.safetensors"])
    check(c.repo.count("/resolve/.*model.safetensors$") >= 3, "the address was not asked for again")


@case
def redirects_that_lead_astray(c):
    target = [""]
    c.serve(fault=lambda repo, r: "/resolve/" in r.path and (r.reply(302, Location=target[0] or r.path) or True))
    c.bad(["redirects more than 10 times"])
    target[0] = "file:///etc/passwd"
    c.bad(["redirects to no http address"])
    moved = Repo(c.repo.files)
    HUB.repos["org/moved"] = moved
    c.repo.fault = lambda repo, r: r.reply(307, Location=r.path.replace(c.repo_name, "org/moved", 1)) or True
    c.good("", HF_TOKEN="hf_x")  # a repository that was renamed, on the same host: the token goes along
    check(all(r[3] == ("hf_x" if r[0] == "hub" else None) for r in moved.requests), "tokens")
    c.check_layout([*SMALL, "model.safetensors"])


@case
def files_of_another_length(c):
    c.serve({**SMALL, "model.safetensors": noise(50000, 5)}, size={"model.safetensors": 60000})
    c.bad(["model.safetensors"], "", "--retries", "1")
    c.repo.size["model.safetensors"] = 40000
    c.bad(["model.safetensors"], "", "--retries", "1")
    check(not os.path.exists(os.path.join(c.dir, "refs", "main")), "a reference")


@case
def replies_that_are_none(c):
    c.serve()
    for body, words in ((b"<html>", ["the Hub's reply"]), (b"{}", ["no commit"]), (b"[" * 100000, ["the Hub's reply"]),
                        (json.dumps({"sha": "1" * 40}).encode(), ["no list of files"])):
        c.repo.fault = api_only(lambda repo, request, body=body: request.reply(200, body) or True)
        c.bad(words)
    c.repo.fault = api_only(lambda repo, request: request.reply(200, Content_Length="80000000") or request.cut() or True)
    c.bad(["/api/models/"], "", "--retries", "0")


@case
def names_that_leave_the_folder(c):
    c.serve()
    for name in ("../../../../evil", "/tmp/evil", "a/../../evil", "a//b", "a/./b", "evil\n.json", "..", "", "a\\b"):
        c.repo.extra = [{"rfilename": name, "size": 1, "blobId": "1" * 40}]
        c.bad(["lists a file", "outside its folder"])
    for name in ("a\u009b31m.gguf", "a\x7f", "a\u202egpj.exe", "a\u2028b", "a\x1b[2J"):  # what a terminal would obey
        c.repo.extra = [{"rfilename": name, "size": 1, "blobId": "1" * 40}]
        line = c.bad(["lists a file a\\"])
        check(line.isprintable(), f"a terminal gets {line!r}")
    for blob in ("../evil", "G" * 40, "1" * 39, "1" * 64):
        c.repo.extra = [{"rfilename": "x.json", "size": 1, "blobId": blob}]
        c.bad(["gives no hash"])
    c.repo.extra = [{"rfilename": "config.json", "size": 1, "blobId": "1" * 40}]
    c.bad(["twice"])
    check(not os.path.exists(c.dir), "something was written")
    for name in ("../x", "org/..", "org", "org/a--b", "org/x@../y", "org/x:../y", "-org/x", "a/b/c"):
        c.failed(c.run("pull", name), [name], status=2)


@case
def a_list_without_end(c):
    """60 MB of a list, in the forms that take the most memory once they are read: refused, within a bound."""
    c.serve()
    sha = json.dumps({"sha": "1" * 40})[:-1]
    file = json.dumps({"rfilename": "x" * 40, "size": 1, "blobId": "1" * 40})
    for what, one, mb in (("objects", "{},", 60), ("files", file + ",", 60), ("objects", "{},", 7), ("lists", "[[],", 7), ("numbers", "0,", 7)):
        body = (sha + ', "siblings": [' + one * (mb * MB // len(one))).encode() + b"0]}"
        c.repo.fault = api_only(lambda repo, request: request.reply(200, body) or True)
        p = c.start("pull", c.repo_name, "--retries", "0", memory=400 * MB)
        out, err = p.communicate(timeout=60)
        err = "".join(l for l in err.splitlines(True) if not l.startswith("no answer from"))  # where making it takes long
        says = "the answer is longer than 8388608 bytes" if mb > 8 else "objects and lists with"
        check(p.returncode == 1 and not out and err.count("\n") == 1 and says in err, f"{mb} MB of {what}: {p.returncode} {err[:300]}")
