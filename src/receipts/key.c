#include "receipts/key.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/hash/hash.h"

#ifdef EK_HAVE_TLS
#include <openssl/evp.h>
#include <openssl/pem.h>
#endif

enum { PEM_LIMIT = 64 << 10 };

/* --- the rule for valid signatures --- */

/* Whether the number in 32 bytes, little-endian, is below the limit. */
static bool is_below(const uint8_t x[32], const uint8_t limit[32])
{
    for (int i = 31; i >= 0; i--)
        if (x[i] != limit[i]) return x[i] < limit[i];
    return false;
}

/* Whether an encoded point has y below 2^255 - 19. */
static bool is_canonical(const uint8_t point[32])
{
    static const uint8_t p[32] = {0xed, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                  0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                  0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f};
    uint8_t y[32];
    memcpy(y, point, sizeof y);
    y[31] &= 0x7f;
    return is_below(y, p);
}

/* The y of the points whose order divides 8. x only decides the sign. */
static bool is_small(const uint8_t point[32])
{
    static const uint8_t small[5][32] = {
        {1},
        {0},
        {0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0,
         0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05},
        {0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f,
         0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a},
        {0xec, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
         0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}};
    uint8_t y[32];
    memcpy(y, point, sizeof y);
    y[31] &= 0x7f;
    for (int i = 0; i < 5; i++)
        if (!memcmp(y, small[i], sizeof y)) return true;
    return false;
}

/* Whether S is below the order of the group. */
static bool is_scalar(const uint8_t s[32])
{
    static const uint8_t order[32] = {0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7,
                                      0xa2, 0xde, 0xf9, 0xde, 0x14, 0,    0,    0,    0,    0,    0,
                                      0,    0,    0,    0,    0,    0,    0,    0,    0,    0x10};
    return is_below(s, order);
}

ek_err ek_public_key_of(ek_public_key *out, const uint8_t a[EK_PUBLIC_KEY])
{
    static const uint8_t head[12] = {0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00};
    uint8_t info[sizeof head + EK_PUBLIC_KEY];
    if (!is_canonical(a)) return ek_fail(EK_EINVAL, "the public key is not written canonically (y is not below p)");
    if (is_small(a)) return ek_fail(EK_EINVAL, "the public key is a point of small order, under which anybody signs");
    memcpy(info, head, sizeof head);
    memcpy(info + sizeof head, a, EK_PUBLIC_KEY);
    memcpy(out->a, a, EK_PUBLIC_KEY);
    ek_sha256_hex(out->id, info, sizeof info);
    return EK_OK;
}

/* --- files --- */

static ek_err write_new(const char *path, unsigned mode, const void *data, size_t n)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0 && errno == EEXIST) return ek_fail(EK_EINVAL, "%s is there already; a key is never written over", path);
    if (fd < 0) return ek_file_failed(path);
    const bool good = write(fd, data, n) == (ssize_t)n && fsync(fd) == 0;
    const int why = errno;
    close(fd);
    if (good) return EK_OK;
    unlink(path);
    return ek_fail(EK_EIO, "%s: %s", path, strerror(why));
}

static ek_err check_mode(const char *path)
{
    struct stat st;
    if (stat(path, &st)) return ek_fail(errno == ENOENT ? EK_ENOTFOUND : EK_EIO, "%s: %s", path, strerror(errno));
    if (!(st.st_mode & 0077)) return EK_OK;
    return ek_fail(EK_EINVAL, "%s has mode %04o: others than its owner may use the key; chmod 600 it", path,
                   (unsigned)st.st_mode & 07777);
}

#ifdef EK_HAVE_TLS

struct ek_signing_key {
    EVP_PKEY *key;
    ek_public_key half;
};

bool ek_keys_built(void)
{
    return true;
}

