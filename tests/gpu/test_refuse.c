/* A model that devices have no room for: what is said, and that it was not read. One that they hold is read in parts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "../support/checkpoint.h"
#include "../support/files.h"
#include "../support/published.h"
#include "base/log.h"
#include "base/machine/cpu.h"
#include "faked.h"
#include "gpu/fit/fit.h"
#include "gpu/several/several.h"
#include "gpu/several/state.h"
#include "gpu/weights/weights.h"
#include "model/pass.h"
#include "shapes.h"

/* --- in words */

#define LESS " (less is needed with a smaller --ctx, --chunk, --max-requests or --kv-memory)"

static const struct said {
    const char *model;
    int bits, n;
    double room;
    bool known, towers; /* what lies beside the weights */
    ek_split split;
    bool host;
    ek_host_part part;
    const char *said;
} said[] = {
    {"31b", 0, 1, 40e9, false, false, EK_SPLIT_AUTO, false, 0,
     "the weights need 61.39 GB; cuda:0 has room for 40.00 GB, of which weights take 95 % at most; 2 such devices would "
     "hold it (--device cuda:0-1), or --device cuda:0,cpu leaves 33 of 60 layers to the CPU"},
    {"31b", 0, 1, 63e9, true, false, EK_SPLIT_AUTO, false, 0,
     "the weights need 61.40 GB, a step of 640 rows 0.92 GB, keys and values 1.50 GB, 63.82 GB in all; cuda:0 has room "
     "for 63.00 GB" LESS "; 2 such devices would hold it (--device cuda:0-1), or --device cuda:0,cpu leaves 15 of 60 "
     "layers to the CPU"},
    {"31b", 0, 2, 32.2e9, true, true, EK_SPLIT_AUTO, false, 0,
     "the weights need 64.22 GB; on each of 2 devices a step of 640 rows up to 0.92 GB, keys and values up to 0.78 GB, "
     "towers up to 2.20 GB, 69.62 GB in all; cuda:0 and cuda:1 have room for 32.20 GB each" LESS
     "; 3 such devices would hold it (--device cuda:0-2), or --device cuda:0,1,cpu leaves 15 of 60 layers to the CPU"},
    {"31b", 0, 2, 32.2e9, true, true, EK_SPLIT_OUTPUTS, false, 0,
     "on each of 2 devices its part of the weights needs up to 32.11 GB, a step of 640 rows up to 0.85 GB, keys and "
     "values up to 0.75 GB, towers up to 2.20 GB, 35.91 GB in all on one; cuda:0 and cuda:1 have room for 32.20 GB "
     "each" LESS
     "; 3 such devices would hold it (--device cuda:0-2), or --device cuda:0,1,cpu --split layers leaves 15 "
     "of 60 layers to the CPU"},
    {"31b", 0, 1, 5e9, true, true, EK_SPLIT_LAYERS, true, 0,
     "layers 58 to 59 and the head, which stay together, need 4.84 GB, a step of 640 rows 0.92 GB, keys and values 0.15 "
     "GB, towers 2.20 GB, 8.11 GB in all; cuda:0 has room for 5.00 GB, of which weights take 75 % at most" LESS},
    {"26b", 4, 1, 12e9, false, false, EK_SPLIT_AUTO, false, 0,
     "the weights need 14.19 GB; cuda:0 has room for 12.00 GB, of which weights take 95 % at most; 2 such devices would "
     "hold it (--device cuda:0-1), or --device cuda:0,cpu leaves the experts of 13 of 30 layers to the CPU"},
    {"26b", 4, 1, 1e9, false, false, EK_SPLIT_LAYERS, true, EK_HOST_EXPERTS,
     "without experts the weights need 1.34 GB; cuda:0 has room for 1.00 GB, of which weights take 75 % at most"},
    {"e2b", 0, 2, 5.2e9, true, true, EK_SPLIT_LAYERS, false, 0,
     "the weights need 5.39 GB; on each of 2 devices a step of 640 rows up to 0.54 GB, keys and values up to 1.38 GB, "
     "towers up to 2.20 GB, 10.36 GB in all, of which layers 13 to 34 and the head, which stay together, need 3.59 GB; "
     "cuda:0 and cuda:1 have room for 5.20 GB each" LESS "; 3 such devices would hold it (--device cuda:0-2), or "
     "--device cuda:0,1,cpu leaves 5 of 35 layers to the CPU"},
    {"31b", 0, 1, 1e9, false, false, EK_SPLIT_AUTO, false, 0,
     "the weights need 61.39 GB; cuda:0 has room for 1.00 GB, of which weights take 95 % at most"},
};

