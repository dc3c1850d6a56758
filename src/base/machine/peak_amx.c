#if defined(__x86_64__)
#include <immintrin.h>
#include <stdint.h>

#include "base/machine/peak.h"

/* Six sums of 16 x 16 outputs, two tiles of inputs: a product every 16 cycles, without loads. */
int64_t ek_peak_int8_amx(void)
{
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < 8; i++) config.bytes[i] = 64, config.rows[i] = 16;
    int32_t sum[256];
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
    for (int r = 0; r < EK_PEAK_ROUNDS / EK_PEAK_TILE_ROUNDS; r++) {
        _tile_dpbssd(0, 6, 7);
        _tile_dpbssd(1, 6, 7);
        _tile_dpbssd(2, 6, 7);
        _tile_dpbssd(3, 6, 7);
        _tile_dpbssd(4, 6, 7);
        _tile_dpbssd(5, 6, 7);
    }
    _tile_stored(0, sum, 64);
    _tile_release();
    return sum[0];
}
#endif
