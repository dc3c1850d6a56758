"""Reasoning tasks with worked steps: (question, thought, answer) for each, all answers checkable."""
import words as w


def add_steps(a, b):
    x, y, carry, parts = str(a)[::-1], str(b)[::-1], 0, []
    for i in range(max(len(x), len(y))):
        p, q = int(x[i]) if i < len(x) else 0, int(y[i]) if i < len(y) else 0
        s = p + q + carry
        parts.append(f"{p}+{q}" + (f"+{carry}" if carry else "") + f"={s}")
        carry = s // 10
    return f"{a}+{b}: " + ", ".join(parts) + f". So {a + b}."


def sub_steps(a, b):
    x, y, borrow, parts = str(a)[::-1], str(b)[::-1], 0, []
    for i in range(len(x)):
        p, q = int(x[i]), int(y[i]) if i < len(y) else 0
        d = p - q - borrow
        left = f"{p + 10 if d < 0 else p}-{q}" + (f"-{borrow}" if borrow else "")
        borrow = 1 if d < 0 else 0
        parts.append(f"{left}={d % 10}")
    return f"{a}-{b}: " + ", ".join(parts) + f". So {a - b}."


def mul1(a, b):
    carry, parts = 0, []
    for ch in str(a)[::-1]:
        s = int(ch) * b + carry
        parts.append(f"{ch}*{b}" + (f"+{carry}" if carry else "") + f"={s}")
        carry = s // 10
    return f"{a}*{b}: " + ", ".join(parts) + f". So {a * b}."


def mul_steps(a, b):
    zeros = len(str(b)) - len(str(b).rstrip("0"))
    core = b // 10 ** zeros
    if core == 1:
        return f"{a}*{b}: add {zeros} zeros. So {a * b}."
    if core < 10:
        s = mul1(a, core)
        return s if not zeros else s + f" Add {zeros} zero{'s' if zeros > 1 else ''}: {a * b}."
    lo, hi = core % 10, core // 10
    s = (mul1(a, lo) + " " if lo else "") + mul1(a, hi) + f" Times 10: {a * hi * 10}. "
    s += add_steps(a * hi * 10, a * lo) if lo else ""
    return s.strip() + (f" Add {zeros} zeros: {a * b}." if zeros else "")


def div_steps(n, d):
    rest, parts = 0, []
    for ch in str(n):
        x = rest * 10 + int(ch)
        parts.append(f"{x}/{d}={x // d} rest {x % d}")
        rest = x % d
    return f"{n}/{d}: " + ", ".join(parts) + f". So {n // d}."


def num(r, lo=1, hi=4):
    n = r.randint(lo, hi)
    return r.randint(10 ** (n - 1) if n > 1 else 1, 10 ** n - 1)


def arithmetic(r):
    k = r.randrange(5)
    a, b = num(r, 2, 4), num(r, 1, 4)
    if k <= 1:
        q = r.choice(("What is {0} + {1}?", "{0} + {1} = ?", "Add {0} and {1}.", "How much is {0} plus {1}?", "Calculate {0}+{1}.", "what's {0}+{1}"))
        if r.random() < 0.25:
            c = num(r, 1, 3)
            return f"What is {a} + {b} + {c}?", add_steps(a, b) + " " + add_steps(a + b, c), a + b + c
        return q.format(a, b), add_steps(a, b), a + b
    if k <= 2:
        a, b = max(a, b), min(a, b)
        q = r.choice(("What is {0} - {1}?", "{0} - {1} = ?", "Subtract {1} from {0}.", "How much is {0} minus {1}?", "Calculate {0}-{1}."))
        return q.format(a, b), sub_steps(a, b), a - b
    a, b = num(r, 1, 3), num(r, 1, 2)
    q = r.choice(("What is {0} * {1}?", "{0} times {1} = ?", "Multiply {0} by {1}.", "How much is {0} times {1}?", "Calculate {0}*{1}.", "What is {0} x {1}?"))
    return q.format(a, b), mul_steps(a, b), a * b


