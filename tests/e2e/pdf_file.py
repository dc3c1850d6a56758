"""PDFs with a line of text on each page, and their pages as the program has them drawn. Python standard library only."""
import os, subprocess, tempfile


def pdf(*lines):
    out = "%PDF-1.1\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Count " + str(len(lines)) + "/Kids[" + " ".join(
        f"{3 + 2 * i} 0 R" for i in range(len(lines))) + "]>>endobj\n"
    for i, line in enumerate(lines):
        text = f"BT /F 9 Tf 9 9 Td ({line}) Tj ET\n"
        out += (f"{3 + 2 * i} 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 400 99]/Contents {4 + 2 * i} 0 R/Resources<</Font<</F<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"
                f">>>>>>endobj\n{4 + 2 * i} 0 obj<</Length {len(text)}>>stream\n{text}endstream endobj\n")
    return (out + f"trailer<</Root 1 0 R/Size {3 + 2 * len(lines)}>>\n%%EOF\n").encode()


def endless():
    """A page of a form of ten forms of ten forms...: a few bytes that take longer than any limit."""
    out, depth = "%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Count 1/Kids[3 0 R]>>endobj\n", 9
    out += "3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]/Contents 4 0 R/Resources<</XObject<</X 5 0 R>>>>>>endobj\n4 0 obj<</Length 5>>stream\n/X Do\nendstream endobj\n"
    for i in range(depth):
        text = "/X Do " * 10 if i + 1 < depth else "0 0 9 9 re f"
        out += (f"{5 + i} 0 obj<</Type/XObject/Subtype/Form/BBox[0 0 99 99]/Resources<</XObject<</X {6 + i} 0 R>>>>/Length {len(text)}>>stream\n{text}\n"
                "endstream endobj\n")
    return (out + f"trailer<</Root 1 0 R/Size {5 + depth}>>\n%%EOF\n").encode()


def drawn(data):
    """The pages, as the server has them drawn: PNG files."""
    with tempfile.TemporaryDirectory() as d:
        subprocess.run(["pdftoppm", "-q", "-png", "-scale-to", "1600", "-", os.path.join(d, "p")], input=data, check=True)
        return [open(os.path.join(d, n), "rb").read() for n in sorted(os.listdir(d))]
