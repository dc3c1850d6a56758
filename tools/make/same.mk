# The promise, longer than in `make check`, and one failure again.
.PHONY: same why
SEEDS ?= 50
FROM  ?= 0x1000

same: $B/tests/same/test_same ## the promise on many scenes: make same SEEDS=500
	@$B/tests/same/test_same --seeds $(SEEDS) --from $(FROM)

why: $B/tests/same/test_same ## one failure again: make why CASE=together SEED=0x2f
	@$B/tests/same/test_same $(CASE) $(SEED)

.PHONY: bits
bits: $B/tests/same/test_bits ## store the bits anew, after a change of arithmetic (docs/engine.md)
	@$B/tests/same/test_bits --print > $B/bits.def && mv $B/bits.def tests/same/bits.def
