/* Keys of receipts: RFC 8032's vectors, the edge cases that libraries disagree on, and files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "../support/files.h"
#include "base/encoding.h"
#include "base/file.h"
#include "receipts/key.h"

static size_t bytes_of(uint8_t *out, const char *hex)
{
    size_t n = 0;
    for (; hex[2 * n]; n++) out[n] = (uint8_t)ek_hex_byte(hex + 2 * n, 2);
    return n;
}

static bool holds(const uint8_t a[32], const uint8_t s[64], const void *message, size_t n)
{
    ek_public_key k = {.id = ""};
    bool good = false;
    memcpy(k.a, a, 32); /* not through ek_public_key_of, which refuses some */
    return !ek_signature_check(&good, &k, s, message, n) && good;
}

static void the_vectors_of_rfc_8032(void **state)
{
    static const char *const vector[][4] = {
        {"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
         "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
         "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bb"
         "e24655141438e7a100b"},
        {"4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
         "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
         "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302"
         "aeeb00d291612bb0c00"},
        {"c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
         "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
         "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed"
         "28dc027beceea1ec40a"}};
    (void)state;
    if (!ek_keys_built()) skip();
    for (size_t i = 0; i < 3; i++) {
        uint8_t seed[32], a[32], message[8], want[64], got[64];
        ek_signing_key *k;
        bytes_of(seed, vector[i][0]);
        bytes_of(a, vector[i][1]);
        const size_t n = bytes_of(message, vector[i][2]);
        bytes_of(want, vector[i][3]);
        assert_int_equal(ek_signing_key_of(&k, seed), EK_OK);
        assert_memory_equal(ek_signing_key_public(k)->a, a, 32);
        assert_int_equal(ek_sign(k, got, message, n), EK_OK);
        assert_memory_equal(got, want, 64);
        assert_true(holds(a, want, message, n));
        message[n] = 1;
        assert_false(holds(a, want, message, n + 1));
        want[5] ^= 4;
        assert_false(holds(a, want, message, n));
        ek_signing_key_close(k);
    }
}

/* R = 1, S = 0 is a signature of every message under the identity; others of small order have one message in 8. */
static void a_key_of_small_order_is_refused(void **state)
{
    static const char *const small[] = {"0100000000000000000000000000000000000000000000000000000000000000",
                                        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
                                        "0000000000000000000000000000000000000000000000000000000000000000",
                                        "0000000000000000000000000000000000000000000000000000000000000080",
                                        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
                                        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
                                        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
                                        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa"};
    uint8_t a[32], sig[64] = {1};
    ek_public_key k;
    (void)state;
    if (!ek_keys_built()) skip();
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        bytes_of(a, small[i]);
        assert_int_equal(ek_public_key_of(&k, a), EK_EINVAL);
        assert_non_null(strstr(ek_err_text(), "small order"));
        for (uint8_t m = 0; m < 32; m++) assert_false(holds(a, sig, &m, 1));
    }
    /* p and p + 1: second names of 0 and 1. */
    bytes_of(a, "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f");
    assert_int_equal(ek_public_key_of(&k, a), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "canonically"));
    bytes_of(a, "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f");
    assert_int_equal(ek_public_key_of(&k, a), EK_EINVAL);
}

/* S + L is the same number to a reader that reduces it: a second signature of the same message. */
static void a_signature_has_one_form(void **state)
{
    static const uint8_t order[32] = {0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7,
                                      0xa2, 0xde, 0xf9, 0xde, 0x14, 0,    0,    0,    0,    0,    0,
                                      0,    0,    0,    0,    0,    0,    0,    0,    0,    0x10};
    uint8_t seed[32] = {7}, sig[64], other[64];
    ek_signing_key *k;
    (void)state;
    if (!ek_keys_built()) skip();
    assert_int_equal(ek_signing_key_of(&k, seed), EK_OK);
    assert_int_equal(ek_sign(k, sig, "m", 1), EK_OK);
    const uint8_t *a = ek_signing_key_public(k)->a;
    assert_true(holds(a, sig, "m", 1));
    memcpy(other, sig, 64);
    for (int i = 0, carry = 0; i < 32; i++) {
        const int sum = other[32 + i] + order[i] + carry;
        other[32 + i] = (uint8_t)sum;
        carry = sum >> 8;
    }
    assert_false(holds(a, other, "m", 1));
    memcpy(other, sig, 64); /* R with y = p + 1, which is 1 */
    bytes_of(other, "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f");
    assert_false(holds(a, other, "m", 1));
    ek_signing_key_close(k);
}

static void a_key_file_is_its_owners(void **state)
{
    char *const path = temp_dir(), pub[160], at[160];
    struct stat st;
    ek_public_key k, again;
    ek_signing_key *key;
    (void)state;
    if (!ek_keys_built()) skip();
    snprintf(at, sizeof at, "%s/k", path);
    snprintf(pub, sizeof pub, "%s/k.pub", path);
    assert_int_equal(ek_signing_key_make(at, &k), EK_OK);
    assert_int_equal(stat(at, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(ek_public_key_read(&again, pub), EK_OK);
    assert_memory_equal(&again, &k, sizeof k);
    assert_int_equal(ek_signing_key_open(&key, at), EK_OK);
    assert_string_equal(ek_signing_key_public(key)->id, k.id);
    ek_signing_key_close(key);
    assert_int_equal(ek_signing_key_make(at, &k), EK_EINVAL);    /* it is there */
    assert_int_equal(ek_signing_key_open(&key, pub), EK_EINVAL); /* mode 0644 */
    assert_int_equal(chmod(at, 0640), 0);
    assert_int_equal(ek_signing_key_open(&key, at), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "0640"));
    assert_int_equal(chmod(at, 0600), 0);
    assert_int_equal(ek_file_replace(at, "no key\n", 7, 0600), EK_OK);
    assert_int_equal(ek_signing_key_open(&key, at), EK_EFORMAT);
    assert_int_equal(ek_public_key_read(&again, at), EK_EFORMAT);
    assert_int_equal(ek_public_key_read(&again, "/nowhere/k.pub"), EK_ENOTFOUND);
    remove_dir(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_vectors_of_rfc_8032),
        cmocka_unit_test(a_key_of_small_order_is_refused),
        cmocka_unit_test(a_signature_has_one_form),
        cmocka_unit_test(a_key_file_is_its_owners),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
