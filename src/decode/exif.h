/* The one thing that is read from EXIF and XMP, as Pillow's exif_transpose reads it. */
#ifndef EK_DECODE_EXIF_H
#define EK_DECODE_EXIF_H

#include <stddef.h>
#include <stdint.h>

/* The orientation (tag 0x0112 of the first directory), 1 to 8; 0 if the block, n bytes of TIFF with or without "Exif"
 * and two zeros in front, says none, -1 if it says one that is none of these. 1 is upright; 2 mirrored; 3 turned by 180
 * degrees; 4 upside down in a mirror; 5 transposed; 6 to be turned by 90 degrees clockwise; 7 transposed along the
 * other diagonal; 8 to be turned counterclockwise. */
int ek_exif_orientation(const uint8_t *tiff, size_t n);
/* The same of XMP: the first tiff:Orientation="N" or tiff:Orientation>N; 0 where there is none that is valid. */
int ek_xmp_orientation(const uint8_t *xmp, size_t n);
/* What counts of both: XMP where EXIF says nothing. 0: none. */
int ek_orientation(int exif, int xmp);

#endif
