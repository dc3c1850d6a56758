/* Stored hashes of every logit and every reply of some scenes. All compilers, optimisation levels and
 * machines must give them.
 *
 * A deliberate change of the arithmetic raises EK_ARITHMETIC_VERSION, is described in docs/NUMERICS.md
 * and stores new hashes: `make bits` writes bits.def. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/hash/rng.h"
#include "scene.h"

static const struct {
    uint64_t seed, hash;
} stored[] = {
#define BITS(seed, hash) {seed, hash},
#include "bits.def"
#undef BITS
};

/* What every request of a scene gets alone. */
static ek_err hash_scene(uint64_t seed, uint64_t *hash, char *what, size_t room)
{
    static scene s;
    static ek_trace want[MAX_ASKS];
    company alone = {0};
    EK_TRY(scene_open(&s, seed));
    EK_TRY(run_alone(&s, &alone, want));
    *hash = seed;
    for (int i = 0; i < s.n; i++) {
        *hash = ek_hash64(*hash, want[i].row, sizeof *want[i].row * (size_t)(want[i].n_prompt + want[i].n_reply));
        *hash = ek_hash64(*hash, want[i].reply, sizeof *want[i].reply * (size_t)want[i].n_reply);
        ek_trace_fini(&want[i]);
    }
    scene_describe(&s, what, room);
    scene_close(&s);
    return EK_OK;
}

static void the_bits_are_the_stored_ones(void **state)
{
    (void)state;
    int wrong = 0;
    assert_true(sizeof stored / sizeof *stored >= N_CHECK_SCENES);
    for (size_t i = 0; i < sizeof stored / sizeof *stored; i++) {
        char what[160];
        uint64_t hash = 0;
        assert_int_equal(hash_scene(stored[i].seed, &hash, what, sizeof what), EK_OK);
        if (hash == stored[i].hash) continue;
        printf("FAIL seed %#llx (%s): %#018llx, stored is %#018llx (arithmetic version %d)\n",
               (unsigned long long)stored[i].seed, what, (unsigned long long)hash, (unsigned long long)stored[i].hash,
               EK_ARITHMETIC_VERSION);
        wrong++;
    }
    assert_int_equal(wrong, 0);
}

static int print_all(void)
{
    printf("/* Arithmetic version %d; written by `make bits`. */\n", EK_ARITHMETIC_VERSION);
    for (int i = 0; i < N_CHECK_SCENES; i++) {
        char what[160];
        uint64_t hash = 0, seed = check_seed(i);
        if (hash_scene(seed, &hash, what, sizeof what)) {
            fprintf(stderr, "%s\n", ek_err_text());
            return 1;
        }
        printf("BITS(%#llx, 0x%016llx) /* %s */\n", (unsigned long long)seed, (unsigned long long)hash, what);
    }
    return 0;
}

int main(int argc, char **argv)
{
    ek_log_set(EK_LOG_ERROR);
    if (argc == 2 && !strcmp(argv[1], "--print")) return print_all();
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_bits_are_the_stored_ones)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
