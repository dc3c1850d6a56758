"""Tasks: whole conversations with what must come out, for training and for the pass table.

A task returns an Episode. `messages` holds the complete conversation; `checks` names the
assistant messages that are graded and how: (index, kind, data) with kind
    calls   the message's tool calls equal `data`, a list of (name, arguments), in order
    text    no call, and every string of `data` occurs in the content
    exact   no call, and the content equals `data`
    answer  no call, and the content's answer equals `data`
    json    no call, and the content is JSON equal to `data`
    silent  no call and some content
"""
import json

import kinds
import randtools
import reasoning
import textdata
import tools
import words as w
from kinds import KIND, say


class Episode:
    def __init__(self, tools=None, system=None, thinking=False):
        self.tools, self.thinking, self.messages, self.checks = tools, thinking, [], []
        self.last_only = False
        if system:
            self.messages.append({"role": "system", "content": system})

    def user(self, text):
        self.messages.append({"role": "user", "content": text})
        return self

    def say(self, text, kind=None, data=None, thought=None):
        m = {"role": "assistant", "content": text}
        if thought and self.thinking:
            m["reasoning_content"] = thought
        if kind:
            self.checks.append((len(self.messages), kind, data))
        self.messages.append(m)
        return self

    def call(self, calls, thought=None, check=True):
        n = len(self.messages)
        m = {"role": "assistant", "tool_calls": [
            {"id": f"c{n}_{i}", "type": "function", "function": {"name": name, "arguments": args}} for i, (name, args) in enumerate(calls)]}
        if thought and self.thinking:
            m["reasoning_content"] = thought
        if check:
            self.checks.append((n, "calls", calls))
        self.messages.append(m)
        return self

    def results(self, texts):
        calls = self.messages[-1]["tool_calls"]
        for c, t in zip(calls, texts):
            self.messages.append({"role": "tool", "tool_call_id": c["id"], "content": t})
        return self


def toolbox(r, n=None, target=None):
    """n tools with distinct names, the target among them; a part of the others resembles it."""
    if n is None:
        x = r.random()
        n = r.randint(1, 3) if x < 0.45 else r.randint(3, 6) if x < 0.8 else r.randint(6, 12) if x < 0.96 else r.randint(12, 24)
    box = [target] if target else []
    names = {t.name for t in box}
    while len(box) < n:
        if isinstance(target, randtools.Invented) and r.random() < 0.35:
            t = randtools.random_tool(r, target)
        elif r.random() < 0.5:
            t = tools.hand_tool(r)
        else:
            t = randtools.random_tool(r)
        if t.name not in names:
            names.add(t.name)
            box.append(t)
    r.shuffle(box)
    return box


def any_tool(r):
    return tools.hand_tool(r) if r.random() < 0.5 else randtools.random_tool(r)


def maybe_system(r, p=0.4):
    if r.random() < 0.03:       # a long one, as agents send
        return " ".join([textdata.system(r)] + [w.sentence(r) for _ in range(r.randint(10, 80))])
    return textdata.system(r) if r.random() < p else None


def result_text(r, result):
    """What the tool message holds: JSON mostly, sometimes with more than is told, sometimes plain."""
    d = dict(result)
    if r.random() < 0.15:
        items = list(d.items()) + [(r.choice(("source", "request_id", "ok", "cached")), r.choice((True, "api", kinds.digits(r, 5))))]
        r.shuffle(items)
        d = dict(items)
    x = r.random()
    if x < 0.1:
        d = {r.choice(("result", "data", "response")): d}
    return json.dumps(d, ensure_ascii=False, separators=(",", ":") if r.random() < 0.4 else None)


def other_fields(r):
    """A result that the tool's block does not foresee: other names, units, lists, yes and no."""
    out = {}
    for _ in range(r.choice((1, 1, 2, 2, 3, 4))):
        k = r.choice(("measure", "measure", "bool", "list", "int", "id", "city", "state", "sky", "person", "phrase", "price", "time", "iso"))
        name = r.choice((w.noun(r), r.choice(w.ADJ) + "_" + w.noun(r), w.noun(r) + "_" + w.noun(r)) + (("temperature", "wind", "humidity", "temp_c", "feels_like", "summary", "status", "message", "count", "available") * 2))
        out[name] = KIND[k](r)
    return out


