/* The prefix index: the pages that hold the keys and values of known token sequences, so that a request whose prompt
 * begins like an earlier one takes these pages instead of computing them.
 *
 * The index is a tree with one node per page of 64 positions. A node has the tokens of its positions, the page of the
 * full layers, and possibly the page of the sliding layers; the pages depend on all tokens from the root to the node.
 * Lookups compare tokens, not hashes. Each salt has its own root, so no lookup finds pages of another salt.
 *
 * A sequence may resume at any position p of a path, if the path's full pages exist (they always do) and its sliding
 * pages cover [p - W + 1, p). Sliding pages are large and are kept only where a prompt is likely to resume
 * (docs/CACHE.md), so p is the longest match or the nearest kept position before it.
 *
 * The index is a holder of its pages (ek_pages_cache). A page that it alone holds is idle: acquire can take it. The
 * owner with the most pages in the index gives up its own least recently used ones, so that no owner loses a page to
 * one that has more (64 owners are distinguished). Pages in use are never evicted. Nothing is allocated after open.
 *
 * Engine thread only. */
#ifndef EK_CACHE_PREFIX_H
#define EK_CACHE_PREFIX_H

#include "cache/held.h"
#include "cache/page_table.h"

typedef struct ek_prefix ek_prefix;

/* The content of a position that is not plain text; all zero for text. For a position of an image or sound: a hash of
 * the whole span, because its positions may see each other. */
typedef struct ek_content_id {
    uint64_t h[2];
} ek_content_id;

/* A sequence, borrowed. Positions [n_content, n) are plain text. */
typedef struct ek_prefix_key {
    uint64_t salt;
    uint64_t owner;          /* the owner; constant per salt */
    ek_salt_name *salt_name; /* the salt's name in reports of held pages; the index takes a reference. May be NULL */
    const int32_t *token;
    int n;
    const ek_content_id *content; /* NULL: plain text only */
    int n_content;
} ek_prefix_key;

/* The name of a whole page of a path: SHA-256 over the previous page's name, its tokens and its contents. */
typedef struct ek_chain {
    uint8_t h[32];
} ek_chain;
ek_chain ek_chain_root(uint64_t salt);
ek_chain ek_chain_next(const ek_chain *before, const int32_t token[EK_PAGE_TOKENS], const ek_content_id *content);

/* Sliding pages [first, end) that are worth keeping. seldom: a prompt is less likely to resume there, so others' pages
 * outlive them. */
typedef struct ek_prefix_keep {
    int first, end;
    bool seldom;
} ek_prefix_keep;

typedef struct ek_prefix_stats {
    uint64_t evicted[EK_KIND_COUNT]; /* pages dropped for others or for the byte limit */
    int nodes;
    int reported, late;       /* held pages that ek_prefix_report has reported; held pages that still wait */
    uint64_t reported_digest; /* exclusive or of the reported pages' hashes */
} ek_prefix_stats;

/* For the pages of p, n_pages of each of the EK_PAGE_KINDS, and sequences below max_tokens. Takes over p's reclaim.
 * max_idle_bytes: limit of ek_prefix_shrink; INFINITY: none. */
void ek_prefix_open(ek_prefix **out, ek_pages *p, const ek_kv_layout *layout, const int n_pages[EK_PAGE_KINDS],
                    int max_tokens, double max_idle_bytes);
void ek_prefix_close(ek_prefix *x); /* releases every page; NULL is allowed */

/* Finds the longest prefix of the key in the index and returns its length. The index remembers this path for the
 * functions below until the next find or put. */
int ek_prefix_find(ek_prefix *x, const ek_prefix_key *key);
/* The largest position, at most max, at which a sequence may resume on the found path. */
int ek_prefix_usable(const ek_prefix *x, int max);
/* Gives the empty table t the first n positions of the found path; n is a result of ek_prefix_usable. Returns the
 * number of positions that t got: n, or fewer if there is no page for copying the last, partly used one. */
int ek_prefix_adopt(ek_prefix *x, ek_page_table *t, int n);
/* If the found path ends before the key: the cached tokens that follow the path instead, from the node most like the
 * key, from its position *first on. NULL if nothing was cached after the path. Valid until the next put. */
