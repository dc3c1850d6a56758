/* Attention in float64 for the tests, and checks against it. */
#ifndef EK_TESTS_LIB_ATTEND_H
#define EK_TESTS_LIB_ATTEND_H

#include "ref.h"

/* The rows i = 0, step, 2 step, … of y against float64: |y - want| <= atol + rtol |want|. Rows
 * that see no key must be zeros. mask broadcasts to [B, H, qL, kL]. */
__attribute__((format(printf, 9, 10))) void attend_check(const ek_view *y, const ek_view *q, const ek_view *k,
                                                         const ek_view *v, const ek_sdpa_options *o, int step,
                                                         double rtol, double atol, const char *shape, ...);

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
/* ek_sdpa in the form of the scene made last. */
ek_status attend_run(ek_view y, ek_view q, ek_view k, ek_view v, const ek_sdpa_options *o);

/* q [B, H, qL, D] and k, v [B, Hkv, kL, D] as MLX's tests prepare them: uniform. */
typedef struct attend_scene {
    ek_view q, k, v, y;
} attend_scene;
attend_scene attend_new(int form, int b, int h, int hkv, int ql, int kl, int d, double q_most, double v_most);

/* As attend_new with bounds of 1, and a result in f32, which hides no bit. */
attend_scene attend_f32(int form, int b, int h, int hkv, int ql, int kl, int d);

enum attend_mask { ATTEND_NONE, ATTEND_ADDED, ATTEND_BOOL, ATTEND_CAUSAL, ATTEND_MASKS };
/* Fills *o and, for the two that need one, *mask of shape [B, H, qL, kL]. */
void attend_options(ek_sdpa_options *o, ek_view *mask, enum attend_mask kind, const attend_scene *s, double scale);

#endif
