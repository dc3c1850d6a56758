/* The prefix cache's pages outside of the pool (host memory, disk, a server): which are written, and when a request
 * waits for some. The thread that reads and writes is the store's (cache/store.h); here everything is on the engine's
 * thread and waits for nothing, but for ek_shelf_drop, half a second at most, when nothing runs, and ek_shelf_close. */
#ifndef EK_ENGINE_SHELF_H
#define EK_ENGINE_SHELF_H

#include "engine/state.h"

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
