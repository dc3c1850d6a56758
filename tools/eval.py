#!/usr/bin/env python3
"""One evaluation of the bundled model, and its row of the table in docs/EVALUATE.md.

  eval.py PROGRAM [options of `evenkeel batch`, as --isa scalar or --device cuda]
  eval.py PROGRAM --replicas N [options of `evenkeel serve`]     N servers, one of which is killed every second
  eval.py PROGRAM --cassette [options of `evenkeel serve`]       a file of replies that a server made, without the model

EVAL_INPUT=FILE in the environment keeps the input for the next run.
Prints the row, how many answers are right, and exits 1 if the result's SHA-256 is not the one that every machine has."""
import json, os, platform, random, socket, subprocess, sys, tempfile, threading, time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "tests/e2e")]
from client import free_port  # noqa: E402

MODEL = os.path.join(ROOT, "models/pocket")  # named, because a copied program does not find it
GENERATE = [sys.executable, "-B", os.path.join(ROOT, "models/training/batch.py")]
INPUT = "4b03c64e6df01840e9c28e652babc197a11effed03e3e00f8e62d089b20cca4a"
RESULT = "98ecd68263d1f7b4f0fe0f5f2711da90b03404db39b21d8554bb36a5dd1329a6"  # of the arithmetic's version 3


class Replicas:
    """Servers on ports of their own; while they run, one after the other is killed and started again."""

    def __init__(self, program, n, args, folder):
        self.program, self.args, self.folder, self.kills = program, args, folder, 0
        self.port, self.process = [free_port() for _ in range(n)], []
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.kill, daemon=True)

    def __enter__(self):
        self.process = [self.start(p) for p in self.port]
        try:
            for port, process in zip(self.port, self.process):
                self.wait(port, process)
        except BaseException:
            self.stop()
            raise
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()
        self.stop()

    def log(self, port):
        return os.path.join(self.folder, f"{port}.log")

    def start(self, port):
        with open(self.log(port), "w") as log:
            return subprocess.Popen([self.program, "serve", "--port", str(port), *self.args], stdout=subprocess.DEVNULL, stderr=log)

    def wait(self, port, process):
        """Until it listens; one that ends instead has said why."""
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                if process.poll() is not None:
                    sys.exit(open(self.log(port)).read().rstrip())
                time.sleep(0.05)

    def stop(self):
        for p in self.process:
            p.kill()
            p.wait()

    def kill(self):
        r = random.Random(1)
        while not self.ended.wait(1):
            i = r.randrange(len(self.port))
            self.process[i].kill()
            self.process[i].wait()
            self.process[i] = self.start(self.port[i])
            self.kills += 1

    def urls(self):
        return [x for p in self.port for x in ("--url", f"http://127.0.0.1:{p}")]


def from_cassette(program, source, result, args, folder):
    """Seconds that the second run took: against a server that has the first one's replies in a file, and no weights."""
    kept, tape, port = os.path.join(folder, "kept"), os.path.join(folder, "replies.jsonl"), free_port()
    ways = [["--cache-replies", "256M", "--cache-replies-prompts", "--cache-dir", kept, *args], ["--replies", tape, "--no-engine", *args]]
    for i, way in enumerate(ways):
        one = Replicas(program, 0, way, folder)
        process = one.start(port)
        try:
            one.wait(port, process)
            seconds = batch(program, source, result if i else result + ".first", ["--url", f"http://127.0.0.1:{port}"])
        finally:
            process.terminate()
            process.wait()
        if i == 0:
            run([program, "replies", "export", tape, "--cache-dir", kept, "--model", args[args.index("--model") + 1]], stdout=subprocess.DEVNULL)
    return seconds


def machine(args):
    """The processor's name, and the devices' where options name some."""
    if not any(a.startswith("cuda") or "=cuda" in a for a in args):
        return processor()
    try:
        names = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], stdout=subprocess.PIPE, text=True).stdout.split("\n")
    except OSError:
        names = []
    return " and ".join(filter(None, (processor(), names[0])))


def processor():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.machine()


def how_it_ended(status):
    return f"exit status {status}" if status > 0 else f"signal {-status}"


def run(command, **more):
    """Its result. One that fails ends this program with its sentence."""
    try:
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, **more)
    except OSError as e:
        sys.exit(f"{command[0]}: {e.strerror}")
    if done.returncode:
        sys.exit(done.stderr.rstrip()[-2000:] or f"{' '.join(command[:2])}: {how_it_ended(done.returncode)}, without a word")
    return done


def make_input(source):
    """The whole file, or none: one that is kept is used for years."""
    part = f"{source}.{os.getpid()}.part"
    try:
        run([*GENERATE, "--write", part])
        os.replace(part, source)
    finally:
        if os.path.exists(part):
            os.remove(part)


def batch(program, source, result, args):
    """Seconds that it took."""
    begun = time.time()
    run([program, "batch", source, result, *args], stdout=subprocess.DEVNULL)
    return time.time() - begun


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    program, given = sys.argv[1], sys.argv[2:]
    args = list(given)
    with tempfile.TemporaryDirectory() as folder:
        source, result = os.environ.get("EVAL_INPUT") or os.path.join(folder, "in"), os.path.join(folder, "out")
        run([program, "version"], stdout=subprocess.DEVNULL)  # before the input, which takes seconds
        if not os.path.exists(source):
            make_input(source)
        if "--model" not in args:
            args += ["--model", MODEL]
        if "--replicas" in args:
            i = args.index("--replicas")
            with Replicas(program, int(args[i + 1]), args[:i] + args[i + 2:], folder) as r:
                seconds = batch(program, source, result, r.urls())
            how = f"{len(r.port)} servers, {r.kills} kills"
        elif "--cassette" in args:
            seconds = from_cassette(program, source, result, [a for a in args if a != "--cassette"], folder)
            how = "a file of replies, without the model"
        else:
            seconds = batch(program, source, result, args)
            how = " ".join(given) or "the best of this machine"
        about = json.load(open(result + ".run.json"))
        right = run([*GENERATE, "--read", result], stdout=subprocess.PIPE).stdout.strip()
        lines = about["output_lines"]
    sha = about["output_sha256"]
    print(f"| {machine(given)} | {how} | {seconds:.0f} s | `{sha[:16]}` |")
    print(f"{lines} lines, {right}\nfingerprint {about['run']['fingerprint']['sha256']}\nsha256 {sha}")
    if about["run"]["input_sha256"] != INPUT:
        sys.exit(f"the input is another one: its SHA-256 is {about['run']['input_sha256']}, not {INPUT}")
    if sha != RESULT:
        sys.exit(f"the result is another one: elsewhere its SHA-256 is {RESULT}")


if __name__ == "__main__":
    main()
