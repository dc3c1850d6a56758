#include "engine/sample/choose.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"

enum { BLOCK = 64 };

static int n_blocks(int n)
{
    return (n + BLOCK - 1) / BLOCK;
}

void ek_choose_init(ek_choose *c, int cap)
{
    *c = (ek_choose){.cap = cap};
    c->item = ek_alloc(sizeof *c->item * (size_t)cap);
    c->block = ek_alloc(sizeof *c->block * (size_t)n_blocks(cap) * 2);
}

void ek_choose_fini(ek_choose *c)
{
    free(c->item);
    free(c->block);
    *c = (ek_choose){0};
}

static bool before(ek_candidate a, ek_candidate b)
{
    return a.z > b.z || (a.z == b.z && a.id < b.id);
}

static void sift_down(ek_candidate *heap, int n, int i)
{
    ek_candidate moving = heap[i];
    for (int child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(heap[child + 1], heap[child])) child++;
        if (!before(heap[child], moving)) break;
        heap[i] = heap[child];
    }
    heap[i] = moving;
}

static void make_heap(ek_choose *c)
{
    for (int i = c->n_heap / 2 - 1; i >= 0; i--) sift_down(c->item, c->n_heap, i);
}

static float block_max(const float *z, int n)
{
    float lane[16], m = -INFINITY;
    for (int l = 0; l < 16; l++) lane[l] = -INFINITY;
    int i = 0;
    for (; i + 16 <= n; i += 16)
        for (int l = 0; l < 16; l++) lane[l] = z[i + l] > lane[l] ? z[i + l] : lane[l];
    for (int l = 0; i < n; i++, l++) lane[l] = z[i] > lane[l] ? z[i] : lane[l];
    for (int l = 0; l < 16; l++) m = lane[l] > m ? lane[l] : m;
    return m;
}

/* The k-th largest of a[0..n), 1 <= k <= n, by quickselect; reorders a. */
static float kth_largest(float *a, int n, int k)
{
    int lo = 0, hi = n - 1, at = k - 1;
    while (lo < hi) {
        float pivot = a[lo + (hi - lo) / 2];
        int i = lo, j = hi;
        while (i <= j) {
            while (a[i] > pivot) i++;
            while (a[j] < pivot) j--;
            if (i > j) break;
            float t = a[i];
            a[i++] = a[j];
            a[j--] = t;
        }
        if (at <= j) hi = j;
        else if (at >= i) lo = i;
        else break;
    }
    return a[at];
}

/* Lowers the bound so that about `hint` values of the row reach it, and takes the values that were not looked at
 * before. `hint` blocks have maxima of at least the hint-th largest maximum, so at least that many values reach it. */
static void lower_bound(ek_choose *c, int hint)
{
    int blocks = n_blocks(c->cap);
    float above = c->bound, *copy = c->block + blocks;
    bool first = !c->started;
    c->started = true;
    c->hint = hint;
    c->bound = -INFINITY;
    if (hint < blocks) {
        memcpy(copy, c->block, sizeof *copy * (size_t)blocks);
        c->bound = kth_largest(copy, blocks, hint < 1 ? 1 : hint);
    }
    c->all = c->bound == -INFINITY;
    if (c->all) c->bound = -FLT_MAX;
    for (int b = 0; b < blocks; b++) {
        if (c->block[b] < c->bound) continue;
        int end = (b + 1) * BLOCK < c->cap ? (b + 1) * BLOCK : c->cap;
        for (int i = b * BLOCK; i < end; i++)
            if (c->z[i] >= c->bound && (first || c->z[i] < above)) c->item[c->n_heap++] = (ek_candidate){c->z[i], i};
    }
    make_heap(c);
}

void ek_choose_start(ek_choose *c, const float *z, int hint)
{
    for (int b = 0; b < n_blocks(c->cap); b++) {
        int first = b * BLOCK, n = c->cap - first < BLOCK ? c->cap - first : BLOCK;
        c->block[b] = block_max(z + first, n);
    }
    c->z = z;
    c->n_heap = c->n_returned = c->n_again = 0;
    c->started = false;
    lower_bound(c, hint);
}

bool ek_choose_next(ek_choose *c, ek_candidate *out)
{
    if (c->n_again < c->n_returned) {
        *out = c->item[c->cap - 1 - c->n_again++];
        return true;
    }
    while (c->n_heap == 0 && !c->all) lower_bound(c, c->hint * 8);
    if (c->n_heap == 0) return false;
    *out = c->item[0];
    c->item[0] = c->item[--c->n_heap];
    if (c->n_heap > 1) sift_down(c->item, c->n_heap, 0);
    /* the heap and the returned candidates together never exceed the row */
    c->item[c->cap - 1 - c->n_returned++] = *out;
    c->n_again = c->n_returned;
    return true;
}

void ek_choose_again(ek_choose *c)
{
    c->n_again = 0;
}
