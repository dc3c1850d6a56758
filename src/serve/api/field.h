/* Reads and checks fields of a JSON body. null is the same as absent. Every error is EINVAL with a
 * sentence "FIELD: what is needed", and r->param names the field. */
#ifndef EK_SERVE_FIELD_H
#define EK_SERVE_FIELD_H

#include "serve/api/dialect.h"

/* Reads the body leniently (clients send tool schemas with invalid escapes such as "\s") and
 * passes it to `read`. EPARSE for a body that is not JSON, EINVAL for JSON that is no object, else the result of
 * `read`. */
ek_err ek_field_body(ek_api_request *r, const char *text, size_t n, const ek_api_limits *limits,
                     ek_body_reader_fn *read);
/* Reads JSON within a text of the body in the same way, after counting it. *out is a new reference, NULL after a
 * failure: an error of limits->count, or EINVAL for a text that is not JSON. */
ek_err ek_field_json(json_t **out, const char *text, size_t n, const ek_api_limits *limits);
/* Reads `model` into r->model. */
ek_err ek_field_model(ek_api_request *r, const json_t *body);
/* Reads our own fields and those of routers:
 *
 *   evenkeel             {"digest": bool, "receipt": bool or {"nonce": TEXT}, "cache": bool, "resume": as in
 *                        serve/resume/resume.h, "image_tokens": 70, 140, 280, 560 or 1120, "image_alpha": "drop" or
 *                        "white"}
 *   mm_processor_kwargs  {"max_soft_tokens": as image_tokens}
 *   cache_salt           a text: only requests with the same salt share cached prefixes
 *   cache_hit_threshold  0 to 1
 *   kv_transfer_params   an object; with do_remote_decode another replica writes the reply */
ek_err ek_field_ours(ek_api_request *r, const json_t *body, const ek_api_limits *limits);

/* The member, borrowed; NULL when absent or null. */
const json_t *ek_field(const json_t *object, const char *key);

/* Each leaves *out unchanged if the field is absent; min and max are inclusive. */
ek_err ek_field_bool(ek_api_request *r, const json_t *object, const char *key, bool *out);
ek_err ek_field_number(ek_api_request *r, const json_t *object, const char *key, double min, double max, float *out);
/* A whole number, also spelled 1e3; *found says whether it was present. */
ek_err ek_field_int(ek_api_request *r, const json_t *object, const char *key, int64_t min, int64_t max, int64_t *out,
                    bool *found);

/* Reads a limit on thoughts' tokens, from 1, under this key into r->turn.max_thinking. param: the enclosing field, a
 * literal. */
ek_err ek_field_thinking(ek_api_request *r, const json_t *object, const char *key, const char *param);

/* Sets r->param and the error "PARAM: need"; returns EINVAL. param is a literal. */
ek_err ek_field_wrong(ek_api_request *r, const char *param, const char *need);
/* The same with the value: "PARAM: need, not VALUE". */
ek_err ek_field_kind(ek_api_request *r, const char *param, const char *need, const json_t *v);
/* A client's text in quotes, for a sentence: escaped, so that it stays one line without control characters, and
 * truncated at 80 characters. Returns out. */
enum { EK_QUOTED = 1024 };
const char *ek_field_quote(char out[EK_QUOTED], const char *s, size_t n);
/* ", not VALUE" for a text or a number, else the kind of value; "" if it is absent. Returns out. */
const char *ek_field_not(char out[EK_QUOTED], const json_t *v);
/* EINVAL: "role must be one of ROLES, not VALUE". */
ek_err ek_field_wrong_role(const json_t *message, const char *roles);
/* Like ek_field_wrong, with the client's text in the sentence. */
ek_err ek_field_wrong_text(ek_api_request *r, const char *param, const char *before, const char *text,
                           const char *after);

/* --- known top-level members of bodies. An unknown member might change the meaning of a request, for example continue
 * a conversation, so it is refused instead of ignored. */

typedef enum ek_member_apis {
    EK_MEMBERS_CHAT = 1,
    EK_MEMBERS_COMPLETIONS = 2,
    EK_MEMBERS_RESPONSES = 4,
    EK_MEMBERS_ANTHROPIC = 8,
    EK_MEMBERS_OLLAMA_CHAT = 16,
    EK_MEMBERS_OLLAMA_GENERATE = 32,
    EK_MEMBERS_CONVERSATIONS = 64,
    EK_MEMBERS_TOKENIZE = 128 /* together with the members of chat completions */
} ek_member_apis;

/* EINVAL with the name of a member that is unknown to this API, unless its value is null. */
ek_err ek_members_check(ek_api_request *r, const json_t *body, ek_member_apis api);

#endif
