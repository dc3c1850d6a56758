/* The names of a tool's arguments that cannot be told from the syntax of a call unless they are known: the template
 * writes names as they are, whatever they hold. Inside src/text. */
#ifndef EK_TEXT_CALL_NAMES_H
#define EK_TEXT_CALL_NAMES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

/* Names with the colon behind each, ascending by bytes. Immutable. */
typedef struct ek_call_names {
    struct ek_call_name {
        uint32_t at, n; /* in text */
    } * name;
    int n;
    ek_buf text;
} ek_call_names;

/* Whether a call's parser reads the name without knowing it. */
bool ek_call_name_is_plain(const char *s, size_t n);
/* Whether a name that is known can stand without <|"|>: nothing else that a call may hold looks like it. */
bool ek_call_name_is_bare(const char *s, size_t n);

/* Those of all properties anywhere in the schema that are bare: not plain ones alone, or with plain ones. Time and
 * memory are linear, but for sorting. */
void ek_call_names_init(ek_call_names *names, const json_t *schema, bool plain);
void ek_call_names_fini(ek_call_names *names);
/* Narrows [*lo, *hi), names that begin alike with len bytes, to those whose next byte is c. True if there are any;
 * *whole: the first of them ends with it. */
bool ek_call_names_narrow(const ek_call_names *names, int *lo, int *hi, uint32_t len, char c, bool *whole);
/* The length of a name, with its colon, that s begins with; 0: none. */
size_t ek_call_names_at(const ek_call_names *names, const char *s, size_t n);

/* Whether calls of a tool with these parameters need more than plain names: a name that is not, or objects whose names
 * are not known. */
bool ek_call_names_matter(const json_t *schema);

#endif