static ek_fit_opts opts_of(const struct said *x)
{
    ek_fit_opts o = {.n = x->n, .split = x->split, .host = x->host, .part = x->part};
    for (int i = 0; i < o.n; i++) o.ordinal[i] = i;
    if (x->known) {
        o.beside.step = (ek_executor_sizes){.max_rows = 640, .max_logits = 128, .max_ctx = 8192, .max_requests = 128};
        o.beside.kv_bytes = 1.5e9;
        o.beside.towers = x->towers ? 2.2e9 : 0;
    }
    return o;
}

static void what_each_part_takes_is_said_and_what_would_do(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        const ek_fit_opts o = opts_of(&said[i]);
        ek_model *m = open_published(said[i].model, said[i].bits);
        ek_cuda *paper = ek_cuda_on_paper(90, 132), *c[EK_RANKS];
        ek_fit_parts kept[EK_RANKS] = {0};
        double room[EK_RANKS];
        ek_place p;
        for (int d = 0; d < o.n; d++) c[d] = paper, room[d] = said[i].room;
        assert_int_equal(ek_fit_plan(&p, kept, m, c, room, &o), EK_ENOMEM);
        assert_int_equal(ek_fit_refuse(m, c, room, &o), EK_ENOMEM);
        if (strcmp(ek_err_text(), said[i].said)) fail_msg("%s\nwas said, not\n%s", ek_err_text(), said[i].said);
        ek_cuda_close(paper);
        ek_model_close(m);
    }
}

/* Weights have more than their usual share of a device where what lies beside them is known to fit. */
static void what_fits_is_not_refused(void **state)
{
    (void)state;
    const ek_fit_opts o = opts_of(&said[1]);
    ek_model *m = open_published("31b", 0);
    ek_cuda *paper = ek_cuda_on_paper(90, 132);
    ek_fit_parts kept[EK_RANKS] = {0};
    ek_place p;
    assert_int_equal(ek_fit_plan(&p, kept, m, &paper, (double[]){63.9e9}, &o), EK_OK);
    assert_true(kept[0].weights > 0.95 * 63.9e9);
    ek_cuda_close(paper);
    ek_model_close(m);
}

/* --- what is read */

/* most: bytes of weights that may be in host memory at once; 0: any number. */
static ek_model *open_deferred(const char *dir, bool deferred, double max)
{
    ek_model *m;
    const ek_model_opts o = {.cpu = ek_cpu_detect(), .deferred = deferred, .memory_limit = max};
    if (ek_model_open(&m, dir, &o)) fail_msg("%s", ek_err_text());
    return m;
}

static char *make_checkpoint(const char *shape)
{
    static ek_config c;
    char *dir = temp_dir();
    assert_int_equal(ek_config_tiny(&c, shape), EK_OK);
    write_hf(dir, &c, NULL, NULL);
    return dir;
}

/* Every value behind the header becomes one that is refused when it is read. */
static void spoil(const char *dir)
{
    char path[256];
    uint64_t header;
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fread(&header, sizeof header, 1, f), 1);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    const long end = ftell(f);
    assert_int_equal(fseek(f, (long)(sizeof header + header), SEEK_SET), 0);
    for (long at = (long)(sizeof header + header); at < end; at++) fputc(0xff, f);
    fclose(f);
}

/* As `open` does it: on several devices or with a bound, and on one that takes what is free. */
static ek_err start(const ek_gpu_driver *d, ek_model *m, const ek_fit_opts *o)
{
    const ek_model_share whole = {.end = m->config.n_layers, .embed = true};
    ek_ranks *r = NULL;
    ek_gpu *g = NULL;
    ek_err err;
    if (o->n > 1 || o->max_bytes > 0) {
        err = ek_ranks_open(&r, d, m, o);
        ek_ranks_close(err ? NULL : r);
        return err;
    }
    assert_int_equal(ek_gpu_open_device(&g, d, 0), EK_OK);
    err = ek_ranks_check_alone(g, m, o);
    if (!err) err = ek_gpu_load(g, m, &whole, (ek_gpu_shard){0});
    ek_gpu_close(g);
    return err;
}

static void a_refused_model_was_not_read(void **state)
{
    (void)state;
    char *dir = make_checkpoint("T1");
    spoil(dir);
    const ek_gpu_driver d = faked(FAKE_DEVICES);
    static const struct {
        int n;
        ek_split split;
        bool bound;
    } way[] = {
        {1, EK_SPLIT_AUTO, false}, {1, EK_SPLIT_AUTO, true}, {2, EK_SPLIT_LAYERS, true}, {2, EK_SPLIT_OUTPUTS, true}};
    for (size_t i = 0; i < sizeof way / sizeof *way; i++)
        for (int fits = 0; fits < 2; fits++) {
            const size_t room = fits ? 1 << 30 : 100000;
            ek_model *m = open_deferred(dir, true, 0);
            const ek_fit_opts o = {.n = way[i].n,
                                   .ordinal = {0, 1},
                                   .split = way[i].split,
                                   .max_bytes = way[i].bound ? (double)room / 2 : 0,
                                   .beside.step = {.max_rows = 8, .max_logits = 2, .max_ctx = 64, .max_requests = 2}};
            fake.free = way[i].bound ? 1 << 30 : room;
            const ek_err err = start(&d, m, &o);
            assert_null(m->w.block);
            assert_int_equal(err, fits ? EK_EFORMAT : EK_ENOMEM);
            if (!strstr(ek_err_text(), fits ? "tensor " : " a step of 8 rows ")) fail_msg("%s", ek_err_text());
            assert_true(fake.blocks == 0 && fake.used == 0);
            ek_model_close(m);
        }
    remove_dir(dir);
}

