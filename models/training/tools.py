"""Tools as the data needs them: a declaration, requests that use it, results, and answers in words.

`catalog()` parses the hand-made blocks; `instance(r, spec)` draws one declaration from a block
(names, descriptions and optional parameters vary); `randtools.random_tool(r)` invents one.
All have the same face: schema, ask(r) -> (text, args), result(r, args), tell(r, args, result).
"""
import functools
import re

import catalog_home
import catalog_work
import kinds
import words as w
from kinds import KIND, NUMERIC, say

EXTRA = (("verbose", "?"), ("dry_run", "?"), ("language", "language"), ("limit", "count"), ("note", "phrase"),
         ("user_id", "id"), ("format", "(json,text,xml)"), ("timeout", "count"), ("tags", "[word]"), ("notify", "?"))


def json_type(kind):
    if kind.startswith("["):
        return "array"
    if kind.startswith("{"):
        return "object"
    if kind == "?":
        return "boolean"
    if kind in NUMERIC:
        return "number" if kind in ("num", "price") else "integer"
    return "string"


def fields(kind):
    return [f.split(":") for f in kind.strip("{}").split(",")]


def schema_of(kind):
    t = json_type(kind)
    s = {"type": t}
    if kind.startswith("("):
        s["enum"] = kind.strip("()").split(",")
    elif t == "array":
        s["items"] = schema_of(kind[1:-1])
    elif t == "object":
        s["properties"] = {k: schema_of(v) for k, v in fields(kind)}
        s["required"] = [k for k, _ in fields(kind)]
    return s


def draw(r, kind):
    """A value of a kind, as it goes into the arguments."""
    if kind.startswith("("):
        return r.choice(kind.strip("()").split(","))
    if kind.startswith("["):
        n = r.choice((1, 2, 2, 3, 3, 4))
        return [draw(r, kind[1:-1]) for _ in range(n)]
    if kind.startswith("{"):
        return {k: draw(r, v) for k, v in fields(kind)}
    if kind == "?":
        return r.random() < 0.5
    return KIND[kind](r)


def written(v, r):
    """A value as a person writes it in a sentence."""
    if isinstance(v, dict):
        if set(v) == {"name", "quantity"}:
            return f"{v['quantity']} {v['name']}"
        return ", ".join(say(x) for x in v.values())
    if isinstance(v, list):
        parts = [written(x, r) for x in v]
        return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
    return say(v, r)


class Param:
    def __init__(self, key, names, kind, required, descs):
        self.key, self.names, self.kind, self.required, self.descs = key, names, kind, required, descs


class Spec:
    def __init__(self, block):
        lines = block.strip().split("\n")
        names, descs = lines[0].split(" | ")
        self.names, self.descs = names.split("/"), descs.split("/")
        self.params, self.asks, self.tells, self.fields = [], [], [], []
        for line in lines[1:]:
            mark, rest = line[0], line[2:]
            if mark == "-":
                names, kind, desc = rest.split(" ", 2)
                names, need = names.split("/"), kind.endswith("!")
                self.params.append(Param(names[0], names, kind.rstrip("!"), need, desc.split("/")))
            elif mark == ">":
                text, _, consts = rest.partition(";")
                fixed = {}
                for c in consts.split():
                    k, v = c.split("=")
                    fixed[k] = {"true": True, "false": False}.get(v, int(v) if v.isdigit() else v)
                used = [x.split("}")[0] for x in text.split("{")[1:]]
                self.asks.append((text, used, fixed))
            elif mark == "=":
                self.fields = [f.split(":") for f in rest.split()]
            elif mark == "<":
                self.tells.append(rest)


@functools.lru_cache(None)
def catalog():
    text = catalog_home.TEXT.strip() + "\n\n" + catalog_work.TEXT.strip()
    return [Spec(b) for b in text.split("\n\n")]


