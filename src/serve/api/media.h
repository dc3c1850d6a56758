/* What messages hold beside plain text: pictures, sounds and videos, documents and files. Inside src/serve.
 *
 * Pictures, sounds and videos become files of the conversation. Their headers are read here, so that a refusal names
 * the message; pixels and samples are decoded when the prompt is made. Each function appends one block to m, which is a
 * message of c or will be one. EINVAL with one sentence: what the model does not take, a role that has none, more than
 * a request may have, a damaged or unknown file, a URL that is not read; what limits->take says of memory, and what
 * limits->fetch says. */
#ifndef EK_SERVE_MEDIA_H
#define EK_SERVE_MEDIA_H

#include "base/buf.h"
#include "serve/api/dialect.h"

/* What a message has, for refusals: "content parts of type "image_url" are not taken in a message: …". */
typedef struct ek_media_place {
    const char *what, *type, *where; /* "content parts", "image_url", "a message" */
} ek_media_place;

/* EK_OK where the model takes this kind, and messages of this role may have it. */
ek_err ek_media_taken(ek_part_kind kind, const ek_message *m, const ek_media_place *at, const ek_api_limits *limits);

/* A part of OpenAI's APIs: {"image_url": URL or {"url", "detail"}, "detail"}; {"input_audio": {"data", "format"}};
 * {"audio_url": URL or {"url"}}; {"video": [URL or {"url"}, …], "timestamps": [seconds, …] or "fps": N, "detail"}; of a
 * file {"video_url" or "video": URL or {"url"}} or {"input_video": base64, URL, {"data"} or {"url"}}, with "fps" and
 * "detail". *is says whether its type is one of them; where not, nothing was done. */
ek_err ek_media_part(ek_conversation *c, ek_message *m, const json_t *part, const char *what, const char *where,
                     const ek_api_limits *limits, bool *is);
/* Base64, or a data: URL. type: what the client says of it, as "image/png"; NULL: nothing. */
ek_err ek_media_base64(ek_conversation *c, ek_message *m, ek_part_kind kind, const char *s, size_t n, const char *type,
                       const ek_api_limits *limits);
/* A data: URL, or one of http(s) where the operator allows them. */
ek_err ek_media_url(ek_conversation *c, ek_message *m, ek_part_kind kind, const char *url, size_t n,
                    const ek_api_limits *limits);
/* A file part whose data is a picture, a sound or a video: a data: URL that says so, or base64 that begins like one of
 * the former. *is as
 * above. */
ek_err ek_media_file_part(ek_conversation *c, ek_message *m, const char *s, size_t n, const char *where,
                          const ek_api_limits *limits, bool *is);

/* --- between media.c and video.c --- */

#define EK_VIDEO_FILE EK_PART_KINDS /* as a kind: a file whose frames become parts */

/* more of this kind are about to come. */
ek_err ek_media_check_count(const ek_conversation *c, ek_part_kind kind, size_t more, const ek_api_limits *limits);
/* Base64 into bytes. */
ek_err ek_media_decode(ek_buf *out, ek_part_kind kind, const char *s, size_t n, const ek_api_limits *limits);
/* What a data: URL or one of http(s) gives. *here false: nothing, because it is to be fetched first. */
ek_err ek_media_read_url(ek_buf *out, ek_part_kind kind, const char *s, size_t n, const ek_api_limits *limits,
                         bool *here);
/* What the header of a picture or a sound says, before anything else is done with it. *found: of a picture; else zero.
 */
ek_err ek_media_check_header(ek_image_info *found, ek_part_kind kind, const ek_buf *bytes, const ek_api_limits *limits);
/* How closely the model looks, in soft tokens; 0: as the request says, or as the model does by itself. */
ek_err ek_media_read_detail(int *budget, const json_t *v);
/* A text, or the text url of an object; NULL for anything else. */
const json_t *ek_media_url_of(const json_t *v);

