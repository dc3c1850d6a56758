#include "open/card.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash/hash.h"
#include "base/log.h"
#include "gpu/evidence/evidence.h"
#include "vulkan/vulkan.h"

/* --- times of its kernels --- */

#define MAX_FACTOR 100.0 /* no measurement gives more, or less than its inverse */

void ek_tuning_folder(ek_buf *out, char *(*env)(const char *name))
{
    const char *xdg = env("XDG_CACHE_HOME"), *home = env("HOME");
    if (xdg && xdg[0] == '/') ek_buf_fmt(out, "%s/evenkeel", xdg);
    else if (home && *home) ek_buf_fmt(out, "%s/.cache/evenkeel", home);
}

void ek_tuning_key(ek_buf *out, const ek_cuda *c)
{
    const ek_cuda_chip *chip = ek_cuda_chip_of(c);
    ek_buf_fmt(out, "%s, ", ek_cuda_card(c));
    if (chip->plain) ek_buf_fmt(out, "shaders %08x", (unsigned)ek_vulkan_hash());
    else ek_buf_fmt(out, "sm_%d", chip->features);
    ek_buf_fmt(out, ", evenkeel %s, times %08x", EK_VERSION, (unsigned)ek_crc32(0, chip->us, sizeof *chip->us));
}

void ek_tuning_path(ek_buf *out, const char *folder, const char *key)
{
    ek_buf_fmt(out, "%s/times-", folder);
    for (const char *p = key; *p; p++) {
        const bool word = (*p >= '0' && *p <= '9') || (*p >= 'A' && *p <= 'Z') || (*p >= 'a' && *p <= 'z') || *p == '.';
        if (word) ek_buf_add(out, p, 1);
        else if (p[1] != ' ') ek_buf_str(out, "-");
    }
}

/* The file without its last line, which is its checksum. */
static void text_of(ek_buf *out, const double *factor, const char *key)
{
    ek_buf_fmt(out, "times of kernels, over those built in\n%s\n", key);
    for (int f = 0; f < EK_CUDA_FAMILIES; f++) ek_buf_fmt(out, "%s %.4f\n", ek_cuda_family_name[f], factor[f]);
}

static void add_sum(ek_buf *b)
{
    ek_buf_fmt(b, "crc %08x\n", (unsigned)ek_crc32(0, b->data, b->len));
}

/* Accepts only a file that is identical to the file written for its numbers. */
static ek_err parse(double *factor, const char *text, const char *key)
{
    ek_buf again = {0};
    const char *at = text;
    for (int line = 0; line < 2 && at; line++) at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL;
    bool good = at;
    for (int f = 0; f < EK_CUDA_FAMILIES && good; f++) {
        const size_t n = strlen(ek_cuda_family_name[f]);
        char *end = NULL;
        good = !strncmp(at, ek_cuda_family_name[f], n) && at[n] == ' ';
        if (good) factor[f] = strtod(at + n + 1, &end);
        good = good && *end == '\n' && factor[f] >= 1 / MAX_FACTOR && factor[f] <= MAX_FACTOR;
        at = good ? end + 1 : at;
    }
    if (good) {
        text_of(&again, factor, key), add_sum(&again);
        good = !strcmp(ek_buf_text(&again), text);
    }
    ek_buf_fini(&again);
    return good ? EK_OK : ek_fail(EK_EFORMAT, "damaged, or of another card, driver or program");
}

ek_err ek_tuning_read(double factor[EK_CUDA_FAMILIES], const char *path, const char *key)
{
    enum { LIMIT = 4096 };
    ek_buf text = {0};
    ek_err err = ek_file_read(&text, path, LIMIT);
    if (!err && text.len && strlen(ek_buf_text(&text)) == text.len) err = parse(factor, ek_buf_text(&text), key);
    else if (!err) err = ek_fail(EK_EFORMAT, "it is no text");
    ek_buf_fini(&text);
    return err;
}

/* Makes the folder and its parent. EIO. */
static ek_err make_folder(const char *folder)
{
    ek_buf parent = {0};
    ek_buf_str(&parent, folder);
    char *const last = strrchr(parent.data, '/');
    if (last) *last = '\0';
    if (last && parent.data[0]) mkdir(parent.data, 0700); /* ~/.cache; an error shows at the next mkdir */
    const bool made = !mkdir(folder, 0700) || errno == EEXIST;
    const int why = errno;
    ek_buf_fini(&parent);
    return made ? EK_OK : ek_fail(EK_EIO, "%s: %s", folder, strerror(why));
}

ek_err ek_tuning_write(const double factor[EK_CUDA_FAMILIES], const char *folder, const char *path, const char *key)
{
    EK_TRY(make_folder(folder));
    ek_buf text = {0};
    text_of(&text, factor, key), add_sum(&text);
    const ek_err err = ek_file_replace(path, text.data, text.len, 0600);
    ek_buf_fini(&text);
    return err;
}

static void set(ek_cuda *c, const double *factor)
{
    ek_cuda_times t = *ek_cuda_chip_of(c)->us;
    for (int f = 0; f < EK_CUDA_FAMILIES; f++) ek_cuda_times_scale(&t, (ek_cuda_family)f, factor[f]);
    ek_cuda_set_times(c, &t);
    if (t.plain.matrices > 1) ek_cuda_leave_matrices(c);
}

