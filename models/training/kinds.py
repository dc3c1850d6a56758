"""Values by kind: what an argument, a fact or a field can be, drawn from open-ended spaces."""
import words as w

LETTERS = "abcdefghijklmnopqrstuvwxyz"
ALNUM = LETTERS + "0123456789"


def digits(r, n):
    return "".join(r.choice("0123456789") for _ in range(n))


def ident(r):
    k = r.randrange(9)
    up = "".join(r.choice(LETTERS) for _ in range(r.randint(1, 4))).upper()
    if k == 0:
        return up + "-" + digits(r, r.randint(2, 6))
    if k == 1:
        return up + digits(r, r.randint(2, 6))
    if k == 2:
        return digits(r, r.randint(3, 9))
    if k == 3:
        return r.choice(w.NOUN)[:r.randint(2, 5)] + "_" + digits(r, r.randint(2, 5))
    if k == 4:
        return "".join(r.choice("0123456789abcdef") for _ in range(r.choice((6, 8, 8, 12))))
    if k == 5:
        return "".join(r.choice(ALNUM) for _ in range(r.randint(4, 10)))
    if k == 6:
        return up + "-" + digits(r, 4) + "-" + digits(r, r.randint(2, 3))
    if k == 7:
        return "#" + digits(r, r.randint(2, 6))
    return r.choice(w.NOUN) + "-" + r.choice(w.ADJ) + "-" + digits(r, r.randint(1, 3))


def word_or_invented(r):
    return r.choice(w.NOUN) if r.random() < 0.5 else w.invented(r)


def email(r):
    host = word_or_invented(r) + r.choice((".com", ".org", ".net", ".io", ".no", ".example"))
    a, b = w.first(r).lower(), w.last(r).lower().replace(" ", "").replace("'", "")
    user = r.choice((a, a + "." + b, a[0] + b, b, a + str(r.randint(1, 99)), a + "_" + b))
    return user + "@" + host


def phone(r):
    k = r.randrange(4)
    if k == 0:
        return "+" + str(r.randint(1, 99)) + " " + digits(r, 3) + " " + digits(r, 3) + " " + digits(r, r.randint(2, 4))
    if k == 1:
        return digits(r, 3) + "-" + digits(r, 4)
    if k == 2:
        return "+" + digits(r, r.randint(8, 12))
    return "(" + digits(r, 3) + ") " + digits(r, 3) + "-" + digits(r, 4)


def iso_date(r):
    m = r.randint(1, 12)
    return f"{r.randint(2019, 2031)}-{m:02d}-{r.randint(1, w.MONTH_DAYS[m - 1]):02d}"


def date(r):
    x = r.random()
    if x < 0.75:
        return iso_date(r)
    if x < 0.9:
        return f"{r.randint(1, 28)} {r.choice(w.MONTH)}" + (f" {r.randint(2020, 2030)}" if r.random() < 0.4 else "")
    if x < 0.93:
        return f"{r.choice(w.MONTH)} {r.randint(1, 28)}"
    if x < 0.96:
        return r.choice(("tomorrow", "today", "next ", "this ")).replace("t ", "t " + r.choice(w.DAY)).replace("s ", "s " + r.choice(w.DAY))
    return r.choice(w.DAY)


def clock(r):
    x = r.random()
    if x < 0.15:
        return f"{r.randint(1, 12)}{r.choice((' ', ''))}{r.choice(('am', 'pm', 'pm', 'PM'))}"
    if x < 0.22:
        return f"{r.randint(1, 12)}:{r.choice(('00', '15', '30', '45'))} {r.choice(('am', 'pm', 'a.m.', 'p.m.'))}"
    if x < 0.25:
        return r.choice(("noon", "midnight"))
    return f"{r.randint(0, 23):02d}:{r.choice((0, 0, 15, 30, 45, r.randint(0, 59))):02d}"


def ext(r):
    return r.choice((".txt", ".md", ".pdf", ".csv", ".json", ".py", ".c", ".h", ".png", ".log", ".yaml",
                     ".html", ".js", ".docx", ".sh", ".tar.gz", ".conf", ""))


def stem(r):
    return r.choice(("_", "-", "")).join(word_or_invented(r) for _ in range(r.choice((1, 1, 2, 2, 3)))) + \
        (digits(r, r.randint(1, 3)) if r.random() < 0.2 else "")


def filename(r):
    s = stem(r)
    return (s.upper() if r.random() < 0.08 else s) + ext(r)


def path(r):
    parts = [stem(r) for _ in range(r.choice((0, 1, 1, 2, 3)))]
    root = r.choice(("/", "/home/" + w.first(r).lower() + "/", "~/", "", "", "./", "src/", "/var/log/", "docs/"))
    return root + "/".join(parts + [filename(r)])


def url(r):
    return "https://" + r.choice(("", "www.", "api.", "docs.")) + word_or_invented(r) + \
        r.choice((".com", ".org", ".net", ".io")) + "".join("/" + stem(r) for _ in range(r.randrange(3)))


def integer(r):
    x = r.random()
    if x < 0.45:
        return r.randint(1, 20)
    if x < 0.75:
        return r.randint(1, 200)
    if x < 0.92:
        return r.randint(100, 9999)
    return r.choice((0, -r.randint(1, 50), r.randint(10000, 9999999)))