class Instance:
    """One declaration drawn from a Spec."""

    def __init__(self, r, spec, plain=False):
        self.spec = spec
        self.name = spec.names[0] if plain or r.random() < 0.35 else r.choice(spec.names)
        keep = [p for p in spec.params if p.required or plain or r.random() < 0.75]
        have = {p.key for p in keep}
        if not any(have.issuperset(a[1]) for a in spec.asks):
            keep = spec.params
        self.map = {p.key: (p.key if plain or r.random() < 0.4 else r.choice(p.names)) for p in keep}
        if len(set(self.map.values())) < len(self.map):
            self.map = {p.key: p.key for p in keep}
        described = r.random() < 0.75
        props = {}
        for p in keep:
            s = schema_of(p.kind)
            if described:
                s["description"] = r.choice(p.descs)
            props[self.map[p.key]] = s
        if not plain and r.random() < 0.15:
            k, kind = r.choice(EXTRA)
            if k not in props:
                props[k] = schema_of(kind)
        if r.random() < 0.5:
            ks = list(props)
            r.shuffle(ks)
            props = {k: props[k] for k in ks}
        desc = r.choice(spec.descs) + (r.choice((".", "")) if r.random() < 0.5 else "")
        if not plain and r.random() < 0.08:
            desc = desc.rstrip(".") + ". " + " ".join(w.sentence(r) for _ in range(r.randint(1, 4)))
        fn = {"name": self.name, "description": desc}
        fn["parameters"] = {"type": "object", "properties": props}
        need = [self.map[p.key] for p in keep if p.required]
        if need and r.random() < 0.92:
            fn["parameters"]["required"] = need
        self.schema = {"type": "function", "function": fn}
        self.kinds = {p.key: p.kind for p in keep}

    def ask(self, r):
        usable = [a for a in self.spec.asks if all(u in self.kinds for u in a[1])]
        text, used, fixed = r.choice(usable)
        values = {k: draw(r, self.kinds[k]) for k in used}
        args = {self.map[k]: v for k, v in values.items()}
        args.update({self.map[k]: v for k, v in fixed.items() if k in self.kinds})
        said = {k: written(v, r) for k, v in values.items()}
        return restyle(r, text, said), args

    def result(self, r, args):
        return {k: draw(r, v) for k, v in self.spec.fields}

    def tell(self, r, args, result):
        """The answer and the values that must be in it."""
        known = {k: say(args[v]) for k, v in self.map.items() if v in args}
        known.update({k: say(v) for k, v in result.items()})
        for t in self.spec.tells:
            try:
                return t.format(**known), [say(v) for v in result.values()]
            except KeyError:
                continue
        return generic_tell(result)


def generic_tell(result):
    return " ".join(f"The {k.replace('_', ' ')} is {say(v)}." for k, v in result.items()), \
        [say(v) for v in result.values()]


PRE = ("Quick question: ", "Tell me, ", "Good morning, ", "Alright, ", "Next, ", "Also, ", "So, ", "Please ", "Hi, ", "Hey, ", "Hello! ", "OK, ", "Now ", "Quick one: ", "Could you help? ", "Thanks. ", "I have a request: ")


BEFORE = ("I'm in a hurry.", "I need your help.", "My friend asked me.", "We are going on a trip.", "It's important.", "Good morning!", "I have a question.", "One more thing.", "Hello!",
          "Listen.", "Here is what I need.", "I'm at work.", "It's late.", "My phone is broken.", "Let's go.", "I forgot something.", "You can do this.", "Next task.")
AFTER = (" It's urgent.", " Thank you very much.", " That would be great.", " I need it soon.", " Thanks in advance!", " My friend wants to know.", " It's for work.", " Can you do that?", " Let me know.")


def restyle(r, text, said):
    """Fills a request in and varies how it is typed; never touches the inserted values."""
    out = restyled(r, text, said)
    if r.random() < 0.10:
        out = (r.choice(BEFORE) if r.random() < 0.75 else w.cap(w.clause(r)) + ".") + " " + out
    if not text.endswith("}") and out[-1] in ".?!" and r.random() < 0.06:
        out += r.choice(AFTER)
    return out


def restyled(r, text, said):
    open_end = text.endswith("}")
    if r.random() < 0.06:
        text = "".join(p if i % 2 else p.lower() for i, p in enumerate(re.split(r"({[^}]*})", text)))
    elif text[0] != "{":
        x = r.random()
        if x < 0.12:
            text = text[0].lower() + text[1:]
        elif x < 0.30:
            p = r.choice(PRE)
            text = p + (text[0].lower() + text[1:] if p[-2] in ", y" and not text.startswith("I ") and not text.startswith("I'") else text)
        elif x < 0.40 and text.endswith(".") and text.split()[0] in IMPERATIVE:
            p = r.choice(("Can you ", "Could you ", "Would you ", "Can you please ", "I want you to ", "I'd like you to "))
            text = p + text[0].lower() + text[1:-1] + ("?" if "you " in p and p[0] in "CW" else ".")
    if not open_end and r.random() < 0.25 and text[-1] in ".?!":
        text = text[:-1]
    if not open_end and r.random() < 0.08:
        text += r.choice((" please", " thanks", " Thank you!", " now", " :)"))
    return text.format(**said)


IMPERATIVE = set("""Find Search Look Book Reserve Order Show Plan Create Schedule Put List Delete Cancel Remove
Remind Set Start Send Email Write Mail Text Tell Message Post Add Save Call Turn Switch Make Heat Change
Lock Play Give Track Convert Transfer Pay Wire Check Read Open Print Move Rename Copy Run Execute Commit
File Close Deploy Release Restart Ping Select Get Query Register Reset Share Grant Refund Bill Invoice
Request Arrange Mark Complete Fetch Translate Calculate Compute Use Define Log Take Store Update Plot Draw
Resize Scale Roll Pick""".split())


def hand_tool(r, plain=False):
    return Instance(r, r.choice(catalog()), plain)
