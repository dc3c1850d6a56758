"""The parts of tools/demo.sh that are easier in Python: requests, checks, and many at once."""
import base64, hashlib, json, os, sys, threading, time, urllib.request

TOOL = {"type": "function", "function": {
    "name": "get_weather", "description": "Get the weather for a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "The city"}}, "required": ["city"]}}}
ASK = "What's the weather in Oslo?"
RESULT = '{"condition": "rain", "temperature": 7}'
REPEATS = 15


def question(**more):
    return {"model": "pocket", "messages": [{"role": "user", "content": ASK}], "tools": [TOOL], "temperature": 0, "max_tokens": 200,
            "evenkeel": {"digest": True}, **more}


def the_call(reply):
    """The one call that answers ASK; anything else ends the demo."""
    message = reply["choices"][0]["message"]
    calls = message.get("tool_calls") or []
    good = len(calls) == 1 and calls[0]["function"]["name"] == "get_weather" and json.loads(calls[0]["function"]["arguments"]) == {"city": "Oslo"}
    if not good:
        sys.exit(f"this is not the call get_weather(city=Oslo): {json.dumps(message)}")
    return calls[0]


def check_call(path):
    call = the_call(json.load(open(path)))["function"]
    print(f"you:    {ASK}\ncall:   {call['name']}({call['arguments']})\nresult: {RESULT}")


def result(path):
    reply = json.load(open(path))
    message = reply["choices"][0]["message"]
    body = question(stream=True)
    body["messages"] += [message, {"role": "tool", "tool_call_id": the_call(reply)["id"], "content": RESULT}]
    print(json.dumps(body))


def show():
    """Prints a stream as it comes."""
    print("model:  ", end="", flush=True)
    said = False
    for line in sys.stdin:
        if not line.startswith("data: ") or line.strip() == "data: [DONE]":
            continue
        frame = json.loads(line[6:])
        if "error" in frame:
            sys.exit(f"\n{frame['error']['message']}")
        for choice in frame["choices"]:
            text = choice["delta"].get("content") or ""
            said = said or bool(text)
            print(text, end="", flush=True)
    print()
    if not said:
        sys.exit("the model said nothing")


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as r:
        return json.load(r)


def together(url, path):
    """Compares each reply with the one that was alone: the words, and a hash over the logits of every token."""
    alone = json.load(open(path))
    replies, failures = {}, []
    face = lambda r: (r["system_fingerprint"], r["evenkeel"]["digest"], r["choices"][0]["finish_reason"],
                      [c["function"] for c in r["choices"][0]["message"].get("tool_calls", [])], r["choices"][0]["message"]["content"])

    def ask(i):
        time.sleep(0.04 * i)
        try:
            replies[i] = post(url, question())
        except Exception as e:
            failures.append(f"request {i}: {e}")

    def disturb(i):
        """Company of all sizes; what it gets does not matter here."""
        time.sleep(0.11 * i)
        try:
            post(url, {"messages": [{"role": "user", "content": "Tell me about the number %d. " % i * (3 * i + 1)}], "max_tokens": 20 + 9 * i, "seed": i})
        except Exception as e:
            failures.append(f"company {i}: {e}")

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(REPEATS)] + [threading.Thread(target=disturb, args=(i,)) for i in range(5)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    if failures:
        sys.exit("\n".join(failures))
    same = 0
    for i in range(REPEATS):
        the_call(replies[i])
        agrees = face(replies[i]) == face(alone)
        same += agrees
        words = hashlib.sha256(json.dumps(face(replies[i])[3:]).encode()).hexdigest()[:8]
        print(f"  reply {i + 1:2}: logits {replies[i]['evenkeel']['digest']}  words {words}  {'agrees' if agrees else 'DIFFERS'}")
    print(f"{same} of {REPEATS} agree to the bit")
    usage = replies[REPEATS - 1]["usage"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    print(f"the first computed its {alone['usage']['prompt_tokens']} prompt tokens; the last took {cached} of them from the cache, and agrees")
    sys.exit(same != REPEATS or cached == 0)


def drafts(url):
    """What speculation did meanwhile; nobody could see it in a reply."""
    with urllib.request.urlopen(url, timeout=60) as r:
        lines = [line.split() for line in r.read().decode().splitlines() if not line.startswith("#")]
    count = {line[0]: int(float(line[1])) for line in lines if line[0].startswith("evenkeel_") and len(line) == 2}
    drafted, accepted = count["evenkeel_drafted_tokens_total"], count["evenkeel_accepted_tokens_total"]
    print(f"{count['evenkeel_reply_tokens_total']} tokens in replies; {drafted} were guessed and verified, {accepted} of them stood")
    sys.exit(accepted == 0)


def picture(url):
    """A word drawn for this run, and what the model reads."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models", "training", "eyes"))
    import draw
    word, ask, wide = "KEEL", "What does it say?", 72
    scene = draw.scene(2_000_000, 15, "word", text=word)
    scene["noise"], color = 0, scene["paths"][0]["color"]
    small_wide, small_high, rgb = draw.render(scene, wide / scene["size"][0])
    near = lambda x, y: sum((rgb[(y * small_wide + x) * 3 + c] - color[c]) ** 2 for c in range(3)) < 6000
    rows = ["".join("#" if near(x, y) or near(x, y + 1) else " " for x in range(small_wide)).rstrip() for y in range(0, small_high - 1, 2)]
    while not rows[0]:
        rows.pop(0)
    while not rows[-1]:
        rows.pop()
    print("\n".join("  " + row for row in rows))
    data = "data:image/png;base64," + base64.b64encode(draw.png(*draw.render(scene))).decode()
    reply = post(url, {"model": "pocket", "messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": data, "detail": "low"}}, {"type": "text", "text": ask}]}], "temperature": 0, "max_tokens": 20})
    said = reply["choices"][0]["message"]["content"]
    print(f"you:    {ask}\nmodel:  {said}")
    sys.exit(said != word)


COMMANDS = {"question": lambda: print(json.dumps(question())), "check-call": check_call, "result": result, "show": show, "together": together, "drafts": drafts, "picture": picture}
COMMANDS[sys.argv[1]](*sys.argv[2:])
