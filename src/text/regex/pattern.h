/* A string that a pattern and limits of its length describe together: whether what is written so far can still become
 * one. Immutable. Inside src/text. */
#ifndef EK_TEXT_PATTERN_H
#define EK_TEXT_PATTERN_H

#include "text/regex/regex.h"

/* Kinds of characters that patterns rarely tell apart, as bits; EK_CHARS_ODD: what delimits strings, control
 * characters, and bytes that are no UTF-8. */
enum { EK_CHARS_KINDS = 13, EK_CHARS_ODD = 1 << EK_CHARS_KINDS };
/* The kind that a byte belongs to; utf8: the state of ek_utf8_walk before it, kind: that of the byte before it. */
int ek_chars_kind(int utf8, int byte, int kind);

enum { EK_PATTERN_ENTRIES = 1 << 20 }; /* states times minLength */

typedef struct ek_pattern {
    ek_regex *regex;
    uint32_t min, max; /* characters; max UINT32_MAX: no limit */
    uint32_t *reach;   /* [min * states]: for n in 1..min, from each state the smallest number >= n of characters that
                        * lead to a match */
} ek_pattern;

/* Takes over regex, on failure too. EINVAL if no text of so many characters matches; ETOOLARGE. */
ek_err ek_pattern_open(ek_pattern **out, ek_regex *regex, uint32_t min, uint32_t max);
void ek_pattern_close(ek_pattern *p); /* NULL is fine */
size_t ek_pattern_bytes(const ek_pattern *p);

/* Whether a match can follow from `state` after n characters (without a maximum n need not exceed min). */
bool ek_pattern_can_end(const ek_pattern *p, int32_t state, uint32_t n);
/* Whether it can after one more character of [lo, hi], which makes n. */
bool ek_pattern_may_come(const ek_pattern *p, int32_t state, uint32_t lo, uint32_t hi, uint32_t n);

/* What holds for all texts of so many characters, the first one of the kinds kind[0], the second of kind[1], all
 * further ones of kind[2]: the number, up to `max`, to which every one of them can follow and beyond which none can
 * (at most: all can follow). -1 where that is not so, or not known without more work. */
int ek_pattern_run(const ek_pattern *p, int32_t state, uint32_t n, const uint16_t kind[3], int max);
/* How many characters of these kinds, up to `max`, can follow whatever they are; perhaps more can. */
int ek_pattern_any(const ek_pattern *p, int32_t state, uint32_t n, uint16_t kinds, int max);

/* The pattern of a known `format` (date, time, date-time, uuid, ipv4), or NULL. */
const char *ek_pattern_of_format(const char *format);

#endif