def outcome(r, t, args):
    """(tool message, answer, values that the answer must hold)"""
    x = r.random()
    if x < 0.04:
        e = r.choice(("not found", "permission denied", "timeout", "invalid value", "no connection", w.clause(r)))
        return r.choice((json.dumps({"error": e}), "Error: " + e)), f"That did not work: {e}.", [e]
    result = t.result(r, args)
    if x < 0.20:
        text = r.choice((w.clause(r), ", ".join(say(v) for v in result.values()), w.cap(w.clause(r)), say(list(result.values())[0])))
        lead = next((say(v) for v in args.values() if isinstance(v, str) and len(v) < 30), None)
        return text, (f"{lead}: {text}" if lead else f"The result: {text}"), [text]
    if x < 0.30:
        result = other_fields(r)
        told, must = randtools.generic_tell(result)
        return result_text(r, result), told, must
    told, must = t.tell(r, args, result)
    return result_text(r, result), told, must


def think_calls(r, calls):
    names = list(dict.fromkeys(n for n, _ in calls))
    if len(calls) > 1:
        return f"{len(calls)} calls: {', '.join(names)}."
    return f"The tool {names[0]} fits."


DONE = "I have the result."


def one_call(r, ep, t, check_answer=True):
    text, args = t.ask(r)
    msg, told, must = outcome(r, t, args)
    calls = [(t.name, args)]
    ep.user(text).call(calls, think_calls(r, calls)).results([msg])
    ep.say(told, "text" if check_answer else None, must, DONE)


def single(r, thinking=False):
    t = any_tool(r)
    box = toolbox(r, None, t)
    ep = Episode([x.schema for x in box], maybe_system(r), thinking)
    one_call(r, ep, t)
    return ep


def joinable(text):
    return text[-1] in ".?!\"" or not (":" in text)


def join_asks(r, texts):
    if r.random() < 0.3 or not all(joinable(t) for t in texts[:-1]):
        if r.random() < 0.5:
            return "\n".join(f"{i + 1}. {t}" for i, t in enumerate(texts))
        return "\n".join(texts)
    out = texts[0]
    for t in texts[1:]:
        if r.random() < 0.45 and not any(c in out for c in ":\"'") and "\n" not in out:
            out = out.rstrip(".?! ") + r.choice((" and ", " and ", " and also ", ", and ", " and then also ")) + (t if t.startswith(("I ", "I'")) else t[0].lower() + t[1:])
            continue
        if out[-1] not in ".?!":
            out += "."
        out += r.choice((" ", " Also: ", " And: ", " Also, ", " Then there is this: ")) + t
    return out


SPREAD = ("city", "id", "path", "word", "ticker", "person", "file", "phrase", "user", "ip", "symbol", "first")


def parallel_calls(r):
    """(box, text, calls, [(tool, args)]): independent calls in one turn."""
    if r.random() < 0.5:
        for _ in range(20):
            t = tools.hand_tool(r)
            usable = [a for a in t.spec.asks if len(a[1]) == 1 and t.kinds.get(a[1][0]) in SPREAD and "{" in a[0]]
            if usable:
                text, used, fixed = r.choice(usable)
                n = r.choice((2, 2, 2, 3, 3, 4))
                vals = []
                while len(vals) < n:
                    v = tools.draw(r, t.kinds[used[0]])
                    if v not in vals:
                        vals.append(v)
                args = [{t.map[used[0]]: v, **{t.map[k]: x for k, x in fixed.items() if k in t.kinds}} for v in vals]
                said = say(vals) if r.random() < 0.8 else ", ".join(vals)
                return [t], tools.restyle(r, text, {used[0]: said}), [(t.name, a) for a in args], [(t, a) for a in args]
    n = r.choice((2, 2, 2, 3))
    pool = []
    first = any_tool(r)
    if r.random() < 0.3:
        pool = [first] * n
    else:
        while len(pool) < n:
            t = any_tool(r)
            if t.name not in {x.name for x in pool}:
                pool.append(t)
    asks = [t.ask(r) for t in pool]
    box = list({t.name: t for t in pool}.values())
    return box, join_asks(r, [a[0] for a in asks]), [(t.name, a[1]) for t, a in zip(pool, asks)], [(t, a[1]) for t, a in zip(pool, asks)]


