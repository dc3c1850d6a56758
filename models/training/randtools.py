"""Invented tools: names, parameters and descriptions that no model can know beforehand."""
import kinds
import words as w
from kinds import say
from tools import draw, generic_tell, schema_of

# Parameter names that fit a kind; the request says the same words with spaces.
NAMES = {
    "person": "name customer owner recipient employee assignee contact author driver guest member full_name",
    "city": "city location place destination origin town region",
    "email": "email address recipient reply_to contact_email owner_email",
    "phone": "phone mobile phone_number fax", "iso": "date due_date start_date end_date deadline day valid_until",
    "time": "time start_time end_time hour pickup_time", "id": "id code key reference order_id ticket_id serial token account_id",
    "file": "file filename target source input output", "path": "path folder directory file_path source destination",
    "url": "url link website endpoint callback_url", "address": "address street delivery_address office",
    "word": "tag label category topic group channel type keyword", "phrase": "item subject product resource object topic",
    "title": "title name heading project caption", "text": "text message note comment body description reason",
    "color": "color background tint", "user": "user username login account handle", "version": "version release build",
    "company": "company vendor client supplier brand", "int": "count limit number size amount level quantity rank",
    "small": "copies retries priority rooms seats floor", "count": "quantity age points batch_size max_items",
    "num": "weight height width price score ratio distance", "price": "price amount budget cost total fee",
    "pct": "percent discount brightness threshold volume", "year": "year", "minutes": "duration minutes timeout delay",
    "?": "notify urgent public active recursive force verbose archived encrypted visible express dry_run",
}
NAMES = {k: v.split() for k, v in NAMES.items()}
POOL = ["person"] * 3 + ["city"] * 2 + ["email", "phone", "iso", "iso", "time", "id", "id", "id", "file", "path", "url",
        "address", "word", "word", "phrase", "phrase", "title", "text", "text", "color", "user", "version", "company",
        "int", "int", "small", "count", "num", "price", "pct", "year", "minutes", "?", "?", "enum", "list", "list",
        "object", "objects"]


def camel(parts):
    return parts[0] + "".join(w.cap(p) for p in parts[1:])


def new_param(r, used, snake):
    k = r.choice(POOL)
    if k == "enum":
        kind = "(" + ",".join(dict.fromkeys(r.choice((w.noun(r), r.choice(w.ADJ), w.invented(r))) for _ in range(r.randint(2, 5)))) + ")"
        base = [r.choice(("mode", "level", "type", "status", "style", "size", "kind", "class", "state", w.noun(r)))]
    elif k == "list":
        kind = "[" + r.choice(("word", "person", "first", "city", "id", "int", "file", "thing", "email", "color")) + "]"
        base = [r.choice(("tags", "names", "items", "ids", "values", "members", "labels", "list", w.noun(r) + "s"))]
    elif k in ("object", "objects"):
        ks = {}
        for _ in range(r.choice((2, 2, 3))):
            kk = r.choice(("person", "city", "id", "int", "email", "word", "color", "iso", "small", "pct", "first"))
            ks[r.choice(NAMES[kk]) if kk in NAMES else w.noun(r)] = kk
        kind = "{" + ",".join(f"{a}:{b}" for a, b in ks.items()) + "}"
        base = [r.choice(("details", "options", "address", "range", "contact", "settings", w.noun(r)))]
        if k == "objects":
            kind, base = "[" + kind + "]", [r.choice(("entries", "lines", "rows", "items", "records", w.noun(r) + "s"))]
    else:
        kind = k
        x = r.random()
        if x < 0.6:
            base = r.choice(NAMES[k]).split("_")
        elif x < 0.8:
            base = [w.noun(r)] + ([r.choice(NAMES[k]).split("_")[-1]] if r.random() < 0.6 else [])
        elif x < 0.92:
            base = [w.invented(r, 2)]
        else:
            base = [r.choice(w.ADJ), w.noun(r)]
    name = "_".join(base) if snake else camel(base)
    if name in used:
        return None
    return name, " ".join(base), kind


