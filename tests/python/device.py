#!/usr/bin/env python3
"""The Python package on a device: device.py DEVICE [MODEL]

Sounds and pictures by a random model have the CPU's bits, and with MODEL, a folder ("" is the bundled one), the fifteen tool
calls alone, at once and staggered."""
import sys

import package
from package import check, evenkeel


def main():
    device = sys.argv[1]
    package.senses(device)
    for path in sys.argv[2:]:
        with evenkeel.Model(path or None, device=device, context=1024, max_requests=16) as model:
            check("the device", model.device != "cpu", model.device)
            there = package.calls(model)
        with evenkeel.Model(path or None, device="cpu", context=1024, max_requests=16) as model:
            check("the CPU's bits of the calls", there == package.calls(model), there)
    print(f"{package.passed} passed, {package.failed} failed")
    return package.failed > 0


if __name__ == "__main__":
    sys.exit(main())
