#include "serve/api/fingerprint.h"

#include "serve/api/dialect.h"

void ek_fingerprint_write(ek_buf *out, char sha256[EK_FINGERPRINT], const char *digest, const char *numerics, int ctx,
                          const ek_config *config)
{
    ek_buf members = {0};
    ek_buf_fmt(&members, "\"model_sha256\":\"%s\",\"numerics\":", digest);
    ek_put_string(&members, numerics);
    ek_buf_fmt(&members,
               ",\"program\":\"" EK_VERSION "\",\"context\":%d,\"sampling\":{\"temperature\":%.9g,\"top_p\":%.9g,"
               "\"top_k\":%d}",
               ctx, (double)config->temperature, (double)config->top_p, config->top_k);
    ek_sha256_hex(sha256, ek_buf_text(&members), members.len);
    ek_buf_fmt(out, "{\"object\":\"fingerprint\",%s,\"sha256\":\"%s\"}", ek_buf_text(&members), sha256);
    ek_buf_fini(&members);
}
