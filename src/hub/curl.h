/* libcurl, loaded at run time: it needs more than twenty libraries, whose loading takes 20 ms, and only a command that
 * fetches something should pay for that. */
#ifndef EK_HUB_CURL_H
#define EK_HUB_CURL_H

#include <curl/curl.h>

#include "base/err.h"

/* The used functions, by their own types; curl's header defines some of them as macros too. */
/* clang-format off */
#define EK_CURL_FUNCTIONS(F)                                                            \
    F(global_init) F(version_info) F(slist_append) F(slist_free_all)                    \
    F(easy_init) F(easy_cleanup) F(easy_setopt) F(easy_getinfo) F(easy_strerror)        \
    F(easy_perform)                                                                     \
    F(multi_init) F(multi_cleanup) F(multi_add_handle) F(multi_remove_handle)           \
    F(multi_perform) F(multi_poll) F(multi_info_read)
/* clang-format on */

typedef struct ek_curl {
#define F(name) __typeof__(curl_##name) *name;
    EK_CURL_FUNCTIONS(F)
#undef F
} ek_curl;

/* Loads and starts libcurl.so.4 once. ENOTFOUND names the package; EINVAL if it cannot do https. One thread. */
ek_err ek_curl_load(void);
const ek_curl *ek_curl_lib(void); /* after ek_curl_load; from any thread */

#endif