class Invented:
    """One invented tool. `verb` and `object` may be given, to make a distractor of another tool."""

    def __init__(self, r, verb=None, thing=None):
        self.verb = verb or r.choice(w.VERB)
        self.thing = thing or (w.phrase(r) if r.random() < 0.75 else w.invented(r))
        parts = [self.verb] + self.thing.split()
        x = r.random()
        if x < 0.55:
            self.name = "_".join(parts)
        elif x < 0.70:
            self.name = camel(parts)
        elif x < 0.78:
            self.name = "-".join(parts)
        elif x < 0.86:
            self.name = w.noun(r) + r.choice((".", "_", "/", ":")) + "_".join(parts)
        elif x < 0.93:
            self.name = "_".join(parts[1:] + parts[:1])
        else:
            self.name = w.invented(r) + ("_" + w.invented(r, 1) if r.random() < 0.5 else "")
        snake = r.random() < 0.75
        self.params, used = [], set()
        for _ in range(r.choice((0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 5))):
            p = new_param(r, used, snake)
            if p:
                used.add(p[0])
                self.params.append(p)
        self.required = [p[0] for p in self.params if r.random() < 0.6]
        a = "an" if self.thing[0] in "aeiou" else "a"
        self.desc = r.choice((f"{w.cap(self.verb)} {a} {self.thing}", f"{w.cap(self.verb)} the {self.thing}",
                              f"{w.cap(self.verb)} {a} {self.thing} of the {w.noun(r)}",
                              f"Use this to {self.verb} {a} {self.thing}", f"{w.cap(self.verb)} {self.thing}"))
        if r.random() < 0.4:
            self.desc += "."
        elif r.random() < 0.15:
            self.desc += f". Works with every {w.noun(r)}."
        props, described = {}, r.random() < 0.6
        for name, said, kind in self.params:
            s = schema_of(kind)
            if described and r.random() < 0.9:
                s["description"] = r.choice((w.cap(said), f"The {said}", f"{w.cap(said)} of the {self.thing}", f"The {said} to use"))
            props[name] = s
        fn = {"name": self.name, "description": self.desc}
        if props or r.random() < 0.7:
            fn["parameters"] = {"type": "object", "properties": props}
            if self.required:
                fn["parameters"]["required"] = self.required
        self.schema = {"type": "function", "function": fn}

    def ask(self, r):
        chosen = [p for p in self.params if p[0] in self.required or r.random() < 0.55]
        if r.random() < 0.5:
            r.shuffle(chosen)
        args, said = {}, []
        for name, phrase, kind in chosen:
            v = draw(r, kind)
            args[name] = v
            said.append((phrase if r.random() < 0.9 else name, v, kind))
        the = r.choice(("the", "a", "my", "this", "the", ""))
        obj = (the + " " + self.thing).strip()
        x = r.random()
        if self.name.split("_")[0].isalpha() and self.verb not in self.name or x < 0.15:
            text = r.choice((f"Use {self.name}", f"Call {self.name}", f"Run {self.name}", f"Please call the tool {self.name}"))
        elif x < 0.5:
            text = f"{w.cap(self.verb)} {obj}"
        elif x < 0.62:
            text = f"Please {self.verb} {obj}"
        elif x < 0.72:
            text = f"I want to {self.verb} {obj}"
        elif x < 0.8:
            text = f"I need you to {self.verb} {obj}"
        elif x < 0.9:
            text = f"{self.verb} {obj}"
        else:
            text = f"Could you {self.verb} {obj}"
        return text + clauses(r, said), args

    def result(self, r, args):
        n = r.choice((1, 1, 2, 2, 3))
        out = {}
        for _ in range(n):
            k = r.choice([k for k in NAMES if k not in ("?", "text")])
            out[r.choice(NAMES[k])] = draw(r, k)
        return out

    def tell(self, r, args, result):
        return generic_tell(result)


def quoted(v, kind, r, force=False):
    s = say(v)
    if kind == "text" or force and " " in s or r.random() < 0.15:
        return ('"%s"' if r.random() < 0.85 or "'" in s else "'%s'") % s
    return s


def spoken(v, kind, r):
    if isinstance(v, bool):
        return r.choice(("yes", "true", "on") if v else ("no", "false", "off"))
    if isinstance(v, dict):
        return "(" + ", ".join(f"{k.replace('_', ' ')}: {say(x)}" for k, x in v.items()) + ")"
    if isinstance(v, list):
        if v and isinstance(v[0], dict):
            return ", ".join(spoken(x, "", r) for x in v)
        return say(v)
    if isinstance(v, (int, float)):
        return say(v, r)
    return quoted(v, kind, r)


def clauses(r, said):
    """The arguments in words, in one of several habits of writing."""
    if not said:
        return r.choice(("", ".", "", " now.", " please"))
    style = r.randrange(6)
    pairs = [(p, spoken(v, k, r), v) for p, v, k in said]

    def joined(parts):
        if len(parts) == 1:
            return parts[0]
        return ", ".join(parts[:-1]) + r.choice((" and ", ", ", ", and ")) + parts[-1]
    if style <= 1:
        return r.choice((" with ", ", ", " with ", " using ")) + joined([f"{p} {s}" for p, s, _ in pairs]) + r.choice((".", ""))
    if style == 2:
        sep = r.choice((": ", " = ", "="))
        return r.choice((": ", " with ", ", ")) + r.choice((", ", "; ")).join(f"{p}{sep}{s}" for p, s, _ in pairs)
    if style == 3:
        return ". " + " ".join(f"{r.choice(('The ', 'Its '))}{p} is {s}." for p, s, _ in pairs)
    if style == 4:
        return " using " + joined([f"{s} as {r.choice(('the ', ''))}{p}" for p, s, _ in pairs]) + r.choice((".", ""))
    return ". " + " ".join(f"Set {r.choice(('the ', ''))}{p} to {s}." for p, s, _ in pairs)


def random_tool(r, like=None):
    """An invented tool; like another one in its verb or its object if `like` is given."""
    if like is None:
        return Invented(r)
    if r.random() < 0.5:
        return Invented(r, verb=like.verb)
    return Invented(r, thing=like.thing)
