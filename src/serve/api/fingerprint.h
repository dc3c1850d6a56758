/* The fingerprint of a run: all that decides an answer beside the request. Equal fingerprints, equal answers.
 *
 * {"object":"fingerprint","model_sha256":…,"numerics":…,"program":…,"context":…,"sampling":{…},"sha256":…}; the last
 * member is the SHA-256 of the members between the first and it, from the quote of "model_sha256" to the brace that
 * ends "sampling". */
#ifndef EK_SERVE_FINGERPRINT_H
#define EK_SERVE_FINGERPRINT_H

#include "base/buf.h"
#include "base/hash/hash.h"
#include "model/config/config.h"

enum { EK_FINGERPRINT = 65 }; /* its digits and NUL */

/* Appends it, and writes its last member's value. digest: ek_model_digest; numerics: the model's; ctx: tokens of a
 * prompt and its reply; the sampling of requests that ask for none is the model's. */
void ek_fingerprint_write(ek_buf *out, char sha256[EK_FINGERPRINT], const char *digest, const char *numerics, int ctx,
                          const ek_config *config);

#endif
