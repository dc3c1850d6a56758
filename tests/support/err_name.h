/* The names of failures, for messages of tests. */
#ifndef EK_TESTS_SUPPORT_ERR_NAME_H
#define EK_TESTS_SUPPORT_ERR_NAME_H

#include "base/err.h"

const char *err_name(ek_err code); /* "EPARSE" */

#endif
