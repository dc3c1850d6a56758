/* The page at /: files of the folder web/, compiled into the program. */
#include "serve/routes.h"

#include <stdio.h>
#include <string.h>

#include "base/hash/rng.h"

typedef struct page_file {
    const char *path, *type;
    const char *data, *end; /* bytes [data, end), for the program's life */
} page_file;

/* The files of web/ and the page's libraries (tools/make/page.mk) as read-only data. The assembler reads them (.incbin,
 * relative to the tree's root, where make runs, or in the folder of the libraries): no generator, no generated source.
 */

#define FILES                                                         \
    FILE_ROW(index, "/", "web/index.html", HTML)                      \
    FILE_ROW(page_css, "/page/page.css", "web/page.css", CSS)         \
    FILE_ROW(chat_css, "/page/chat.css", "web/chat.css", CSS)         \
    FILE_ROW(text_css, "/page/text.css", "web/text.css", CSS)         \
    FILE_ROW(icon, "/page/icon.svg", "web/icon.svg", "image/svg+xml") \
    FILE_ROW(main, "/page/main.js", "web/main.js", JS)                \
    FILE_ROW(api, "/page/api.js", "web/api.js", JS)                   \
    FILE_ROW(attach, "/page/attach.js", "web/attach.js", JS)          \
    FILE_ROW(build, "/page/build.js", "web/build.js", JS)             \
    FILE_ROW(chat, "/page/chat.js", "web/chat.js", JS)                \
    FILE_ROW(composer, "/page/composer.js", "web/composer.js", JS)    \
    FILE_ROW(dom, "/page/dom.js", "web/dom.js", JS)                   \
    FILE_ROW(examples, "/page/examples.js", "web/examples.js", JS)    \
    FILE_ROW(formulas, "/page/formulas.js", "web/formulas.js", JS)    \
    FILE_ROW(history, "/page/history.js", "web/history.js", JS)       \
    FILE_ROW(keys, "/page/keys.js", "web/keys.js", JS)                \
    FILE_ROW(lexer, "/page/lexer.js", "web/lexer.js", JS)             \
    FILE_ROW(markdown, "/page/markdown.js", "web/markdown.js", JS)    \
    FILE_ROW(mathml, "/page/mathml.js", "web/mathml.js", JS)          \
    FILE_ROW(media, "/page/media.js", "web/media.js", JS)             \
    FILE_ROW(message, "/page/message.js", "web/message.js", JS)       \
    FILE_ROW(same, "/page/same.js", "web/same.js", JS)                \
    FILE_ROW(settings, "/page/settings.js", "web/settings.js", JS)    \
    FILE_ROW(status, "/page/status.js", "web/status.js", JS)          \
    FILE_ROW(store, "/page/store.js", "web/store.js", JS)             \
    FILE_ROW(transfer, "/page/transfer.js", "web/transfer.js", JS)    \
    FILE_ROW(tree, "/page/tree.js", "web/tree.js", JS)                \
    FILE_ROW(worker, "/page/worker.js", "web/worker.js", JS)          \
    FILE_ROW(marked, "/page/marked.js", "marked.js", JS)              \
    FILE_ROW(highlight, "/page/highlight.js", "highlight.js", JS)     \
    FILE_ROW(temml, "/page/temml.js", "temml.js", JS)                 \
    FILE_ROW(licences, "/page/licences.txt", "licences.txt", TEXT)    \
    FILE_ROW(openapi, "/openapi.json", "web/openapi.json", JSON)
#define JSON "application/json"
#define HTML "text/html; charset=utf-8"
#define CSS  "text/css; charset=utf-8"
#define TEXT "text/plain; charset=utf-8"
#define JS   "text/javascript; charset=utf-8"

#ifdef __APPLE__ /* there names in C get an underscore in front */
#define DATA   ".section __DATA,__const\n"
#define LABEL  "_ek_page_"
#define BEHIND ".text\n"
#else
#define DATA   ".pushsection .rodata\n"
#define LABEL  "ek_page_"
#define BEHIND ".popsection\n"
#endif
#define FILE_ROW(name, path, file, type)                                                         \
    __asm__(DATA LABEL #name ":\n.incbin \"" file "\"\n" LABEL #name "_end:\n.byte 0\n" BEHIND); \
    extern const char ek_page_##name[], ek_page_##name##_end[];
FILES
#undef FILE_ROW

static const page_file files[] = {
#define FILE_ROW(name, path, file, type) {path, type, ek_page_##name, ek_page_##name##_end},
    FILES
#undef FILE_ROW
};
enum { N_FILES = sizeof files / sizeof *files };

/* --- answers --- */

/* Nothing from other hosts, nothing inline, no frame around the page. No text becomes HTML, or the address of a script,
 * except by the policy named last: the page's own, for its worker's address. Sounds play from bytes in the page. */
static const char policy[] =
    "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "media-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types evenkeel";

static const page_file *find(const char *path)
{
    for (int i = 0; i < N_FILES; i++)
        if (!strcmp(files[i].path, path)) return &files[i];
    return NULL;
}

/* Whether the header, a list of tags or "*", has the tag; for GET a W/ before a tag is ignored. */
static bool has_tag(const char *header, const char *tag)
{
    return header && (strstr(header, tag) || !strcmp(header, "*"));
}

bool ek_page_answer(ek_exchange *x)
{
    const page_file *f = find(ek_exchange_path(x));
    const char *method = ek_exchange_method(x);
    if (!*ek_exchange_path(x) && *ek_exchange_prefix(x)) { /* else relative references fail */
        char to[EK_HTTP_MAX_PREFIX + 2];
        snprintf(to, sizeof to, "%s/", ek_exchange_prefix(x));
        ek_exchange_header(x, "location", to);
        ek_exchange_reply(x, 308, "text/plain; charset=utf-8", "", 0);
        return true;
    }
    if (!f) return false;
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
        static const char text[] = "this is a page: GET or HEAD\n";
        ek_exchange_header(x, "allow", "GET, HEAD");
        ek_exchange_reply(x, 405, "text/plain; charset=utf-8", text, sizeof text - 1);
        return true;
    }
    char tag[24];
    size_t n = (size_t)(f->end - f->data);
    snprintf(tag, sizeof tag, "\"%016llx\"", (unsigned long long)ek_hash64(0, f->data, n));
    ek_exchange_header(x, "etag", tag);
    ek_exchange_header(x, "cache-control", "no-cache"); /* cached, but revalidated: a new build shows at once */
    ek_exchange_header(x, "content-security-policy", policy);
    ek_exchange_header(x, "x-content-type-options", "nosniff");
    ek_exchange_header(x, "x-frame-options", "DENY");
    ek_exchange_header(x, "referrer-policy", "no-referrer");
    ek_exchange_header(x, "cross-origin-opener-policy", "same-origin");
    if (has_tag(ek_exchange_find(x, "if-none-match"), tag)) ek_exchange_reply(x, 304, f->type, "", 0);
    else ek_exchange_reply_from(x, 200, f->type, &(ek_outgoing){.part[0] = {f->data, n}});
    return true;
}
