"""The mixture: which conversation sample (seed, index) is, and the evaluation sets.

    python3 models/training/mixture.py [N]        prints N samples as prompt text
"""
import random
import sys

import chat
import kinds
import randtools
import reasoning
import tasks
import textdata
import tools
import words as w
from tasks import Episode, maybe_system, toolbox

NO_TOOL = "I have no tool for that."


def missing_text(names):
    return "I need " + tasks.say([f"the {n}" for n in names]) + " for that."


def plain_turn(r, ep, thinking):
    """A user turn that needs no call."""
    x = r.random()
    if x < 0.30:
        q, a = textdata.talk(r)
        ep.user(q).say(a, "silent", None, "No tool is needed.")
    elif x < 0.50:
        q, b = textdata.exact(r)
        ep.user(q).say(b, "exact", b.strip(), "I repeat the text.")
    elif x < 0.65:
        q, a = textdata.world(r)
        ep.user(q).say(a, "silent", None, "No tool is needed.")
    elif x < 0.80:
        s, re, q, a, v = textdata.own_fact(r)
        ep.user(s).say(re, "silent", None, "No tool is needed.")
        ep.user(q).say(a, "text", [v], "The user said it.")
    elif x < 0.90:
        q, t, a = reasoning.question(r)
        ep.user(q).say(f"The answer is {a}.", "answer" if thinking else "silent", a, t)
    else:
        q, j, v = textdata.json_task(r)
        ep.user(q).say(j, "json", v, "I fill in the keys.")


# Requests that leave out what a hand-made tool requires.
BARE = {"get_weather": ("What's the weather?", "How is the weather today?", "Will it rain tomorrow?", "weather", "Is it cold outside?", "What's the weather like?"),
        "get_time": ("What time is it?", "Tell me the time.", "time?"), "send_email": ("Send an email.", "I want to write an email.", "Can you send a mail?"),
        "set_timer": ("Set a timer.", "Start a timer please", "I need a timer."), "set_alarm": ("Set an alarm.", "Wake me up.", "I need an alarm."),
        "translate": ("Translate something.", "Can you translate?", "I need a translation."), "search_flights": ("Find me a flight.", "I want to fly.", "Search flights."),
        "book_hotel": ("Book a hotel.", "I need a room."), "play_music": ("Play music.", "Play a song.", "Put some music on."), "calculate": ("Calculate something.", "Can you calculate?"),
        "create_event": ("Add an event.", "Put something in my calendar."), "send_message": ("Send a message.", "Text someone."), "web_search": ("Search the web.", "Look something up."),
        "read_file": ("Read a file.", "Open the file."), "track_package": ("Where is my package?", "Track my parcel."), "get_order": ("Where is my order?", "Check my order."),
        "convert_currency": ("Convert money.", "I want to change money."), "book_table": ("Book a table.", "Reserve a table."), "make_call": ("Make a call.", "Call someone."),
        "set_reminder": ("Remind me.", "Set a reminder."), "delete_file": ("Delete a file.", "Remove the file."), "get_stock_price": ("What's the stock price?", "Check the stock.")}


def follow_up(r, ep, t, thinking):
    """"And in Rome?": the last request again with another value."""
    key = t.map.get(t.spec.params[0].key)
    last = ep.messages[-3]["tool_calls"][0]["function"]["arguments"] if len(ep.messages) > 3 and "tool_calls" in ep.messages[-3] else {}
    kind = t.kinds.get(t.spec.params[0].key)
    if not last or key not in last or kind not in tasks.SPREAD:
        return
    v = tools.draw(r, kind)
    args = {**last, key: v}
    q = r.choice(("And {v}?", "What about {v}?", "and {v}", "The same for {v} please.", "Now {v}.", "How about {v}?") + (("And in {v}?", "And what about {v}?", "In {v}?") if kind == "city" else ()))
    msg, told, must = tasks.outcome(r, t, args)
    calls = [(t.name, args)]
    ep.user(q.format(v=v)).call(calls, tasks.think_calls(r, calls)).results([msg])
    ep.say(told, "text", must, tasks.DONE)


def hand(r):
    """A hand-made tool: asked, asked again with another value, or asked with something missing."""
    t = tools.hand_tool(r)
    box = toolbox(r, None, t)
    ep = Episode([x.schema for x in box], maybe_system(r))
    if t.spec.names[0] in BARE and r.random() < 0.35:
        need = [t.map[p.key] for p in t.spec.params if p.required]
        ep.user(r.choice(BARE[t.spec.names[0]])).say(missing_text([n.replace("_", " ") for n in need]), "silent", None)
        if r.random() < 0.5:
            return ep
    tasks.one_call(r, ep, t)
    for _ in range(r.choice((0, 1, 1, 2))):
        follow_up(r, ep, t, False)
    return ep