def decimal(r):
    x = r.random()
    if x < 0.4:
        return round(r.uniform(0.1, 100), 1)
    if x < 0.8:
        return round(r.uniform(0.1, 1000), 2)
    if x < 0.9:
        return round(-r.uniform(0.1, 90), r.randint(1, 3))
    return r.randint(1, 500)


def title(r):
    ws = [r.choice((r.choice(w.ADJ), r.choice(w.NOUN), r.choice(w.NOUN), w.invented(r))) for _ in range(r.randint(1, 4))]
    if r.random() < 0.6:
        return " ".join(w.cap(x) for x in ws)
    return w.cap(" ".join(ws)) if r.random() < 0.6 else " ".join(ws)


def address(r):
    return f"{r.randint(1, 400)} {w.cap(word_or_invented(r))} {r.choice(('Street', 'Road', 'Lane', 'Avenue', 'Square', 'Way'))}"


KIND = {
    "person": w.person, "first": w.first, "city": w.city, "country": lambda r: r.choice(w.COUNTRY),
    "email": email, "phone": phone, "date": date, "iso": iso_date, "time": clock,
    "id": ident, "file": filename, "path": path, "url": url, "address": address,
    "word": word_or_invented, "phrase": w.phrase, "title": title, "text": w.sentence,
    "color": lambda r: r.choice(w.COLOR), "language": lambda r: r.choice(w.LANGUAGE),
    "currency": lambda r: r.choice(w.CURRENCY), "day": lambda r: r.choice(w.DAY),
    "thing": lambda r: r.choice(w.THING), "food": lambda r: r.choice(w.FOOD),
    "int": integer, "small": lambda r: r.randint(1, 12), "count": lambda r: r.randint(2, 60),
    "num": decimal, "price": lambda r: round(r.uniform(1, 900), 2) if r.random() < .6 else r.randint(1, 900),
    "pct": lambda r: r.randint(1, 100), "year": lambda r: r.randint(1950, 2030),
    "temp": lambda r: r.randint(-15, 39), "minutes": lambda r: r.choice((5, 10, 15, 20, 25, 30, 45, 60, 90, r.randint(1, 120))),
    "version": lambda r: ".".join(str(r.randint(0, 20)) for _ in range(r.choice((2, 3)))),
    "ip": lambda r: ".".join(str(r.randint(1, 254)) for _ in range(4)),
    "user": lambda r: r.choice((w.first(r).lower() + digits(r, r.randint(0, 3)), w.invented(r) + "_" + w.invented(r), w.invented(r))),
    "branch": lambda r: r.choice(("main", "develop", "feature/" + stem(r), "fix-" + stem(r), "release/" + str(r.randint(1, 9)))),
    "sky": lambda r: r.choice(("sunny", "cloudy", "light rain", "rain", "snow", "fog", "clear sky", "windy", "storm", "overcast", "drizzle")),
    "state": lambda r: r.choice(("open", "closed", "pending", "shipped", "delivered", "in transit", "failed", "active", "paused", "done", "on time", "delayed")),
    "ticker": lambda r: "".join(r.choice(LETTERS) for _ in range(r.randint(2, 4))).upper(),
    "company": lambda r: w.cap(word_or_invented(r)) + r.choice((" Ltd", " AG", " Inc", " Group", "", "", " Labs", " Foods")),
    "expr": lambda r: expression(r),
    "measure": lambda r: f"{decimal(r)}{r.choice((' km', ' kg', ' km/h', '%', ' C', '°C', ' m', ' EUR', ' ms', ' GB', ' hours', ' degrees'))}",
    "bool": lambda r: r.random() < 0.5, "list": lambda r: [KIND[r.choice(("word", "first", "city"))](r) for _ in range(r.randint(1, 3))],
    "any": lambda r: KIND[r.choice(OPEN)](r),
}
OPEN = ("person", "city", "email", "phone", "iso", "time", "id", "file", "path", "url", "address", "word",
        "phrase", "title", "text", "color", "user", "version", "company")
NUMERIC = ("int", "small", "count", "num", "price", "pct", "year", "temp", "minutes")


def expression(r):
    ops = r.choice((1, 1, 2, 3))
    s = str(integer(r) if r.random() < .8 else decimal(r))
    for _ in range(ops):
        op = r.choice("+-*/")
        s += r.choice((f" {op} ", f" {op} ", op)) + str(abs(integer(r)) if r.random() < .8 else abs(decimal(r)))
    return s


NUMBER_WORD = ("zero one two three four five six seven eight nine ten eleven twelve").split()


def say(v, r=None):
    """How a value is written in running text. Lists are joined with commas and "and"."""
    if v is True:
        return "yes"
    if v is False:
        return "no"
    if isinstance(v, (list, tuple)):
        parts = [say(x) for x in v]
        return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
    if isinstance(v, dict):
        return ", ".join(k.replace("_", " ") + " " + say(x) for k, x in v.items())
    if isinstance(v, int) and r and 0 < v <= 12 and r.random() < 0.15:
        return NUMBER_WORD[v]
    return str(v)
