/* Counts what a program takes from malloc and its kin. */
#ifndef EK_TESTS_SUPPORT_ALLOCATED_H
#define EK_TESTS_SUPPORT_ALLOCATED_H

/* Calls since the program began, by all threads; -1: a sanitizer brings its own malloc, which must not be replaced. */
int allocated(void);

#endif
