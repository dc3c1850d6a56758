/* The audit of cached prefixes: a share of the hits is computed again while nothing else runs, and the pages are
 * compared as bytes. One that differs is evicted, counted and logged: memory went bad, or the program is wrong. */
#ifndef EK_ENGINE_AUDIT_H
#define EK_ENGINE_AUDIT_H

#include "engine/state.h"

void ek_audit_open(ek_engine *e);
void ek_audit_close(ek_engine *e); /* gives its pages back */
/* A request began with n cached positions: maybe they will be audited. Only whole pages of plain text are, and one
 * prefix at a time. */
void ek_audit_note(ek_engine *e, const ek_request *r, int n);
/* Computes and compares a chunk; false if there is nothing to audit. Only when nothing runs and nothing waits. */
bool ek_audit_step(ek_engine *e);
/* Requests come first: what was computed is given back, the audit begins again later. */
void ek_audit_pause(ek_engine *e);

#endif
