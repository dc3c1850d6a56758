"""The token ids on which tests/golden/test_pocket.c compares the default arithmetic with the exact one.

    python3 tools/golden/make_ids.py > tests/golden/pocket-ids.txt

A line is a sequence of ids of models/pocket, commas between: conversations of models/training (a seed that training
never used), one of them longer than the model's window of 512, and a paragraph of plain English. Standard
library only. The output is a pure function of this file, of models/training and of the bundled tokenizer.
"""
import os
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "models", "training"))
import mixture
import tokenizer

SEED = 990_017  # training uses seeds below 1000
CONVERSATIONS, SHORT, LONG = 9, (60, 260), (640, 800)
PROSE = """The answer is a pure function of the model and the tokens before it. Alone, together, arriving late, in \
chunks of any size, preempted and resumed, on one or many threads, on any instruction set: the same bits of every \
logit. A batch pads a prompt and every key moves, a mask makes the attention kernel add in another order, a chunk \
border regroups a sum. The last bits flip, and with them a token."""


def main():
    encode = tokenizer.Encoder(os.path.join(ROOT, "models", "pocket", "tokenizer.json")).encode
    short, long, i = [], [], 0
    while len(short) < CONVERSATIONS or not long:
        ids = encode(mixture.text_of(mixture.sample(SEED, i)))
        if SHORT[0] <= len(ids) <= SHORT[1] and len(short) < CONVERSATIONS:
            short.append(ids)
        if LONG[0] <= len(ids) <= LONG[1] and not long:
            long.append(ids)
        i += 1
    for ids in long + short + [encode("<bos>" + PROSE)]:
        print(",".join(map(str, ids)))


if __name__ == "__main__":
    main()
