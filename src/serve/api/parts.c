#include "serve/api/media.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/encoding.h"
#include "media/limits.h"
#include "media/pdf.h"
#include "serve/api/field.h"
#include "text/json/json.h"
#include "text/utf8.h"

ek_err ek_part_refuse(const char *what, const char *type, const char *where)
{
    char quoted[EK_QUOTED];
    return ek_fail(EK_EINVAL, "%s of type %s are not taken in %s", what, ek_field_quote(quoted, type, strlen(type)),
                   where);
}

/* --- documents --- */

void ek_part_open(ek_buf *out, const char *tag, const json_t *object, const char *const *names)
{
    ek_buf_fmt(out, "<%s>\n", tag);
    for (; *names; names++) {
        size_t n = 0;
        const char *s = ek_json_get_text(object, *names, &n);
        if (n == 0) continue;
        ek_buf_fmt(out, "<%s>", *names);
        ek_buf_add(out, s, n);
        ek_buf_fmt(out, "</%s>\n", *names);
    }
}

void ek_part_close(ek_buf *out, const char *tag)
{
    ek_buf_fmt(out, "\n</%s>", tag);
}

/* --- files --- */

/* Decodes %41 as A, as in any URL. */
static void add_unescaped(ek_buf *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const int byte = s[i] == '%' ? ek_hex_byte(s + i + 1, n - i - 1) : -1;
        ek_buf_char(out, byte >= 0 ? (char)byte : s[i]);
        if (byte >= 0) i += 2;
    }
}

static const char pdf_type[] = "application/pdf";

static bool is_pdf_type(const char *s, size_t n, const ek_api_limits *limits)
{
    return (limits->pdftotext || limits->pdf_pages) && n == sizeof pdf_type - 1 && !strncasecmp(s, pdf_type, n);
}

static bool is_text_type(const char *s, size_t n)
{
    static const char *const types[] = {"application/json",       "application/xml",     "application/yaml",
                                        "application/x-yaml",     "application/toml",    "application/javascript",
                                        "application/typescript", "application/x-ndjson"};
    if (n == 0 || (n > 5 && !strncasecmp(s, "text/", 5))) return true;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (n == strlen(types[i]) && !strncasecmp(s, types[i], n)) return true;
    return n > 5 && (!strncasecmp(s + n - 5, "+json", 5) || (!strncasecmp(s + n - 4, "+xml", 4)));
}

static ek_err wrong_file(const char *type, size_t n, const char *where)
{
    char copy[96]; /* longer than what errors quote */
    if (n >= sizeof copy) n = sizeof copy - 1;
    memcpy(copy, type, n);
    copy[n] = '\0';
    return ek_part_refuse("files", copy, where);
}

static ek_err count_pdf(const ek_api_limits *limits, int max)
{
    if (!limits->plan || ++limits->plan->n_pdfs <= max) return EK_OK;
    return ek_fail(EK_EINVAL, "the request has more than %d PDFs", max);
}

/* Replaces the bytes after `from`, which are a PDF, by its text. The program that reads it takes a while. */
static ek_err read_pdf(ek_buf *out, size_t from, const char *where, const ek_api_limits *limits)
{
    ek_buf text = {0};
    if (!limits->pdftotext) return ek_part_refuse("files", pdf_type, where);
    EK_TRY(count_pdf(limits, EK_MEDIA_MAX_PDFS));
    if (!ek_plan_runs(limits->plan)) {
        out->len = from;
        return EK_OK;
    }
    if (limits->take) EK_TRY(limits->take(limits->count_arg, EK_PDF_TEXT));
    ek_err err = ek_pdf_read(limits->pdftotext, &text, ek_buf_text(out) + from, out->len - from);
    if (!err) {
        out->len = from;
        ek_buf_add(out, text.data, text.len);
    }
    ek_buf_fini(&text);
    if (limits->give) limits->give(limits->count_arg, EK_PDF_TEXT);
    return err == EK_EPARSE ? EK_EINVAL : err; /* the sentence stays, as that of a mistake in a field */
}

/* The bytes after `from` must be a text or a readable PDF. A PDF is replaced by its text, or moved to pdf. */
static ek_err check_text(ek_buf *out, size_t from, const char *where, const ek_api_limits *limits, ek_buf *pdf)
{
    const bool is_pdf = ek_is_pdf(ek_buf_text(out) + from, out->len - from);
    if (is_pdf && limits->pdf_pages) {
        EK_TRY(count_pdf(limits, EK_MEDIA_MAX_DRAWN));
        ek_buf_add(pdf, out->data + from, out->len - from);
        out->len = from;
        out->data[from] = '\0';
        return EK_OK;
    }
    if (is_pdf) EK_TRY(read_pdf(out, from, where, limits));
    const char *s = ek_buf_text(out) + from;
    size_t n = out->len - from;
    if (!ek_utf8_valid(s, n) || memchr(s, '\0', n))
        return ek_fail(EK_EINVAL, "a file in %s is not text in UTF-8", where);
    return EK_OK;
}

