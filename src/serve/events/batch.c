#include "serve/events/replay.h"

#ifdef EK_HAVE_EVENTS
#include <msgpack.h>
#include <string.h>

static int append(void *buf, const char *bytes, size_t n)
{
    ek_buf_add(buf, bytes, n);
    return 0;
}

static void put_text(msgpack_packer *p, const char *s, size_t n)
{
    msgpack_pack_str(p, n);
    msgpack_pack_str_body(p, s, n);
}

static void put_word(msgpack_packer *p, const char *s)
{
    put_text(p, s, strlen(s));
}

static void put_list(msgpack_packer *p, int n)
{
    msgpack_pack_array(p, (size_t)n);
}

/* The number of leading changes that make one event: consecutive pages, or removed pages. */
static int run_of(const ek_held_change *c, int n)
{
    int k = 1;
    if (!c->came)
        while (k < n && !c[k].came) k++;
    else
        while (k < n && c[k].came && !c[k].page.first && c[k].page.parent == c[k - 1].page.hash) k++;
    return k;
}

static void put_hashes(msgpack_packer *p, const ek_held_change *c, int n)
{
    put_list(p, n);
    for (int i = 0; i < n; i++) msgpack_pack_fix_uint64(p, c[i].page.hash);
}

static void put_parent(msgpack_packer *p, const ek_held_page *page)
{
    if (page->first) msgpack_pack_nil(p);
    else msgpack_pack_fix_uint64(p, page->parent);
}

static void put_tokens(msgpack_packer *p, const ek_held_change *c, int n)
{
    put_list(p, n * EK_PAGE_TOKENS);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < EK_PAGE_TOKENS; k++) msgpack_pack_uint32(p, (uint32_t)c[i].page.token[k]);
}

static bool has_keys(const ek_held_change *c, int n)
{
    for (int i = 0; i < n; i++)
        if (c[i].page.n_media > 0 || c[i].page.salt) return true;
    return false;
}

/* Everything else that a page depends on: its pictures and sounds, and in the first page of a prompt the salt's
 * name. */
static void put_keys(msgpack_packer *p, const ek_held_change *c, int n)
{
    char name[20];
    put_list(p, n);
    for (int i = 0; i < n; i++) {
        const ek_held_page *page = &c[i].page;
        int keys = page->n_media + (page->salt != NULL);
        if (keys == 0) {
            msgpack_pack_nil(p);
            continue;
        }
        put_list(p, keys);
        for (int k = 0; k < page->n_media; k++)
            put_text(p, name, (size_t)snprintf(name, sizeof name, "%016llx", (unsigned long long)page->media[k]));
        if (page->salt) put_text(p, page->salt->text, page->salt->n);
    }
}

/* An event's type and the number of its members. */
static void put_head(msgpack_packer *p, bool arrays, int n, const char *type)
{
    if (arrays) put_list(p, n);
    else msgpack_pack_map(p, (size_t)n), put_word(p, "type");
    put_word(p, type);
}

static void put_name(msgpack_packer *p, bool arrays, const char *name)
{
    if (!arrays) put_word(p, name);
}

static void put_came(msgpack_packer *p, bool arrays, const ek_held_change *c, int n)
{
    const bool all = !arrays || has_keys(c, n); /* default members at an array's end are left out */
    put_head(p, arrays, all ? 9 : 7, "BlockStored");
    put_name(p, arrays, "block_hashes"), put_hashes(p, c, n);
    put_name(p, arrays, "parent_block_hash"), put_parent(p, &c->page);
    put_name(p, arrays, "token_ids"), put_tokens(p, c, n);
    put_name(p, arrays, "block_size"), msgpack_pack_int(p, EK_PAGE_TOKENS);
    put_name(p, arrays, "lora_id"), msgpack_pack_nil(p);
    put_name(p, arrays, "medium"), put_word(p, "GPU");
    if (!all) return;
    put_name(p, arrays, "lora_name"), msgpack_pack_nil(p);
    put_name(p, arrays, "extra_keys"), put_keys(p, c, n);
}

static void put_went(msgpack_packer *p, bool arrays, const ek_held_change *c, int n)
{
    put_head(p, arrays, 3, "BlockRemoved");
    put_name(p, arrays, "block_hashes"), put_hashes(p, c, n);
    put_name(p, arrays, "medium"), put_word(p, "GPU");
}

void ek_events_write(ek_buf *out, bool arrays, double time, bool clear, const ek_held_change *change, int n)
{
    msgpack_packer p;
    int events = clear;
    for (int i = 0; i < n; i += run_of(change + i, n - i)) events++;
    msgpack_packer_init(&p, out, append);
    put_list(&p, 3);
    msgpack_pack_double(&p, time);
    put_list(&p, events);
    if (clear) put_head(&p, arrays, 1, "AllBlocksCleared");
    for (int i = 0, k; i < n; i += k) {
        k = run_of(change + i, n - i);
        if (change[i].came) put_came(&p, arrays, change + i, k);
        else put_went(&p, arrays, change + i, k);
    }
    msgpack_pack_int(&p, 0); /* the rank among servers that serve one model in data parallel */
}
#endif
