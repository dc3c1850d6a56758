/* JSON values with the semantics of Python, which the chat template relies on. NULL stands for an undefined value.
 * Inside src/text. */
#ifndef EK_TEXT_PYVALUE_H
#define EK_TEXT_PYVALUE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"

bool ek_py_truthy(const json_t *v);                 /* bool(v) */
bool ek_py_equal(const json_t *a, const json_t *b); /* ==; NULL equals None */
void ek_py_str(ek_buf *out, const json_t *v);       /* appends str(v); undefined appends nothing */
/* Appends str(v).upper(). */
void ek_py_upper(ek_buf *out, const json_t *v);

/* The members of an object in the order of jinja's dictsort: by lowercased key; equal keys keep
 * their order. Keys and values are borrowed from the object. */
typedef struct ek_member {
    const char *key, *lowered;
    size_t n, n_lowered, place;
    const json_t *value;
} ek_member;

typedef struct ek_members {
    ek_member *at;
    size_t n;
    ek_buf lowered;
} ek_members;

void ek_members_init(ek_members *m, const json_t *object);
void ek_members_fini(ek_members *m);

#endif
