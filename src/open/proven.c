#include "open/proven.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash/hash.h"
#include "base/log.h"
#include "gpu/evidence/evidence.h"
#include "open/tuning.h"
#include "vulkan/vulkan.h"

/* All data on which the result of the comparisons depends. */
static void text_of(ek_buf *out, const ek_gpu *g, const ek_model *m)
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
    if (!folder[0] || ek_tuning_make_folder(folder) || ek_file_replace(path, text->data, text->len, 0600))
        ek_log(EK_LOG_NOTICE,
               "%s:%d: %d comparisons of %s kernels with the definition in %.1f s, none differs; not kept", maker,
               ordinal, n, whose, took);
    else
        ek_log(EK_LOG_NOTICE,
               "%s:%d: %d comparisons of %s kernels with the definition in %.1f s, none differs; kept in %s", maker,
               ordinal, n, whose, took, path);
    return EK_OK;
}

static ek_err take(ek_gpu *g, const ek_model *m)
{
    ek_buf text = {0}, folder = {0}, path = {0};
    text_of(&text, g, m);
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
    const ek_err err = take(g, m);
    if (err != EK_EUNSUPPORTED || !ek_cuda_chip_of(g->c)->matrices) return err;
    ek_log(EK_LOG_WARN, "%s; packed products instead of matrices are tried", ek_err_text());
    ek_cuda_leave_matrices(g->c);
    return take(g, m);
}
