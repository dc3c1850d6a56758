"""The cache of the whole program: hits that change no reply, a restart, kill -9, a damaged file, two programs with one folder.
Standard library only.

usage: cache.py EVENKEEL MODEL_DIR

The output's last line is `N passed, N failed`."""
import os, random, shutil, signal, sys, tempfile, time, urllib.error, urllib.request

import client
from counted import check, closing

PROGRAM, MODEL = sys.argv[1], sys.argv[2]
LONG = "The ship has a wide deck and a deep hold. " * 60
QUESTIONS = ["What is a keel?", "What is a mast?", "Name two sails."]


class Server(client.Server):
    def __init__(self, folder, *options, wait=True, **environment):
        super().__init__(PROGRAM, "--model", MODEL, "--threads", "1", *(["--cache-dir", folder] if folder else []), *options, wait=wait,
                         may_end=True, env=environment)

    def ask(self, question, salt=None, system=LONG):
        body = {"messages": [{"role": "system", "content": system}, {"role": "user", "content": question}], "temperature": 0, "max_tokens": 12,
                "evenkeel": {"digest": True}, **({"cache_salt": salt} if salt else {})}
        reply = self.chat(body)
        u = reply["usage"]
        return (reply["evenkeel"]["digest"], reply["choices"][0]["message"]["content"]), u["prompt_tokens_details"]["cached_tokens"], u["prompt_tokens"]

    def ready(self):
        for _ in range(600):
            try:
                return urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ready", timeout=60).close()
            except urllib.error.HTTPError:
                time.sleep(0.05)
        raise TimeoutError("not ready after 30 s")


def on_a_device():
    """With --device auto only a device's lack of room leads to the CPU: not a file that is in use, nor a folder that cannot
    be written. The device is the one that tests/emulate makes of the CPU."""
    library = os.path.join(os.path.dirname(os.path.abspath(PROGRAM)), "tests", "emulate")
    if not os.path.exists(os.path.join(library, "libcuda.so.1")):
        print("no emulated device in this build: device auto beside a file in use was not run")
        return
    folder = tempfile.mkdtemp()
    small = ("--ctx", "256", "--max-requests", "2")
    first = Server(folder, *small, LD_LIBRARY_PATH=library)
    second = Server(folder, *small, "--drain-timeout", "1", LD_LIBRARY_PATH=library)
    status, log = second.stop()
    check("a file in use is no reason to leave the device", status == 1 and "in use by another process" in log and "device cpu" not in log, (status, log))
    after = Server(folder, *small, wait=False, LD_LIBRARY_PATH=library)
    check("the next one waits on the device", after.says("waiting up to"))
    first.stop()
    after.listens()
    status, log = after.stop()
    check("and is served by it", status == 0 and "device cpu" not in log, (status, log))
    broken = Server("/dev/null/pages", *small, LD_LIBRARY_PATH=library)
    status, log = broken.stop()
    check("nor is a folder that cannot be", status == 1 and "device cpu" not in log, (status, log))
    large = Server(folder, *small, "--cache-host-bytes", "900000G", LD_LIBRARY_PATH=library)
    status, log = large.stop()
    check("nor is too large a cache in host memory", status == 1 and "device cpu" not in log, (status, log))
    full = Server(folder, "--ctx", "256", "--max-requests", "2", "--gpu-memory", "1M", LD_LIBRARY_PATH=library)
    status, log = full.stop()
    check("too little of its memory is", status == 0 and "device cpu" in log, (status, log))


