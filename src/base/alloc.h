/* Memory allocation. Small allocations never fail: when memory is out, they take from the reserve (reserve.h), and
 * where there is none the program prints one line and aborts. Large blocks (weights, pages, scratch) can fail; the
 * caller reports the error. Sizes are in bytes. */
#ifndef EK_BASE_ALLOC_H
#define EK_BASE_ALLOC_H

#include <stddef.h>

/* Never NULL; free with free(). */
void *ek_alloc(size_t n); /* zeroed */
void *ek_realloc(void *p, size_t n);
char *ek_strdup(const char *s);

/* Page-aligned, from 2 MiB on at a multiple of 2 MiB, and zeroed (the kernel commits pages on first use). NULL after
 * ek_fail(EK_ENOMEM) when refused. Free with ek_free_big and the same n. */
void *ek_alloc_big(size_t n);
void ek_free_big(void *p, size_t n); /* NULL is allowed */

#endif