static int proved;

static ek_err prove(ek_gpu *g, const ek_model *m)
{
    (void)g, (void)m;
    proved++;
    return EK_OK;
}

/* Rows that are wider than kernels take are refused before any kernel runs. */
static void wide_rows_are_refused_first(void **state)
{
    (void)state;
    ek_config c;
    ek_model *m;
    ek_gpu *g;
    ek_gpu_driver d = faked(FAKE_DEVICES);
    d.prove = prove;
    assert_int_equal(ek_config_tiny(&c, "T1"), EK_OK);
    c.hidden_size = 8256;
    assert_int_equal(ek_model_synthetic(&m, &c, 0, 1, &(ek_model_opts){.cpu = ek_cpu_detect()}), EK_OK);
    assert_int_equal(ek_gpu_open(&g, &d, m, 0), EK_EUNSUPPORTED);
    assert_string_equal(ek_err_text(), "hidden_size is 8256; the CUDA kernels take up to 8192");
    assert_int_equal(ek_gpu_open_device(&g, &d, 0), EK_OK);
    const ek_model_share whole = {.end = m->config.n_layers, .embed = true};
    assert_int_equal(ek_gpu_load(g, m, &whole, (ek_gpu_shard){0}), EK_EUNSUPPORTED);
    assert_int_equal(proved, 0);
    ek_gpu_close(g);
    ek_model_close(m);
}

/* What was read some layers at a time is what was read at once, on every device. Host memory has less than half of it
 * meanwhile, and nothing afterwards. */
static void weights_are_read_in_parts(void **state)
{
    (void)state;
    static const char *const shapes[] = {"T1", "T2"};
    for (size_t s = 0; s < 2; s++)
        for (int ranks = 0; ranks <= 2; ranks += 2)
            for (int rank = 0; rank == 0 || rank < ranks; rank++) {
                char *dir = make_checkpoint(shapes[s]);
                const ek_gpu_driver d = faked(FAKE_DEVICES);
                ek_gpu *g[2];
                ek_model *m[2];
                for (int i = 0; i < 2; i++) {
                    m[i] = open_deferred(dir, i == 1, i == 1 ? (double)m[0]->w.block_bytes / 2 : 0);
                    const ek_gpu_shard shard = {.rank = rank, .ranks = ranks};
                    const ek_gpu_wanted w = {m[i], shard, 0};
                    const ek_rows_wanted rows = {ek_gpu_rows_wanted, &w};
                    const ek_model_share share = {
                        .end = m[i]->config.n_layers, .embed = true, .rows = ranks ? &rows : NULL};
                    assert_int_equal(ek_gpu_open_device(&g[i], &d, 0), EK_OK);
                    if (ek_gpu_load(g[i], m[i], &share, shard)) fail_msg("%s", ek_err_text());
                }
                assert_true(m[0]->w.block && !m[1]->w.block && g[0]->bytes == g[1]->bytes);
                assert_memory_equal((const void *)g[0]->block[0], (const void *)g[1]->block[0], g[0]->bytes);
                for (int i = 0; i < 2; i++) ek_gpu_close(g[i]), ek_model_close(m[i]);
                assert_true(fake.blocks == 0 && fake.used == 0);
                remove_dir(dir);
            }
}

enum { MAX_BLOCK = 150000 };

static CUresult max_block(size_t *bytes, CUdevice device)
{
    (void)device;
    *bytes = MAX_BLOCK;
    return EK_CU_OK;
}

static void same_matrix(const ek_gpu_matrix *a, const ek_gpu_matrix *b, const ek_gpu *g)
{
    int i = 0;
    assert_int_equal(a->l.bytes, b->l.bytes);
    if (!a->l.n) return;
    while (i < g->n_blocks && !(b->at >= g->block[i] && b->at + b->l.bytes <= g->block[i] + g->block_bytes[i])) i++;
    assert_true(i < g->n_blocks);
    assert_memory_equal((const void *)a->at, (const void *)b->at, a->l.bytes);
}

