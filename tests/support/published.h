/* Published models of which sizes alone are known: no weight is read or made. */
#ifndef TESTS_PUBLISHED_H
#define TESTS_PUBLISHED_H

#include "model/model.h"

/* Fails the test where it cannot. ek_model_close frees it. */
ek_model *open_published(const char *name, int bits);

#endif
