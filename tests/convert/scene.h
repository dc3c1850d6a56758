/* Models converted in a temporary folder and asked for logits. */
#ifndef EK_TESTS_CONVERT_SCENE_H
#define EK_TESTS_CONVERT_SCENE_H

#include "convert/convert.h"
#include "model/model.h"

enum { TOKENS = 9 };

/* A small configuration of tests (config.h), valid until the next call. */
const ek_config *tiny(const char *name);

/* Converts into DIR/name; the other members of *o are taken as they are. */
ek_err convert_to(const char *dir, const char *name, ek_convert_opts o, ek_convert_report *report);

/* Random weights of a configuration as DIR/name. Fails the test if that fails. */
void write_random(const char *dir, const char *name, const ek_config *c, const char *type);

/* The logits of a few tokens, TOKENS x vocab; x NULL and ek_err_text() where the model does not open. */
typedef struct logits {
    float *x; /* owned */
    int vocab;
} logits;

/* exact: float weights and keys. */
logits logits_of(const char *dir, const char *name, bool exact);
logits logits_of_random(const ek_config *c, int bits, bool exact);
/* Frees both. */
void same_logits(const char *what, logits a, logits b);

/* Removes DIR and everything in it, folders of files included. */
void remove_all(char *dir);

#endif
