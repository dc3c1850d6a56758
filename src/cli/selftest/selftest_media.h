/* The rows of selftest about pictures and about sounds. */
#ifndef EK_CLI_SELFTEST_MEDIA_H
#define EK_CLI_SELFTEST_MEDIA_H

#include "engine/engine.h"

/* Prompts with two drawn pictures, or (kind EK_PART_SOUND) two sounds, and one without, run alone and then together,
 * cut everywhere and twice. The towers take the kind. False: where says what differs, or why the row proved nothing.
 * did (room bytes) gets what was done. */
bool ek_selftest_media(ek_model *m, ek_towers *t, ek_part_kind kind, uint64_t seed, char *did, char *where,
                       size_t room);

#endif
