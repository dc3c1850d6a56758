/* Configurations of small drafters. */
#ifndef EK_TESTS_SUPPORT_DRAFTER_H
#define EK_TESTS_SUPPORT_DRAFTER_H

#include "model/config/config.h"

/* A drafter for target, of four layers; centroids 0: a dense head, else they divide the vocabulary. */
void drafter_config(ek_config *c, const ek_config *target, int centroids);

#endif
