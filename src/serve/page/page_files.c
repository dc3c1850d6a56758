/* The files of web/ as read-only data. The assembler reads them (.incbin, relative to the tree's root, where make
 * runs): no generator, no generated source. */
#include "serve/page/page.h"

#define FILES                                                              \
    FILE_ROW(index, "/", "index.html", "text/html; charset=utf-8")         \
    FILE_ROW(css, "/page/page.css", "page.css", "text/css; charset=utf-8") \
    FILE_ROW(icon, "/page/icon.svg", "icon.svg", "image/svg+xml")          \
    FILE_ROW(main, "/page/main.js", "main.js", JS)                         \
    FILE_ROW(api, "/page/api.js", "api.js", JS)                            \
    FILE_ROW(chat, "/page/chat.js", "chat.js", JS)                         \
    FILE_ROW(dom, "/page/dom.js", "dom.js", JS)                            \
    FILE_ROW(same, "/page/same.js", "same.js", JS)                         \
    FILE_ROW(settings, "/page/settings.js", "settings.js", JS)             \
    FILE_ROW(status, "/page/status.js", "status.js", JS)
#define JS "text/javascript; charset=utf-8"

#define FILE_ROW(name, path, file, type)                                                                     \
    __asm__(".pushsection .rodata\n"                                                                         \
            "ek_page_" #name ":\n.incbin \"web/" file "\"\nek_page_" #name "_end:\n.byte 0\n.popsection\n"); \
    extern const char ek_page_##name[], ek_page_##name##_end[];
FILES
#undef FILE_ROW

const ek_page_file ek_page_files[] = {
#define FILE_ROW(name, path, file, type) {path, type, ek_page_##name, ek_page_##name##_end},
    FILES
#undef FILE_ROW
};
const int ek_n_page_files = sizeof ek_page_files / sizeof *ek_page_files;
