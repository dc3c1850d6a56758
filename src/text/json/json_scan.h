/* The size of a JSON text before it is read: one pass over the bytes that builds nothing, so that what a body
 * would cost can be refused before memory is taken. */
#ifndef EK_TEXT_JSON_SCAN_H
#define EK_TEXT_JSON_SCAN_H

#include <stddef.h>

typedef struct ek_json_size {
    size_t values;     /* of every kind, keys included */
    size_t containers; /* of these: objects and lists */
    size_t depth;      /* of nesting */
    size_t growth;     /* bytes by which its strings may grow where they are read and written again */
    size_t coded;      /* bytes of its strings of 4 KiB and more without a blank, an escape or a byte beyond ASCII: most
                          likely files in base64 */
    size_t max_list;   /* the most objects that stand directly in one list of the outermost object (`messages`) */
} ek_json_size;

/* Linear time. Exact for valid JSON (growth is an upper bound); for text that is not, at least what the reader
 * (text/json/json.h) builds before it stops. */
void ek_json_scan(ek_json_size *out, const char *text, size_t n);
/* Bytes that reading a text of this size and n bytes takes in memory, at most. */
size_t ek_json_cost(const ek_json_size *size, size_t n);

#endif
