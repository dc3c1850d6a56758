/* ops/inline.h, and what is x86-64's. */
#ifndef EK_OPS_X86_INLINE_H
#define EK_OPS_X86_INLINE_H

#include "ops/inline.h"

/* A sum is brought up to date here, in its register: left to itself gcc adds terms of a longer chain among each other
 * first, which takes more registers than there are. */
#define IN_REGISTER(v) __asm__("" : "+x"(v))

#endif