def main():
    cold = Server(None, "--cache-bytes", "0")
    want = {q: cold.ask(q) for q in QUESTIONS}
    check("no cache, nothing cached", all(w[1] == 0 for w in want.values()), want)
    cold.stop()
    prompt = want[QUESTIONS[0]][2]

    folder = tempfile.mkdtemp()
    s = Server(folder, "--cache-audit", "1", "--verbose=cache")
    for i in range(3):
        for k, q in enumerate(QUESTIONS):
            got = s.ask(q)
            check(f"hit {i}.{k}: same reply", got[0] == want[q][0], (got, want[q]))
            check(f"hit {i}.{k}: cached", (got[1] > prompt - 80) == (i + k > 0) and (i == 0 or got[1] == got[2] - 1), got)
    check("another salt finds nothing", s.ask(QUESTIONS[0], salt="somebody else")[1] == 0)
    check("its own finds all", s.ask(QUESTIONS[0], salt="somebody else")[1] == prompt - 1)
    second = Server(folder, "--drain-timeout", "1")
    status, log = second.stop()
    check("one program per file", status == 1 and "in use by another process" in log, (status, log))
    check("it waited as long as another may drain", "waiting up to 6 s" in log, log)
    beside = Server(folder, "--kv", "8")
    beside.ready()  # its own first request is no client's
    first = beside.ask(QUESTIONS[0])
    check("another format has a file of its own in the folder", beside.process.poll() is None and first[1] == 0, first)
    check("and the first serves on", s.ask(QUESTIONS[0])[0] == want[QUESTIONS[0]][0])
    beside.stop()
    beside = Server(folder, "--kv", "8")
    again = beside.ask(QUESTIONS[0])
    check("which it finds again", again[0] == first[0] and again[1] > prompt - 160, again)
    beside.stop()
    check("two files", len([f for f in os.listdir(folder) if f.endswith(".sqlite")]) == 2)
    status, log = s.stop()
    check("it stops in order", status == 0, (status, log))
    check("a miss is explained", "first difference at position" in log and "message 2" in log and "What is a " in log, log)
    check("the audit found nothing", "cache audit" not in log, log)

    s = Server(folder)
    after = Server(folder, wait=False)
    check("one that is started while another has the file waits", after.says("waiting up to 65 s"))
    s.stop()
    after.listens()
    got = after.ask(QUESTIONS[1])
    check("and serves from it when it is free", got[0] == want[QUESTIONS[1]][0] and got[1] > prompt - 160, got)
    after.stop()
    on_a_device()

    s = Server(folder)
    got = s.ask(QUESTIONS[1])
    check("after a restart: same reply, from disk", got[0] == want[QUESTIONS[1]][0] and got[1] > prompt - 160, got)
    check("for its salt alone", s.ask(QUESTIONS[0], salt="a third")[1] == 0)
    for i in range(5):
        s.ask(f"Question {i}?", system=LONG + str(i) * 50)
    s.stop(signal.SIGKILL)
    s = Server(folder)
    got = s.ask(QUESTIONS[2])
    check("after kill -9: same reply", got[0] == want[QUESTIONS[2]][0] and got[1] > prompt - 160, got)
    s.stop()

    name = max((f for f in os.listdir(folder) if f.endswith(".sqlite")), key=lambda f: os.path.getmtime(os.path.join(folder, f)))
    whole = open(os.path.join(folder, name), "rb").read()
    draw = random.Random(7)
    for i in range(6):
        data = bytearray(whole)
        if i == 0:
            data = data[:len(data) // 2]
        elif i == 1:
            data = bytearray(draw.randbytes(100000))
        else:
            for _ in range(1 + 200 * (i % 2)):
                data[draw.randrange(len(data))] ^= draw.randrange(1, 256)
        for f in os.listdir(folder):
            os.unlink(os.path.join(folder, f))
        open(os.path.join(folder, name), "wb").write(data)
        s = Server(folder)
        if s.process.poll() is None:
            for q in QUESTIONS:
                got = s.ask(q)
                check(f"damaged file {i}: same reply", got[0] == want[q][0], got)
        status, log = s.stop()
        check(f"damaged file {i}: it serves, and stops in order", status == 0, (status, log))
        check(f"damaged file {i}: it says so", i > 1 and i % 2 == 0 or "damaged" in log, log)
    shutil.rmtree(folder)

    s = Server("/proc/no/such/folder")
    status, log = s.stop()
    check("a folder that cannot be: one line", status == 1 and "/proc/no/such/folder" in log, (status, log))
    sys.exit(closing())


main()
