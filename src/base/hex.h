/* Digits of hexadecimal numbers in texts from outside. */
#ifndef EK_BASE_HEX_H
#define EK_BASE_HEX_H

#include <stddef.h>

/* 0 to 15, of either case; -1: it is none. */
static inline int ek_hex_digit(int c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte of two digits at s, of which n bytes are there; -1: they are none. */
static inline int ek_hex_byte(const char *s, size_t n)
{
    const int high = n >= 2 ? ek_hex_digit(s[0]) : -1, low = high >= 0 ? ek_hex_digit(s[1]) : -1;
    return low >= 0 ? high << 4 | low : -1;
}

#endif