def fill(r, box):
    """Adds distractors to a box that must hold certain tools."""
    names = {t.name for t in box}
    for _ in range(r.choice((0, 0, 1, 1, 2, 3, 5))):
        t = any_tool(r)
        if t.name not in names:
            names.add(t.name)
            box.append(t)
    r.shuffle(box)
    return [t.schema for t in box]


def parallel_turn(r, ep, text, calls, pairs):
    outs = [outcome(r, t, a) for t, a in pairs]
    ep.user(text).call(calls, think_calls(r, calls)).results([o[0] for o in outs])
    ep.say(" ".join(o[1].rstrip() if o[1][-1] in ".!?" else o[1] + "." for o in outs), "text", [m for o in outs for m in o[2]], DONE)


def parallel(r, thinking=False):
    box, text, calls, pairs = parallel_calls(r)
    ep = Episode(fill(r, list(box)), maybe_system(r), thinking)
    parallel_turn(r, ep, text, calls, pairs)
    return ep


# (first tool, its result field, second tool, its parameter that takes it, how it is asked)
CHAINS = (("find_contact", "email", "send_email", "to", "Find {name} in my contacts and send them this email: \"{body}\""),
          ("find_contact", "email", "send_email", "to", "Look up the email address of {name}, then mail them \"{body}\""),
          ("find_contact", "email", "create_user", "email", "Look up {name} and create the user {username} with their email."),
          ("web_search", "url", "fetch_url", "url", "Search the web for {query} and open the best result."),
          ("web_search", "url", "fetch_url", "url", "Look up \"{query}\" online, then fetch the page."),
          ("search_files", "file", "read_file", "path", "Find the file that contains \"{pattern}\" and read it."),
          ("search_files", "file", "delete_file", "path", "Find the file with {pattern} in it, then delete it."),
          ("create_ticket", "ticket_id", "complete_task", "task_id", "Open a ticket for {customer} about {subject} and then mark it as done."),
          ("create_event", "event_id", "delete_event", "event_id", "Create an event called {title} on {date}, then delete it again."),
          ("get_order", "total", "refund_order", "amount", "Check the total of order {order_id} and refund that amount."),
          ("draw_chart", "chart", "resize_image", "file", "Plot {values}, then make the chart {width} pixels wide."),
          ("get_weather", "condition", "send_message", "text", "Get the weather in {city} and text it to {to}."),
          ("translate", "translation", "store_note", "text", "Translate \"{text}\" to {target} and save the translation as a note."),
          ("calculate", "result", "set_volume", "level", "Calculate {expression} and set the volume to the result."),
          ("create_task", "task_id", "complete_task", "task_id", "Add a task: \"{title}\". Then mark it as done."),
          ("track_package", "location", "get_weather", "city", "Find out where package {tracking_number} is and tell me the weather there."))


def chain_hand(r):
    a, field, b, param, text = r.choice(CHAINS)
    by = {s.names[0]: s for s in tools.catalog()}
    ta, tb = tools.Instance(r, by[a]), tools.Instance(r, by[b])
    used = [x.split("}")[0] for x in text.split("{")[1:]]
    va, vb, said = {}, {}, {}
    for u in used:
        spec = ta if any(p.key == u for p in ta.spec.params) else tb
        for p in spec.spec.params:
            if p.key == u and u not in spec.kinds:
                return None
        v = tools.draw(r, spec.kinds[u])
        (va if spec is ta else vb)[spec.map[u]] = v
        said[u] = tools.written(v, r)
    if param not in tb.kinds:
        return None
    res = ta.result(r, va)
    vb = {**vb, tb.map[param]: res[field]}
    return ta, va, res, tb, vb, tools.restyle(r, text, said)


