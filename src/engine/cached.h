/* Requests and cached pages: reuse of prefixes (reuse.c), their audit (audit.c), and pages outside of the pool
 * (shelf.c). */
#ifndef EK_ENGINE_CACHED_H
#define EK_ENGINE_CACHED_H

#include "engine/state.h"

/* What a request takes from the prefix index, and what it leaves there. */

/* The first n tokens of a request as the index knows them; borrowed from it. */
ek_prefix_key ek_reuse_key(const ek_request *r, int n);
/* The largest number of cached positions it may begin with. */
int ek_reuse_max(const ek_request *r);
/* Whether a waiting request had better wait: one that runs is computing the front of its prompt, a page at least that
 * the index does not have. It waits until those pages are there, or the other one runs no more; computing them
 * twice would take longer for both. Decided by tokens and by how far the other one is, never by a clock. */
bool ek_reuse_waits(ek_engine *e, ek_request *r);
/* The pages of the longest cached prefix of a waiting request that holds none: n_done positions. The last token is
 * never among them, because its logits are wanted, nor is a prompt position whose logits were asked for. */
void ek_reuse_adopt(ek_engine *e, ek_request *r);
/* Whether it has as much as it asked for, before it runs for the first time; otherwise it has given its pages back and
 * is to be ended. */
bool ek_reuse_suffices(ek_engine *e, ek_request *r);
/* The waiting request gives its pages back: there is no room to run it yet. */
void ek_reuse_return(ek_engine *e, ek_request *r);
/* It runs now, right after adopt: counts and reports the hit. */
void ek_reuse_admitted(ek_engine *e, ek_request *r);
/* After a step, before its sliding pages are trimmed: full pages go to the index, and sliding ones where the
 * prompt is likely to be taken up again. */
void ek_reuse_capture(ek_engine *e, ek_request *r);
/* The request stops running: all that it holds goes to the index. */
void ek_reuse_give(ek_engine *e, ek_request *r);

/* The audit of cached prefixes: a share of the hits is computed again while nothing else runs, and the pages are
 * compared as bytes. One that differs is evicted, counted and logged: memory went bad, or the program is wrong. */

void ek_audit_open(ek_engine *e);
void ek_audit_close(ek_engine *e); /* gives its pages back */
/* A request began with n cached positions: maybe they will be audited. Only whole pages of plain text are, and one
 * prefix at a time. */
void ek_audit_note(ek_engine *e, const ek_request *r, int n);
/* Computes and compares a chunk; false if there is nothing to audit. Only when nothing runs and nothing waits. */
bool ek_audit_step(ek_engine *e);
/* Requests come first: what was computed is given back, the audit begins again later. */
void ek_audit_pause(ek_engine *e);

/* The prefix cache's pages outside of the pool (host memory, disk, a server): which are written, and when a request
 * waits for some. The thread that reads and writes is the store's (cache/store.h); here everything is on the engine's
 * thread and waits for nothing, but for ek_shelf_drop, half a second at most, when nothing runs, and ek_shelf_close. */

/* Opens the store over the backend of the options, if there is one and the executor can read pages. */
ek_err ek_shelf_open(ek_engine *e);
/* Writes what is not on disk yet, for at most some seconds, and closes the store. */
void ek_shelf_close(ek_engine *e);

/* Whether r, which waits, may be looked up now; false while pages of its prompt are being read, or it lacks some and
 * those of one before it are. Pages are read for one request at a time, the first of the queue that lacks some; what
 * another had not read yet is asked for again. For nobody while reading is slower than computing. */
bool ek_shelf_ready(ek_engine *e, ek_request *r);
/* r waits for something else: its pages are not read now, but asked for again later. */
void ek_shelf_put_off(ek_engine *e, ek_request *r);
/* While there is no place for the first of the wait queue: begins to read what it will lack, and takes what came. */
void ek_shelf_ahead(ek_engine *e);
/* Ends reading for a request that is gone. Before a step goes to sleep: ready is not asked again when nobody waits. */
void ek_shelf_end_unwanted_load(ek_engine *e);
/* After a step: hands over pages that are not on disk, as many as there are free slots. */
void ek_shelf_save(ek_engine *e);
/* Page `first` of the key, which is plain text, turned out to be wrong: it is dropped with all that follows it, in
 * memory and, as far as their names are known, outside of it. Returns the pages dropped in memory. */
int ek_shelf_drop(ek_engine *e, const ek_prefix_key *key, int first);

/* --- last events that wait until pages can be read by other processes, for who is about to ask one for the rest */

/* The request, which has left the engine, and its last event, if that has to wait: both are the list's then. */
bool ek_shelf_take_leaving(ek_engine *e, ek_request *r, const ek_event *event);
/* The next whose time has come, of all of them with `now`: its event is to be sent, and both freed by ek_leaving_end.
 * NULL: none. */
struct ek_leaving *ek_shelf_next_leaving(ek_engine *e, bool now);
const ek_request *ek_leaving_request(const struct ek_leaving *l);
const ek_event *ek_leaving_event(const struct ek_leaving *l);
void ek_leaving_end(struct ek_leaving *l);

#endif
