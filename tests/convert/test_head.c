/* A head of its own beside the embedding, in the forms that files have: rows of the embedding in another order, so that
 * the logits of the tied model come out in that order, bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/checkpoint.h"
#include "../support/files.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "base/machine/cpu.h"
#include "scene.h"
#include "tensor/checkpoint.h"

enum { TURN = 5 }; /* row r of the head is row r + TURN of the embedding */

typedef struct how {
    int turn;           /* of its rows; 0: a copy */
    const char *prefix; /* of lm_head's name */
    const char *tied;   /* what config.json says; NULL: nothing */
    bool apart;         /* in a shard of its own */
    bool narrow;        /* F32 becomes BF16 without a change of value, or with one */
    const char *skip;   /* the suffix of a tensor that is left out */
} how;

/* A name after prefixes that models give their embedding: ".weight", ".scales"; NULL: another tensor. */
static const char *of_embedding(const char *name)
{
    const char *at = strstr(name, "embed_tokens.");
    return at ? strchr(at, '.') : NULL;
}

static void add_head(st_file *f, const ek_tensor *t, const char *suffix, const how *h)
{
    char name[128];
    const size_t rows = (size_t)t->dim[0], row = t->bytes / rows;
    uint8_t *data = ek_alloc(t->bytes + 1);
    snprintf(name, sizeof name, "%slm_head%s", h->prefix, suffix);
    for (size_t r = 0; r < rows; r++) memcpy(data + r * row, t->data + (r + (size_t)h->turn) % rows * row, row);
    size_t bytes = t->bytes;
    if (h->narrow) {
        bytes /= 2;
        for (size_t i = 0; i < bytes / 2; i++) memmove(data + 2 * i, data + 4 * i + 2, 2);
    }
    st_add(f, name, h->narrow ? "BF16" : ek_dtype_name(t->dtype), t->n_dims, t->dim, data, bytes);
    free(data);
}

static void put_config(const char *from, const char *to, const char *tied)
{
    ek_buf text = {0}, path = {0};
    ek_buf_fmt(&path, "%s/config.json", from);
    assert_int_equal(ek_file_read(&text, path.data, 1 << 20), EK_OK);
    for (char *at = text.data; (at = strstr(at, "\"tie_word_embeddings\": true"));) {
        char with[32];
        if (tied) snprintf(with, sizeof with, "\"tie_word_embeddings\": %s", tied);
        else snprintf(with, sizeof with, "\"tie_wordless\": null");
        const size_t n = strlen("\"tie_word_embeddings\": true");
        memset(at, ' ', n);
        if (strlen(with) <= n) memcpy(at, with, strlen(with));
        else memcpy(at, "\"tie_word_embeddings\":false", n);
        at += n;
    }
    put_file(to, "config.json", text.data, text.len);
    ek_buf_fini(&text), ek_buf_fini(&path);
}

/* DIR/with: the model of DIR/from with a head. */
static void write_head(const char *dir, const char *from, const how *h)
{
    char source[256], to[256];
    st_file f = {0}, head = {0};
    ek_checkpoint *c;
    snprintf(source, sizeof source, "%s/%s", dir, from);
    snprintf(to, sizeof to, "mkdir -p %s/with && rm -f %s/with/*", dir, dir);
    assert_int_equal(system(to), 0);
    snprintf(to, sizeof to, "%s/with", dir);
    put_config(source, to, h->tied);
    assert_int_equal(ek_checkpoint_open(&c, source), EK_OK);
    for (int i = 0; i < ek_checkpoint_count(c); i++) {
        const ek_tensor *t = ek_checkpoint_at(c, i);
        const char *suffix = of_embedding(t->name);
        st_add(&f, t->name, ek_dtype_name(t->dtype), t->n_dims, t->dim, t->data, t->bytes);
        if (suffix && !(h->skip && strcmp(suffix, h->skip) == 0)) add_head(h->apart ? &head : &f, t, suffix, h);
    }
    st_save(&f, to, h->apart ? "model-00001-of-00002.safetensors" : "model.safetensors");
    if (h->apart) st_save(&head, to, "model-00002-of-00002.safetensors");
    ek_checkpoint_close(c);
}

/* Whether got has want's logits, those of token v where want has those of v + turn. */
static void turned(const char *what, logits want, logits got, int turn)
{
    if (!got.x) fail_msg("%s: %s", what, ek_err_text());
    assert_int_equal(want.vocab, got.vocab);
    for (int i = 0; i < TOKENS; i++)
        for (int v = 0; v < got.vocab; v++)
            if (memcmp(&got.x[i * got.vocab + v], &want.x[i * got.vocab + (v + turn) % got.vocab], sizeof(float)))
                fail_msg("%s: token %d of row %d", what, v, i);
    free(want.x), free(got.x);
}

static double bytes_of(const char *dir, const char *name)
{
    char path[256];
    ek_model *m;
    ek_model_need need;
    const ek_model_opts o = {.cpu = ek_cpu_detect(), .k_format = EK_KV_F16, .v_format = EK_KV_F16, .deferred = true};
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(ek_model_open(&m, path, &o), EK_OK);
    ek_model_measure(&need, m);
    ek_model_close(m);
    return need.weight_bytes;
}

