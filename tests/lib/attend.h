/* Attention for the tests: scenes, parts of them, and checks against float64 (nothing of src/ computes in it). */
#ifndef EK_TESTS_LIB_ATTEND_H
#define EK_TESTS_LIB_ATTEND_H

#include "ref.h"

/* What is tested: each type, and bf16 once more with EK_BFLOAT16. */
enum { ATTEND_PAIRS = EK_TYPE_COUNT };
#define EACH_FORM(form)                                                                  \
    for (int form = EK_TYPE_F32; form >= 0; form = form == EK_TYPE_BF16   ? ATTEND_PAIRS \
                                                   : form == ATTEND_PAIRS ? -1           \
                                                                          : form + 1)
static inline ek_type attend_type(int form)
{
    return form == ATTEND_PAIRS ? EK_TYPE_BF16 : (ek_type)form;
}

/* ------------------------------------------------------------------ scenes */

/* One call: q and y [B, H, qL, D], k and v [B, Hkv, kL, D]. */
typedef struct attend_scene {
    int form;
    ek_view q, k, v, y;
} attend_scene;

typedef struct attend_sizes {
    int batch, heads, kv_heads, rows, keys, dim;
} attend_sizes;

/* q, k uniform in [0, q_max), v in [0, v_max). The same sizes give the same numbers. */
attend_scene attend_new(int form, attend_sizes n, double q_max, double v_max);
/* Bounds of 1, and a result in f32, which hides no bit. */
attend_scene attend_f32(int form, attend_sizes n);

/* Views of a part of a scene; y with them. */
attend_scene attend_keys(attend_scene s, int64_t from, int64_t to);
attend_scene attend_rows(attend_scene s, int64_t from, int64_t to);
attend_scene attend_entry(attend_scene s, int64_t b);
attend_scene attend_heads(attend_scene s, int64_t from, int64_t to); /* query heads, and the KV heads they read */

/* Element d of key (or value) j of KV head h becomes x, in every entry. */
void attend_set(const attend_scene *s, const ek_view *kv, int64_t h, int64_t j, int64_t d, double x);

enum attend_mask { ATTEND_NONE, ATTEND_ADDED, ATTEND_BOOL, ATTEND_CAUSAL, ATTEND_MASKS };
/* Fills *o and, for the two that need one, *mask of shape [B, H, qL, kL]. */
void attend_options(ek_sdpa_options *o, ek_view *mask, enum attend_mask kind, const attend_scene *s, double scale);

/* ------------------------------------------------------------------ calls and checks */

/* o may be NULL. A call that is refused fails the test. */
void attend_run(const attend_scene *s, const ek_sdpa_options *o);      /* into s->y */
ek_view attend_fresh(const attend_scene *s, const ek_sdpa_options *o); /* into a new tensor like y */

/* The checks below print the case: the format, then sizes, form and options. */

/* A fresh call gives the bits of want. */
__attribute__((format(printf, 4, 5))) void attend_same(const ek_view *want, const attend_scene *s,
                                                       const ek_sdpa_options *o, const char *shape, ...);
/* The rows i = 0, step, 2 step, … of s->y as it is against float64: |y - want| <= atol + rtol |want|. Rows without a
 * visible key must be zeros. The mask broadcasts to [B, H, qL, kL]. */
__attribute__((format(printf, 6, 7))) void attend_check(const attend_scene *s, const ek_sdpa_options *o, int step,
                                                        double rtol, double atol, const char *shape, ...);

#endif
