/* Element types of checkpoints, and conversions between binary32 and the 16-bit floats. */
#ifndef EK_TENSOR_DTYPE_H
#define EK_TENSOR_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum ek_dtype {
    EK_F32,
    EK_F16,
    EK_BF16,
    EK_F64,
    EK_U8,
    EK_I8,
    EK_U16,
    EK_I16,
    EK_U32,
    EK_I32,
    EK_U64,
    EK_I64,
    EK_BOOL,
    EK_F8_E4M3, /* one-byte floats: ops/weights/quantised_type.h */
    EK_F8_E5M2,
    EK_F8_E8M0,
    EK_DTYPE_COUNT
} ek_dtype;

typedef uint16_t ek_bf16; /* upper half of an IEEE binary32 */
typedef uint16_t ek_f16;  /* IEEE binary16 */

size_t ek_dtype_size(ek_dtype t);      /* bytes of one element */
const char *ek_dtype_name(ek_dtype t); /* "BF16", as safetensors writes it */
int ek_dtype_parse(const char *name);  /* an ek_dtype, or -1 */

static inline float ek_bits_f32(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint32_t ek_f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float ek_bf16_f32(ek_bf16 h)
{
    return ek_bits_f32((uint32_t)h << 16);
}

/* Round to nearest even; NaN stays a (quiet) NaN. */
static inline ek_bf16 ek_f32_bf16(float f)
{
    uint32_t u = ek_f32_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (ek_bf16)(u >> 16 | 0x40);
    return (ek_bf16)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

float ek_f16_f32(ek_f16 h); /* exact */
ek_f16 ek_f32_f16(float f); /* round to nearest even, overflow to infinity */

#endif
