/* The value that the server has under a page's key. Bytes in, bytes out. Inside src/cache/shared.
 *
 * Key: evenkeel:page:1:SPACE:f:CHAIN, with s instead of f for sliding layers. SPACE has 32 hex digits of the SHA-256 of
 * everything that pages depend on besides their tokens (model, numerics, layout). CHAIN has 64 hex digits of the page's
 * name, a SHA-256 over salt and tokens. There is one key per page and kind, and no command has two keys, as clusters
 * require.
 *
 * Value: "ekpage1", 0; kind and depth in 32 bits; bytes of the page and checksum in 64; the page. Little-endian.
 *
 * The checksum is that of records on disk (ek_store_sum): over name, tokens and contents, which the value does not
 * have. So nobody can read a prompt from a server, and a page under another page's key is refused. */
#ifndef EK_CACHE_SHARED_RECORD_H
#define EK_CACHE_SHARED_RECORD_H

#include "cache/store.h"

enum { EK_RECORD_HEAD = 32, EK_RECORD_KEY = 128, EK_RECORD_SPACE = 33 };

/* The 32 hex digits and NUL of SPACE for `what`, a text of everything that pages depend on besides tokens. */
void ek_record_space(char out[EK_RECORD_SPACE], const char *what);
void ek_record_key(char out[EK_RECORD_KEY], const char *space, const ek_chain *chain, int kind);

/* The bytes of the page's record, with its head. */
size_t ek_record_bytes(const ek_kv_layout *layout, const ek_store_page *p, int kind);
void ek_record_write(uint8_t *out, const ek_kv_layout *layout, const ek_store_page *p, int kind);
/* Copies the page named by p from the n bytes of data to p->bytes[kind]. False if they are not its record;
 * p->bytes[kind] is then invalid. */
bool ek_record_read(const uint8_t *data, size_t n, const ek_kv_layout *layout, const ek_store_page *p, int kind);

#endif