/* On a device that gives little memory at once weights lie in several blocks, each matrix in one; of a matrix for which
 * no block is large enough it is said. */
static void weights_lie_in_several_blocks(void **state)
{
    (void)state;
    char *dir = make_checkpoint("T1");
    ek_gpu_driver d = faked(FAKE_DEVICES);
    ek_gpu *g[2];
    ek_model *m = open_deferred(dir, false, 0);
    const ek_model_share whole = {.end = m->config.n_layers, .embed = true};
    for (int i = 0; i < 2; i++) {
        if (i) d.api.max_block = max_block;
        assert_int_equal(ek_gpu_open_device(&g[i], &d, 0), EK_OK);
        const ek_err err = ek_gpu_load(g[i], m, &whole, (ek_gpu_shard){0});
        if (err) fail_msg("%s", ek_err_text());
    }
    size_t sum = 0;
    assert_int_equal(g[0]->n_blocks, 1);
    assert_true(g[1]->n_blocks > 2 && g[0]->bytes == g[1]->bytes);
    for (int i = 0; i < g[1]->n_blocks; i++) {
        assert_true(g[1]->block_bytes[i] <= MAX_BLOCK);
        sum += g[1]->block_bytes[i];
    }
    assert_int_equal(sum, g[1]->bytes);
    same_matrix(&g[0]->w.embed, &g[1]->w.embed, g[1]);
    for (int i = 0; i < m->config.n_layers; i++) {
        const ek_gpu_layer *a = &g[0]->w.layer[i], *b = &g[1]->w.layer[i];
        same_matrix(&a->q, &b->q, g[1]), same_matrix(&a->k, &b->k, g[1]), same_matrix(&a->v, &b->v, g[1]);
        same_matrix(&a->o, &b->o, g[1]), same_matrix(&a->gate, &b->gate, g[1]), same_matrix(&a->up, &b->up, g[1]);
        same_matrix(&a->down, &b->down, g[1]);
    }
    for (int i = 0; i < 2; i++) ek_gpu_close(g[i]);
    ek_model_close(m);
    assert_true(fake.blocks == 0 && fake.used == 0);
    remove_dir(dir);
}

static CUresult small_block(size_t *bytes, CUdevice device)
{
    (void)device;
    *bytes = 80000000;
    return EK_CU_OK;
}

/* Each of 31B's matrices fits a block of a device that gives that little at once, but they are too many. */
static void weights_in_too_many_blocks_are_refused(void **state)
{
    (void)state;
    ek_model *m = open_shape(&(gpu_shape){.model = "31b", .type = "q4_0", .kv = EK_KV_F16});
    ek_gpu_driver d = faked(FAKE_DEVICES);
    ek_gpu *g;
    d.api.max_block = small_block;
    assert_int_equal(ek_gpu_open(&g, &d, m, 0), EK_EUNSUPPORTED);
    assert_non_null(strstr(ek_err_text(), "weights need more than 128 blocks of 0.08 GB"));
    assert_true(fake.blocks == 0 && fake.used == 0);
    close_shape(m);
}

/* A folder of packed weights gets the whole, and gives it to the next start. */
static void packed_weights_are_kept_whole(void **state)
{
    (void)state;
    char *dir = make_checkpoint("T1"), *kept = temp_dir();
    const ek_gpu_driver d = faked(FAKE_DEVICES);
    ek_model_opts o = {.cpu = ek_cpu_detect(), .deferred = true, .packed_dir = kept};
    for (int i = 0; i < 2; i++) {
        ek_model *m;
        ek_gpu *g;
        assert_int_equal(ek_model_open(&m, dir, &o), EK_OK);
        assert_true(ek_model_keeps_packed(m) && !m->w.block);
        assert_int_equal(ek_gpu_open(&g, &d, m, 0), EK_OK);
        assert_true(ek_model_is_packed(m) && (i == 0) == !m->w.packed);
        ek_gpu_close(g);
        ek_model_close(m);
    }
    o.deferred = false; /* as another start that computes on the CPU finds it */
    ek_model *m;
    assert_int_equal(ek_model_open(&m, dir, &o), EK_OK);
    assert_non_null(m->w.packed);
    ek_model_close(m);
    remove_dir(dir), remove_dir(kept);
}

int main(void)
{
    ek_log_set(EK_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_each_part_takes_is_said_and_what_would_do),
        cmocka_unit_test(what_fits_is_not_refused),
        cmocka_unit_test(a_refused_model_was_not_read),
        cmocka_unit_test(wide_rows_are_refused_first),
        cmocka_unit_test(weights_are_read_in_parts),
        cmocka_unit_test(weights_lie_in_several_blocks),
        cmocka_unit_test(weights_in_too_many_blocks_are_refused),
        cmocka_unit_test(packed_weights_are_kept_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
