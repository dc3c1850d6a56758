# The promise on more scenes than `make check` runs, and one failing case again.
.PHONY: same why reuse
SEEDS ?= 50
FROM  ?= 0x1000

same: $B/tests/same/test_same ## the promise on many scenes: make same SEEDS=500
	@$B/tests/same/test_same --seeds $(SEEDS) --from $(FROM)

why: $B/tests/same/test_same ## repeat one failing case: make why CASE=together SEED=0x2f
	@$B/tests/same/test_same $(CASE) $(SEED)

reuse: $B/tests/engine/test_reuse ## random scenes over the cache, evictions, the disk and drafts: make reuse SEEDS=3000
	@$B/tests/engine/test_reuse $(SEEDS) $(FROM)

.PHONY: bits
bits: $B/tests/same/test_bits ## store the bits again, after a deliberate change of the arithmetic (docs/engine.md)
	@$B/tests/same/test_bits --print > $B/bits.def && mv $B/bits.def tests/same/bits.def
