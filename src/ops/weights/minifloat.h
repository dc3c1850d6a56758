/* Floats of 4 and 8 bits, as MXFP4, MXFP8 and NVFP4 use them. Sources: OCP Microscaling Formats 1.0; MLX for values
 * out of range. */
#ifndef EK_OPS_MINIFLOAT_H
#define EK_OPS_MINIFLOAT_H

float ek_e2m1_f32(unsigned code); /* 4 bits; larger codes must not be passed */
float ek_e4m3_f32(unsigned byte); /* 0x7f is 480: as MLX decodes it */
float ek_e8m0_f32(unsigned byte); /* 2^(byte - 127); 255 is infinity */

unsigned ek_f32_e2m1(float x); /* to nearest, ties to the even code; saturates at 6 */
unsigned ek_f32_e4m3(float x); /* to nearest, ties to even; saturates at 448; NaN gives 0x7e */
unsigned ek_f32_e8m0(float x); /* the power of two nearest to x >= 0 in the logarithm; infinity and NaN give 255 */

#endif
