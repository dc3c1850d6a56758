/* The prefix index: which pages hold the keys and values of which tokens, so that a request whose prompt begins
 * like an earlier one takes these pages instead of computing them.
 *
 * A tree with one node per page of 64 positions. A node has the tokens of its positions, the page of the full
 * layers, and maybe the page of the sliding layers; a node's pages depend on all tokens from the root
 * to it. Lookups compare tokens, not hashes. Each salt has its own root, so no lookup finds pages of another salt.
 *
 * A sequence may begin at any position p of a path whose full pages are there (they always are), and whose
 * sliding pages cover [p - W + 1, p). Sliding pages are large and are kept where a prompt is likely to be taken up
 * again (docs/CACHE.md), so p is the longest match or the nearest kept position before it.
 *
 * The index is a holder of its pages (ek_pages_cache). A page that it alone holds is idle: acquire can have it. The
 * owner that has most in the index gives up the least recently used of its own, so that no owner loses anything to one
 * that has more (64 owners are told apart). Pages in use are never evicted. Nothing is allocated after open.
 * Engine thread only. */
#ifndef EK_CACHE_PREFIX_H
#define EK_CACHE_PREFIX_H

#include "cache/held.h"
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
    uint64_t owner; /* whose it is; of one salt always the same */
    ek_salt_name
        *salt_name; /* what the salt is called where pages are told of; the index takes a reference. May be NULL */
    const int32_t *token;
    int n;
    const ek_content_id *content; /* NULL: all is plain text */
    int n_content;
} ek_prefix_key;

/* Names a whole page of a path: SHA-256 over the name of the page before it, its tokens and its contents. */
typedef struct ek_chain {
    uint8_t h[32];
} ek_chain;
ek_chain ek_chain_root(uint64_t salt);
ek_chain ek_chain_next(const ek_chain *before, const int32_t token[EK_PAGE_TOKENS], const ek_content_id *content);

/* Pages [first, end) of the sliding layers that are worth keeping. */
typedef struct ek_prefix_keep {
    int first, end;
} ek_prefix_keep;

typedef struct ek_prefix_stats {
    uint64_t evicted[EK_KIND_COUNT]; /* pages that were dropped for others or for the byte limit */
    int nodes;
    int reported, late; /* pages that ek_prefix_report told of and are held; those that are, and wait to be told */
    uint64_t reported_digest; /* exclusive or of the hashes of those that were told */
} ek_prefix_stats;

/* For the pages of p, n_pages of each of the EK_PAGE_KINDS, and sequences below max_tokens. Takes over p's reclaim.
 * max_idle_bytes: ek_prefix_shrink leaves at most these; INFINITY: all there are. */
void ek_prefix_open(ek_prefix **out, ek_pages *p, const ek_kv_layout *layout, const int n_pages[EK_PAGE_KINDS],
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
/* The page of a kind at page i of the path found, if all 64 positions of it are the key's and written; else EK_NO_PAGE.
 */
int32_t ek_prefix_page(const ek_prefix *x, ek_layer_kind kind, int i);

/* --- pages on disk: what is not there yet, and what came back */

/* A whole node: borrowed, valid until the index changes. page: EK_NO_PAGE where there is nothing to save. */
typedef struct ek_prefix_unsaved {
    const ek_chain *chain;
    const int32_t *token;
    const ek_content_id *content; /* NULL: plain text */
    int depth;
    int32_t page[EK_KIND_COUNT];
} ek_prefix_unsaved;

/* From now on names pages and remembers which were not saved; before the first put; NULL: no longer. save is called for
 * a page that is evicted before next_unsaved returned it; and with a name alone, for one that is dropped because it is
 * wrong. */
void ek_prefix_set_saver(ek_prefix *x, void (*save)(void *arg, const ek_prefix_unsaved *node), void *arg);
/* The node that waits longest; it counts as saved then. False: none. */
bool ek_prefix_next_unsaved(ek_prefix *x, ek_prefix_unsaved *out);
int ek_prefix_n_unsaved(const ek_prefix *x);
/* A mark, and whether all nodes that were unsaved when it was taken are so no more. */
uint64_t ek_prefix_unsaved_mark(const ek_prefix *x);
bool ek_prefix_saved_until(const ek_prefix *x, uint64_t mark);
/* The name of page i of the path found, or of the root with -1 (of the key's salt, in the index or not). */
ek_chain ek_prefix_chain(const ek_prefix *x, const ek_prefix_key *key, int i);
/* The key's page i, read from disk into pages that the caller holds, EK_NO_PAGE where it has none: they become the
 * index's where it lacks them. False if the path up to it is no longer there. Ends what find remembers. */
bool ek_prefix_attach(ek_prefix *x, const ek_prefix_key *key, int i, const int32_t page[EK_KIND_COUNT]);

/* --- pages that a prompt can begin with, told to another thread */

/* From now on tells of every whole page that is held: a sequence may begin behind it, or behind one further down its
 * path. Before the first put. n_waiting: pages that may wait for the reader before further ones are told later. */
ek_err ek_prefix_report(ek_prefix *x, int n_waiting);
ek_held_queue *ek_prefix_held(const ek_prefix *x); /* for the reader, until ek_prefix_close; NULL: it tells nobody */
/* Tells what found no room, and wakes the reader: after a step. */
void ek_prefix_held_flush(ek_prefix *x);

void ek_prefix_stats_read(const ek_prefix *x, ek_prefix_stats *out);

#endif
