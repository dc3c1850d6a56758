/* AMX with tiles in memory instead of registers, so that machines with AVX-512 alone compare its kernels: a file
 * includes this, gives the kernels other names and includes their source. The instructions as Intel's manual describes
 * them, for the shapes that the kernels use. */
#ifndef EK_TESTS_OPS_TILES_IN_MEMORY_H
#define EK_TESTS_OPS_TILES_IN_MEMORY_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "check.h"

static struct {
    int rows[8], row_bytes[8];
    uint8_t data[8][16][64];
} tile_unit;

static void set_tiles(const void *config)
{
    const uint8_t *c = config;
    if (c[0] != 1 || c[1] != 0) fail_msg("palette %d, start row %d", c[0], c[1]);
    memset(&tile_unit, 0xee, sizeof tile_unit);
    for (int t = 0; t < 8; t++)
        tile_unit.row_bytes[t] = c[16 + 2 * t] + 256 * c[17 + 2 * t], tile_unit.rows[t] = c[48 + t];
}

static void load_tile(int t, const void *from, ptrdiff_t stride)
{
    memset(tile_unit.data[t], 0, sizeof tile_unit.data[t]);
    for (int r = 0; r < tile_unit.rows[t]; r++)
        memcpy(tile_unit.data[t][r], (const uint8_t *)from + r * stride, (size_t)tile_unit.row_bytes[t]);
}

static void store_tile(int t, void *to, ptrdiff_t stride)
{
    for (int r = 0; r < tile_unit.rows[t]; r++)
        memcpy((uint8_t *)to + r * stride, tile_unit.data[t][r], (size_t)tile_unit.row_bytes[t]);
}

/* sum[m][n] += a[m][4 k + j] * b[k][4 n + j] of signed bytes */
static void multiply_tiles(int sum, int a, int b)
{
    if (tile_unit.rows[sum] != tile_unit.rows[a] || tile_unit.row_bytes[a] != 4 * tile_unit.rows[b])
        fail_msg("shapes of a tile product");
    for (int m = 0; m < tile_unit.rows[sum]; m++)
        for (int n = 0; n < tile_unit.row_bytes[sum] / 4; n++) {
            int32_t s;
            memcpy(&s, &tile_unit.data[sum][m][4 * n], 4);
            for (int k = 0; k < tile_unit.rows[b]; k++)
                for (int j = 0; j < 4; j++)
                    s += (int8_t)tile_unit.data[a][m][4 * k + j] * (int8_t)tile_unit.data[b][k][4 * n + j];
            memcpy(&tile_unit.data[sum][m][4 * n], &s, 4);
        }
}

static void release_tiles(void)
{
    memset(&tile_unit, 0, sizeof tile_unit);
}

#undef _tile_loadconfig
#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbssd
#undef _tile_release
#define _tile_loadconfig set_tiles
#define _tile_loadd      load_tile
#define _tile_stored     store_tile
#define _tile_zero(t)    memset(tile_unit.data[t], 0, sizeof tile_unit.data[t])
#define _tile_dpbssd     multiply_tiles
#define _tile_release    release_tiles

#endif