const int32_t *ek_prefix_rival(const ek_prefix *x, int *first, int *n);

/* Takes over the pages of t for the first n positions of the key, which are written and final. Of the sliding pages,
 * only those in keep[0..n_keep). last: t writes no more; then the last page is taken even if it is not full, and all of
 * t's sliding pages are taken. If the index has an equal page, t gets that page and returns its own to the pool. */
void ek_prefix_put(ek_prefix *x, const ek_prefix_key *key, ek_page_table *t, int n, const ek_prefix_keep *keep,
                   int n_keep, bool last);
/* A sequence began with the first n cached positions of the key. Sliding pages with which several began are spared for
 * a while. Forgets the found path. */
void ek_prefix_began(ek_prefix *x, const ek_prefix_key *key, int n);
/* A sequence that began at n now has its own kept pages for a later end, where its next turn will begin. From now on,
 * the other sliding pages that n needs count as seldom used, unless several sequences began there. Forgets the found
 * path. */
void ek_prefix_passed(ek_prefix *x, const ek_prefix_key *key, int n, const ek_prefix_keep *end);
/* Evicts the least recently used idle pages until the byte limit holds. */
void ek_prefix_shrink(ek_prefix *x);
/* Drops everything after the first n positions of the key (pages [n / 64, ...) of the path and their subtrees), because
 * it is wrong. Returns the number of dropped pages. */
int ek_prefix_drop(ek_prefix *x, const ek_prefix_key *key, int n);
/* The page of a kind at page i of the found path, if all its 64 positions match the key and are written; else
 * EK_NO_PAGE. */
int32_t ek_prefix_page(const ek_prefix *x, ek_layer_kind kind, int i);

/* --- pages on disk: unsaved pages, and pages read back --- */

/* A whole node; borrowed, valid until the index changes. page: EK_NO_PAGE if there is nothing to save. */
typedef struct ek_prefix_unsaved {
    const ek_chain *chain;
    const int32_t *token;
    const ek_content_id *content; /* NULL: plain text */
    int depth;
    int32_t page[EK_KIND_COUNT];
} ek_prefix_unsaved;

/* From now on names pages and remembers unsaved ones. Call it before the first put; NULL ends it. save is called for a
 * page that is evicted before next_unsaved returned it, and, with a name alone, for a page that is dropped because it
 * is wrong. */
void ek_prefix_set_saver(ek_prefix *x, void (*save)(void *arg, const ek_prefix_unsaved *node), void *arg);
/* Returns the longest waiting node, which then counts as saved. False: none. */
bool ek_prefix_next_unsaved(ek_prefix *x, ek_prefix_unsaved *out);
int ek_prefix_n_unsaved(const ek_prefix *x);
/* Returns a mark; ek_prefix_saved_until tells whether all nodes that were unsaved at the mark are saved. */
uint64_t ek_prefix_unsaved_mark(const ek_prefix *x);
bool ek_prefix_saved_until(const ek_prefix *x, uint64_t mark);
/* The name of page i of the found path; -1: of the root (of the key's salt, in the index or not). */
ek_chain ek_prefix_chain(const ek_prefix *x, const ek_prefix_key *key, int i);
/* Adds the key's page i, read from disk into pages that the caller holds (EK_NO_PAGE: none): the index becomes a holder
 * of those that it lacks. False if the path up to it is gone. Forgets the found path. */
bool ek_prefix_attach(ek_prefix *x, const ek_prefix_key *key, int i, const int32_t page[EK_KIND_COUNT]);

/* --- reports of pages with which a prompt can begin, to another thread --- */

/* From now on reports every held whole page after which a sequence may resume, there or further down its path. Call it
 * before the first put. n_waiting: maximum number of unread pages; further pages are reported later. */
ek_err ek_prefix_report(ek_prefix *x, int n_waiting);
/* For the reader, until ek_prefix_close; NULL: nothing is reported. */
ek_held_queue *ek_prefix_held(const ek_prefix *x);
/* Reports pages that found no room, and wakes the reader; call it after a step. */
void ek_prefix_held_flush(ek_prefix *x);

void ek_prefix_stats_read(const ek_prefix *x, ek_prefix_stats *out);

#endif
