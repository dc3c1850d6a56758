/* PDFs of requests that ask for pictures of their pages. */
#include "media/pdf.h"

#include <stdio.h>
#include <string.h>

#include "media/limits.h"
#include "serve/api/field.h"
#include "serve/api/media.h"
#include "serve/api/plan.h"
#include "text/json/json.h"

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
    ek_buf says = {0};
    ek_field_not(&says, v);
    ek_err err = ek_fail(EK_EINVAL, "pdf must be \"text\" or \"pages\"%s", says.data);
    ek_buf_fini(&says);
    return err;
}

/* From here on a page is a picture like any other. */
static ek_err add_page(void *arg, const void *png, size_t n)
{
    const pages *p = arg;
    const ek_api_limits *limits = p->limits;
    ek_buf bytes = {0};
    ek_image_info image;
    if (limits->take) EK_TRY(limits->take(limits->count_arg, n + 1));
    ek_buf_add(&bytes, png, n);
    ek_err err = ek_media_check_header(&image, EK_PART_IMAGE, &bytes, limits);
    if (err) {
        ek_buf_fini(&bytes);
        return err;
    }
    ek_media_file *f = ek_conversation_media(p->c, p->m, EK_PART_IMAGE, 1)->files;
    f->bytes = bytes;
    f->image = image;
    return EK_OK;
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
    if (err != EK_EPARSE && err != EK_ETOOLARGE) return err;
    char why[200]; /* the sentence stays, as that of a mistake in a field */
    snprintf(why, sizeof why, "%s", ek_err_text());
    return ek_fail(EK_EINVAL, "%s", why);
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
