/* Inside src/model/tower: how an audio tower is called in a GGUF file, by llama.cpp and by Ollama. */
#ifndef EK_MODEL_TOWER_GGUF_AUDIO_H
#define EK_MODEL_TOWER_GGUF_AUDIO_H

#include <jansson.h>
#include <stdbool.h>

#include "tensor/gguf.h"

/* Whether the file's names are Ollama's, where the two differ. */
bool ek_tower_gguf_audio_ollama(const ek_gguf *g);
/* The file's name of a tensor ("….q_proj.linear.weight") or of a module ("….q_proj.linear") that transformers calls
 * `name`, without "model."; false for what is no part of audio_tower or embed_audio. The norms before and behind the
 * depthwise convolution have each other's names there. */
bool ek_tower_gguf_audio_name(char *out, size_t room, const char *name, bool ollama);
/* audio_config as config.json has it, from the metadata clip.audio.* (or gemma4.audio.*) and the shapes of tensors;
 * what neither tells has transformers' defaults. A new reference; NULL: the file has no ears. The metadata's epsilon is
 * not taken: it says 1e-5, and every implementation computes with 1e-6. */
json_t *ek_tower_gguf_audio_config(const ek_gguf *g);

#endif
