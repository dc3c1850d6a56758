"""What is asked about a picture, and what is answered."""

ANY = ("What do you see?", "What is in the picture?", "What does the picture show?", "Describe the picture.", "What is this?", "Describe this image.", "What's in this image?",
       "What can you see?", "What is shown here?", "Look at the picture. What is it?", "What do you see in the image?", "Tell me what you see.")
SHAPE = ("Which shape is this?", "What shape is it?", "Which shape do you see?", "What shape do you see?", "Name the shape.", "What is the shape?", "What shape is in the picture?")
COLOR = ("What color is it?", "Which color is it?", "What colour is it?", "What is the color?", "Name the color.", "Which colour is the {s}?", "What color is the {s}?", "What color do you see?",
         "What color is this {s}?")
BOTH = ("Which shape is this, and which color?", "Color and shape?", "Name the color and the shape.", "What color and shape is it?", "What shape and color do you see?",
        "Which color and shape do you see?")
COUNT = ("How many {p} are there?", "How many {p} do you see?", "Count the {p}.", "How many {p}?", "How many are there?", "How many shapes are there?", "How many {p} are in the picture?",
         "How many things do you see?", "How many objects are in the picture?", "Count the shapes.", "How many {p} can you count?", "How many do you see?", "What is the number of {p}?")
NUMBER = ("What number is this?", "Which number is this?", "Which number do you see?", "What number do you see?", "Read the number.", "What is the number?", "What is the number in the picture?",
          "Which number is shown?", "What number is in the picture?", "What does it say?", "Read this.", "What is written here?", "Read the digits.")
WORD = ("What does it say?", "Read the word.", "Which word is this?", "What word is this?", "What word do you see?", "Which word do you see?", "What is written here?", "Read this.",
        "What is the word?", "What is the word in the picture?", "What does the picture say?", "What is written in the picture?", "Read the text.", "What does the text say?", "Which word is shown?")


def plural(shape):
    return shape + ("es" if shape == "cross" else "s")


def ask(r, s):
    """(question, answer)"""
    kind, shape = s["kind"], s.get("shape")
    x = r.random()
    if kind == "shape":
        both = f"A{'n' if s['color'][0] == 'o' else ''} {s['color']} {shape}."
        if x < .4:
            return r.choice(ANY), both
        if x < .55:
            return r.choice(BOTH), both
        if x < .75:
            return r.choice(SHAPE), f"A {shape}."
        if x < .95:
            return r.choice(COLOR).format(s=shape), s["color"]
        return r.choice(COUNT).format(p=plural(shape)), "1"
    if kind == "count":
        n = s["count"]
        if x < .7:
            return r.choice(COUNT).format(p=plural(shape)), str(n)
        if x < .85:
            return r.choice(ANY), f"{n} {s['color']} {plural(shape) if n > 1 else shape}."
        if x < .93:
            return r.choice(COLOR).format(s=shape), s["color"]
        return r.choice(SHAPE), f"A {shape}." if n == 1 else w_cap(plural(shape)) + "."
    if x < .25:
        return r.choice(ANY), s["text"]
    return r.choice(NUMBER if kind == "number" else WORD), s["text"]


def w_cap(s):
    return s[:1].upper() + s[1:]
