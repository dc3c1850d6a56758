/* The page at /: files of the folder web/, compiled into the program. Server thread. */
#ifndef EK_SERVE_PAGE_H
#define EK_SERVE_PAGE_H

#include "serve/http/http.h"

/* Answers x if its path is one of the page's: with the file (GET, HEAD), 304 if the client has the file
 * (if-none-match), or 405 for other methods. Returns whether it answered. Needs no API key, because the files are
 * public. */
bool ek_page_answer(ek_exchange *x);

#endif
