#!/usr/bin/env python3
"""The Python package: package.py MODEL [CC INCLUDE [PROGRAM]]

Fifteen tool calls alone, at once and staggered, the rest of the package once, and its structs beside the compiler's (CC with
the folder of the headers), and the calls beside those that PROGRAM serves. The package is the one that Python finds."""
import asyncio, contextlib, ctypes, io, os, random, re, signal, subprocess, sys, tempfile, threading, time

import evenkeel
from evenkeel import _library as c

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "../e2e"))  # behind the standard library, some of whose names are taken there
import seeing_model  # noqa: E402
from drawn import hum, png  # noqa: E402
from hub_server import Hub, Repo  # noqa: E402
from staggered import ASKED, TOOLS  # noqa: E402

passed = failed = 0


def check(name, good, said=""):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print(f"{name}: {said}")


def calls(model):
    n, r = len(ASKED), random.Random(5)

    def one(i, delay, out):
        time.sleep(delay)
        text, tools, _, _ = ASKED[i]
        reply = model.chat(text, tools=[TOOLS[t] for t in tools], temperature=0, max_tokens=100)
        out[i] = ([(x.name, x.arguments) for x in reply.calls], reply.digest)

    def together(delays):
        out = [None] * n
        threads = [threading.Thread(target=one, args=(i, delays[i], out)) for i in range(n)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        return out

    alone = [None] * n
    for i in range(n):
        one(i, 0, alone)
    for name, row in ("alone", alone), ("at once", together([0] * n)), ("staggered", together([r.random() * 1.5 for _ in range(n)])):
        right = sum(x is not None and x[0] == [ASKED[i][2:]] for i, x in enumerate(row))
        same = sum(x is not None and x[1] == a[1] for x, a in zip(row, alone))
        print(f"{name}: {right}/{n} right, {same}/{n} with the bits of alone")
        check(name, right == n and same == n, row)
    return [digest for _, digest in alone]


def chats(model):
    whole = model.chat("Hello", temperature=0)
    events = list(model.chat("Hello", temperature=0, stream=True))
    check("a stream is the reply", "".join(e.text for e in events if e.kind == "text") == whole.text == whole.message["content"] != "", events)
    check("its end has the reply", events[-1].kind == "end" and events[-1].reply.digest == whole.digest and whole.finish == "stop")
    many = dict(model.chat_many({"messages": "Hello", "temperature": 1, "seed": i, "max_tokens": 9 + i} for i in range(30)))
    check("many at once", [many[i].digest for i in range(30)] == [model.chat("Hello", temperature=1, seed=i, max_tokens=9 + i).digest for i in range(30)])
    wrong = dict(model.chat_many([{"messages": "Hello", "temperature": -1}, {"messages": "Hello", "max_tokens": 2}]))
    check("one that is wrong", isinstance(wrong[0], evenkeel.EvenkeelError) and "temperature" in str(wrong[0]) and wrong[1].tokens == 2, wrong)
    history = [{"role": "user", "content": "What's the weather in Oslo?"}]
    first = model.chat(history, tools=[TOOLS[0]], temperature=0)
    history += [first.message, {"role": "tool", "tool_call_id": first.calls[0].id, "content": '{"celsius": 4}'}]
    check("a tool's result", model.chat(history, tools=[TOOLS[0]], temperature=0).text != "", history)
    picture = os.path.join(HERE, "../../docs/pocket-curves.png")
    seen = model.chat([{"role": "user", "content": [{"type": "text", "text": "What is it?"}, evenkeel.image(picture)]}], max_tokens=3)
    check("a picture", seen.prompt_tokens > 60, seen)
    for e in model.chat("Hello", ignore_eos=True, stream=True):
        if e.kind == "text":
            break  # cancels
    check("behind a stream that was left", model.chat("Hello", temperature=0).digest == whole.digest)


def senses(device="cpu"):
    """Sounds and pictures by a random model: one by one and at once, and on the CPU. Returns the digests."""
    say = {"type": "text", "text": "Say."}
    picture = evenkeel.image(png(48, 48, bytes(i * 7 % 251 for i in range(3 * 48 * 48))))
    seen = [[evenkeel.sound(hum(0.2)), say], [evenkeel.sound(hum(1)), say], [picture, say], [picture, evenkeel.sound(hum(1, 5)), say], [say]]
    asked = [{"messages": [{"role": "user", "content": c}], "max_tokens": 4, "temperature": 0} for c in seen]
    with tempfile.TemporaryDirectory() as folder:
        seeing_model.main(folder)
        with evenkeel.Model(folder, device=device, context=1024, max_requests=8) as model:
            alone = [model.chat(**a).digest for a in asked]
            together = dict(model.chat_many(asked))
            check("a sound that is none", isinstance(dict(model.chat_many([{"messages": [{"role": "user", "content": [evenkeel.sound(b"none")]}]}]))[0], evenkeel.EvenkeelError))
        check("sounds and pictures at once", len(set(alone)) == len(asked) and alone == [together[i].digest for i in range(len(asked))], (alone, together))
        if device != "cpu":
            with evenkeel.Model(folder, device="cpu", context=1024) as model:
                check("the CPU's bits", alone == [model.chat(**a).digest for a in asked], alone)


def server(model, program):
    """The bits of the same requests over HTTP."""
    from client import Server
    from staggered import body
    with Server(program, "--model", sys.argv[1], "--device", "cpu", "--ctx", 1024) as s:
        for i, (text, tools, *_) in enumerate(ASKED):
            ours = model.chat(text, tools=[TOOLS[t] for t in tools], temperature=0, max_tokens=100)
            theirs = s.chat(body(i))
            message = theirs["choices"][0]["message"]
            same = [(c["function"]["name"], c["function"]["arguments"]) for c in message["tool_calls"]] == [
                (c["function"]["name"], c["function"]["arguments"]) for c in ours.message["tool_calls"]]
            check("the server's bits", same and ours.digest == theirs["evenkeel"]["digest"] and ours.tokens == theirs["usage"]["completion_tokens"], (ours, theirs))


def asynchronous(model):
    """Chats of one thread's event loop, of which some are left in the middle."""
    async def one(i):
        text = ""
        async for e in model.chat_async("Hello", temperature=1, seed=i, max_tokens=9 + i, ignore_eos=True):
            text += e.text
            if i % 5 == 4 and text:
                return "left"
            if e.reply:
                return e.reply.digest
    async def ticking(until):
        n = 0
        while not until.done():
            await asyncio.sleep(0.002)
            n += 1
        return n
    async def everything():
        many = asyncio.gather(*map(one, range(20)))
        ticks = await ticking(many)
        return many.result(), ticks
    got, ticks = asyncio.run(everything())
    want = ["left" if i % 5 == 4 else model.chat("Hello", temperature=1, seed=i, max_tokens=9 + i, ignore_eos=True).digest for i in range(20)]
    check("chats in an event loop", got == want, (got, want))
    check("that goes on meanwhile", ticks > 3, ticks)


def tokens(model):
    ids = model.tokenizer.encode("The weather in Tromsø")
    check("there and back", model.tokenizer.decode(ids) == "The weather in Tromsø" and b"".join(map(model.tokenizer.token, ids)).decode() == "The weather in Tromsø")
    prompt = model.prompt("Hello")
    whole = model.generate(prompt, max_tokens=24, temperature=1, seed=4, ignore_eos=True)
    rest = model.generate(prompt, max_tokens=24, temperature=1, seed=4, ignore_eos=True, replied=whole.tokens[:9])
    check("resumed", rest.tokens == whole.tokens and rest.digest == whole.digest and rest.digests == whole.digests[9:], (whole, rest))
    odd = model.generate(prompt, max_tokens=12, ignore_eos=True, mask=lambda t: range(1, model.vocab, 2))
    check("a mask", len(odd.tokens) == 12 and all(t % 2 for t in odd.tokens), odd)
    try:
        model.generate(prompt, mask=lambda t: 1 // 0)
        check("a mask's exception", False)
    except ZeroDivisionError:
        check("a mask's exception", True)
    rows = model.logits(prompt)
    check("logits", len(rows) == len(prompt) and all(len(r) == model.vocab for r in rows) and max(range(model.vocab), key=lambda i: rows[-1][i]) == model.generate(prompt, max_tokens=1).tokens[0])
    check("a bias", model.generate(prompt, max_tokens=3, bias={1234: 1000.0}, ignore_eos=True).tokens == [1234] * 3)
    check("the model says what it is", len(model.digest) == 64 and model.device == "cpu" and "ek" in model.numerics and model.context == 1024)
    try:
        model.generate([1 << 30])
        check("a wrong token", False)
    except evenkeel.EvenkeelError as wrong:
        check("a wrong token", wrong.status == "bad argument" and "1073741824" in str(wrong), wrong)


def ends(model_path):
    """Ctrl-C within a chat, and a model that is closed under an open stream."""
    def interrupt(*_):
        raise KeyboardInterrupt
    signal.signal(signal.SIGALRM, interrupt)
    with evenkeel.Model(model_path, device="cpu", context=8192, media=False) as m:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        begin = time.time()
        try:
            m.chat("Hello", ignore_eos=True)
            check("an interrupt", False)
        except KeyboardInterrupt:
            check("an interrupt", time.time() - begin < 5)
        stream = m.chat("Hello", ignore_eos=True, stream=True)
        next(stream)
    try:
        next(stream)
        check("a closed model", False)
    except ValueError:
        check("a closed model", True)
    with evenkeel.Model(model_path, device="cpu", context=512, media=False) as m:
        child = os.fork()
        if not child:  # whose memory has the model, and whose end would wait for threads that it has not
            try:
                m.chat("Hello")
            except evenkeel.EvenkeelError as wrong:
                m.close()
                os._exit("opened by process" not in str(wrong))
            os._exit(2)
        check("a forked child", os.waitpid(child, 0)[1] == 0)
        check("its parent", m.chat("Hello", temperature=0).text != "")
    try:
        evenkeel.Model("/nowhere")
    except evenkeel.EvenkeelError as wrong:
        check("no model", wrong.status == "not found", wrong.status)
    logs = [], []
    nobody = "redis://127.0.0.1:1/0"
    with evenkeel.Model(model_path, device="cpu", context=512, media=False, log=lambda *line: logs[1].append(line)), \
            evenkeel.Model(model_path, device="cpu", context=512, media=False, cache_shared=nobody, log=lambda *line: logs[0].append(line)):
        until = time.time() + 60
        while not any("Connection refused" in line for _, line in logs[0]) and time.time() < until:
            time.sleep(0.01)
    said = [[(level, line) for level, line in log if "Connection refused" in line] for log in logs]
    check("a log for each model", said[0] and said[0][0][0] == 1 and not said[1], logs)


def has_curl():
    try:
        return bool(ctypes.CDLL("libcurl.so.4"))
    except OSError:
        return False


def hub(model_path):
    """A model that is pulled from a Hub of the test's, stopped in the middle first, and answers under its name."""
    folder = model_path or os.path.join(os.path.dirname(evenkeel.__file__), "models/pocket")
    files = {name: open(os.path.join(folder, name), "rb").read() for name in os.listdir(folder)}
    server, seen = Hub(), []
    server.repos["org/pocket"] = Repo(files)
    with tempfile.TemporaryDirectory() as home:
        os.environ.update(HF_ENDPOINT=server.url, HF_HOME=home)

        def half(done, total):
            if done > total / 3:
                raise InterruptedError("enough")
        try:
            evenkeel.pull("org/pocket", half)
            check("a pull that is stopped", False)
        except InterruptedError:
            check("a pull that is stopped", True)
        except evenkeel.EvenkeelError as wrong:  # of a machine without it, a root of check_wheel.sh
            check("a pull", not has_curl() and "libcurl.so.4 is not installed" in str(wrong), wrong)
            return
        evenkeel.pull("org/pocket", lambda done, total: seen.append((done, total)))
        check("a pull", seen and seen[-1][0] == seen[-1][1] == sum(map(len, files.values())), seen[-3:])
        with evenkeel.Model("org/pocket", device="cpu", context=512) as m:
            check("a model that was pulled", m.chat("Hello", temperature=0).text != "")
        for name, said in ("org/none", "no such repository"), ("no name", "no name"):
            try:
                evenkeel.pull(name)
                check(name, False)
            except evenkeel.EvenkeelError as wrong:
                check(name, wrong.status == "bad argument" and said in str(wrong), (wrong.status, str(wrong)))


def page():
    with open(os.path.join(HERE, "../../docs/LIBRARY.md"), encoding="utf-8") as f:
        code = re.search(r"```python\n(.*?)```", f.read(), re.S)[1]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, "docs/LIBRARY.md", "exec"), {})
    check("the program of docs/LIBRARY.md", out.getvalue().startswith("Hello"), out.getvalue())


