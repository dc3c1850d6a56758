/* Sources: what is recognised at a path, what a folder gives under the model's own names, and a
 * model bound to a source that is no folder at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/machine/cpu.h"
#include "base/log.h"
#include "model/weights/weights.h"
#include "../support/checkpoint.h"
#include "../support/err_name.h"
#include "../support/mlx.h"
#include "../support/pages.h"

static ek_config config;

static ek_config *tiny(const char *name)
{
    assert_int_equal(ek_config_tiny(&config, name), EK_OK);
    return &config;
}

static void refused(const char *path, ek_err want, const char *says)
{
    ek_source *s;
    ek_err err = ek_source_open(&s, path);
    if (err != want || !strstr(ek_err_text(), says))
        fail_msg("%s \"%s\", wanted %s \"%s\"", err_name(err), ek_err_text(), err_name(want), says);
    assert_null(s);
}

static void test_what_is_recognised(void **state)
{
    (void)state;
    char *dir = temp_dir(), path[300];
    refused("/nonexistent-folder", EK_ENOTFOUND, "/nonexistent-folder: there is no such file or folder");
    put_file(dir, "model.safetensors", "GGU", 3);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    refused(path, EK_EUNSUPPORTED, "model.safetensors is a file; a model is a GGUF file or a folder");
    ek_source *s;
    assert_int_equal(ek_source_open(&s, dir), EK_OK);
    assert_string_equal(s->ops->kind, "safetensors");
    assert_int_equal(ek_source_config(s, &config), EK_ENOTFOUND);
    assert_non_null(strstr(ek_err_text(), "config.json"));
    ek_source_close(s);
    remove_dir(dir);
}

static void test_tokenizer(void **state)
{
    (void)state;
    char *dir = temp_dir();
    ek_source *s;
    ek_source_tokenizer t;
    assert_int_equal(ek_source_open(&s, dir), EK_OK);
    assert_int_equal(ek_source_tokenizer_of(s, &t), EK_ENOTFOUND);
    put_text(dir, "tokenizer.json", "{\"model\":{}}");
    for (int twice = 0; twice < 2; twice++) {
        assert_int_equal(ek_source_tokenizer_of(s, &t), EK_OK);
        assert_int_equal(t.n, 12);
        assert_memory_equal(t.json, "{\"model\":{}}", 12);
        assert_non_null(strstr(t.name, "/tokenizer.json"));
    }
    ek_source_close(s);
    remove_dir(dir);
}

/* The same values by the same names, however a folder calls, fuses or quantises them. */
static void test_experts_fused_and_split(void **state)
{
    (void)state;
    static const mlx_opts o = {8, 64, "language_model.model.", "BF16", NULL, 0, 0, false, NULL};
    char *mlx = temp_dir(), *hf = temp_dir();
    ek_config *c = tiny("Q2"), read;
    ek_source *s[2];
    write_mlx(mlx, hf, c, &o); /* hf: the values of mlx's codes */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ek_source_open(&s[i], i ? mlx : hf), EK_OK);
        assert_int_equal(ek_source_config(s[i], &read), EK_OK);
        assert_int_equal(read.n_experts, c->n_experts);
    }
    static const char *const proj[] = {"gate_proj", "up_proj", "down_proj"};
    for (int p = 0; p < 3; p++)
        for (int e = 0; e < c->n_experts; e++) {
            char name[64];
            ek_weight_data w[2];
            float row[2][256];
            int n = p == 2 ? c->hidden_size : c->moe_intermediate_size,
                k = p == 2 ? c->moe_intermediate_size : c->hidden_size;
            snprintf(name, sizeof name, "layers.1.experts.%s", proj[p]);
            ek_weight_query q = {
                .name = name, .shape = EK_WEIGHT_EXPERT, .n = n, .k = k, .expert = e, .n_experts = c->n_experts};
            for (int i = 0; i < 2; i++)
                if (ek_source_weight(s[i], &q, &w[i])) fail_msg("%s", ek_err_text());
            assert_string_equal(w[1].type->name, "q8.64");
            assert_true(w[0].type->load && w[0].n == n && w[1].n == n && w[0].k == k && w[1].k == k);
            for (int r = 0; r < n; r++) {
                for (int i = 0; i < 2; i++) ek_weight_row(&w[i], r, 0, k, row[i]);
                assert_memory_equal(row[0], row[1], sizeof(float) * (size_t)k);
            }
        }
    for (int i = 0; i < 2; i++) ek_source_close(s[i]);
    remove_dir(mlx), remove_dir(hf);
}

/* A container of its own: values from nowhere, the model's names only. */
typedef struct made {
    ek_source source;
    const ek_config *config;
    struct {
        char name[160];
        float *value;
    } one[512];
    int n, asked;
    bool finished;
    const char *skip;
} made;

static ek_err made_config(ek_source *s, ek_config *out)
{
    *out = *((made *)s)->config;
    return EK_OK;
}

