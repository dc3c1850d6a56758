/* The files of web/ and the page's libraries (tools/make/page.mk) as read-only data. The assembler reads them (.incbin,
 * relative to the tree's root, where make runs, or in the folder of the libraries): no generator, no generated source.
 */
#include "serve/page/page.h"

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
    FILE_ROW(licences, "/page/licences.txt", "licences.txt", TEXT)
#define HTML "text/html; charset=utf-8"
#define CSS  "text/css; charset=utf-8"
#define TEXT "text/plain; charset=utf-8"
#define JS   "text/javascript; charset=utf-8"

#define FILE_ROW(name, path, file, type)                                                                 \
    __asm__(".pushsection .rodata\n"                                                                     \
            "ek_page_" #name ":\n.incbin \"" file "\"\nek_page_" #name "_end:\n.byte 0\n.popsection\n"); \
    extern const char ek_page_##name[], ek_page_##name##_end[];
FILES
#undef FILE_ROW

const ek_page_file ek_page_files[] = {
#define FILE_ROW(name, path, file, type) {path, type, ek_page_##name, ek_page_##name##_end},
    FILES
#undef FILE_ROW
};
const int ek_n_page_files = sizeof ek_page_files / sizeof *ek_page_files;
