// A launch on the emulated device: one block, or cluster of blocks in x, after the other.
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { EK_EMULATED_ARGS = 1024 }; // bytes that are read from a launch's argument, whatever its structure's size

void ek_emulated_launch(void (*kernel)(void), const unsigned (&grid)[3], unsigned threads, unsigned blocks,
                        size_t shared, const uint8_t *args);
