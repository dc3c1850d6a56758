/* An expression on its own, with all the steps that one may take. */
#ifndef EK_TESTS_SUPPORT_REGEX_H
#define EK_TESTS_SUPPORT_REGEX_H

#include "text/regex/regex.h"

static inline ek_err regex_open(ek_regex **out, const char *pattern, size_t n)
{
    int64_t left = EK_REGEX_WORK;
    return ek_regex_open_within(out, pattern, n, &left);
}

#endif
