/* The prefix index: which pages hold the keys and values of which tokens, so that a request whose prompt begins
 * like an earlier one takes these pages instead of computing them.
 *
 * A tree with one node per page of 64 positions. A node has the tokens of its positions, the page of the full
 * layers, and maybe the page of the sliding layers; what stands at a node depends on all tokens from the root
 * to it. Tokens are compared, not hashes of them. Roots are apart by salt: nothing is found under another salt.
 *
 * A sequence may begin at any position p of a path whose full pages are there (they always are), and whose
 * sliding pages cover [p - W + 1, p). Sliding pages are large and are kept where a prompt is likely to be taken up
 * again (docs/CACHE.md), so p is the longest match or the nearest kept position before it.
 *
 * The index is a holder of its pages (ek_pages_cache). A page that it alone holds is idle: acquire can have it,
 * the least recently used first. Pages in use are never evicted. Nothing is allocated after open.
 * Engine thread only. */
#ifndef EK_CACHE_PREFIX_H
#define EK_CACHE_PREFIX_H

#include "cache/page_table.h"

typedef struct ek_prefix ek_prefix;

/* What stands at a position in place of plain text: all zero for text; for a position of an image or sound, a hash
 * of the whole span, because its positions may see each other. */
typedef struct ek_content_id {
    uint64_t h[2];
} ek_content_id;

/* A sequence, borrowed. Positions [n_content, n) are plain text. */
typedef struct ek_prefix_key {
    uint64_t salt;
    const int32_t *token;
    int n;
    const ek_content_id *content; /* NULL: all is plain text */
    int n_content;
} ek_prefix_key;

/* Pages [first, end) of the sliding layers that are worth keeping. */
typedef struct ek_prefix_keep {
    int first, end;
} ek_prefix_keep;

typedef struct ek_prefix_stats {
    uint64_t evicted[EK_KIND_COUNT]; /* pages that were dropped for others or for the byte limit */
    int nodes;
} ek_prefix_stats;

/* For the pages of p, n_pages of each kind, and sequences below max_tokens. Takes over p's reclaim. max_idle_bytes:
 * ek_prefix_shrink leaves at most these; INFINITY: all there are. */
void ek_prefix_open(ek_prefix **out, ek_pages *p, const ek_kv_layout *layout, const int n_pages[EK_KIND_COUNT],
                    int max_tokens, double max_idle_bytes);
void ek_prefix_close(ek_prefix *x); /* gives every page back; NULL is allowed */

/* Length of the longest prefix of the key in the index. The path stays remembered for usable, adopt and rival, until
 * the next find or put. */
int ek_prefix_find(ek_prefix *x, const ek_prefix_key *key);
/* The largest position, at most max, at which a sequence may begin on the path found. */
int ek_prefix_usable(const ek_prefix *x, int max);
/* The empty table t begins with the first n positions of the path found; n came from ek_prefix_usable. Returns how
 * many it got: n, or fewer if there is no page for a copy of the last, partly used one. */
int ek_prefix_adopt(ek_prefix *x, ek_page_table *t, int n);
/* Where the path found ends before the key does, the cached tokens that stand there instead: the node most like the
 * key, from its position `*first` on. NULL if nothing was ever cached behind the path. Valid until the next put. */
const int32_t *ek_prefix_rival(const ek_prefix *x, int *first, int *n);

/* The index takes the pages of t for the first n positions of the key, which are written and will not change. Of
 * sliding pages those in keep[0..n_keep). last: t writes no more, so that the last page counts although it is not
 * full, and every sliding page that t holds is kept. Where the index has the same page already, t gets that
 * one and its own returns to the pool. */
void ek_prefix_put(ek_prefix *x, const ek_prefix_key *key, ek_page_table *t, int n, const ek_prefix_keep *keep,
                   int n_keep, bool last);
/* Evicts the least recently used idle pages until the byte limit holds. */
void ek_prefix_shrink(ek_prefix *x);
/* Drops all that lies behind the first n positions of the key (pages [n / 64, ...) of the path and their subtrees):
 * they turned out to be wrong. Returns the pages dropped. */
int ek_prefix_drop(ek_prefix *x, const ek_prefix_key *key, int n);
void ek_prefix_stats_read(const ek_prefix *x, ek_prefix_stats *out);

#endif
