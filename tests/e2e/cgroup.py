#!/usr/bin/env python3
"""A real control group that limits memory: cgroup.py PROGRAM MODEL

The server runs in a group of its own that allows less than the machine has. It has to see that limit, refuse what would go
beyond it while it serves others, and stay below: the kernel ends a process that does not. Closes with `N passed, N
failed`; exit 77 where no group can be made."""
import json, os, sys, threading, time

from counted import check, closing
from client import Server

PROGRAM, MODEL = sys.argv[1:3]
LIMIT = 400 << 20


class Group:
    """A group below this process's own, of version 2 or 1."""

    def __init__(self):
        self.path = None
        for line in open("/proc/self/cgroup").read().splitlines():
            _, controllers, path = line.split(":", 2)
            root = "/sys/fs/cgroup/memory" if "memory" in controllers.split(",") else "/sys/fs/cgroup" if not controllers else None
            if not root or not os.path.isdir(root + path):
                continue
            self.v2, where = not controllers, f"{root}{path.rstrip('/')}/evenkeel-test-{os.getpid()}"
            try:
                os.mkdir(where)
            except OSError:
                continue
            try:
                self.write(where, "memory.max" if self.v2 else "memory.limit_in_bytes", LIMIT)
                self.path = where
                return
            except OSError:
                os.rmdir(where)

    @staticmethod
    def write(where, name, value):
        with open(os.path.join(where, name), "w") as f:
            f.write(str(value))

    def read(self, v2, v1):
        return open(os.path.join(self.path, v2 if self.v2 else v1)).read()

    def enter(self):
        self.write(self.path, "cgroup.procs", os.getpid())

    def leave(self):
        self.write(os.path.dirname(self.path), "cgroup.procs", os.getpid())

    def killed(self):
        """How often the kernel has ended a process of the group."""
        lines = self.read("memory.events", "memory.oom_control").splitlines()
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)

    def remove(self):
        for _ in range(50):
            try:
                return os.rmdir(self.path)
            except OSError:
                time.sleep(0.1)


def large(n):
    """A body of many small values, each of which takes its share of memory once it is read."""
    return json.dumps({"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "metadata": [[{}] * 50000] * n}).encode()


def main():
    group = Group()
    if not group.path:
        print("no memory group can be made here (it takes rights over /sys/fs/cgroup): not run")
        return 77
    try:
        group.enter()
        try:
            server = Server(PROGRAM, "--model", MODEL, "--ctx", 2048, "--max-requests", 4)
        finally:
            group.leave()
        with server as s:
            ask = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4, "temperature": 0, "evenkeel": {"digest": True}}
            digest = s.chat(ask)["evenkeel"]["digest"]
            budget = s.metrics()["evenkeel_request_memory_limit_bytes"]
            check("the group's limit counts, not the machine's", 0 < budget <= LIMIT / 4, budget)
            status = {3: [], 6: []}

            def post(n):
                status[n].append(s.call("POST", "/v1/chat/completions", large(n))[0])

            threads = [threading.Thread(target=post, args=(n,)) for n in (3, 6) * 6]
            for t in threads:
                t.start()
            same = [s.chat(ask)["evenkeel"]["digest"] for _ in range(5)]
            for t in threads:
                t.join()
            check("what fits is answered or waits its turn", set(status[3]) <= {200, 429, 503} and 200 in status[3], status)
            check("what does not fit is refused", set(status[6]) <= {413, 429, 503} and len(status[6]) == 6, status)
            check("others are served meanwhile", same == [digest] * 5, same)
            check("and afterwards", s.chat(ask)["evenkeel"]["digest"] == digest)
            check("the process is the one that was started", s.process.poll() is None)
            check("the kernel ended nothing", group.killed() == 0, group.killed())
            peak = int(group.read("memory.peak", "memory.max_usage_in_bytes"))
            print(f"measured: {peak >> 20} of {LIMIT >> 20} MiB at most, {int(budget) >> 20} MiB for requests, replies to large bodies {status}")
    finally:
        group.remove()
    return closing()


if __name__ == "__main__":
    sys.exit(main())
