/* Pictures, sounds and videos in the messages of a body, as files of the conversation. Their headers are read here, so
 * that a refusal names the message; pixels and samples are decoded when the prompt is made. Inside src/serve.
 *
 * Each function appends one block to m, which is a message of c or will be one. EINVAL with one sentence: what the
 * model does not take, a role that has none, more than a request may have, a damaged or unknown file, a URL that is not
 * read; what limits->take says of memory, and what limits->fetch says. */
#ifndef EK_SERVE_MEDIA_H
#define EK_SERVE_MEDIA_H

#include "serve/api/dialect.h"

/* What a message has, for refusals: "content parts of type "image_url" are not taken in a message: …". */
typedef struct ek_media_place {
    const char *what, *type, *where; /* "content parts", "image_url", "a message" */
} ek_media_place;

/* EK_OK where the model takes this kind, and messages of this role may have it. */
ek_err ek_media_taken(ek_part_kind kind, const ek_message *m, const ek_media_place *at, const ek_api_limits *limits);

/* A part of OpenAI's APIs: {"image_url": URL or {"url", "detail"}, "detail"}; {"input_audio": {"data", "format"}};
 * {"audio_url": URL or {"url"}}; {"video": [URL or {"url"}, …], "timestamps": [seconds, …] or "fps": N, "detail"}. *is
 * says whether its type is one of them; where not, nothing was done. */
ek_err ek_media_part(ek_conversation *c, ek_message *m, const json_t *part, const char *what, const char *where,
                     const ek_api_limits *limits, bool *is);
/* Base64, or a data: URL. type: what the client says of it, as "image/png"; NULL: nothing. */
ek_err ek_media_base64(ek_conversation *c, ek_message *m, ek_part_kind kind, const char *s, size_t n, const char *type,
                       const ek_api_limits *limits);
/* A data: URL, or one of http(s) where the operator allows them. */
ek_err ek_media_url(ek_conversation *c, ek_message *m, ek_part_kind kind, const char *url, size_t n,
                    const ek_api_limits *limits);
/* A file part whose data is a picture or a sound: a data: URL that says so, or base64 that begins like one. *is as
 * above. */
ek_err ek_media_file_part(ek_conversation *c, ek_message *m, const char *s, size_t n, const char *where,
                          const ek_api_limits *limits, bool *is);

#endif
