/* Inside src/model/tower: towers in GGUF, in a file of their own beside the model (mmproj, as llama.cpp writes it) or
 * in the model's (as Ollama does).
 *
 * What is stored otherwise than transformers has it is put in its order here:
 *   v.patch_embd       [n][3][side][side], and of the 12B rows of [3][side][side], both with channels outermost
 *   v.patch_norm.1     the same order
 *   v.clamp_data       all bounds of a clipped vision tower; four zeros: that linear is not clipped
 *   a.blk.N.*_norm     conv_norm and norm_conv are each other's
 * and the scale per dimension of an audio tower has been through softplus (ek_tower_source.gguf). */
#ifndef EK_MODEL_TOWER_GGUF_H
#define EK_MODEL_TOWER_GGUF_H

#include <jansson.h>
#include <stdbool.h>

#include "model/tower/source/tower_source.h"
#include "tensor/gguf.h"

typedef struct ek_tower_gguf {
    ek_tower_source source;
    ek_gguf *g;
    bool unified, ollama; /* without a vision tower; audio names as Ollama has them */
} ek_tower_gguf;

/* path: the model. mmproj NULL: the towers in it, else the file beside it. *out NULL: there are none. */
ek_err ek_tower_gguf_open(ek_tower_source **out, const char *path, const char *mmproj);

/* Writes the name that files have for a tensor of transformers; false if they have none. ollama: as below. */
bool ek_tower_gguf_name(char *out, size_t room, const char *name, bool ollama);

/* Makes config.json's vision_config and audio_config of metadata and shapes, for what is there, and puts them into
 * source.config. */
void ek_tower_gguf_config(ek_tower_gguf *s);

/* How an audio tower is called in a GGUF file, by llama.cpp and by Ollama. */

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