def story(r):
    n, t, k = w.first(r), r.choice(w.THING), r.randrange(6)
    a, b, c = num(r, 2, 3), num(r, 1, 2), num(r, 1, 3)
    if k == 0:
        a, b = max(a, b), min(a, b)
        v = r.choice(("gives away", "sells", "loses", "uses", "eats"))
        g = r.choice(("buys", "finds", "gets", "receives"))
        return (f"{n} has {a} {t}, {v} {b} and {g} {c} more. How many {t} does {n} have now?",
                sub_steps(a, b) + " " + add_steps(a - b, c), a - b + c)
    if k == 1:
        p, m = r.randint(2, 30), r.randint(2, 12)
        return (f"One box holds {p} {t}. How many {t} are in {m} boxes?", mul_steps(p, m), p * m)
    if k == 2:
        p, m, p2, m2 = r.randint(2, 30), r.randint(2, 9), r.randint(2, 20), r.randint(2, 9)
        t2 = r.choice([x for x in w.THING if x != t])
        return (f"{n} buys {m} {t} at {p} each and {m2} {t2} at {p2} each. What is the total?",
                mul_steps(p, m) + " " + mul_steps(p2, m2) + " " + add_steps(p * m, p2 * m2), p * m + p2 * m2)
    if k == 3:
        m = r.randint(2, 9)
        q = r.randint(3, 60)
        return (f"{m * q} {t} are shared equally by {m} people. How many does each get?",
                div_steps(m * q, m), q)
    if k == 4:
        return (f"A shop had {a} {t} on Monday and got {c} more on Tuesday. How many {t} are there?", add_steps(a, c), a + c)
    n2 = w.first(r)
    a = r.randint(10, 60)
    d = r.randint(2, 20)
    return (f"{n} is {a} years old. {n2} is {d} years older. How old is {n2}?", add_steps(a, d), a + d)


UNITS = (("hours", "minutes", 60), ("minutes", "seconds", 60), ("days", "hours", 24), ("weeks", "days", 7), ("kilometers", "meters", 1000),
         ("km", "m", 1000), ("meters", "centimeters", 100), ("kg", "grams", 1000), ("feet", "inches", 12), ("dozen", "pieces", 12),
         ("years", "months", 12), ("liters", "milliliters", 1000), ("tons", "kg", 1000), ("m", "cm", 100), ("kilograms", "grams", 1000))


def units(r):
    a, b, f = r.choice(UNITS)
    n = r.randint(2, 60) if f < 100 else r.randint(2, 400)
    q = r.choice(("How many {1} are {2} {0}?", "Convert {2} {0} to {1}.", "{2} {0} in {1}?", "How many {1} are in {2} {0}?"))
    return q.format(a, b, n), f"1 {a} is {f} {b}. {mul_steps(n, f)}", n * f


def compare(r):
    big = r.random() < 0.5
    k = r.randrange(3)
    n = r.randint(2, 6)
    d = r.choice((1, 2, 3, 4))
    nums = r.sample(range(10 ** (d - 1), 10 ** (d + 1)), n)
    best, parts = nums[0], [str(nums[0])]
    names = r.sample(w.FIRST, n)
    who = names[0]
    for x, name in zip(nums[1:], names[1:]):
        sign = ">" if x > best else "<"
        if (x > best) == big:
            parts.append(f"{x}{sign}{best}, take {x}")
            best, who = x, name
        else:
            parts.append(f"{x}{sign}{best}, keep {best}")
    thought = ". ".join(parts) + "."
    if k == 0:
        word = r.choice(("largest", "biggest", "highest", "greatest") if big else ("smallest", "lowest", "least"))
        return f"Which is the {word} number: {', '.join(map(str, nums))}?", thought, best
    if k == 1:
        return (f"Find the {'maximum' if big else 'minimum'} of {', '.join(map(str, nums))}.", thought, best)
    adj, unit = r.choice((("older", "years old"), ("taller", "cm tall"), ("heavier", "kg heavy"), ("richer", "dollars rich"), ("faster", "seconds ahead")))
    sup = {"older": ("oldest", "youngest"), "taller": ("tallest", "shortest"), "heavier": ("heaviest", "lightest"),
           "richer": ("richest", "poorest"), "faster": ("fastest", "slowest")}[adj][0 if big else 1]
    facts = ", ".join(f"{a} is {b} {unit}" for a, b in zip(names, nums))
    return f"{facts}. Who is the {sup}?", thought + f" That is {who}.", who


