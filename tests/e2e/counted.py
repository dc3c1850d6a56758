"""Counts what a script checks, and ends it as tools/check/run.sh reads it. Python standard library only."""
passed = failed = 0


def check(name, good, detail=""):
    """One thing that has to be so; what it was instead is cut to what fits a screen."""
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print(f"FAIL {name}: {str(detail)[:2000]}")


def closing():
    """Prints `N passed, N failed`, the last line of a script, and returns its exit status."""
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0