static ek_err adopt(ek_signing_key **out, EVP_PKEY *key)
{
    uint8_t a[EK_PUBLIC_KEY];
    size_t n = sizeof a;
    ek_signing_key *k = ek_alloc(sizeof *k);
    k->key = key;
    ek_err err = key && EVP_PKEY_get_raw_public_key(key, a, &n) == 1 && n == sizeof a
                     ? ek_public_key_of(&k->half, a)
                     : ek_fail(EK_EFORMAT, "no Ed25519 key");
    if (err) ek_signing_key_close(k);
    else *out = k;
    return err;
}

ek_err ek_signing_key_of(ek_signing_key **out, const uint8_t seed[32])
{
    *out = NULL;
    return adopt(out, EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, seed, 32));
}

/* No prompt for a password appears on the terminal. */
static int no_password(char *buf, int size, int rw, void *arg)
{
    (void)buf, (void)size, (void)rw, (void)arg;
    return -1;
}

ek_err ek_signing_key_open(ek_signing_key **out, const char *path)
{
    ek_buf text = {0};
    *out = NULL;
    EK_TRY(check_mode(path));
    EK_TRY(ek_file_read(&text, path, PEM_LIMIT));
    BIO *in = BIO_new_mem_buf(ek_buf_text(&text), (int)text.len);
    EVP_PKEY *key = in ? PEM_read_bio_PrivateKey(in, NULL, no_password, NULL) : NULL;
    BIO_free(in);
    if (text.data) OPENSSL_cleanse(text.data, text.len);
    ek_buf_fini(&text);
    if (!key || EVP_PKEY_id(key) != EVP_PKEY_ED25519) {
        EVP_PKEY_free(key);
        return ek_fail(EK_EFORMAT, "%s: no Ed25519 key in PEM; `evenkeel receipts key FILE` writes one", path);
    }
    return adopt(out, key);
}

void ek_signing_key_close(ek_signing_key *k)
{
    if (!k) return;
    EVP_PKEY_free(k->key);
    free(k);
}

const ek_public_key *ek_signing_key_public(const ek_signing_key *k)
{
    return &k->half;
}

static ek_err pem_of(ek_buf *secret, ek_buf *half, EVP_PKEY *key)
{
    BIO *a = BIO_new(BIO_s_mem()), *b = BIO_new(BIO_s_mem());
    char *text;
    const bool good = a && b && PEM_write_bio_PKCS8PrivateKey(a, key, NULL, NULL, 0, NULL, NULL) == 1 &&
                      PEM_write_bio_PUBKEY(b, key) == 1;
    if (good) {
        long n = BIO_get_mem_data(a, &text);
        ek_buf_add(secret, text, (size_t)n);
        n = BIO_get_mem_data(b, &text);
        ek_buf_add(half, text, (size_t)n);
    }
    BIO_free(a), BIO_free(b);
    return good ? EK_OK : ek_fail(EK_EINTERNAL, "libcrypto could not write the key");
}

static EVP_PKEY *generate(void)
{
    EVP_PKEY *key = NULL;
    EVP_PKEY_CTX *c = EVP_PKEY_CTX_new_id(EVP_PKEY_ED25519, NULL);
    if (c && EVP_PKEY_keygen_init(c) == 1) EVP_PKEY_keygen(c, &key);
    EVP_PKEY_CTX_free(c);
    return key;
}

ek_err ek_signing_key_make(const char *path, ek_public_key *out)
{
    ek_signing_key *k;
    ek_buf secret = {0}, half = {0}, other = {0};
    EVP_PKEY *key = generate();
    if (!key) return ek_fail(EK_EINTERNAL, "libcrypto could not make a key");
    EK_TRY(adopt(&k, key));
    ek_buf_fmt(&other, "%s.pub", path);
    ek_err err = pem_of(&secret, &half, k->key);
    if (!err) err = write_new(path, 0600, secret.data, secret.len);
    if (!err) {
        err = write_new(ek_buf_text(&other), 0644, half.data, half.len);
        if (err) unlink(path); /* half of a pair is useless */
    }
    *out = k->half;
    if (secret.data) OPENSSL_cleanse(secret.data, secret.len);
    ek_buf_fini(&secret), ek_buf_fini(&half), ek_buf_fini(&other);
    ek_signing_key_close(k);
    return err;
}

