#include "bed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/hash/rng.h"

const ek_kv_layout bed_layout = {.page_bytes = {[EK_FULL] = 40000, [EK_SLIDING] = 16384}, .sliding_window = 100};

void bed_fill(ek_store_page *p, uint64_t seed, int depth)
{
    static uint8_t bytes[EK_KIND_COUNT][40000];
    memset(p, 0, sizeof *p);
    ek_chain c = ek_chain_root(seed);
    for (int d = 0; d <= depth; d++) {
        for (int i = 0; i < EK_PAGE_TOKENS; i++)
            p->token[i] = (int32_t)(ek_mix64(seed + (uint64_t)(d * 64 + i)) % 5000);
        memset(p->content, 0, sizeof p->content);
        if (seed % 3 == 0) p->content[5].h[1] = seed + (uint64_t)d;
        c = ek_chain_next(&c, p->token, p->content);
    }
    p->chain = c;
    p->depth = depth;
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        for (size_t i = 0; i < bed_layout.page_bytes[k]; i++)
            bytes[k][i] = (uint8_t)ek_mix64(seed * 1000003 + (uint64_t)depth * 77 + (uint64_t)k + i);
        p->bytes[k] = bytes[k];
        p->has[k] = true;
    }
}

int bed_read(ek_store_backend *b, uint64_t seed, int depth)
{
    static uint8_t bytes[EK_KIND_COUNT][40000];
    static const bool both[EK_KIND_COUNT] = {true, true};
    ek_store_page want, got;
    int n = 0;
    bed_fill(&want, seed, depth);
    got = want;
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        got.has[k] = false;
        got.bytes[k] = bytes[k];
    }
    b->read(b->arg, &got, both);
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        if (!got.has[k]) continue;
        n++;
        assert_memory_equal(got.bytes[k], want.bytes[k], bed_layout.page_bytes[k]);
    }
    return n;
}
