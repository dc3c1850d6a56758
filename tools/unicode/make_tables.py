#!/usr/bin/env python3
"""Writes src/text/unicode_table.h: the properties of Python's str that the chat template relies on.

    tools/unicode/make_tables.py > src/text/unicode_table.h

Everything is asked of this Python's str and unicodedata, so the table is right by construction.
"""
import sys, unicodedata

ALL = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def runs(points):
    out = []
    for c in points:
        if out and (c == out[-1][1] + 1 or (c == 0xE000 and out[-1][1] == 0xD7FF)):
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def shifts(mapping):
    """[first, last, step, delta]: neighbours one or two apart that move by the same distance."""
    out = []
    for c, to in sorted(mapping.items()):
        d = to - c
        if out and out[-1][3] == d:
            first, last, step, _ = out[-1]
            if c - last in (1, 2) and (first == last or step == c - last):
                out[-1][1], out[-1][2] = c, c - last
                continue
        out.append([c, c, 1, d])
    return out


def table(name, rows, kind):
    print(f"static const {kind} {name}[] = {{")
    cells = ["{" + ", ".join(str(v) if v < 0 or (i == 2 and len(r) == 4 and kind == "shift") else f"0x{v:X}" for i, v in enumerate(r)) + "}" for r in rows]
    line = "   "
    for cell in cells:
        if len(line) + len(cell) + 2 > 100:
            print(line)
            line = "   "
        line += " " + cell + ","
    print(line + "\n};\n")


def full(change):
    one, many = {}, []
    for c in ALL:
        s = change(chr(c))
        if s == chr(c):
            continue
        if len(s) == 1:
            one[c] = ord(s)
        else:
            many.append([c] + [ord(x) for x in s] + [0] * (3 - len(s)))
    return shifts(one), many


# Cased and Case_Ignorable have no accessor; how a final sigma comes out tells them apart.
final = lambda before: ("\u03c2" == (before + "\u03a3").lower()[-1])
after_cased = [c for c in ALL if final("a" + chr(c))]
after_other = set(c for c in ALL if final("1" + chr(c)))
cased = sorted(after_other)
ignorable = [c for c in after_cased if c not in after_other]

lower, lower_many = full(str.lower)
upper, upper_many = full(str.upper)
print(f"/* Written by tools/unicode/make_tables.py from Unicode {unicodedata.unidata_version}; do not edit. */")
print("#ifndef EK_TEXT_UNICODE_TABLE_H\n#define EK_TEXT_UNICODE_TABLE_H\n\n#include <stdint.h>\n")
print("typedef struct { uint32_t first, last; } range;")
print("/* first, first + step, …, last: each moves by delta */")
print("typedef struct { uint32_t first, last; int step, delta; } shift;")
print("typedef struct { uint32_t from, a, b, c; } expand; /* from becomes a b c; 0: none */\n")
table("lower_shifts", lower, "shift")
table("lower_expands", lower_many, "expand")
table("upper_shifts", upper, "shift")
table("upper_expands", upper_many, "expand")
print("/* cased and not case-ignorable */")
table("cased", runs(cased), "range")
table("case_ignorable", runs(ignorable), "range")
print("/* what a regular expression's \\w takes: letters, marks, decimal digits, connectors, joiners */")
word = lambda c: (unicodedata.category(chr(c))[0] in "LM" or unicodedata.category(chr(c)) in ("Nd", "Nl", "Pc")
                  or c in (0x200C, 0x200D) or 0x24B6 <= c <= 0x24E9 or 0x1F130 <= c <= 0x1F149
                  or 0x1F150 <= c <= 0x1F169 or 0x1F170 <= c <= 0x1F189)
table("word", runs(c for c in ALL if word(c)), "range")
table("unprintable", runs(c for c in ALL if not chr(c).isprintable()), "range")
print("#endif")
