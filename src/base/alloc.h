/* Memory. Small pieces never fail: a program that cannot get a few kilobytes prints one line and aborts.
 * Large blocks (weights, pages, scratch) can be refused; the caller reports how much it wanted. */
#ifndef EK_BASE_ALLOC_H
#define EK_BASE_ALLOC_H

#include <stddef.h>

/* Never NULL; freed with free. */
void *ek_alloc(size_t n); /* zeroed */
void *ek_realloc(void *p, size_t n);
char *ek_strdup(const char *s);

/* 64-byte aligned, zeroed on demand by the kernel; NULL with ek_fail when refused. */
void *ek_alloc_big(size_t n);
void ek_free_big(void *p, size_t n); /* NULL is allowed */

#endif