ek_err ek_sign(const ek_signing_key *k, uint8_t out[EK_SIGNATURE], const void *message, size_t n)
{
    size_t got = EK_SIGNATURE;
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    const bool good = c && EVP_DigestSignInit(c, NULL, NULL, NULL, k->key) == 1 &&
                      EVP_DigestSign(c, out, &got, message, n) == 1 && got == EK_SIGNATURE;
    EVP_MD_CTX_free(c);
    return good ? EK_OK : ek_fail(EK_EINTERNAL, "libcrypto could not sign");
}

ek_err ek_public_key_read(ek_public_key *out, const char *path)
{
    ek_buf text = {0};
    uint8_t a[EK_PUBLIC_KEY];
    size_t n = sizeof a;
    EK_TRY(ek_file_read(&text, path, PEM_LIMIT));
    BIO *in = BIO_new_mem_buf(ek_buf_text(&text), (int)text.len);
    EVP_PKEY *key = in ? PEM_read_bio_PUBKEY(in, NULL, no_password, NULL) : NULL;
    const bool good = key && EVP_PKEY_id(key) == EVP_PKEY_ED25519 && EVP_PKEY_get_raw_public_key(key, a, &n) == 1;
    BIO_free(in);
    EVP_PKEY_free(key);
    ek_buf_fini(&text);
    if (!good) return ek_fail(EK_EFORMAT, "%s: no public Ed25519 key in PEM (the file that ends in .pub)", path);
    return ek_public_key_of(out, a) ? ek_fail_in(EK_EINVAL, "%s", path) : EK_OK;
}

ek_err ek_signature_check(bool *good, const ek_public_key *k, const uint8_t s[EK_SIGNATURE], const void *message,
                          size_t n)
{
    *good = false;
    if (!is_canonical(k->a) || is_small(k->a)) return ek_fail(EK_EINVAL, "the public key is none");
    if (!is_canonical(s) || !is_scalar(s + 32)) return EK_OK;
    EVP_PKEY *key = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, k->a, sizeof k->a);
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    *good = key && c && EVP_DigestVerifyInit(c, NULL, NULL, NULL, key) == 1 &&
            EVP_DigestVerify(c, s, EK_SIGNATURE, message, n) == 1;
    EVP_MD_CTX_free(c);
    EVP_PKEY_free(key);
    return EK_OK;
}

#else

struct ek_signing_key {
    ek_public_key half;
};

bool ek_keys_built(void)
{
    return false;
}

static ek_err absent(void)
{
    return ek_fail(EK_EUNSUPPORTED, "receipts: this program was built without OpenSSL's libcrypto");
}

ek_err ek_signing_key_make(const char *path, ek_public_key *out)
{
    (void)path, (void)out, (void)write_new;
    return absent();
}

ek_err ek_signing_key_open(ek_signing_key **out, const char *path)
{
    (void)path, (void)check_mode;
    *out = NULL;
    return absent();
}

ek_err ek_signing_key_of(ek_signing_key **out, const uint8_t seed[32])
{
    (void)seed;
    *out = NULL;
    return absent();
}

void ek_signing_key_close(ek_signing_key *k)
{
    (void)k;
}

const ek_public_key *ek_signing_key_public(const ek_signing_key *k)
{
    return &k->half;
}

ek_err ek_sign(const ek_signing_key *k, uint8_t out[EK_SIGNATURE], const void *message, size_t n)
{
    (void)k, (void)out, (void)message, (void)n;
    return absent();
}

ek_err ek_public_key_read(ek_public_key *out, const char *path)
{
    (void)out, (void)path;
    return absent();
}

ek_err ek_signature_check(bool *good, const ek_public_key *k, const uint8_t s[EK_SIGNATURE], const void *message,
                          size_t n)
{
    (void)k, (void)s, (void)message, (void)n, (void)is_scalar;
    *good = false;
    return absent();
}

#endif