def refusal_turn(r, ep, box):
    names = {t.name for t in box}
    things = {getattr(t, "thing", None) for t in box} | {s for t in box if hasattr(t, "spec") for s in t.spec.names}
    for _ in range(20):
        t = tasks.any_tool(r)
        same = t.name in names or getattr(t, "thing", None) in things and hasattr(t, "thing")
        if hasattr(t, "spec"):
            same = same or any(n in things for n in t.spec.names)
        if not same:
            text, _ = t.ask(r)
            ep.user(text).say(NO_TOOL, "silent", None, "No tool fits.")
            return


def clarify_turn(r, ep, box):
    for t in box:
        if isinstance(t, randtools.Invented) and t.required and t.verb in t.name:
            need = [p[1] for p in t.params if p[0] in t.required]
            ep.user(r.choice((f"{w.cap(t.verb)} the {t.thing}.", f"I want to {t.verb} a {t.thing}", f"Please {t.verb} the {t.thing}")))
            ep.say(missing_text(need), "silent", None, "Something is missing.")
            return


def lookup_turn(r, ep, t, fields):
    ident = kinds.ident(r)
    asked, kind = r.choice(fields)
    said = asked.replace("_", " ")
    thing = t.thing
    text = r.choice((f"What is the {said} of {thing} {ident}?", f"Tell me the {said} of {thing} {ident}.", f"Which {said} has {thing} {ident}?", f"{said} of {thing} {ident}?"))
    res = {k: tools.draw(r, kd) for k, kd in fields}
    calls = [(t.name, {t.params[0][0]: ident})]
    ep.user(text).call(calls, tasks.think_calls(r, calls)).results([tasks.result_text(r, res)])
    v = kinds.say(res[asked])
    ep.say(f"The {said} of {thing} {ident} is {v}.", "text", [v], tasks.DONE)
    if r.random() < 0.5:
        other, _ = r.choice(fields)
        said = other.replace("_", " ")
        ep.user(r.choice((f"And the {said}?", f"What is its {said}?", f"and what about the {said}"))).say(
            f"The {said} of {thing} {ident} is {kinds.say(res[other])}.", "text", [kinds.say(res[other])], "I have that already.")


def lookup(r, thinking=False):
    thing = r.choice((w.noun(r), w.phrase(r)))
    t = randtools.Invented(r, verb=r.choice(("get", "fetch", "read", "show", "lookup", "load", "inspect")), thing=thing)
    key = r.choice(("id", "key", "number", thing.split()[-1] + "_id", "reference", "code"))
    t.params, t.required = [(key, key, "id")], [key]
    fn = t.schema["function"]
    fn["name"] = t.name = f"{t.verb}_{thing.replace(' ', '_')}"
    fn["description"] = r.choice((f"{w.cap(t.verb)} a {thing} by its {key.replace('_', ' ')}", f"{w.cap(t.verb)} the data of a {thing}"))
    fn["parameters"] = {"type": "object", "properties": {key: {"type": "string"}}, "required": [key]}
    ks, fields = r.sample([k for k in randtools.NAMES if k not in ("?", "text", "id")], r.randint(3, 6)), []
    for k in ks:
        n = r.choice(randtools.NAMES[k])
        if n not in [f[0] for f in fields]:
            fields.append((n, k))
    box = toolbox(r, None, t)
    ep = Episode([x.schema for x in box], maybe_system(r), thinking)
    lookup_turn(r, ep, t, fields)
    return ep


def session(r):
    """Several user turns over one set of tools."""
    thinking = r.random() < 0.12
    target = tasks.any_tool(r)
    box = toolbox(r, None, target)
    ep = Episode([t.schema for t in box], maybe_system(r), thinking)
    ep.last_only = thinking
    for i in range(r.choice((1, 1, 2, 2, 3, 4))):
        x = r.random()
        if i == 0 and x < 0.6:
            tasks.one_call(r, ep, target)
        elif x < 0.55:
            tasks.one_call(r, ep, r.choice(box))
        elif x < 0.66:
            n = min(len(box), r.choice((2, 2, 3)))
            pool = r.sample(box, n)
            asks = [t.ask(r) for t in pool]
            tasks.parallel_turn(r, ep, tasks.join_asks(r, [a[0] for a in asks]), [(t.name, a[1]) for t, a in zip(pool, asks)],
                                [(t, a[1]) for t, a in zip(pool, asks)])
        elif x < 0.86:
            plain_turn(r, ep, thinking)
        elif x < 0.96:
            refusal_turn(r, ep, box)
        else:
            clarify_turn(r, ep, box)
    if len(ep.messages) < 2:
        plain_turn(r, ep, thinking)
    return ep


def no_tool(r):
    """Tools are declared, the request needs none."""
    box = toolbox(r)
    ep = Episode([t.schema for t in box], maybe_system(r))
    if r.random() < 0.3:
        refusal_turn(r, ep, box)
    if not ep.checks:
        plain_turn(r, ep, False)
    return ep