def chain_random(r):
    thing = w.phrase(r)
    tb = randtools.Invented(r, thing=thing)
    key = r.choice(("id", thing.split()[-1] + "_id", "key", "code", thing.split()[-1], "reference", "token"))
    verb = r.choice(("find", "get", "search", "lookup", "fetch", "locate"))
    ta = randtools.Invented(r, verb=verb, thing=thing)
    by = r.choice(("name", "title", "owner", "number", "email"))
    kind = {"name": "person", "title": "title", "owner": "person", "number": "id", "email": "email"}[by]
    ta.params, ta.required = [(by, by, kind)], [by]
    fn = ta.schema["function"]
    fn["name"] = ta.name = r.choice((f"{verb}_{thing.replace(' ', '_')}", f"{verb}_{thing.split()[-1]}", ta.name))
    fn["description"] = r.choice((f"{w.cap(verb)} a {thing} by {by}", f"{w.cap(verb)} the {key.replace('_', ' ')} of a {thing}", f"{w.cap(verb)} a {thing}"))
    fn["parameters"] = {"type": "object", "properties": {by: {"type": "string"}}, "required": [by]}
    rest = [p for p in tb.params if p[0] != key][:2]
    tb.params, tb.required = rest, [p[0] for p in rest]
    name2 = tb.name if tb.name != ta.name else "do_" + tb.name
    tb.name = name2
    f2 = tb.schema["function"]
    f2["name"] = name2
    f2["parameters"] = {"type": "object", "properties": {key: {"type": "string"}, **{p[0]: tools.schema_of(p[2]) for p in rest}},
                        "required": [key] + [p[0] for p in rest]}
    v = tools.draw(r, kind)
    found = kinds.ident(r)
    said = [(p[1], tools.draw(r, p[2]), p[2]) for p in rest]
    vb = {key: found, **{p[0]: s[1] for p, s in zip(rest, said)}}
    lead = r.choice((f"Find the {thing} with the {by} {v}", f"Look up the {thing} whose {by} is {v}", f"Get the {thing} ({by} {v})", f"{w.cap(verb)} the {thing} {by} {v}"))
    text = lead + r.choice((" and then ", ", then ", " and ", " and after that ")) + f"{tb.verb} it" + randtools.clauses(r, said)
    res = {key: found}
    if r.random() < 0.4:
        k = r.choice(("city", "iso", "int", "state", "company"))
        res[r.choice(("status", "place", "note", "since", "level"))] = tools.draw(r, k)
    return ta, {by: v}, res, tb, vb, text


def chain(r, ep_tools=None, thinking=False):
    made = None
    while made is None:
        made = chain_hand(r) if r.random() < 0.45 else chain_random(r)
        if made and made[0].name == made[3].name:
            made = None
    ta, va, res, tb, vb, text = made
    ep = Episode(fill(r, [ta, tb]), maybe_system(r), thinking)
    ca, cb = [(ta.name, va)], [(tb.name, vb)]
    ep.user(text).call(ca, think_calls(r, ca) + f" Then {tb.name}.").results([result_text(r, res)])
    ep.call(cb, f"Now {tb.name}.")
    msg, told, must = outcome(r, tb, vb)
    ep.results([msg]).say(told, "text", must, DONE)
    return ep


def in_turn(r, thinking=False):
    """Two or three requests, one after the other, each call waiting for the last result."""
    n = r.choice((2, 2, 3))
    pool = []
    while len(pool) < n:
        t = any_tool(r)
        if t.name not in {x.name for x in pool}:
            pool.append(t)
    asks = [t.ask(r) for t in pool]
    ep = Episode(fill(r, list(pool)), maybe_system(r), thinking)
    steps = ["First: " + asks[0][0]] + [r.choice(("Then: ", "After that: ", "Then, when that is done: ")) + a[0] for a in asks[1:]]
    ep.user(r.choice(("\n", "\n", " "))[:1].join(steps) if all(joinable(s) for s in steps) else "\n".join(steps))
    told_all, must_all = [], []
    for i, (t, a) in enumerate(zip(pool, asks)):
        calls = [(t.name, a[1])]
        msg, told, must = outcome(r, t, a[1])
        ep.call(calls, f"Step {i + 1}: {t.name}.").results([msg])
        told_all.append(told if told[-1] in ".!?" else told + ".")
        must_all += must
    return ep.say(" ".join(told_all), "text", must_all, DONE)


def multi(r, thinking=False):
    x = r.random()
    if x < 0.5:
        return parallel(r, thinking)
    if x < 0.85:
        return chain(r, None, thinking)
    return in_turn(r, thinking)