/* Of a text without base64 everything is taken, even after a # that should have been escaped. */
static ek_err add_url(ek_buf *out, const char *s, size_t n, const char *where, const ek_api_limits *limits)
{
    ek_data_url u;
    const char *why = ek_data_url_parse(&u, s, n);
    if (why) return ek_fail(EK_EINVAL, "a data: URL in %s %s", where, why);
    if (!is_text_type(u.type, u.n_type) && !is_pdf_type(u.type, u.n_type, limits))
        return wrong_file(u.type, u.n_type, where);
    if (!u.base64) add_unescaped(out, u.data, u.n_data);
    else if (!ek_data_url_decode(out, &u)) return ek_fail(EK_EINVAL, "a file in %s is not valid base64", where);
    return EK_OK;
}

ek_err ek_part_file(ek_buf *out, const char *s, size_t n, const char *type, const char *where,
                    const ek_api_limits *limits, ek_buf *pdf)
{
    size_t from = out->len;
    const size_t n_type = type ? strcspn(type, ";") : 0;
    const bool fits = !type || is_text_type(type, n_type) || is_pdf_type(type, n_type, limits);
    if (!type && ek_is_data_url(s, n)) EK_TRY(add_url(out, s, n, where, limits));
    else if (!fits) return wrong_file(type, strlen(type), where);
    else if (!ek_base64_decode(out, s, n)) return ek_fail(EK_EINVAL, "a file in %s is not valid base64", where);
    return check_text(out, from, where, limits, pdf);
}

ek_err ek_part_named_file(ek_conversation *c, ek_message *m, ek_buf *out, const json_t *part, const char *s, size_t n,
                          const char *where, const ek_api_limits *limits)
{
    static const char *const names[] = {"filename", NULL};
    ek_api_limits own = *limits;
    ek_buf pdf = {0};
    EK_TRY(ek_part_pdf(&own, part));
    ek_part_open(out, "document", part, names);
    EK_TRY(ek_part_file(out, s, n, NULL, where, &own, &pdf));
    if (pdf.len > 0) {
        EK_TRY(ek_media_pages(c, m, &pdf, where, &own));
        out = &ek_message_add(m, EK_BLOCK_TEXT)->text;
    }
    ek_part_close(out, "document");
    return EK_OK;
}

/* --- pictures of the pages of PDFs --- */

typedef struct pages {
    ek_conversation *c;
    ek_message *m;
    const ek_api_limits *limits;
} pages;

ek_err ek_part_pdf(ek_api_limits *limits, const json_t *part)
{
    const json_t *v = ek_field(part, "pdf");
    const char *word = ek_json_is_text(v) ? json_string_value(v) : "";
    if (!v) return EK_OK;
    limits->pdf_pages = !strcmp(word, "pages");
    if (limits->pdf_pages || !strcmp(word, "text")) return EK_OK;
    char says[EK_QUOTED];
    return ek_fail(EK_EINVAL, "pdf must be \"text\" or \"pages\"%s", ek_field_not(says, v));
}

/* From here on a page is a picture like any other. */
static ek_err add_page(void *arg, const void *png, size_t n)
{
    const pages *p = arg;
    const ek_api_limits *limits = p->limits;
    ek_buf bytes = {0};
    if (limits->take) EK_TRY(limits->take(limits->count_arg, n + 1));
    ek_buf_add(&bytes, png, n);
    return ek_media_add(p->c, p->m, EK_PART_IMAGE, &bytes, 0, limits);
}

static ek_err draw(pages *p, const ek_buf *pdf)
{
    const ek_api_limits *limits = p->limits;
    const int max = (limits->max_images ? limits->max_images : EK_MEDIA_MAX_IMAGES) - p->c->n_images;
    EK_TRY(ek_media_check_count(p->c, EK_PART_IMAGE, 1, limits));
    if (!ek_plan_runs(limits->plan)) return EK_OK;
    if (limits->take) EK_TRY(limits->take(limits->count_arg, EK_PDF_PAGES_BYTES));
    ek_err err = ek_pdf_pages(limits->pdftoppm, ek_buf_text(pdf), pdf->len, max, add_page, p);
    if (limits->give) limits->give(limits->count_arg, EK_PDF_PAGES_BYTES);
    return err == EK_EPARSE || err == EK_ETOOLARGE ? EK_EINVAL : err; /* the sentence stays */
}

ek_err ek_media_pages(ek_conversation *c, ek_message *m, ek_buf *pdf, const char *where, const ek_api_limits *limits)
{
    pages p = {c, m, limits};
    ek_err err = ek_media_taken(EK_PART_IMAGE, m, &(ek_media_place){"pages of PDFs", "application/pdf", where}, limits);
    if (!err && !limits->pdftoppm)
        err = ek_fail(EK_EINVAL, "pages of PDFs are not taken as pictures: this server draws none (--pdftoppm)");
    if (!err) err = draw(&p, pdf);
    ek_buf_fini(pdf);
    return err;
}