def chatter(r):
    ep = Episode(None, maybe_system(r, 0.3), r.random() < 0.25)
    ep.last_only = ep.thinking
    fact = textdata.own_fact(r) if r.random() < 0.3 else None
    if fact:
        ep.user(fact[0]).say(fact[1], None, None, "No tool is needed.")
    for _ in range(r.choice((1, 1, 2, 3))):
        if r.random() < 0.1:
            ep.user(tasks.any_tool(r).ask(r)[0]).say(NO_TOOL, "silent", None, "No tool is declared.")
        else:
            plain_turn(r, ep, ep.thinking)
    if fact:
        ep.user(fact[2]).say(fact[3], "text", [fact[4]], "The user said it.")
    return ep


def reason(r, thinking=None):
    ep = Episode(None, maybe_system(r, 0.2), r.random() < 0.72 if thinking is None else thinking)
    q, t, a = reasoning.question(r)
    return ep.user(q).say(f"The answer is {a}.", "answer", a, t)


def exact(r):
    ep = Episode(None, maybe_system(r, 0.2))
    q, b = textdata.exact(r)
    return ep.user(q).say(b, "exact", b.strip())


def json_answer(r):
    ep = Episode(None, maybe_system(r, 0.2), r.random() < 0.1)
    q, j, v = textdata.json_task(r)
    return ep.user(q).say(j, "json", v, "I fill in the keys.")


def recall(r, chars=None, tail=None):
    """A fact far back: in the system prompt, in a long user message or in an earlier turn."""
    if chars is None:
        tail = r.choice((0, 300, 1500, 3000, 5000, 6000, r.randint(0, 8000)))
        chars = tail + r.randint(0, 2500)
    text, q, v = textdata.haystack(r, chars, tail)
    answer = f"It is {v}."
    x = r.random()
    if x < 0.35:
        ep = Episode(None, None)
        ep.user(r.choice(("Read this:\n", "Here are my notes. ", "", "Notes:\n")) + text + r.choice(("\n\n", "\n", " Question: ")) + q)
    elif x < 0.6:
        ep = Episode(None, text)
        ep.user(q)
    elif x < 0.8:
        ep = Episode(None, maybe_system(r))
        ep.user(r.choice(("Remember this. ", "Here are some notes: ", "")) + text).say("I'll remember that.")
        ep.user(q)
    else:
        ep = Episode(None, maybe_system(r))
        ep.user(r.choice(("Question: ", "First read, then answer: ")) + q + "\n" + text)
        if r.random() < 0.5:
            ep.messages.pop()
            ep.user(text + "\nNow answer: " + q)
    return ep.say(answer, "text", [v])


MIX = ((session, 36), (hand, 9), (tasks.single, 10), (tasks.parallel, 8), (tasks.chain, 8), (tasks.in_turn, 3), (lookup, 6), (no_tool, 5), (chatter, 4),
       (reason, 16), (exact, 4), (json_answer, 3), (recall, 10))
TASKS, WEIGHTS = [m[0] for m in MIX], [m[1] for m in MIX]


def rng(seed, index):
    return random.Random(seed * 1_000_000_007 + index)


def sample(seed, index):
    """Training sample: a pure function of its two numbers."""
    r = rng(seed, index)
    return r.choices(TASKS, WEIGHTS)[0](r)


def strip(ep, keep):
    """Only the checks that a row of the table grades."""
    ep.checks = [c for c in ep.checks if keep(c)]
    return ep


EVAL = {
    "single": (lambda r: strip(tasks.single(r), lambda c: c[1] == "calls"), 500, 97),
    "multi": (lambda r: strip(tasks.multi(r), lambda c: c[1] == "calls"), 300, 93),
    "no_tool": (lambda r: [strip(e, lambda c: (c[0], c[1]) == e.checks[0][:2]) for e in [no_tool(r)]][0], 200, 97),
    "answer": (lambda r: strip(tasks.single(r), lambda c: c[1] == "text"), 300, 95),
    "exact": (exact, 200, 97),
    "think": (lambda r: reason(r, True), 300, 85),
    "direct": (lambda r: reason(r, False), 300, 0),
    "recall": (lambda r: recall(r, 6900, 5400), 200, 90),
}
EVAL_SEED = 990_001     # training uses seeds below 1000


def eval_set(name, n=None, seed=EVAL_SEED):
    make, count, _ = EVAL[name]
    return [make(rng(seed + sum(map(ord, name)), i)) for i in range(n or count)]


def text_of(ep):
    return chat.render(ep.messages, ep.tools, add_generation_prompt=False, enable_thinking=ep.thinking)


if __name__ == "__main__":
    for i in range(int(sys.argv[1]) if len(sys.argv) > 1 else 5):
        e = sample(0, i)
        print("-----", e.checks)
        print(text_of(e))
