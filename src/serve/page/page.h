/* The page at /: files of the folder web/, compiled into the program. Server thread. */
#ifndef EK_SERVE_PAGE_H
#define EK_SERVE_PAGE_H

#include "serve/http/http.h"

/* Answers x if its path is one of the page's, whatever the method: with the file (GET, HEAD), 304 where the client has
 * it (if-none-match), or 405. Returns whether it did. Needs no API key: the files are public. */
bool ek_page_answer(ek_exchange *x);

#endif
