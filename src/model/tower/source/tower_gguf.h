/* Inside src/model/tower: towers in GGUF, in a file of their own beside the model (mmproj, as llama.cpp writes it) or
 * in the model's file (as Ollama does).
 *
 * These tensors differ from transformers' and are converted here:
 *   v.patch_embd       [n][3][side][side]; of the 12B rows of [3][side][side]; channels are outermost in both
 *   v.patch_norm.1     the same order
 *   v.clamp_data       all bounds of a clipped vision tower; four zeros: that linear is not clipped
 *   a.blk.N.*_norm     conv_norm and norm_conv are exchanged
 *
 * The scale per dimension of an audio tower is stored after softplus (ek_tower_source.gguf). */
#ifndef EK_MODEL_TOWER_GGUF_H
#define EK_MODEL_TOWER_GGUF_H

#include <jansson.h>
#include <stdbool.h>

#include "model/tower/source/tower_source.h"
#include "tensor/gguf.h"

typedef struct ek_tower_gguf {
    ek_tower_source source;
    ek_gguf *g;
    bool unified, ollama; /* unified: without a vision tower; ollama: audio names are Ollama's */
} ek_tower_gguf;

/* path: the model. mmproj NULL: the towers in the model's file, or else in the file beside it. *out NULL: there are
 * none. */
ek_err ek_tower_gguf_open(ek_tower_source **out, const char *path, const char *mmproj);

/* Writes the files' name for a tensor of transformers; false if there is none. ollama: as below. */
bool ek_tower_gguf_name(char *out, size_t room, const char *name, bool ollama);

/* Makes vision_config and audio_config from metadata and shapes, for the encoders that exist, and puts them into
 * source.config. */
void ek_tower_gguf_config(ek_tower_gguf *s);

/* --- names of an audio tower in GGUF files, of llama.cpp and of Ollama --- */

/* Whether the file uses Ollama's names where the two differ. */
bool ek_tower_gguf_audio_ollama(const ek_gguf *g);
/* Writes the file's name of a tensor ("….q_proj.linear.weight") or module ("….q_proj.linear"). name: transformers' name
 * without "model."; false if it is no part of audio_tower or embed_audio. In the files the norms before and after the
 * depthwise convolution have each other's names. */
bool ek_tower_gguf_audio_name(char *out, size_t room, const char *name, bool ollama);
/* audio_config in the form of config.json, from the metadata clip.audio.* (or gemma4.audio.*) and the shapes of
 * tensors; other fields have transformers' defaults. A new reference; NULL: the file has no audio tower. The metadata's
 * epsilon is ignored: it is 1e-5, and every implementation computes with 1e-6. */
json_t *ek_tower_gguf_audio_config(const ek_gguf *g);

#endif
