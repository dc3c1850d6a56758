/* OpenAI's transcriptions: a form with a sound; the reply is the speech as text. The served model hears the sound in an
 * ordinary prompt. Inside src/serve. */
#ifndef EK_SERVE_OPENAI_TRANSCRIPTION_H
#define EK_SERVE_OPENAI_TRANSCRIPTION_H

#include "serve/api/dialect.h"

typedef enum ek_transcription_form {
    EK_TRANSCRIPTION_JSON,
    EK_TRANSCRIPTION_TEXT,
    EK_TRANSCRIPTION_VERBOSE
} ek_transcription_form;

/* ek_api_request.own of a transcription. */
typedef struct ek_transcription {
    ek_transcription_form form;
    double seconds;    /* duration of the sound */
    char language[40]; /* the client's; "": none given */
} ek_transcription;

/* Serves as ek_dialect.parse. */
ek_err ek_transcription_parse(ek_api_request *r, const char *body, size_t n, const ek_api_limits *limits);

#endif