static void measure(ek_cuda *c, const char *folder, const char *path, const char *key)
{
    double factor[EK_CUDA_FAMILIES];
    const double from = ek_now();
    const int n = ek_cuda_ordinal(c);
    const char *const maker = ek_cuda_maker(c);
    if (ek_gpu_tune(factor, c) != EK_OK) {
        ek_log(EK_LOG_DEBUG, "%s:%d: kernels are chosen by times of other cards: %s", maker, n, ek_err_text());
        return;
    }
    const double took = ek_now() - from;
    set(c, factor);
    if (!folder[0])
        ek_log(EK_LOG_NOTICE, "%s:%d: measured in %.1f s which kernels are faster; no HOME to keep it in", maker, n,
               took);
    else if (ek_tuning_write(factor, folder, path, key))
        ek_log(EK_LOG_NOTICE, "%s:%d: measured in %.1f s which kernels are faster; not kept: %s", maker, n, took,
               ek_err_text());
    else ek_log(EK_LOG_NOTICE, "%s:%d: measured in %.1f s which kernels are faster, kept in %s", maker, n, took, path);
}

static void take_times(ek_cuda *c, bool again)
{
    double factor[EK_CUDA_FAMILIES];
    ek_buf folder = {0}, key = {0}, path = {0};
    const ek_cuda_chip *const chip = ek_cuda_chip_of(c);
    if (!again && (chip->timed || (chip->plain && ek_vulkan_is_processor(ek_cuda_ordinal(c))))) return;
    ek_tuning_folder(&folder, getenv), ek_tuning_key(&key, c);
    ek_tuning_path(&path, ek_buf_text(&folder), ek_buf_text(&key));
    ek_err err = EK_ENOTFOUND;
    if (!again && folder.len) err = ek_tuning_read(factor, ek_buf_text(&path), ek_buf_text(&key));
    if (err == EK_EFORMAT) ek_log(EK_LOG_WARN, "%s: %s; it is measured anew", ek_buf_text(&path), ek_err_text());
    else if (err && err != EK_ENOTFOUND) ek_log(EK_LOG_WARN, "%s; it is measured anew", ek_err_text());
    if (!err) set(c, factor);
    else measure(c, ek_buf_text(&folder), ek_buf_text(&path), ek_buf_text(&key));
    ek_buf_fini(&folder), ek_buf_fini(&key), ek_buf_fini(&path);
}

void ek_tuning_take(ek_cuda *c)
{
    take_times(c, false);
}

void ek_tuning_again(ek_cuda *c)
{
    take_times(c, true);
}

/* --- the proof of its kernels --- */

/* All data on which the result of the comparisons depends. */
static void proof_of(ek_buf *out, const ek_gpu *g, const ek_model *m)
{
    ek_buf_fmt(out, "kernels that gave the definition's bits\n%s%s, evenkeel %s, shaders %08x\n", ek_cuda_card(g->c),
               ek_cuda_chip_of(g->c)->matrices ? " with matrices" : "", EK_VERSION, (unsigned)ek_vulkan_hash());
    ek_gpu_evidence_needs(out, m);
    ek_buf_fmt(out, "crc %08x\n", (unsigned)ek_crc32(0, out->data, out->len));
}

static bool is_kept(const char *path, const ek_buf *text)
{
    enum { LIMIT = 1 << 16 };
    ek_buf there = {0};
    const bool same = !ek_file_read(&there, path, LIMIT) && there.len == text->len &&
                      !memcmp(there.data, text->data, text->len);
    ek_buf_fini(&there);
    return same;
}

static ek_err prove(ek_gpu *g, const ek_model *m, const char *folder, const char *path, const ek_buf *text)
{
    const double from = ek_now();
    int n = 0;
    const char *const maker = ek_cuda_maker(g->c);
    const int ordinal = ek_cuda_ordinal(g->c);
    const char *const whose = ek_model_config(m)->backbone_hidden_size ? "the drafter's" : "its";
    const ek_err err = ek_gpu_prove(g, m, &n);
    if (err) return err;
    const double took = ek_now() - from;
    if (!folder[0] || make_folder(folder) || ek_file_replace(path, text->data, text->len, 0600))
        ek_log(EK_LOG_NOTICE,
               "%s:%d: %d comparisons of %s kernels with the definition in %.1f s, none differs; not kept", maker,
               ordinal, n, whose, took);
    else
        ek_log(EK_LOG_NOTICE,
               "%s:%d: %d comparisons of %s kernels with the definition in %.1f s, none differs; kept in %s", maker,
               ordinal, n, whose, took, path);
    return EK_OK;
}

static ek_err take_proof(ek_gpu *g, const ek_model *m)
{
    ek_buf text = {0}, folder = {0}, path = {0};
    proof_of(&text, g, m);
    ek_tuning_folder(&folder, getenv);
    ek_buf_fmt(&path, "%s/proven-%08x", ek_buf_text(&folder), (unsigned)ek_crc32(0, text.data, text.len));
    ek_err err = EK_OK;
    if (!folder.len || !is_kept(ek_buf_text(&path), &text))
        err = prove(g, m, ek_buf_text(&folder), ek_buf_text(&path), &text);
    ek_buf_fini(&text), ek_buf_fini(&folder), ek_buf_fini(&path);
    return err;
}

ek_err ek_proven_take(ek_gpu *g, const ek_model *m)
{
    const ek_err err = take_proof(g, m);
    if (ek_cuda_broken(g->c)) return ek_fail(EK_EUNSUPPORTED, "%s", ek_cuda_why(g->c));
    if (err != EK_EUNSUPPORTED || !ek_cuda_chip_of(g->c)->matrices) return err;
    ek_log(EK_LOG_WARN, "%s; packed products instead of matrices are tried", ek_err_text());
    ek_cuda_leave_matrices(g->c);
    g->err = EK_OK; /* set if the driver compiles no matrices */
    return take_proof(g, m);
}
