"""Gemma 4's chat format: messages and tools to prompt text.

    python3 models/training/chat.py EXAMPLES.json     compares with rendered examples

`render` is what training text is made with, so it follows the published template to the
character: order of members, no spaces, `small` or `large` generation prompt. Input is
OpenAI-shaped: messages with role, content, tool_calls, reasoning_content; tools as functions.
"""
import json
import sys

Q = '<|"|>'
# str.strip's set in Python is the set that the template's trim uses.


class Unrenderable(ValueError):
    pass


def dictsort(d):
    return sorted(d.items(), key=lambda kv: kv[0].lower())


def number(x):
    return repr(x) if isinstance(x, float) else str(x)


def value(x, quoted=False):
    """A value inside a declaration (quoted keys) or a call or result (bare keys)."""
    if x is None:
        return "null"
    if x is True or x is False:
        return "true" if x else "false"
    if isinstance(x, str):
        return Q + x + Q
    if isinstance(x, dict):
        return "{" + ",".join((Q + k + Q if quoted else k) + ":" + value(v, quoted)
                              for k, v in dictsort(x)) + "}"
    if isinstance(x, (list, tuple)):
        return "[" + ",".join(value(v, quoted) for v in x) + "]"
    return number(x)


def upper(t):
    return "" if t is None else str(t).upper()


def qlist(xs):
    return "[" + ",".join(Q + str(x) + Q for x in xs) + "]"


def items(schema):
    out = []
    for k, v in dictsort(schema):
        if v is None:
            continue
        if k == "properties":
            out.append("properties:{" + (props(v) if isinstance(v, dict) else "") + "}")
        elif k == "required":
            out.append("required:" + qlist(v))
        elif k == "type":
            out.append("type:" + (value(v.upper()) if isinstance(v, str) else
                                  value([str(t).upper() for t in v])))
        else:
            out.append(k + ":" + value(v, True))
    return ",".join(out)


def prop(s):
    s = s if isinstance(s, dict) else {}
    t, out = upper(s.get("type")), []
    if s.get("description"):
        out.append("description:" + Q + s["description"] + Q)
    if t == "STRING" and s.get("enum"):
        out.append("enum:" + value(s["enum"], True))
    elif t == "ARRAY" and isinstance(s.get("items"), dict) and s["items"]:
        out.append("items:{" + items(s["items"]) + "}")
    if s.get("nullable"):
        out.append("nullable:true")
    if t == "OBJECT":
        inner = s.get("properties")
        out.append("properties:{" + (props(inner) if isinstance(inner, dict) else props(s, True)) + "}")
        if s.get("required"):
            out.append("required:" + qlist(s["required"]))
    out.append("type:" + Q + t + Q)
    return ",".join(out)


def props(d, own=False):
    skip = ("description", "type", "properties", "required", "nullable") if own else ()
    return ",".join(k + ":{" + prop(v) + "}" for k, v in dictsort(d) if k not in skip)


def declaration(tool):
    f = tool["function"]
    desc = f.get("description", "")
    out = "declaration:" + f["name"] + "{description:" + Q + ("None" if desc is None else desc) + Q
    p = f.get("parameters")
    if p:
        out += ",parameters:{"
        if p.get("properties"):
            out += "properties:{" + props(p["properties"]) + "},"
        if p.get("required"):
            out += "required:" + qlist(p["required"]) + ","
        if p.get("type"):
            out += "type:" + Q + upper(p["type"]) + Q + "}"
    if "response" in f:
        r = f["response"]
        out += ",response:{"
        if r.get("description"):
            out += "description:" + Q + r["description"] + Q + ","
        if upper(r.get("type")) == "OBJECT":
            out += "type:" + Q + "OBJECT" + Q + "}"
    return (out + "}").strip()


def without_channels(s):
    return "".join(part.split("<|channel>")[0] for part in s.split("<channel|>"))


MEDIA = {"image": "<|image|>", "image_url": "<|image|>", "audio": "<|audio|>",
         "input_audio": "<|audio|>", "video": "<|video|>"}


def content(c, role):
    clean = (lambda s: without_channels(s).strip()) if role == "model" else str.strip
    if c is None:
        return ""
    if isinstance(c, str):
        return clean(c)
    return "".join(clean(p["text"]) if p["type"] == "text" else MEDIA.get(p["type"], "") for p in c)


