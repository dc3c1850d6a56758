"""Servers with stored replies, requests in every form, and what two answers to one request have in common. Standard library only; for
programs that are called with EVENKEEL MODEL_DIR."""
import http.client, json, os, re, signal, subprocess, sys, tempfile, time

PROGRAM, MODEL = sys.argv[1], sys.argv[2]
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Weather of a place", "parameters": {
    "type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}}}]
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name", "age"], "additionalProperties": False}
SWAPPED = {**SCHEMA, "properties": {"age": {"type": "integer"}, "name": {"type": "string"}}}
ASK = [{"role": "user", "content": "What is a keel? Answer in a few words."}]


class Server:
    """stored: --cache-replies; model: in place of MODEL_DIR."""

    def __init__(self, *options, stored="8M", model=None, **environment):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        port_file = self.log.name + ".port"
        self.process = subprocess.Popen([PROGRAM, "serve", "--model", model or MODEL, "--port", "0", "--port-file", port_file, "--threads", "1",
                                         *(["--cache-replies", stored] if stored else []), *options], stderr=self.log, stdout=subprocess.DEVNULL,
                                        env={**os.environ, **environment})
        for _ in range(1200):
            if os.path.exists(port_file) or self.process.poll() is not None:
                break
            time.sleep(0.05)
        if self.process.poll() is None:
            self.port = int(open(port_file).read())
            os.unlink(port_file)

    def ask(self, path, body, **headers):
        """(status, headers, text)"""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        c.request("POST", path, json.dumps(body), {"content-type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}})
        r = c.getresponse()
        text = r.read().decode()
        c.close()
        return r.status, dict(r.getheaders()), text

    def metrics(self):
        time.sleep(0.05)  # a text is good for a moment
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        c.request("GET", "/metrics")
        text = c.getresponse().read().decode()
        return {k: float(v) for k, v in re.findall(r"^(evenkeel_\S+) (\S+)$", text, re.M)}

    def stop(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
        status = self.process.wait(timeout=60)
        self.log.seek(0)
        return status, self.log.read()


VARYING = re.compile(r'"(id|item_id|call_id|tool_use_id|response_id|created|created_at|completed_at|obfuscation)":\s*("[^"]*"|[0-9.]+)|'
                     r'"(cached_tokens|cache_read_input_tokens|cache_creation_input_tokens|input_tokens|cached_image_tokens|total_duration|load_duration|prompt_eval_duration|eval_duration)":[0-9]+')
SAYS = re.compile(r',"evenkeel":\{"reply_cached":(true|false)\}|,"reply_cached":(true|false)|"reply_cached":(true|false),')


def bare(text):
    """Without what may differ between two answers to one request."""
    text = VARYING.sub("~", SAYS.sub("", text))
    # How the pieces of several choices alternate is the time of steps; within a choice they have one order.
    return "\n".join(sorted(text.split("\n"), key=lambda line: re.findall(r'"index":(\d+)', line)[:1] or ["9"])) if '"index":1' in text else text


def differs(want, got):
    """For people: where two texts part."""
    a, b = bare(want[2]), bare(got[2])
    i = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    return cached(got), want[0], got[0], i, a[max(0, i - 60):i + 120], b[max(0, i - 60):i + 120]


def cached(answer):
    return answer[1].get("x-evenkeel-reply-cache")


def chat(**more):
    return "/v1/chat/completions", {"messages": ASK, "temperature": 0, "max_tokens": 24, "evenkeel": {"digest": True}, **more}


def requests():
    """Name, path, body: each is asked of a server without a store first."""
    yield "greedy", *chat()
    yield "stream", *chat(messages=[{"role": "user", "content": "What is a deck?"}], stream=True, stream_options={"include_usage": True}, max_tokens=25)
    yield "seed", *chat(temperature=1, seed=7)
    yield "another seed", *chat(temperature=1, seed=8)
    yield "log-probabilities", *chat(temperature=1, seed=9, logprobs=True, top_logprobs=5)
    yield "three choices", *chat(temperature=1, seed=11, n=3)
    yield "three choices, streamed", *chat(temperature=1, seed=12, n=3, stream=True)
    yield "penalties and bias", *chat(presence_penalty=0.5, frequency_penalty=0.2, logit_bias={"1000": -100, "42": 3})
    yield "stop string", *chat(messages=[{"role": "user", "content": "What is a mast?"}], stop=["the", "a "], max_tokens=40)
    yield "schema", *chat(response_format={"type": "json_schema", "json_schema": {"name": "p", "schema": SCHEMA, "strict": True}}, max_tokens=60)
    yield "swapped schema", *chat(response_format={"type": "json_schema", "json_schema": {"name": "p", "schema": SWAPPED, "strict": True}}, max_tokens=60)
    yield "tools", *chat(tools=TOOLS, messages=[{"role": "user", "content": "What is the weather in Rome?"}], max_tokens=60)
    yield "required tool", *chat(tools=TOOLS, tool_choice="required", messages=[{"role": "user", "content": "Weather in Oslo?"}], max_tokens=60)
    yield "required tool, streamed", *chat(tools=TOOLS, tool_choice="required", messages=[{"role": "user", "content": "Weather in Bonn?"}], max_tokens=60, stream=True)
    yield "thoughts", *chat(reasoning_effort="high", thinking_budget=20, max_tokens=60)
    yield "one token", *chat(messages=[{"role": "user", "content": "One."}], max_tokens=1)
    yield "completions", "/v1/completions", {"prompt": ["A ship has", "A mast is"], "temperature": 0, "max_tokens": 12, "logprobs": 2}
    yield "responses", "/v1/responses", {"input": "What is a tiller?", "temperature": 0, "max_output_tokens": 20}
    yield "responses, streamed", "/v1/responses", {"input": "What is a hull?", "temperature": 0, "max_output_tokens": 20, "stream": True}
    yield "messages", "/v1/messages", {"messages": [{"role": "user", "content": "What is a sail?"}], "temperature": 0, "max_tokens": 20}
    yield "messages, streamed", "/v1/messages", {"messages": [{"role": "user", "content": "What is a rudder?"}], "temperature": 0, "max_tokens": 20, "stream": True}
    yield "ollama", "/api/chat", {"model": "pocket", "messages": [{"role": "user", "content": "What is a bow?"}], "options": {"temperature": 0, "num_predict": 16}, "stream": False}
    yield "generate", "/api/generate", {"model": "pocket", "prompt": "A stern is", "options": {"temperature": 1, "seed": 3, "num_predict": 16}, "stream": False}