static ek_err made_weight(ek_source *s, const ek_weight_query *q, ek_weight_data *out)
{
    made *m = (made *)s;
    m->asked++;
    if (m->skip && strcmp(q->name, m->skip) == 0) return ek_fail(EK_EFORMAT, "no %s here", q->name);
    int rows = q->n;
    char full[160];
    bool half = q->shape == EK_WEIGHT_EXPERT && !strstr(q->name, "down_proj"), up = strstr(q->name, "up_proj");
    if (half) rows *= 2;
    if (half)
        snprintf(full, sizeof full, "model.%.*sgate_up_proj", (int)(strrchr(q->name, '.') + 1 - q->name), q->name);
    else snprintf(full, sizeof full, "model.%s%s", q->name, q->shape == EK_WEIGHT_MATRIX ? ".weight" : "");
    size_t count = (size_t)rows * (size_t)q->k * (size_t)(q->n_experts ? q->n_experts : 1);
    int i = 0;
    while (i < m->n && strcmp(m->one[i].name, full + 6) != 0) i++;
    if (i == m->n) {
        assert_true(m->n++ < 512);
        snprintf(m->one[i].name, sizeof m->one[i].name, "%s", full + 6);
        m->one[i].value = ek_alloc(sizeof(float) * count);
        for (size_t j = 0; j < count; j++) m->one[i].value[j] = hashed_weight(full, j);
    }
    *out = (ek_weight_data){.type = ek_weight_type_float(EK_F32),
                            .n = q->n,
                            .k = q->k,
                            .row = q->expert * rows + (half && up ? q->n : 0),
                            .plane = {(const uint8_t *)m->one[i].value}};
    return EK_OK;
}

static ek_err made_finish(ek_source *s, const ek_config *c)
{
    made *m = (made *)s;
    assert_int_equal(c->n_layers, m->config->n_layers);
    m->finished = true;
    return EK_OK;
}

static void made_close(ek_source *s)
{
    made *m = (made *)s;
    for (int i = 0; i < m->n; i++) free(m->one[i].value);
    m->n = 0;
}

static void made_rest(ek_source *s)
{
    (void)s;
}

static const ek_source_ops made_ops = {.kind = "made",
                                       .config = made_config,
                                       .weight = made_weight,
                                       .finish = made_finish,
                                       .rest = made_rest,
                                       .close = made_close};

/* Binding to it gives the items that a folder of the same values gives, value by value. */
static void test_binding_sees_the_source_only(void **state)
{
    (void)state;
    static const char *const names[] = {"T1", "T2", "T6"};
    for (int i = 0; i < 3; i++) {
        char *dir = temp_dir();
        ek_config *c = tiny(names[i]);
        static made other;
        other = (made){.source = {.ops = &made_ops}, .config = c};
        write_hf(dir, c, &(hf_opts){.f32 = true}, NULL);
        ek_source *folder;
        static ek_config read;
        ek_items want, got;
        ek_weights *w = ek_alloc(2 * sizeof *w);
        assert_int_equal(ek_source_open(&folder, dir), EK_OK);
        assert_int_equal(ek_source_config(folder, &read), EK_OK);
        if (ek_items_bind(&want, &w[0], &read, folder) || ek_items_bind(&got, &w[1], c, &other.source))
            fail_msg("%s", ek_err_text());
        assert_true(other.finished);
        assert_int_equal(want.n, got.n);
        for (int j = 0; j < want.n; j++) {
            const ek_item *a = &want.item[j], *b = &got.item[j];
            assert_string_equal(a->name, b->name);
            assert_true(a->role == b->role && a->data.n == b->data.n && a->data.k == b->data.k);
            for (int r = 0; r < a->data.n; r++) {
                float x[512], y[512];
                assert_true(a->data.k <= 512);
                ek_weight_row(&a->data, r, 0, a->data.k, x), ek_weight_row(&b->data, r, 0, a->data.k, y);
                if (memcmp(x, y, sizeof(float) * (size_t)a->data.k)) fail_msg("%s: row %d differs", a->name, r);
            }
        }
        ek_items_fini(&want), ek_items_fini(&got);
        other.skip = "layers.2.mlp.up_proj", other.finished = false;
        free(w[1].experts);
        assert_int_equal(ek_items_bind(&got, &w[1], c, &other.source), EK_EFORMAT);
        assert_non_null(strstr(ek_err_text(), "no layers.2.mlp.up_proj here"));
        assert_false(other.finished);
        free(w[0].experts), free(w[1].experts), free(w);
        ek_source_close(folder);
        ek_source_close(&other.source);
        remove_dir(dir);
    }
}

int main(void)
{
    ek_log_set(EK_LOG_WARN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_recognised),
        cmocka_unit_test(test_tokenizer),
        cmocka_unit_test(test_experts_fused_and_split),
        cmocka_unit_test(test_binding_sees_the_source_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