def response(name, v):
    body = ",".join(k + ":" + value(x) for k, x in dictsort(v)) if isinstance(v, dict) else "value:" + value(v)
    return "<|tool_response>response:" + name + "{" + body + "}<tool_response|>"


def results(m, following):
    """The result blocks of an assistant message: its own tool_responses or the tool messages after it."""
    if m.get("tool_responses"):
        return "".join(response(r.get("name") or "unknown", r["response"]) for r in m["tool_responses"])
    out = ""
    for t in following:
        name = t.get("name") or "unknown"
        for call in m["tool_calls"]:
            if call.get("id") == t.get("tool_call_id"):
                name = call["function"]["name"]
        c = t.get("content")
        if isinstance(c, dict):
            raise Unrenderable("tool content is an object")
        if isinstance(c, list):
            text = "".join(p["text"] for p in c if p["type"] == "text")
            out += response(name, text) + "".join(MEDIA.get(p["type"], "") for p in c)
        else:
            out += response(name, c)
    return out


def system_text(c):
    if c is None:
        return ""
    return c.strip() if isinstance(c, str) else "".join(p.get("text", "").strip() + " " for p in c)


def render(messages, tools=None, add_generation_prompt=True, enable_thinking=False,
           preserve_thinking=False, variant="small"):
    out, messages = "<bos>", list(messages)
    first = messages[0]["role"] if messages else None
    if enable_thinking or tools or first in ("system", "developer"):
        out += "<|turn>system\n" + ("<|think|>\n" if enable_thinking else "")
        if first in ("system", "developer"):
            out += system_text(messages.pop(0).get("content"))
        out += "".join("<|tool>" + declaration(t) + "<tool|>" for t in tools or []) + "<turn|>\n"
    last_user = max([i for i, m in enumerate(messages) if m["role"] == "user"], default=-1)
    turns = [i for i, m in enumerate(messages) if m["role"] != "tool"]
    state = None
    for n, i in enumerate(turns):
        m = messages[i]
        role = "model" if m["role"] == "assistant" else m["role"]
        nxt = messages[turns[n + 1]]["role"] if n + 1 < len(turns) else None
        if not (role == "model" and n and messages[turns[n - 1]]["role"] == "assistant"):
            out += "<|turn>" + role + "\n"
        calls = m.get("tool_calls") or []
        thought = m.get("reasoning") or m.get("reasoning_content")
        if thought and (i > last_user or (preserve_thinking and calls)):
            out += "<|channel>thought\n" + thought + "\n<channel|>"
        for call in calls:
            args = call["function"].get("arguments")
            if args is not None and not isinstance(args, dict):
                raise Unrenderable("arguments are not an object")
            out += "<|tool_call>call:" + call["function"]["name"] + "{" + ",".join(
                k + ":" + value(v) for k, v in dictsort(args or {})) + "}<tool_call|>"
        blocks = ""
        if calls or m.get("tool_responses"):
            following = []
            for t in messages[i + 1:]:
                if t["role"] != "tool":
                    break
                following.append(t)
            blocks = results(m, following)
        text = content(m.get("content"), role)
        out += blocks + text
        state = "response" if blocks else "call" if calls else None
        if calls and not blocks:
            out += "<|tool_response>"
        elif role == "model" and nxt == "assistant" and (not calls or blocks):
            pass
        elif blocks and not text and nxt is None:
            pass
        else:
            out += "<turn|>\n"
    if add_generation_prompt:
        if state is None:
            out += "<|turn>model\n"
            if variant == "large" and not enable_thinking:
                out += "<|channel>thought\n<channel|>"
        elif state == "response" and enable_thinking:
            out += "<|channel>thought\n"
    return out


def check(path):
    bad = 0
    with open(path) as f:
        cases = json.load(f)
    for c in cases:
        try:
            got = render(c["messages"], c["tools"], **c["kwargs"])
        except Unrenderable:
            got = None
        if got != c["rendered"]:
            bad += 1
            print("DIFFERS", c["name"], "\n got", got, "\nwant", c["rendered"])
    print(f"{len(cases) - bad} of {len(cases)} examples agree")
    return bad


if __name__ == "__main__":
    sys.exit(1 if check(sys.argv[1]) else 0)
