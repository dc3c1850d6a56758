/* Requests and cached pages: reuse of prefixes (reuse.c), audits (audit.c), and pages outside the pool (shelf.c). */
#ifndef EK_ENGINE_CACHED_H
#define EK_ENGINE_CACHED_H

#include "engine/state.h"

/* --- reuse: a request takes pages from the prefix index and leaves pages there */

/* The key of a request's first n tokens; borrows from the request. */
ek_prefix_key ek_reuse_key(const ek_request *r, int n);
/* The maximum number of cached positions that r may begin with. */
int ek_reuse_max(const ek_request *r);
/* Whether a waiting request should wait longer, because a running one is computing at least a page of its prompt's
 * beginning that the index lacks. It waits until these pages exist or the other request stops running, because
 * computing them twice would delay both. Tokens and the other request's progress decide, never a clock. */
bool ek_reuse_waits(ek_engine *e, ek_request *r);
/* Gives a waiting request without pages the pages of its longest cached prefix, n_done positions. The prefix ends
 * before the last token and before positions with requested logits. */
void ek_reuse_adopt(ek_engine *e, ek_request *r);
/* Whether r's cached part reaches its min_cached, before it runs for the first time. If not, r has returned its pages
 * and has to be ended. */
bool ek_reuse_suffices(ek_engine *e, ek_request *r);
/* The waiting request returns its pages, because there is no room to run it yet. */
void ek_reuse_return(ek_engine *e, ek_request *r);
/* Called right after adopt when r runs: counts and reports the hit. */
void ek_reuse_admitted(ek_engine *e, ek_request *r);
/* After a step, before sliding pages are trimmed: gives full pages to the index, and sliding pages at likely resume
 * points.
 */
void ek_reuse_capture(ek_engine *e, ek_request *r);
/* The request stops running and gives all its pages to the index. */
void ek_reuse_give(ek_engine *e, ek_request *r);

/* --- the audit: a fraction of the hits is recomputed while nothing else runs, and pages are compared byte by byte. A
 * different page means bad memory or a bug; it is evicted, counted and logged. */

void ek_audit_open(ek_engine *e);
void ek_audit_close(ek_engine *e); /* returns its pages */
/* A request began with n cached positions, which may be audited later. Only whole pages of plain text are audited, one
 * prefix at a time. */
void ek_audit_note(ek_engine *e, const ek_request *r, int n);
/* Computes and compares a chunk; false if there is nothing to audit. Only when nothing runs and nothing waits. */
bool ek_audit_step(ek_engine *e);
/* Requests come first: the audit returns its pages and restarts later. */
void ek_audit_pause(ek_engine *e);

/* --- the shelf: cached pages outside the pool (host memory, disk, a server). It decides which pages are written, and
 * when a request waits for pages. The store's thread reads and writes (cache/store.h). These functions run on the
 * engine's thread and do not wait, except ek_shelf_drop (half a second at most, when nothing runs) and ek_shelf_close.
 */

/* Opens the store over the backend of the options, if there is one and the executor can read pages. */
ek_err ek_shelf_open(ek_engine *e);
/* Writes the remaining pages, for a few seconds at most, and closes the store. */
void ek_shelf_close(ek_engine *e);

/* Whether the waiting request r may be looked up now. False while pages of its prompt are being read. Also false while
 * it lacks pages and an earlier request's pages are being read. Pages are read for one request at a time: the first in
 * the queue that lacks some. An overtaken request asks again for the rest. Nothing is read while reading is slower than
 * computing. */
bool ek_shelf_ready(ek_engine *e, ek_request *r);
/* r waits for something else: its pages are not read now, and are asked for again later. */
void ek_shelf_put_off(ek_engine *e, ek_request *r);
/* While the wait queue's first request has no place: begins to read the pages that it will lack, and takes finished
 * ones. */
void ek_shelf_ahead(ek_engine *e);
/* Ends reading for a request that no longer exists. Called before the engine sleeps, because ek_shelf_ready is not
 * called while no request waits. */
void ek_shelf_end_unwanted_load(ek_engine *e);
/* After a step: hands unwritten pages to the store, as many as there are free slots. */
void ek_shelf_save(ek_engine *e);
/* Drops the wrong page `first` of a plain-text key and all its successors, in memory and, as far as their names are
 * known, outside. Returns the number of pages dropped in memory. */
int ek_shelf_drop(ek_engine *e, const ek_prefix_key *key, int first);

/* --- last events that wait until other processes can read the pages (ek_request_opts.publish) */

typedef struct ek_leaving {
    struct ek_leaving *next;
    ek_request *req;
    ek_event event;
    float *logits;    /* the event's own */
    uint64_t unsaved; /* the last page that the index had not given to the store (ek_prefix_unsaved_mark) */
    uint64_t saved;   /* pages given to the store by then */
    bool handed;
    double until;
} ek_leaving;

/* Takes over a request that has left the engine, and its last event, if the event has to wait. */
bool ek_shelf_take_leaving(ek_engine *e, ek_request *r, const ek_event *event);
/* The next entry whose event can be sent (with `now`: any entry), or NULL. Send the event, then free both by
 * ek_leaving_end. */
ek_leaving *ek_shelf_next_leaving(ek_engine *e, bool now);
void ek_leaving_end(ek_leaving *l);

#endif