static const char *const forms[][2] = {{"T3", "f32"},  {"T1", "bf16"}, {"Q1", "bf16"}, {"Q2", "mlx4"},
                                       {"Q3", "mlx8"}, {"Q2", "f32"},  {"Q1", "mlx4"}};

/* Before, all of these ran with the embedding, and a false was refused. */
static void one_that_differs_is_used(void **state)
{
    (void)state;
    static const how row[] = {{TURN, "", "true", false, false, NULL},
                              {TURN, "language_model.", "true", false, false, NULL},
                              {TURN, "", NULL, false, false, NULL},
                              {TURN, "", "false", false, false, NULL},
                              {TURN, "", "true", true, false, NULL}};
    char *dir = temp_dir();
    for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
        write_random(dir, "tied", tiny(forms[k][0]), forms[k][1]);
        for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
            write_head(dir, "tied", &row[i]);
            for (int exact = 0; exact < 2; exact++)
                turned(forms[k][1], logits_of(dir, "tied", exact), logits_of(dir, "with", exact), TURN);
        }
        assert_true(bytes_of(dir, "with") > bytes_of(dir, "tied"));
        remove_all(dir), dir = temp_dir();
    }
    remove_all(dir);
}

/* In the same type or, without a change of value, in another. */
static void an_equal_one_takes_no_memory(void **state)
{
    (void)state;
    char *dir = temp_dir();
    for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
        const ek_config *c = tiny(forms[k][0]);
        const char *const tied[] = {"true", "false"};
        write_random(dir, "tied", c, forms[k][1]);
        for (int i = 0; i < 2; i++) {
            write_head(dir, "tied", &(how){0, "", tied[i], i, false, NULL});
            turned(forms[k][1], logits_of(dir, "tied", false), logits_of(dir, "with", false), 0);
            assert_true(bytes_of(dir, "with") == bytes_of(dir, "tied"));
        }
        remove_all(dir), dir = temp_dir();
    }
    char source[256];
    write_random(dir, "bf16", tiny("T3"), "bf16");
    snprintf(source, sizeof source, "%s/bf16", dir);
    assert_int_equal(convert_to(dir, "tied", (ek_convert_opts){.from = source, .type = "f32"}, NULL), EK_OK);
    write_head(dir, "tied", &(how){0, "", "true", false, true, NULL});
    assert_true(bytes_of(dir, "with") == bytes_of(dir, "tied"));
    write_head(dir, "tied", &(how){TURN, "", "true", false, true, NULL});
    assert_true(bytes_of(dir, "with") > bytes_of(dir, "tied"));
    remove_all(dir);
}

static void refused(const char *dir, const char *want)
{
    assert_null(logits_of(dir, "with", false).x);
    if (!strstr(ek_err_text(), want)) fail_msg("%s", ek_err_text());
}

static void what_lacks_a_part_is_refused_by_name(void **state)
{
    (void)state;
    char *dir = temp_dir(), to[256];
    write_random(dir, "tied", tiny("Q2"), "mlx4");
    write_head(dir, "tied", &(how){TURN, "", "true", false, false, ".weight"});
    refused(dir, "tensor lm_head.weight is missing");
    write_head(dir, "tied", &(how){TURN, "", "true", false, false, ".biases"});
    refused(dir, "tensor lm_head.biases is missing");
    write_head(dir, "tied", &(how){TURN, "model.", "true", false, false, NULL});
    refused(dir, "tensor model.lm_head.");
    snprintf(to, sizeof to, "cp %s/tied/* %s/with", dir, dir);
    assert_int_equal(system(to), 0);
    snprintf(to, sizeof to, "%s/with", dir);
    char from[256];
    snprintf(from, sizeof from, "%s/tied", dir);
    put_config(from, to, "false");
    refused(dir, "tie_word_embeddings false, and there is no lm_head");
    remove_all(dir);
}

/* What is drawn in memory with a head, what is written of it and what is written of that are one model. */
static void convert_keeps_it(void **state)
{
    (void)state;
    static const struct {
        const char *config, *type;
        int bits;
    } row[] = {{"T3", "f32", 0}, {"Q2", "bf16", 0}, {"Q2", "mlx4", 4}, {"Q3", "mlx8", 8}};
    static ek_config c;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char *dir = temp_dir(), from[256];
        c = *tiny(row[i].config);
        c.own_head = true;
        write_random(dir, "one", &c, row[i].type);
        for (int exact = 0; exact < 2; exact++)
            same_logits(row[i].type, logits_of_random(&c, row[i].bits, exact), logits_of(dir, "one", exact));
        snprintf(from, sizeof from, "%s/one", dir);
        if (row[i].bits == 0) {
            if (convert_to(dir, "two.gguf", (ek_convert_opts){.from = from, .type = "f32"}, NULL) ||
                convert_to(dir, "three", (ek_convert_opts){.from = from, .type = "f32"}, NULL))
                fail_msg("%s", ek_err_text());
            same_logits("GGUF", logits_of(dir, "one", true), logits_of(dir, "two.gguf", true));
            same_logits("folder", logits_of(dir, "one", true), logits_of(dir, "three", true));
        }
        remove_all(dir);
    }
}

int main(void)
{
    ek_log_set(EK_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_differs_is_used),
        cmocka_unit_test(an_equal_one_takes_no_memory),
        cmocka_unit_test(what_lacks_a_part_is_refused_by_name),
        cmocka_unit_test(convert_keeps_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
