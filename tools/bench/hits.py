#!/usr/bin/env python3
"""What a stored reply costs a server with --cache-replies: the same request over kept connections, one at a time on each.

Prints hits per second, times of a hit, and with --pid the server's processor time per hit, which a busy machine changes
least. The first request fills the store and is not counted."""
import argparse, json, os, selectors, socket, time, urllib.parse

BODY = {"messages": [{"role": "user", "content": "What's the weather in Oslo?"}], "max_tokens": 17, "temperature": 0}


class Connection:
    def __init__(self, host, port, request):
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.request, self.reply = request, b""

    def ask(self):
        self.reply, self.begun = b"", time.perf_counter()
        self.socket.sendall(self.request)

    def read(self):
        """The reply's head, once all of it is here."""
        data = self.socket.recv(1 << 16)
        if not data:
            raise SystemExit("the server closed a connection")
        self.reply += data
        head, mark, body = self.reply.partition(b"\r\n\r\n")
        at = head.lower().find(b"content-length: ")
        return head if mark and len(body) >= int(head[at + 16:].split(b"\r\n")[0]) else None


def processor_time(pid):
    """(user, system) seconds of a process so far."""
    fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
    return [int(fields[i]) / os.sysconf("SC_CLK_TCK") for i in (11, 12)]


def run(connections, hits):
    """(seconds of each reply, replies that were no hits)"""
    ready, times, others, left = selectors.DefaultSelector(), [], 0, hits
    for c in connections[:hits]:
        ready.register(c.socket, selectors.EVENT_READ, c)
        c.ask()
        left -= 1
    while len(times) < hits:
        for key, _ in ready.select():
            c = key.data
            head = c.read()
            if head is None:
                continue
            times.append(time.perf_counter() - c.begun)
            others += b"x-evenkeel-reply-cache: hit" not in head.lower()
            if left > 0:
                c.ask()
                left -= 1
    return times, others


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("url", help="http://HOST:PORT")
    p.add_argument("--connections", type=int, default=32)
    p.add_argument("--hits", type=int, default=20000)
    p.add_argument("--pid", type=int, help="of the server, on this machine")
    args = p.parse_args()
    url = urllib.parse.urlsplit(args.url)
    body = json.dumps(BODY).encode()
    request = (f"POST {url.path.rstrip('/')}/v1/chat/completions HTTP/1.1\r\nhost: {url.netloc}\r\n"
               f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n").encode() + body
    connections = [Connection(url.hostname, url.port or 80, request) for _ in range(args.connections)]
    run(connections[:1], 1)
    time.sleep(0.5)  # what is stored is there, and audited, if at all
    before, begun = processor_time(args.pid) if args.pid else None, time.perf_counter()
    times, others = run(connections, args.hits)
    seconds = time.perf_counter() - begun
    times.sort()
    print(f"{args.hits} replies, {others} of them no hits: {args.hits / seconds:.0f} a second; ms: half {1e3 * times[len(times) // 2]:.3f}, "
          f"99 % {1e3 * times[len(times) * 99 // 100]:.3f}")
    if before:
        user, system = ((now - was) / args.hits * 1e6 for now, was in zip(processor_time(args.pid), before))
        print(f"the server's processor time per reply, us: {user + system:.1f} (user {user:.1f}, system {system:.1f})")


main()
