#!/usr/bin/env python3
"""A stream that outlives its server: resume.py URL... [QUESTION]

Asks the first of several replicas of evenkeel and prints the answer as it comes. When a replica is lost in the middle,
the next one goes on behind the last token that came: nothing is repeated, nothing is lost.

`resuming` is the part to copy. It works over any function that opens a stream; with OpenAI's SDK:

    clients = [OpenAI(base_url=url + "/v1", api_key="none", max_retries=0) for url in urls]
    def ask(i, resume):
        s = clients[i % len(clients)].chat.completions.create(**body, stream=True, extra_body={"evenkeel": {"resume": resume}})
        return (chunk.to_dict() for chunk in s)
"""
import http.client, json, sys, time, urllib.error, urllib.request


class Refused(Exception):
    """The request itself is wrong: no replica will take it."""


def resuming(ask, ended, tries=40, pause=0.25):
    """The events of a stream, each once. ask(i, resume): opens the stream at replica i (modulo their number), with
    "evenkeel": {"resume": resume} in the body. ended(event): is it the last one that matters?"""
    state, i, failed = True, 0, 0
    while True:
        try:
            for event in ask(i, state):
                more = event.get("evenkeel", {}).get("resume")
                if more:  # one object over the other, but tokens are appended
                    old = {} if state is True else state
                    tokens = old.get("tokens", [])
                    tokens.extend(more.get("tokens", []))
                    state, failed = {**old, **more, "tokens": tokens}, 0
                elif "error" in event:  # this replica's, not the request's
                    raise ConnectionError(event["error"])
                yield event
                if ended(event):
                    return
        except (OSError, http.client.HTTPException, ConnectionError, ValueError):
            pass
        i, failed = i + 1, failed + 1
        if failed >= tries:
            raise ConnectionError("no replica goes on with the stream")
        time.sleep(pause)


def opener(urls, path, body, timeout=60):
    """ask, with the standard library: the JSON of every event of POST path."""
    def ask(i, resume):
        extension = {**body.get("evenkeel", {}), "resume": resume}
        data = json.dumps({**body, "stream": True, "evenkeel": extension}).encode()
        request = urllib.request.Request(urls[i % len(urls)] + path, data, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as reply:
                for line in reply:
                    if line.startswith(b"data: {") and line.endswith(b"\n"):  # half a line is no event
                        yield json.loads(line[6:])
        except urllib.error.HTTPError as e:
            if 400 <= e.code < 500 and e.code != 429:
                raise Refused(e.read().decode()) from None
            raise
    return ask


def chat_ended(event):
    return any(c["finish_reason"] for c in event.get("choices", []))


if __name__ == "__main__":
    urls = [a for a in sys.argv[1:] if a.startswith("http")] or ["http://127.0.0.1:8080"]
    question = " ".join(a for a in sys.argv[1:] if not a.startswith("http")) or "What is a keel?"
    body = {"model": "m", "messages": [{"role": "user", "content": question}]}
    for chunk in resuming(opener(urls, "/v1/chat/completions", body), chat_ended):
        for choice in chunk["choices"]:
            print(choice["delta"].get("content") or "", end="", flush=True)
    print()
