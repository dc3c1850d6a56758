/* CRC-32 (zlib, PNG, ISO 3309): to name bytes in reports. It finds damage, not an adversary. */
#ifndef EK_BASE_CRC32_H
#define EK_BASE_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Of n more bytes behind those whose CRC is crc; 0 to begin. */
uint32_t ek_crc32(uint32_t crc, const void *bytes, size_t n);

#endif
