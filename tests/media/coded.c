#include "coded.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

typedef struct memory {
    ek_buf b;
    size_t at;
} memory;

static sf_count_t length(void *u)
{
    return (sf_count_t)((memory *)u)->b.len;
}

static sf_count_t seek(sf_count_t offset, int whence, void *u)
{
    memory *m = u;
    m->at = (size_t)(offset + (whence == SEEK_CUR ? (sf_count_t)m->at : whence == SEEK_END ? (sf_count_t)m->b.len : 0));
    return (sf_count_t)m->at;
}

static sf_count_t read_nothing(void *to, sf_count_t n, void *u)
{
    (void)to, (void)n, (void)u;
    return 0;
}

static sf_count_t write_bytes(const void *p, sf_count_t n, void *u)
{
    memory *m = u;
    while (m->b.len < m->at + (size_t)n) ek_buf_char(&m->b, '\0');
    memcpy(m->b.data + m->at, p, (size_t)n);
    m->at += (size_t)n;
    return n;
}

static sf_count_t tell(void *u)
{
    return (sf_count_t)((memory *)u)->at;
}

bool put_coded(ek_buf *to, int format, int rate, const float *v, int n)
{
    SF_VIRTUAL_IO io = {length, seek, read_nothing, write_bytes, tell};
    SF_INFO info = {.samplerate = rate, .channels = 1, .format = format};
    memory m = {0};
    SNDFILE *f = sf_open_virtual(&io, SFM_WRITE, &info, &m);
    if (!f) return false;
    assert_int_equal(sf_writef_float(f, v, n), n);
    sf_close(f);
    ek_buf_add(to, m.b.data, m.b.len);
    ek_buf_fini(&m.b);
    return true;
}
