/* What the chat template gets of a request. */
#ifndef EK_TESTS_SERVE_TEMPLATE_GETS_H
#define EK_TESTS_SERVE_TEMPLATE_GETS_H

#include "serve/api/dialect.h"

/* Fails unless r's messages are the JSON text want; frees r. */
void template_gets(ek_api_request *r, const char *want);

#endif