def count(r):
    k = r.randrange(4)
    if k == 0:
        word = r.choice((w.invented(r, r.randint(2, 4)), w.noun(r), r.choice(w.ADJ) + w.noun(r)))
        ch = r.choice(word) if r.random() < 0.85 else r.choice("abcdefghijklmnopqrstuvwxyz")
        n, parts = 0, []
        for x in word:
            if x == ch:
                n += 1
                parts.append(f"{x} {n}")
            else:
                parts.append(x)
        q = r.choice(('How many times does the letter "{0}" occur in "{1}"?', "How many {0}'s are in {1}?", 'Count the letter {0} in the word {1}.'))
        return q.format(ch, word), ", ".join(parts) + f". So {n}.", n
    if k == 1:
        xs = [r.choice(w.NOUN) for _ in range(r.randint(3, 12))]
        return (f"How many words are in this list: {', '.join(xs)}?",
                ", ".join(f"{x} {i + 1}" for i, x in enumerate(xs)) + ".", len(xs))
    if k == 2:
        xs = [r.randint(1, 99) for _ in range(r.randint(3, 9))]
        even = r.random() < 0.5
        n, parts = 0, []
        for x in xs:
            if (x % 2 == 0) == even:
                n += 1
                parts.append(f"{x} yes {n}")
            else:
                parts.append(f"{x} no")
        return (f"How many of these numbers are {'even' if even else 'odd'}: {', '.join(map(str, xs))}?", ", ".join(parts) + f". So {n}.", n)
    word = r.choice((w.invented(r, r.randint(1, 4)), w.noun(r)))
    return (r.choice((f'How many letters does "{word}" have?', f"How many letters are in the word {word}?")),
            ", ".join(f"{x} {i + 1}" for i, x in enumerate(word)) + ".", len(word))


def dates(r):
    k = r.randrange(3)
    if k == 0:
        d, n = r.randrange(7), r.randint(2, 40)
        back = r.random() < 0.3
        m = n % 7
        names = [w.DAY[(d + (-i if back else i)) % 7] for i in range(1, m + 1)]
        ans = w.DAY[(d - n if back else d + n) % 7]
        t = (f"{n}={n // 7}*7+{m}. " if n >= 7 else "") + (f"{m} days {'back' if back else 'on'} from {w.DAY[d]}: {', '.join(names)}." if m else f"The same day, {ans}.")
        q = f"Today is {w.DAY[d]}. What day " + (f"was it {n} days ago?" if back else f"is it in {n} days?")
        return q, t, ans
    if k == 1:
        m = r.randrange(12)
        d, n = r.randint(1, w.MONTH_DAYS[m]), r.randint(2, 28)
        s, L = d + n, w.MONTH_DAYS[m]
        if s > L:
            ans = f"{s - L} {w.MONTH[(m + 1) % 12]}"
            t = f"{d}+{n}={s}. {w.MONTH[m]} has {L} days. {s}-{L}={s - L}. So {ans}."
        else:
            ans = f"{s} {w.MONTH[m]}"
            t = f"{d}+{n}={s}. {w.MONTH[m]} has {L} days. So {ans}."
        return f"What date is {n} days after {d} {w.MONTH[m]}?", t, ans
    h, m, dh, dm = r.randint(0, 20), r.randint(0, 59), r.randint(0, 5), r.randint(1, 59)
    s, c = m + dm, 0
    t = f"{m}+{dm}={s}. "
    if s >= 60:
        t += f"{s}-60={s - 60}, carry 1. "
        s, c = s - 60, 1
    H = h + dh + c
    t += f"{h}+{dh}" + (f"+{c}" if c else "") + f"={H}. "
    if H >= 24:
        t += f"{H}-24={H - 24}. "
        H -= 24
    ans = f"{H:02d}:{s:02d}"
    dur = (f"{dh} hours and " if dh else "") + f"{dm} minutes"
    q = r.choice(("A train leaves at {0} and travels {1}. When does it arrive?", "It is {0}. What time is it in {1}?", "A film starts at {0} and lasts {1}. When does it end?"))
    return q.format(f"{h:02d}:{m:02d}", dur), t + f"So {ans}.", ans


def two_step(r):
    a, b, c = num(r, 1, 2), num(r, 1, 1) + 1, num(r, 1, 2)
    k = r.randrange(3)
    if k == 0:
        return f"What is {a} * {b} + {c}?", mul_steps(a, b) + " " + add_steps(a * b, c), a * b + c
    if k == 1:
        return f"What is ({a} + {c}) * {b}?", add_steps(a, c) + " " + mul_steps(a + c, b), (a + c) * b
    a, c = max(a, c), min(a, c)
    return f"What is ({a} - {c}) * {b}?", sub_steps(a, c) + " " + mul_steps(a - c, b), (a - c) * b


FAMILIES = (arithmetic, arithmetic, story, story, units, compare, compare, count, count, dates, dates, two_step)


def question(r):
    q, thought, answer = r.choice(FAMILIES)(r)
    return q, thought, str(answer)
