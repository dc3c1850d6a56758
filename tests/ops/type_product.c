#include "type_product.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { ROWS = 3 };

/* Row by row, backwards, into memory that is not zeroed. */
static void pack(ek_linear *w, const ek_weight_data *data, const ek_weight_type *as)
{
    if (ek_linear_plan(w, 0, data->n, data->k, as) != EK_OK) fail_msg("%s", ek_err_text());
    if (as->unpack) assert_int_equal(ek_linear_set_acts(w, (ek_act_form){2, w->a_group}), EK_OK);
    w->data = check_alloc(w->bytes);
    memset(w->data, 0xa5, w->bytes);
    for (int r = data->n; r-- > 0;) {
        ek_weight_data one = ek_weight_rows(data, r, 1);
        if (ek_linear_pack(w, r, &one) != EK_OK) fail_msg("%s", ek_err_text());
    }
}

static void check_near_float64(const ek_weight_data *data, const float *values, const ek_weight_type *as,
                               const float *x, const float *y)
{
    for (int i = 0; i < ROWS * data->n; i++) {
        const float *row = values + (size_t)(i % data->n) * (size_t)data->k, *at = x + (size_t)(i / data->n * data->k);
        double sum = 0, size = 0;
        for (int k = 0; k < data->k; k++) sum += (double)row[k] * (double)at[k], size += fabs((double)row[k]);
        check_near(as->name, "scalar", &sum, &y[i], 1, &(double){size / 60000 + 1e-30}, "%s row %d, output %d",
                   data->type->name, i / data->n, i % data->n);
    }
}

void check_type_product(const ek_weight_data *data, const float *values, const ek_weight_type *as)
{
    const int n = data->n, k = data->k;
    const size_t outputs = (size_t)(ROWS * n);
    ek_linear w;
    pack(&w, data, as);
    float *x = check_alloc(sizeof *x * ROWS * (size_t)k), *y = malloc(outputs * 4), *first = malloc(outputs * 4),
          *row = malloc((size_t)k * 4);
    void *mem = check_alloc(ek_acts_bytes(ROWS, k));
    check_fill(x, (size_t)(ROWS * k), 5, 1);
    for (int r = 0; r < n; r++) {
        ek_linear_row(&w, r, row);
        for (int i = 0; i < k; i++)
            if (!(row[i] == values[(size_t)r * (size_t)k + (size_t)i]))
                fail_msg("%s as %s, row %d, input %d: %a, want %a", data->type->name, as->name, r, i, (double)row[i],
                         (double)values[(size_t)r * (size_t)k + (size_t)i]);
    }
    CHECK_ISAS(isa, cpu)
    {
        ek_linear_ops ops;
        ek_acts a;
        ek_linear_init(&ops, cpu);
        ek_acts_bind(&a, mem, x, k, ROWS, k);
        w.run = ops.run[w.form];
        ek_linear_forward(&ops, NULL, &w, &a, y, n);
        if (!cpu) memcpy(first, y, outputs * 4);
        check_bits(as->name, isa, first, y, outputs, "%s", data->type->name);
    }
    check_near_float64(data, values, as, x, y);
    free(y), free(first), free(row);
    check_free(w.data, w.bytes);
    check_free(mem, ek_acts_bytes(ROWS, k));
    check_free(x, sizeof *x * ROWS * (size_t)k);
}
