#!/usr/bin/env python3
"""The wheel of the Python package: wheel.py TREE OUT VERSION

Packs TREE (the folder evenkeel/ and licences/) into OUT/evenkeel-VERSION-py3-none-manylinux_2_31_x86_64.whl, with the same bytes
each time: sorted, with SOURCE_DATE_EPOCH as the time of all."""
import base64, hashlib, os, sys, time, zipfile

TAG = "py3-none-manylinux_2_31_x86_64"
METADATA = """Metadata-Version: 2.1
Name: evenkeel
Version: {version}
Summary: Gemma 4 in a process, with the same bits in any company
License: Apache-2.0
Requires-Python: >=3.8
Description-Content-Type: text/plain

{description}
"""


def files_of(tree):
    for folder, folders, names in os.walk(tree):
        folders.sort()
        for name in sorted(names):
            if not name.endswith(".pyc"):
                path = os.path.join(folder, name)
                yield os.path.relpath(path, tree), path


def main():
    tree, out, version = sys.argv[1:]
    when = time.gmtime(max(int(os.environ["SOURCE_DATE_EPOCH"]), 315532800))[:6]  # a zip's time begins in 1980
    info = f"evenkeel-{version}.dist-info"
    with open(os.path.join(tree, "evenkeel/__init__.py"), encoding="utf-8") as f:
        description = f.read().split('"""')[1].strip()
    made = [(f"{info}/licenses/{name[9:]}" if name.startswith("licences/") else name, open(path, "rb").read(), os.access(path, os.X_OK))
            for name, path in files_of(tree)]
    made += [(f"{info}/METADATA", METADATA.format(version=version, description=description).encode(), False),
             (f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: evenkeel\nRoot-Is-Purelib: false\nTag: {TAG}\n".encode(), False)]
    digest = lambda data: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    record = "".join(f"{name},sha256={digest(data)},{len(data)}\n" for name, data, _ in made) + f"{info}/RECORD,,\n"
    made.append((f"{info}/RECORD", record.encode(), False))
    path = os.path.join(out, f"evenkeel-{version}-{TAG}.whl")
    with zipfile.ZipFile(path + ".new", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        for name, data, runs in made:
            entry = zipfile.ZipInfo(name, when)
            entry.create_system, entry.external_attr = 3, (0o100755 if runs else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            z.writestr(entry, data)
    os.replace(path + ".new", path)
    print(f"  {path}: {os.path.getsize(path)} bytes, {len(made)} files")


if __name__ == "__main__":
    main()
