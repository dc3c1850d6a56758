/* Pages of made-up prompts, for tests of what keeps them. */
#ifndef EK_TESTS_CACHE_BED_H
#define EK_TESTS_CACHE_BED_H

#include "cache/store.h"

/* 40,000 bytes of full layers, 16,384 of sliding ones. */
extern const ek_kv_layout bed_layout;

/* Page `depth` of the prompt of a seed, named, with both kinds; some prompts have contents. The bytes are valid until
 * the next call. */
void bed_fill(ek_store_page *p, uint64_t seed, int depth);

/* Reads the page as a backend gives it and compares what is there with what it must be. Returns how many kinds were. */
int bed_read(ek_store_backend *b, uint64_t seed, int depth);

#endif
