/* Towers bound from a GGUF file's tables. The first byte chooses small towers and who wrote them (llama.cpp, in a file
 * of their own; Ollama, in the model's words), the others edit the file's metadata and its table of tensors.
 * Properties: without edits towers open, and rows come out of a picture or a sound; with them they do, or are refused
 * in one line; what opens is packed and encodes, or says in one line why not; nothing is read outside of the file (it
 * is exactly as long as its tables say), and nothing stays allocated. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../tests/model/audio_scene.h"
#include "../tests/model/tower_gguf_case.h"
#include "../tests/support/files.h"
#include "../tests/support/gguf_edit.h"
#include "../tests/support/gguf_memory.h"
#include "../tests/support/gguf_model.h"
#include "base/alloc.h"
#include "base/log.h"
#include "model/tower/tower.h"

enum { BASES = 10, MAX_MACS = 1 << 26, MAX_BYTES = 1 << 24 };

static const tower_case cases[] = {
    {"E", 32, 2, 2, 2, 16, 48, 16, 3, 64, 0, true, false, false, false, 0, NULL, 0},
    {"L", 36, 2, 2, 2, 12, 37, 16, 3, 64, 0, false, false, true, false, 4e4, NULL, 0},
    {"4", 36, 1, 2, 1, 12, 37, 4, 2, 64, 0, false, false, true, false, 9, NULL, 0},
    {"12B", 40, 0, 0, 0, 0, 0, 16, 3, 64, 0, false, false, false, true, 0, NULL, 0},
};

static const gguf_edit_words words = {
    .name = {"mm.input_projection.weight", "mm.a.input_projection.weight", "v.blk.0.attn_q.weight",
             "v.blk.1.ffn_up.weight", "v.clamp_data", "v.std_bias", "v.position_embd.weight", "v.patch_embd.weight",
             "v.patch_norm.1.weight", "v.blk.0.attn_q_norm.weight", "v.blk.0.attn_q.input_min", "a.conv1d.0.weight",
             "a.blk.0.conv_dw.weight", "mm.a.fc.weight", "v.blk.99999999999.ln1.weight", "a.input_projection.weight"},
    .key = {"clip.vision.block_count", "clip.vision.embedding_length", "clip.vision.attention.head_count",
            "clip.vision.patch_size", "clip.vision.projector.scale_factor", "gemma4.vision.feed_forward_length",
            "clip.audio.embedding_length", "clip.audio.block_count"}};

/* --- files to begin with --- */

static char *folder, model[64], towers[64];
static int text_width;

static void remove_files(void)
{
    remove_dir(folder);
}

static void make_model(void)
{
    static ek_config c;
    folder = temp_dir();
    if (ek_config_tiny(&c, "T1")) __builtin_trap();
    text_width = c.hidden_size;
    write_gguf(folder, "m.gguf", &c, &(gguf_opts){.type = GGUF_F32}, NULL);
    snprintf(model, sizeof model, "%s/m.gguf", folder);
    snprintf(towers, sizeof towers, "%s/towers.gguf", folder);
    atexit(remove_files);
}

/* Vision in four shapes, a sound's tower, each in two dialects. */
static const ek_gguf *base(unsigned which)
{
    static ek_gguf *kept[BASES];
    static ek_buf bytes[BASES];
    gguf_file f = {{0}, {0}, {0}, 0, 0};
    if (kept[which]) return kept[which];
    const bool ollama = which & 1;
    gguf_text(&f, "general.architecture", "clip");
    if (which / 2 < 4) {
        tower_case c = cases[which / 2];
        c.hidden = text_width;
        tower_make(&c);
        tower_put_gguf(&f, &c, ollama ? TOWER_OLLAMA : TOWER_LLAMA, NULL);
        tower_free(&c);
    } else {
        audio_spec s = audio_a1();
        s.text = text_width;
        audio_put_gguf(&f, &s, ollama);
    }
    gguf_bytes(&f, &bytes[which]);
    gguf_fini(&f);
    if (gguf_of_memory(&kept[which], (const uint8_t *)bytes[which].data, bytes[which].len, "base")) __builtin_trap();
    return kept[which];
}

/* --- properties --- */

static ek_err refused(ek_err err)
{
    const char *said = ek_err_text();
    if (err && (!*said || strchr(said, '\n'))) __builtin_trap();
    return err;
}

static void run(ek_tower_work *w)
{
    bool done = false;
    int n;
    while (!done) ek_tower_advance(w, 1e7, &done);
    if (!ek_tower_rows(w, &n) || n < 1) __builtin_trap();
    ek_tower_free(w);
}

/* EK_OK where rows came out, or were too dear to wait for. */
static ek_err see(ek_towers *t)
{
    ek_picture_opts o = {.budget = 70, .patching = ek_towers_get(t)->patching};
    ek_image image;
    ek_picture p;
    ek_tower_cost cost;
    ek_tower_work *w = NULL;
    if (ek_image_make(&image, 20, 60)) return EK_OK;
    memset(image.rgb, 77, ek_image_bytes(&image));
    ek_err err = refused(ek_picture_make(&p, &image, &o));
    ek_image_free(&image);
    if (err) return err;
    err = refused(ek_tower_cost_image(&cost, t, &p.fit));
    const bool cheap = !err && cost.macs < MAX_MACS && cost.bytes < MAX_BYTES;
    if (cheap) err = refused(ek_tower_begin_image(&w, t, &p));
    if (cheap && !err) run(w);
    ek_picture_free(&p);
    return err;
}

static ek_err hear(ek_towers *t)
{
    ek_tower_cost cost;
    ek_tower_work *w = NULL;
    ek_sound s = audio_clip(3200, 1);
    ek_err err = refused(ek_tower_cost_sound(&cost, t, s.samples));
    const bool cheap = !err && cost.macs < MAX_MACS && cost.bytes < MAX_BYTES;
    if (cheap) err = refused(ek_tower_begin_sound(&w, t, &s));
    if (cheap && !err) run(w);
    ek_sound_free(&s);
    return err;
}

/* Encoding takes a hundred times as long as opening. */
static void open_towers(bool edited, bool encode)
{
    ek_towers *t;
    const ek_towers_opts o = {.mmproj = towers, .memory_limit = 1 << 26};
    if (refused(ek_towers_open(&t, model, &o))) {
        if (!edited) __builtin_trap();
        return;
    }
    const ek_towers_info *info = ek_towers_get(t);
    if (!info->image && !info->sound && !edited) __builtin_trap();
    if (encode && info->image && ek_towers_image_bytes(t) < MAX_BYTES && see(t) && !edited) __builtin_trap();
    if (encode && info->sound && ek_towers_sound_bytes(t) < MAX_BYTES && hear(t) && !edited) __builtin_trap();
    ek_towers_close(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static gguf_tables t;
    gguf_input in = {data, data + size};
    ek_buf bytes = {0};
    ek_log_set(EK_LOG_ERROR);
    if (!*model) make_model();
    gguf_tables_read(&t, base(gguf_take(&in) % BASES));
    gguf_tables_edit(&t, &in, &words);
    gguf_tables_write(&t, &bytes);
    FILE *f = fopen(towers, "wb");
    if (!f || fwrite(bytes.data, 1, bytes.len, f) != bytes.len || fclose(f)) __builtin_trap();
    open_towers(size > 1, size % 8 == 1);
    gguf_tables_fini(&t);
    ek_buf_fini(&bytes);
    return 0;
}
