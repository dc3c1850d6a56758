/* OpenAI's transcriptions: a sound in a form, and what is said in it as text. The model that is served hears the sound
 * in an ordinary prompt. Inside src/serve. */
#ifndef EK_SERVE_OPENAI_TRANSCRIPTION_H
#define EK_SERVE_OPENAI_TRANSCRIPTION_H

#include "serve/api/dialect.h"

typedef enum ek_transcription_form {
    EK_TRANSCRIPTION_JSON,
    EK_TRANSCRIPTION_TEXT,
    EK_TRANSCRIPTION_VERBOSE
} ek_transcription_form;

/* ek_api_request.own */
typedef struct ek_transcription {
    ek_transcription_form form;
    double seconds;    /* of the sound */
    char language[40]; /* as the client says; empty: it does not */
} ek_transcription;

/* ek_dialect.parse */
ek_err ek_transcription_parse(ek_api_request *r, const char *body, size_t n, const ek_api_limits *limits);

#endif
