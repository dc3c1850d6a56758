/* The tree T of attention over the segments of a query (ops/attn/attn.h). */
#include <string.h>

#include "ops/attn/attn_sched_state.h"
#include "ops/tree.h"
#include "tensor/dtype.h"

/* 2^n for n <= 0, +0 below 2^-125. */
static float factor(int64_t n)
{
    return n < -125 ? 0.0f : ek_bits_f32((uint32_t)(n + 127) << 23);
}

/* Adds query i of `earlier` to `later`. */
static void combine(const ek_attn_source *s, const ek_attn_node *earlier, ek_attn_node *later, int i)
{
    const int ma = earlier->m[i], mb = later->m[i], m = ma > mb ? ma : mb;
    const float fa = factor((int64_t)ma - m), fb = factor((int64_t)mb - m);
    later->l[i] = earlier->l[i] * fa + later->l[i] * fb;
    later->m[i] = m;
    s->combine(later->o + i * s->ldo, earlier->o + i * s->ldo, fb, fa, (int)s->ldo);
}

void ek_attn_node_copy(const ek_attn_source *s, ek_attn_node *to, const ek_attn_node *from, int i)
{
    to->m[i] = from->m[i], to->l[i] = from->l[i];
    memcpy(to->o + i * s->ldo, from->o + i * s->ldo, sizeof(float) * (size_t)s->ldo);
}

void ek_attn_tree_push(const ek_attn_source *s, ek_attn_node *stack, ek_attn_node *node, unsigned count, int level,
                       int i)
{
    EK_ASSERT((count & ((1u << level) - 1)) == 0);
    const int to = level + ek_tree_level(count >> level);
    for (; level < to; level++) combine(s, &stack[level], node, i);
    ek_attn_node_copy(s, &stack[to], node, i);
}

void ek_attn_tree_push_all(const ek_attn_source *s, ek_attn_node *stack, ek_attn_node *leaf, unsigned count, int n)
{
    const int to = ek_tree_level(count);
    for (int level = 0; level < to; level++)
        for (int i = 0; i < n; i++) combine(s, &stack[level], leaf, i);
    const ek_attn_node was = stack[to];
    stack[to] = *leaf;
    *leaf = was;
}

ek_attn_node *ek_attn_tree_fold(const ek_attn_source *s, ek_attn_node *stack, unsigned count, ek_attn_node *tail, int i)
{
    ek_attn_node *sum = tail;
    for (int level = ek_tree_node(count, 0); level >= 0; level = ek_tree_node(count, level + 1)) {
        if (sum) combine(s, &stack[level], sum, i);
        else sum = &stack[level];
    }
    return sum;
}

/* The result of query i. -0 becomes +0, because a sum that underflowed would be -0 or +0 depending on whether unseen
 * keys were added as zeros or not at all. */
void ek_attn_tree_finish(const ek_attn_source *s, const ek_attn_tile *t, const ek_attn_node *sum, int i,
                         float *restrict row)
{
    const float *restrict o = sum ? sum->o + i * s->ldo : NULL, l = sum ? sum->l[i] : 1;
    for (ptrdiff_t d = 0; d < s->ldo; d++) row[d] = o ? (o[d] + 0.0f) / l : 0.0f;
    s->result(s->self, t, i, row);
}
