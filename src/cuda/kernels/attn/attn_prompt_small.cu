// The kernels of attn_prompt.cu in less shared memory, for chips that have 100 KB or 164 KB.
#define EK_PROMPT_SMALL
#include "cuda/kernels/attn/attn_prompt.cu"
