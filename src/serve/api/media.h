/* Parts of messages other than plain text: pictures, sounds, videos, documents and files. Inside src/serve.
 *
 * Pictures, sounds and videos become files of the conversation. Headers are read here, so that a refusal names the
 * message; pixels and samples are decoded when the prompt is made. Each function appends one block to m, a present or
 * future message of c. EINVAL with one sentence: the model or the role does not take the part, the request has too
 * many, the file is damaged or unknown, or the URL is not read. Also errors of limits->take and limits->fetch. */
#ifndef EK_SERVE_MEDIA_H
#define EK_SERVE_MEDIA_H

#include "base/buf.h"
#include "serve/api/dialect.h"

/* Words of a refusal: "content parts of type "image_url" are not taken in a message: …". */
typedef struct ek_media_place {
    const char *what, *type, *where; /* "content parts", "image_url", "a message" */
} ek_media_place;

/* EK_OK if the model takes this kind and messages of this role may have it. */
ek_err ek_media_taken(ek_part_kind kind, const ek_message *m, const ek_media_place *at, const ek_api_limits *limits);

/* Reads a part of OpenAI's APIs. *is: whether its type is one of the following; if not, nothing was done.
 *
 *   {"image_url": URL or {"url", "detail"}, "detail"}
 *   {"input_audio": {"data", "format"}}, {"audio_url": URL or {"url"}}
 *   {"video": [URL or {"url"}, …], "timestamps": [seconds, …] or "fps": N, "detail"}
 *   {"video_url" or "video": URL or {"url"}, "fps", "detail"}, {"input_video": base64, URL, {"data"} or {"url"}, …} */
ek_err ek_media_part(ek_conversation *c, ek_message *m, const json_t *part, const char *what, const char *where,
                     const ek_api_limits *limits, bool *is);
/* Base64, or a data: URL. type: the client's media type, such as "image/png", or NULL. */
ek_err ek_media_base64(ek_conversation *c, ek_message *m, ek_part_kind kind, const char *s, size_t n, const char *type,
                       const ek_api_limits *limits);
/* A data: URL, or an http(s) URL if the operator allows them. */
ek_err ek_media_url(ek_conversation *c, ek_message *m, ek_part_kind kind, const char *url, size_t n,
                    const ek_api_limits *limits);
/* A file part with a picture, sound or video: a data: URL with such a type, or base64 that begins like a picture or
 * sound. *is as above. */
ek_err ek_media_file_part(ek_conversation *c, ek_message *m, const char *s, size_t n, const char *where,
                          const ek_api_limits *limits, bool *is);

/* --- between media.c, video.c and parts.c --- */

#define EK_VIDEO_FILE EK_PART_KINDS /* a kind of its own: a file whose frames become parts */

/* Whether `more` files of this kind may be added. */
ek_err ek_media_check_count(const ek_conversation *c, ek_part_kind kind, size_t more, const ek_api_limits *limits);
/* Decodes base64. */
ek_err ek_media_decode(ek_buf *out, ek_part_kind kind, const char *s, size_t n, const ek_api_limits *limits);
/* Appends the bytes of a data: or http(s) URL. *here false: nothing, because the URL has to be fetched first. */
ek_err ek_media_read_url(ek_buf *out, ek_part_kind kind, const char *s, size_t n, const ek_api_limits *limits,
                         bool *here);
/* Checks the header of a picture or sound before anything else. *found: a picture's properties, else zero. */
ek_err ek_media_check_header(ek_image_info *found, ek_part_kind kind, const ek_buf *bytes, const ek_api_limits *limits);
/* Adds a picture or sound whose bytes it takes over; budget: as of ek_media_read_detail. */
ek_err ek_media_add(ek_conversation *c, ek_message *m, ek_part_kind kind, ek_buf *bytes, int budget,
                    const ek_api_limits *limits);
/* Reads `detail` as a number of soft tokens; 0: the request's or the model's own. */
ek_err ek_media_read_detail(int *budget, const json_t *v);
/* v itself if it is a text, or the text `url` of an object; NULL for anything else. */
const json_t *ek_media_url_of(const json_t *v);

