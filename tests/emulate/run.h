// A launch on the emulated device: one block, or cluster of blocks in x, after the other. together: blocks that have
// nothing in common but global memory, of one at a time in x, whose threads take turns as those of a cluster do.
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { EK_EMULATED_ARGS = 1024 }; // bytes that are read from a launch's argument, whatever its structure's size

int ek_emulated_capability(void); // of all devices, ten times
void ek_emulated_launch(void (*kernel)(void), const unsigned (&grid)[3], unsigned threads, unsigned blocks,
                        unsigned together, size_t shared, const uint8_t *args);
