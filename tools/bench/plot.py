#!/usr/bin/env python3
"""Draws what `evenkeel bench --json` measured: plot.py RESULT.json... > PLOT.svg

One result or several, each named by its file: a group of bars per prompt length and per batch and depth, tokens per
second. A result of `compare.py --json` beside it is drawn with a bar per server and number of clients. Errors are one line."""
import json, os, sys
from xml.sax.saxutils import escape

COLOURS = ["#1b6ca8", "#e07a1f", "#3a8f4d", "#a23b72", "#6b6b6b", "#b59f00"]
WIDTH, BAR, GAP, PLOT, TOP, LEFT = 760, 18, 22, 190, 46, 70


def series(path):
    """[(name, {panel: {label: tokens per second}})] of a file."""
    with open(path, encoding="utf-8") as f:
        result = json.load(f)
    name = os.path.splitext(os.path.basename(path))[0]
    if "compare" in result:
        return [(s["server"], {"clients": {str(r["clients"]): r["tokens_per_second"] for r in s["rows"]}}) for s in result["compare"]]
    prompts = {str(r["tokens"]): r["tokens_per_second"] for r in result["prompt"]}
    steps = {f'{r["batch"]}' + (f' at {r["depth"]}' if r["depth"] else ""): r["tokens_per_second"] for r in result["generate"]}
    return [(name, {"prompt": prompts, "batch": steps})]


def nice(top):
    """A round number not below top, and the distance of the lines of the grid."""
    step = 10.0 ** len(str(int(top))) / 100 or 1
    while step * 5 < top:
        step *= 2 if str(step)[0] in "15" else 2.5
    return step * -(-top // step), step


def panel(title, unit, all_series, y):
    """One panel of bars at height y, as lines of SVG."""
    labels = list(dict.fromkeys(k for _, values in all_series for k in values))
    top, step = nice(max(v for _, values in all_series for v in values.values()))
    base = y + TOP + PLOT
    out = [f'<text x="{LEFT}" y="{y + 24}" class="title">{escape(title)}</text>']
    for i in range(int(round(top / step)) + 1):
        at = base - PLOT * i * step / top
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{at:.1f}" y2="{at:.1f}" class="grid"/>')
        out.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" class="number">{i * step:g}</text>')
    group = min((WIDTH - LEFT - 40) / len(labels), len(all_series) * (BAR + 4) + GAP + 30)
    for k, label in enumerate(labels):
        x = LEFT + 14 + k * group
        bar = min(BAR, (group - GAP / 2) / len(all_series) - 3)
        for i, (name, values) in enumerate(all_series):
            if label not in values:
                continue
            high = PLOT * values[label] / top
            out.append(f'<rect x="{x + i * (bar + 3):.1f}" y="{base - high:.1f}" width="{bar:.1f}" height="{high:.1f}" '
                       f'fill="{COLOURS[i % len(COLOURS)]}"><title>{escape(name)}: {values[label]:.1f}</title></rect>')
            out.append(f'<text x="{x + i * (bar + 3) + bar / 2:.1f}" y="{base - high - 4:.1f}" class="value">{values[label]:.4g}</text>')
        out.append(f'<text x="{x + len(all_series) * (bar + 3) / 2:.1f}" y="{base + 16}" class="label">{escape(label)}</text>')
    out.append(f'<text x="{WIDTH - 20}" y="{base + 34}" class="number">{escape(unit)}</text>')
    return out


def draw(all_series):
    panels = [("prompt", "Prompts: tokens per second", "tokens in the prompt"), ("batch", "Generation: tokens per second, all requests together", "requests that generate together (at depth)"),
              ("clients", "Chat clients: tokens per second, all replies together", "clients at the same time")]
    body, y = [], 10
    for i, (name, _) in enumerate(all_series):
        body.append(f'<rect x="{LEFT}" y="{y + 4 + 18 * i}" width="12" height="12" fill="{COLOURS[i % len(COLOURS)]}"/>')
        body.append(f'<text x="{LEFT + 18}" y="{y + 14 + 18 * i}">{escape(name)}</text>')
    y += 18 * len(all_series) + 6
    for key, title, unit in panels:
        part = [(name, values[key]) for name, values in all_series if values.get(key)]
        if part:
            body += panel(title, unit, part, y)
            y += TOP + PLOT + 44
    style = ("text{font:12px sans-serif;fill:#222}.title{font-weight:bold;font-size:14px}.number{text-anchor:end}"
             ".label,.value{text-anchor:middle}.value{font-size:10px}.grid{stroke:#ccc}")
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" role="img"><style>{style}</style>',
                      f'<rect width="{WIDTH}" height="{y}" fill="#fff"/>', *body, "</svg>"])


def main():
    if len(sys.argv) < 2:
        sys.exit("plot.py: files that `bench --json` wrote are needed")
    found = []
    for path in sys.argv[1:]:
        try:
            found += series(path)
        except (OSError, ValueError, KeyError, TypeError) as e:
            sys.exit(f"plot.py: {path}: no result of bench --json ({type(e).__name__}: {e})")
    print(draw(found))


if __name__ == "__main__":
    main()
