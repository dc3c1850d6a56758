// Weights with their file's own scales (ops/linear/planes.h), from the CPU's panels to the device's layout
// (cuda/product/layout.h).
#include <cuda_fp16.h>

#include "cuda/kernels/math.cuh"
#include "cuda/model_args.h"

using namespace ek;

__device__ __forceinline__ float half_at(const uint8_t *p, int i)
{
    return __half2float(__ushort_as_half(((const unsigned short *)p)[i]));
}

// grid (units, panels), 32 threads
extern "C" __global__ void __launch_bounds__(32) ek_pack_planes(const __grid_constant__ ek_cuda_pack_planes_args a)
{
    const int unit = blockIdx.x, lane = threadIdx.x, t = lane % 4;
    const int64_t panel = a.first + blockIdx.y;
    const uint8_t *const from = (const uint8_t *)a.from + blockIdx.y * a.panel_bytes;
    uint8_t *const to = (uint8_t *)a.codes + (panel * a.units + unit) * a.bits * 128;
    const int low = a.from_bits == 8 ? 8 : a.from_bits >= 4 ? 4 : 2, high = a.from_bits - low;

    // bits of a plane for input i of 32
    auto part = [](const uint8_t *plane, int width, int i) {
        const int per = 8 / width, quad = i / 4;
        return plane[quad / per * 64 + i % 4] >> quad % per * width & ((1 << width) - 1);
    };
    // byte e of word i of step j: output o, input k + e
    auto code = [&](int j, int i, int e) {
        const int o = lane / 4 + 8 * (i & 1);
        const int k = unit * 64 + 32 * j + (a.group == 32 ? 8 * t + 4 * (i >> 1) : 16 * (i >> 1) + 4 * t) + e;
        if (k >= a.k) return 0;
        const uint8_t *at = from + k / a.block * a.block_bytes + a.codes_at + k % a.block / 32 * (a.from_bits * 64) +
                            4 * o;
        int u = part(at, low, k % 32);
        if (high) u |= part(at + low * 64, high, k % 32) << low;
        return a.has_book ? (int)a.book[u] : u - a.zero;
    };
    for (int j = 0; j < 2; j++)
        for (int i = 0; i < (a.bits == 8 ? 4 : 2); i++) {
            u32 word = 0;
            for (int e = 0; e < 4; e++) {
                u32 byte = a.bits == 8 ? code(j, i, e) & 255 : (code(j, i, e) & 15) | (code(j, i + 2, e) & 15) << 4;
                word |= byte << 8 * e;
            }
            if (a.bits == 8) *(u32 *)(to + j * 512 + lane * 16 + i * 4) = word;
            else *(u32 *)(to + lane * 16 + (j * 2 + i) * 4) = word;
        }

    // scales: output g, then g + 8, each s and b
    const int parts = a.biased ? 2 : 1;
    for (int k = unit * 64; k < unit * 64 + 64 && k < a.k; k += a.group) {
        const int g = k % a.block / a.group;
        const uint8_t *block = from + k / a.block * a.block_bytes, *subs = block + 32 * parts;
        const int64_t first = (panel * (a.k / a.group) + k / a.group) * 16 * parts;
        for (int i = lane; i < 16 * parts; i += 32) {
            const int o = i / (2 * parts) + i / parts % 2 * 8, bias = i % parts;
            const bool has_half = a.rule != EK_CUDA_SCALE_E8M0 && a.rule != EK_CUDA_SCALE_E4M3;
            const float d = has_half ? half_at(block, bias * 16 + o) : 0;
            if (a.rule == EK_CUDA_SCALE_PLAIN)
                ((unsigned short *)a.scales)[first + i] = ((const unsigned short *)block)[bias * 16 + o];
            else if (a.rule == EK_CUDA_SCALE_E8M0) {
                const u32 e = block[o], f32 = e < 2 ? 0x00200000u << e : (e - 1) << 23;
                ((unsigned short *)a.scales)[first + i] = (unsigned short)(f32 >> 16);
            } else {
                float x;
                if (a.rule == EK_CUDA_SCALE_E4M3) { // the panel's last 64 bytes times E4M3 / 256, which is a binary16
                    const u32 byte = block[16 * g + o];
                    x = ((const float *)(from + a.panel_bytes - 64))[o] *
                        __half2float(__ushort_as_half((unsigned short)((byte & 0x80) << 8 | (byte & 0x7f) << 7)));
                } else if (a.rule == EK_CUDA_SCALE_I8) x = d * (float)(int8_t)subs[16 * g + o];
                else {
                    const u32 sub = a.rule == EK_CUDA_SCALE_U8 ? subs[16 * (2 * g + bias) + o]
                                                               : subs[16 * g + o] >> 4 * bias & 15;
                    x = d * (float)sub;
                    if (bias) x = -x;
                }
                ((float *)a.scales)[first + i] = x;
            }
        }
    }
}
