/* Files in a temporary folder of the test's own. Every failure ends the test program. */
#ifndef EK_TESTS_SUPPORT_FILES_H
#define EK_TESTS_SUPPORT_FILES_H

#include <stddef.h>

/* Makes an empty folder under /tmp. remove_dir removes it and its files and frees the name. */
char *temp_dir(void);
void remove_dir(char *dir);

/* DIR/NAME, in one of four buffers in turn. */
const char *path_in(const char *dir, const char *name);

/* Writes DIR/NAME. */
void put_file(const char *dir, const char *name, const void *bytes, size_t n);
void put_text(const char *dir, const char *name, const char *text);

#endif
