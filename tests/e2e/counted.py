"""Counts what a script checks, and ends it as tools/check/run.sh reads it. Python standard library only."""
import time
import traceback

passed = failed = skipped = 0
only = ()  # names of tests, where a script runs these alone


class Skip(Exception):
    """Why a test cannot run here."""


def check(name, good, detail=""):
    """One thing that has to be so; what it was instead is cut to what fits a screen."""
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print(f"FAIL {name}: {str(detail)[:2000]}")


def run(test, *args):
    """One function that raises where something is not so; a line with its name and time."""
    global passed, failed, skipped
    if only and test.__name__ not in only:
        return
    begin = time.time()
    try:
        test(*args)
        passed += 1
        print(f"ok   {test.__name__} ({time.time() - begin:.1f} s)", flush=True)
    except Skip as why:
        skipped += 1
        print(f"skipped {test.__name__}: {why}", flush=True)
    except Exception:
        failed += 1
        print(f"FAIL {test.__name__}\n{traceback.format_exc()[-3000:]}", flush=True)


def closing():
    """Prints `N passed, N failed`, the last line of a script, and returns its exit status."""
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or not passed else 0
