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


def drawn(data):
    """The pages, as the server has them drawn: PNG files."""
    with tempfile.TemporaryDirectory() as d:
        subprocess.run(["pdftoppm", "-q", "-png", "-scale-to", "1600", "-", os.path.join(d, "p")], input=data, check=True)
        return [open(os.path.join(d, n), "rb").read() for n in sorted(os.listdir(d))]
