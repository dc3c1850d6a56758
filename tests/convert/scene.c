#include "scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>

#include "../support/files.h"
#include "../support/pages.h"
#include "base/alloc.h"
#include "base/machine/cpu.h"
#include "base/file.h"

const ek_config *tiny(const char *name)
{
    static ek_config config;
    assert_int_equal(ek_config_tiny(&config, name), EK_OK);
    return &config;
}

static void path_of(char out[256], const char *dir, const char *name)
{
    snprintf(out, 256, "%s/%s", dir, name);
}

ek_err convert_to(const char *dir, const char *name, ek_convert_opts o, ek_convert_report *report)
{
    char to[256];
    ek_convert_report ignored;
    path_of(to, dir, name);
    o.to = to;
    if (!o.seed) o.seed = 1;
    return ek_convert_model(&o, report ? report : &ignored);
}

void write_random(const char *dir, const char *name, const ek_config *c, const char *type)
{
    if (convert_to(dir, name, (ek_convert_opts){.invented = c, .type = type}, NULL)) fail_msg("%s", ek_err_text());
}

static ek_model_opts opts(bool exact)
{
    ek_kv_format kv = exact ? EK_KV_F32 : EK_KV_F16;
    return (ek_model_opts){.exact = exact, .k_format = kv, .v_format = kv, .cpu = ek_cpu_detect()};
}

static logits run(ek_model *m)
{
    int32_t ids[TOKENS];
    logits out = {.vocab = ek_model_config(m)->vocab_size};
    out.x = ek_alloc(sizeof *out.x * (size_t)(TOKENS * out.vocab));
    for (int i = 0; i < TOKENS; i++) ids[i] = (i * 37 + 5) % out.vocab;
    assert_int_equal(run_tokens(m, ids, TOKENS, NULL, out.x), EK_OK);
    ek_model_close(m);
    return out;
}

logits logits_of(const char *dir, const char *name, bool exact)
{
    char path[256];
    ek_model *m;
    ek_model_opts o = opts(exact);
    path_of(path, dir, name);
    return ek_model_open(&m, path, &o) ? (logits){0} : run(m);
}

logits logits_of_random(const ek_config *c, int bits, bool exact)
{
    ek_model *m;
    ek_model_opts o = opts(exact);
    assert_int_equal(ek_model_synthetic(&m, c, bits, 1, &o), EK_OK);
    return run(m);
}

void same_logits(const char *what, logits a, logits b)
{
    if (!a.x || !b.x) fail_msg("%s: %s", what, ek_err_text());
    assert_int_equal(a.vocab, b.vocab);
    bool moves = false;
    for (int i = 0; i < TOKENS * a.vocab; i++) {
        moves |= a.x[i] != a.x[0];
        if (memcmp(&a.x[i], &b.x[i], sizeof *a.x) != 0)
            fail_msg("%s: logit %d of position %d is %a and %a", what, i % a.vocab, i / a.vocab, (double)a.x[i],
                     (double)b.x[i]);
    }
    assert_true(moves);
    free(a.x);
    free(b.x);
}

void remove_all(char *dir)
{
    char path[768];
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (e->d_name[0] != '.' && ek_is_dir(path)) remove_dir(ek_strdup(path));
    }
    if (d) closedir(d);
    remove_dir(dir);
}
