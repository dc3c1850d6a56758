/* The fingerprint of a run: everything except the request that decides an answer. Equal fingerprints mean equal
 * answers. {"object":"fingerprint","model_sha256":…,"numerics":…,"program":…,"context":…,"sampling":{…},"sha256":…}.
 * The last member is the SHA-256 of the bytes from the quote before model_sha256 to the brace that ends "sampling". */
#ifndef EK_SERVE_FINGERPRINT_H
#define EK_SERVE_FINGERPRINT_H

#include "base/buf.h"
#include "base/hash/hash.h"
#include "model/config/config.h"

enum { EK_FINGERPRINT = 65 }; /* hex digits and NUL */

/* Appends the fingerprint, and writes its hash to sha256. digest: ek_model_digest; numerics: the model's id; ctx:
 * maximum tokens of prompt and reply; sampling is the model's default, used by requests that set none. */
void ek_fingerprint_write(ek_buf *out, char sha256[EK_FINGERPRINT], const char *digest, const char *numerics, int ctx,
                          const ek_config *config);

#endif