/* What is asked of a video. */
typedef struct ek_video_asked {
    bool url;   /* it must be one; otherwise base64 is taken too */
    int budget; /* soft tokens of a frame; 0: the model's own */
    double fps; /* frames per second that are taken of a file; 0: as transformers samples it */
} ek_video_asked;

/* A part of type video, video_url or input_video: a list of frames, or a file. key: the field that has it. */
ek_err ek_media_video_part(ek_conversation *c, ek_message *m, const json_t *part, const char *key,
                           const ek_api_limits *limits);
/* A file: a data: URL, one of http(s), or base64. */
ek_err ek_media_video_file(ek_conversation *c, ek_message *m, const char *s, size_t n, const ek_video_asked *asked,
                           const ek_api_limits *limits);

/* --- documents, results of a search and files: the text that they are, with their names around it --- */

/* EINVAL: "WHAT of type "TYPE" are not taken in WHERE". */
ek_err ek_part_refuse(const char *what, const char *type, const char *where);

/* <TAG>, then a line <NAME>…</NAME> for each member (a text that is not empty) of object; ek_part_close ends it. The
 * names: at most so many, NULL behind the last. */
void ek_part_open(ek_buf *out, const char *tag, const json_t *object, const char *const *names);
void ek_part_close(ek_buf *out, const char *tag);

/* The text of a file: s is a data: URL, or its base64 where type is given or it is none. type: the media type, NULL
 * where the URL, or nothing, says it. EINVAL for what is not a text in UTF-8, with its type, and no PDF that
 * limits->pdftotext reads; the text of one is left out where limits->plan says so. With limits->pdf_pages the bytes of
 * a PDF go to pdf, for ek_media_pages. */
ek_err ek_part_file(ek_buf *out, const char *s, size_t n, const char *type, const char *where,
                    const ek_api_limits *limits, ek_buf *pdf);
/* Reads the member pdf of a part, "text" or "pages", into limits->pdf_pages, which stays where there is none. EINVAL.
 */
ek_err ek_part_pdf(ek_api_limits *limits, const json_t *part);
/* Appends a picture of each page of a PDF to m, a message of c or about to be; the bytes are taken over. None is
 * appended where limits->plan says so. */
ek_err ek_media_pages(ek_conversation *c, ek_message *m, ek_buf *pdf, const char *where, const ek_api_limits *limits);
/* The same as a document with the member `filename` of part as its title; out is a text of m, at its end. */
ek_err ek_part_named_file(ek_conversation *c, ek_message *m, ek_buf *out, const json_t *part, const char *s, size_t n,
                          const char *where, const ek_api_limits *limits);

/* --- data: URLs (RFC 2397), as clients put files into them and as browsers read them (WHATWG) --- */

typedef struct ek_data_url {
    const char *type; /* TYPE/SUBTYPE as it was written, n_type bytes; n_type 0: none is said */
    size_t n_type;
    const char *data; /* behind the comma */
    size_t n_data;
    bool base64;
} ek_data_url;

/* Blanks and control characters around a URL are none of it. */
void ek_url_trim(const char **s, size_t *n);
/* Does it begin with "data:", in any case of letters, behind blanks? */
bool ek_is_data_url(const char *s, size_t n);
/* data:[TYPE/SUBTYPE][;PARAMETER]…[;base64],DATA, with blanks beside each of them. NULL, or why it is none, a clause
 * for a sentence; out is then undefined. Spans point into s. Time is linear in the bytes before the comma, of which
 * there may be 1,024; DATA is not looked at. */
const char *ek_data_url_parse(ek_data_url *out, const char *s, size_t n);
/* At least the bytes that DATA stands for; linear. */
size_t ek_data_url_bytes(const ek_data_url *u);
/* Appends them: escapes such as %2B are resolved, base64 is forgiving (base/encoding.h), a fragment is dropped.
 * false, and nothing appended, where it is not base64 although it says so, or the system has no memory. */
bool ek_data_url_decode(ek_buf *out, const ek_data_url *u);

#endif