/* Options of a video. */
typedef struct ek_video_asked {
    bool url;   /* only a URL is accepted, not base64 */
    int budget; /* soft tokens per frame; 0: the model's own */
    double fps; /* frames per second of a file; 0: transformers' rule */
} ek_video_asked;

/* A part of type video, video_url or input_video: a list of frames, or a file. key: the field with it. */
ek_err ek_media_video_part(ek_conversation *c, ek_message *m, const json_t *part, const char *key,
                           const ek_api_limits *limits);
/* A video file: a data: URL, an http(s) URL, or base64. */
ek_err ek_media_video_file(ek_conversation *c, ek_message *m, const char *s, size_t n, const ek_video_asked *asked,
                           const ek_api_limits *limits);

/* --- documents, search results and files: their text between tags --- */

/* EINVAL: "WHAT of type "TYPE" are not taken in WHERE". */
ek_err ek_part_refuse(const char *what, const char *type, const char *where);

/* Appends <TAG>, then a line <NAME>…</NAME> for each name whose member of object is a non-empty text; ek_part_close
 * ends it. names: NULL at the end. */
void ek_part_open(ek_buf *out, const char *tag, const json_t *object, const char *const *names);
void ek_part_close(ek_buf *out, const char *tag);

/* Appends the text of a file. s is a data: URL or base64; type is its media type, or NULL if the URL or nothing names
 * it. EINVAL, naming the type, unless the file is UTF-8 text or a PDF that limits->pdftotext reads. The text of a PDF
 * is left out if limits->plan says so. With limits->pdf_pages a PDF's bytes go to pdf, for ek_media_pages. */
ek_err ek_part_file(ek_buf *out, const char *s, size_t n, const char *type, const char *where,
                    const ek_api_limits *limits, ek_buf *pdf);
/* Reads the member pdf of a part, "text" or "pages", into limits->pdf_pages; without it nothing changes. EINVAL. */
ek_err ek_part_pdf(ek_api_limits *limits, const json_t *part);
/* Appends a picture of each page of a PDF to m, and takes over the bytes. Appends none if limits->plan says so. */
ek_err ek_media_pages(ek_conversation *c, ek_message *m, ek_buf *pdf, const char *where, const ek_api_limits *limits);
/* Appends a file as a document whose title is the member `filename` of part; out is the text at m's end. */
ek_err ek_part_named_file(ek_conversation *c, ek_message *m, ek_buf *out, const json_t *part, const char *s, size_t n,
                          const char *where, const ek_api_limits *limits);

/* --- data: URLs (RFC 2397), as clients put files into them and as browsers read them (WHATWG) --- */

typedef struct ek_data_url {
    const char *type; /* TYPE/SUBTYPE as written, n_type bytes; n_type 0: none */
    size_t n_type;
    const char *data; /* after the comma */
    size_t n_data;
    bool base64;
} ek_data_url;

/* Removes blanks and control characters around a URL. */
void ek_url_trim(const char **s, size_t *n);
/* Whether s begins with "data:" in any case of letters, after blanks. */
bool ek_is_data_url(const char *s, size_t n);
/* Parses data:[TYPE/SUBTYPE][;PARAMETER]…[;base64],DATA, with blanks between the parts. Returns NULL, or the reason as
 * a clause of a sentence; out is then undefined. Spans point into s. Time is linear in the bytes before the comma, at
 * most 1,024; DATA is not read. */
const char *ek_data_url_parse(ek_data_url *out, const char *s, size_t n);
/* An upper bound of DATA's decoded bytes; linear. */
size_t ek_data_url_bytes(const ek_data_url *u);
/* Appends DATA's bytes: escapes such as %2B are resolved, base64 is forgiving (base/encoding.h), a fragment is dropped.
 * False, and nothing appended, for wrong base64 or without memory. */
bool ek_data_url_decode(ek_buf *out, const ek_data_url *u);

#endif
