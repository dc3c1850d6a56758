/* The tensors of one module from bytes: which parts there are, their types and shapes, and what is asked of them.
 * Properties: a module that is accepted lies within its tensors (each is exactly as long as its shape says, so that a
 * read behind one is seen), its values read in pieces are those read at once, the packed matrix gives them back where
 * they are numbers, and what is refused says so in one line. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "model/source/module.h"
#include "ops/linear/linear.h"

enum { MAX_BYTES = 1 << 16, MAX_SIDE = 512 };

typedef struct input {
    const uint8_t *at, *end;
} input;

static unsigned take(input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

/* Sides that formats like: 0 to 7 as they are, then 8, 16, 24 and so on. */
static int side(input *in)
{
    int v = (int)take(in);
    return v < 8 ? v : (v - 7) * 8 <= MAX_SIDE ? (v - 7) * 8 : MAX_SIDE;
}

/* Shapes of a published kind, so that few bytes make a whole module. */
static int64_t wanted(input *in, int rows, int k)
{
    const int64_t kind[] = {rows,
                            k,
                            k / 2,
                            k / 8,
                            k / 16,
                            k / 32,
                            k / 64,
                            1,
                            rows / 8,
                            rows / 4,
                            k / 4,
                            (rows + 127) / 128,
                            (k + 127) / 128,
                            k / 32 * 4,
                            2,
                            side(in)};
    return kind[take(in) % (sizeof kind / sizeof *kind)];
}

static size_t elements(const ek_tensor *t)
{
    size_t n = 1;
    for (int d = 0; d < t->n_dims; d++) n *= (size_t)t->dim[d];
    return n;
}

static uint8_t *fill(ek_tensor *t, input *in)
{
    uint8_t *data = ek_alloc(t->bytes ? t->bytes : 1);
    uint32_t h = take(in) * 2654435761u + 1;
    for (size_t i = 0; i < t->bytes; i++) data[i] = (uint8_t)((h = h * 1664525u + 1013904223u) >> 24);
    for (size_t i = 0; i < t->bytes && i < 8; i++) /* a few that the fuzzer chooses */
        if (in->at < in->end) data[i] = *in->at++;
    return data;
}

static void check_values(const ek_weight_data *w)
{
    float *whole = ek_alloc(sizeof *whole * (size_t)w->k), *part = ek_alloc(sizeof *part * (size_t)w->k);
    for (int r = 0; r < w->n; r++) {
        const int cut = w->k * (r % 7) / 7;
        ek_weight_row(w, r, 0, w->k, whole);
        ek_weight_row(w, r, 0, cut, part);
        ek_weight_row(w, r, cut, w->k - cut, part + cut);
        for (int i = 0; i < w->k; i++)
            if (!(whole[i] == part[i] || (isnan(whole[i]) && isnan(part[i])))) __builtin_trap();
    }
    free(whole), free(part);
}

static void check_packed(const ek_weight_data *w)
{
    ek_linear m;
    if (ek_linear_plan(&m, 0, w->n, w->k, w->type)) return;
    m.data = aligned_alloc(64, (m.bytes + 63) / 64 * 64);
    float *want = ek_alloc(sizeof *want * (size_t)w->k), *got = ek_alloc(sizeof *got * (size_t)w->k);
    bool packed = ek_linear_pack(&m, 0, w) == EK_OK;
    for (int r = 0; packed && r < w->n; r++) {
        ek_weight_row(w, r, 0, w->k, want);
        ek_linear_row(&m, r, got);
        for (int i = 0; i < w->k; i++) /* infinite scales make a NaN of a code that means 0 */
            if (want[i] != got[i] && isfinite(want[i])) __builtin_trap();
    }
    if (!packed && strchr(ek_err_text(), '\n')) __builtin_trap();
    free(want), free(got), free(m.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const int widths[] = {2, 3, 4, 5, 6, 8, 0, 1}, groups[] = {16, 32, 64, 128, 0, 48, 1, 256};
    input in = {data, data + n};
    ek_tensor tensor[EK_PART_COUNT];
    uint8_t *owned[EK_PART_COUNT] = {0};
    ek_module m = {.name = "m"};
    ek_quant quant = {.any = true, .method = (ek_quant_method)(take(&in) % 5)};
    const unsigned how = take(&in), present = take(&in) | take(&in) << 8;
    quant.bits = widths[how & 7], quant.group = groups[how >> 3 & 7], quant.zero_as_is = how >> 6 & 1;
    const int rows = side(&in) + 1, k = side(&in) + 1 - (how >> 7 ? 1 : 0), outer = (int)(take(&in) % 4);
    for (int i = 0; i < EK_PART_COUNT; i++) {
        if (!(present >> i & 1)) continue;
        ek_tensor *t = &tensor[i];
        *t = (ek_tensor){
            .name = "t", .file = "f", .dtype = (ek_dtype)(take(&in) % EK_DTYPE_COUNT), .n_dims = (int)(take(&in) % 5)};
        for (int d = 0; d < t->n_dims; d++) t->dim[d] = d == 0 && t->n_dims == 3 ? outer : wanted(&in, rows, k);
        if (elements(t) > MAX_BYTES) break;
        t->bytes = elements(t) * ek_dtype_size(t->dtype);
        t->data = owned[i] = fill(t, &in);
        m.part[i] = t;
    }
    const char *missing = ek_module_missing(&m);
    ek_weight_data w = {0};
    if (!missing && k > 0) {
        if (ek_module_read(&m, &quant, outer, rows, k, &w)) {
            if (strchr(ek_err_text(), '\n')) __builtin_trap();
        } else {
            w.n = rows, w.k = k;
            if (outer) w.row = (int64_t)(outer - 1) * rows;
            check_values(&w);
            check_packed(&w);
        }
    }
    for (int i = 0; i < EK_PART_COUNT; i++) free(owned[i]);
    return 0;
}
