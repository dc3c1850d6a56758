/* The row of selftest about pictures and sounds. */
#ifndef EK_CLI_SELFTEST_MEDIA_H
#define EK_CLI_SELFTEST_MEDIA_H

#include "engine/engine.h"

/* The towers of the model at path, opened with opts: prompts with drawn pictures, and a sound where the model hears,
 * run alone and then together, cut everywhere and twice. *any: the model has towers; without there is no row. False:
 * where says what differs, or why the row proved nothing. did (room bytes) gets what was done. */
bool ek_selftest_media(bool *any, ek_model *m, const char *path, const ek_model_opts *opts, uint64_t seed, char *did,
                       char *where, size_t room);

#endif
