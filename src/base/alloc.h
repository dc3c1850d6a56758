/* Memory allocation. Small allocations never fail: without free memory they take from the reserve (below); without a
 * reserve the program prints one line and aborts. Large blocks (weights, pages, scratch) can fail; the
 * caller reports the error. Sizes are in bytes. */
#ifndef EK_BASE_ALLOC_H
#define EK_BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

/* Never NULL; free with free(). */
void *ek_alloc(size_t n); /* zeroed */
void *ek_realloc(void *p, size_t n);
char *ek_strdup(const char *s);

/* Page-aligned, from 2 MiB on at a multiple of 2 MiB, and zeroed (the kernel commits pages on first use). NULL after
 * ek_fail(EK_ENOMEM) when refused. Free with ek_free_big and the same n. */
void *ek_alloc_big(size_t n);
void ek_free_big(void *p, size_t n); /* NULL is allowed */

/* The reserve: memory set aside for the moment when the system refuses an allocation. The reserve is then returned to
 * the system and the allocation is made again, so that running work can finish. Callers check the reserve before they
 * begin new work, and refuse it until the reserve is filled again. If the reserve does not suffice, the program prints
 * one line with the number of bytes and ends with status 1. Any thread. */

/* Sets bytes aside, unless they are; false if the system does not give them now. The first call before other threads
 * allocate. */
bool ek_reserve_fill(size_t bytes);
bool ek_reserve_is_spent(void);
size_t ek_reserve_times_spent(void); /* a change: an allocation needed it */

/* As malloc, calloc(1, n) and realloc, but never NULL (n > 0); free with free(). For libraries that take allocators. */
void *ek_reserve_malloc(size_t n);
void *ek_reserve_calloc(size_t n);
void *ek_reserve_realloc(void *p, size_t n);

#endif