def structs(cc, include):
    lines = ['#include <evenkeel.h>', '#include <stddef.h>', '#include <stdio.h>', 'int main(void) {']
    want = []
    for name, s in ("evenkeel_options", c.Options), ("evenkeel_event", c.Event), ("evenkeel_bias", c.Bias), ("evenkeel_request", c.Request):
        lines.append(f'printf("%zu\\n", sizeof({name}));')
        want.append(ctypes.sizeof(s))
        for field, *_ in s._fields_:
            lines.append(f'printf("%zu\\n", offsetof({name}, {field}));')
            want.append(getattr(s, field).offset)
    with tempfile.TemporaryDirectory() as d:
        with open(f"{d}/a.c", "w") as f:
            f.write("\n".join([*lines, "}"]))
        subprocess.run([*cc.split(), "-I", include, f"{d}/a.c", "-o", f"{d}/a"], check=True)
        got = [int(x) for x in subprocess.run([f"{d}/a"], stdout=subprocess.PIPE, check=True, text=True).stdout.split()]
    check("the structs are the header's", got == want, (got, want))


def main():
    with evenkeel.Model(sys.argv[1] or None, device="cpu", context=1024, max_requests=16) as model:
        calls(model)
        chats(model)
        if len(sys.argv) > 4:
            server(model, sys.argv[4])
        asynchronous(model)
        tokens(model)
    senses()
    ends(sys.argv[1] or None)
    if sys.version_info >= (3, 9):  # the Hub's own test server is not for older ones
        hub(sys.argv[1])
    page()
    if len(sys.argv) > 3:
        structs(sys.argv[2], sys.argv[3])
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
