#include "cli/run/chat.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/encoding.h"
#include "cli/frame/hub.h"
#include "media/image.h"
#include "media/limits.h"
#include "media/video/video.h"
#include "serve/api/dialect.h"
#include "text/json/json.h"

enum { MAX_FILE = 512 << 20 };

/* ------------------------------------------------------------------ writing */

static void member(ek_buf *out, const char *key, const char *text, size_t n)
{
    ek_buf_fmt(out, ", \"%s\": ", key);
    ek_json_quote(out, text, n);
}

/* Joins the texts of one kind; false if there are none. */
static bool text_of(ek_buf *out, const ek_message *m, ek_block_kind kind)
{
    bool any = false;
    for (int i = 0; i < m->n_blocks; i++) {
        if (m->blocks[i].kind != kind) continue;
        ek_buf_add(out, ek_buf_text(&m->blocks[i].text), m->blocks[i].text.len);
        any = true;
    }
    return any;
}

static void write_calls(ek_buf *out, const ek_message *m)
{
    int n = 0;
    for (int i = 0; i < m->n_blocks; i++) {
        const ek_block *b = &m->blocks[i];
        if (b->kind != EK_BLOCK_CALL) continue;
        ek_buf arguments = {0};
        ek_json_write(&arguments, b->value);
        ek_buf_str(out, n++ ? ", " : ", \"tool_calls\": [");
        ek_buf_str(out, "{\"id\": ");
        ek_json_quote(out, ek_buf_text(&b->id), b->id.len);
        ek_buf_str(out, ", \"type\": \"function\", \"function\": {\"name\": ");
        ek_json_quote(out, ek_buf_text(&b->name), b->name.len);
        member(out, "arguments", ek_buf_text(&arguments), arguments.len);
        ek_buf_str(out, "}}");
        ek_buf_fini(&arguments);
    }
    if (n) ek_buf_char(out, ']');
}

static const char *lower(char *room, size_t n, const char *format)
{
    snprintf(room, n, "%s", format);
    for (char *c = room; *c; c++) *c = (char)tolower((unsigned char)*c);
    return room;
}

static void write_url(ek_buf *out, const ek_media_file *f)
{
    ek_image_info info = {.format = "PNG"};
    char format[8];
    (void)ek_image_probe(&info, ek_buf_text(&f->bytes), f->bytes.len);
    ek_buf_fmt(out, "\"data:image/%s;base64,", lower(format, sizeof format, info.format));
    ek_base64_encode(out, ek_buf_text(&f->bytes), f->bytes.len);
    ek_buf_char(out, '"');
}

static void write_image(ek_buf *out, const ek_media_file *f)
{
    static const char *const detail[] = {"low", "high"};
    ek_buf_str(out, "{\"type\": \"image_url\", \"image_url\": {\"url\": ");
    write_url(out, f);
    if (f->budget == 70 || f->budget == 1120) ek_buf_fmt(out, ", \"detail\": \"%s\"", detail[f->budget == 1120]);
    ek_buf_str(out, "}}");
}

static void write_sound(ek_buf *out, const ek_media_file *f)
{
    ek_sound_info info = {.format = "WAV"};
    char format[8];
    (void)ek_sound_probe(&info, ek_buf_text(&f->bytes), f->bytes.len, EK_SOUND_SECONDS);
    ek_buf_str(out, "{\"type\": \"input_audio\", \"input_audio\": {\"data\": \"");
    ek_base64_encode(out, ek_buf_text(&f->bytes), f->bytes.len);
    ek_buf_fmt(out, "\", \"format\": \"%s\"}}", lower(format, sizeof format, info.format));
}

/* A video that came as a file is written as a file. */
static void write_video_file(ek_buf *out, const ek_block *b)
{
    const ek_buf *bytes = &b->files[0].bytes;
    const char *type = ek_video_type(ek_buf_text(bytes), bytes->len);
    ek_buf_fmt(out, "{\"type\": \"video_url\", \"video_url\": {\"url\": \"data:%s;base64,", type ? type : "video/mp4");
    ek_base64_encode(out, ek_buf_text(bytes), bytes->len);
    ek_buf_str(out, "\"}}");
}

static void write_video(ek_buf *out, const ek_block *b)
{
    if (b->files[0].made) {
        write_video_file(out, b);
        return;
    }
    ek_buf_str(out, "{\"type\": \"video\", \"timestamps\": [");
    for (int i = 0; i < b->n_files; i++) ek_buf_fmt(out, "%s%.17g", i ? ", " : "", b->files[i].seconds);
    ek_buf_str(out, "], \"video\": [");
    for (int i = 0; i < b->n_files; i++) {
        if (i > 0) ek_buf_str(out, ", ");
        write_url(out, &b->files[i]);
    }
    ek_buf_str(out, "]}");
}

static void write_part(ek_buf *out, const ek_block *b)
{
    if (b->kind == EK_BLOCK_TEXT) {
        ek_buf_str(out, "{\"type\": \"text\"");
        member(out, "text", ek_buf_text(&b->text), b->text.len);
        ek_buf_char(out, '}');
    } else if (b->media == EK_PART_SOUND) {
        write_sound(out, &b->files[0]);
    } else if (b->media == EK_PART_FRAME) {
        write_video(out, b);
    } else {
        write_image(out, &b->files[0]);
    }
}

/* Writes a message with pictures or sounds: its content is a list of parts, which hold the files. */
static bool write_parts(ek_buf *out, const ek_message *m)
{
    int n = 0;
    bool any = false;
    for (int i = 0; i < m->n_blocks; i++) any |= m->blocks[i].n_files > 0;
    if (!any) return false;
    ek_buf_str(out, ", \"content\": [");
    for (int i = 0; i < m->n_blocks; i++) {
        const ek_block *b = &m->blocks[i];
        if (b->kind != EK_BLOCK_TEXT && b->n_files == 0) continue;
        ek_buf_str(out, n++ ? ", " : "");
        write_part(out, b);
    }
    ek_buf_char(out, ']');
    return true;
}

static void write_message(ek_buf *out, const ek_message *m)
{
    static const char *const role[] = {"system", "developer", "user", "assistant", "tool"};
    ek_buf text = {0};
    ek_buf_fmt(out, "{\"role\": \"%s\"", role[m->role]);
    if (m->role == EK_ROLE_TOOL) member(out, "tool_call_id", ek_buf_text(&m->call_id), m->call_id.len);
    if (text_of(&text, m, EK_BLOCK_REASONING)) member(out, "reasoning_content", ek_buf_text(&text), text.len);
    ek_buf_clear(&text);
    if (write_parts(out, m)) (void)0;
    else if (text_of(&text, m, EK_BLOCK_TEXT)) member(out, "content", ek_buf_text(&text), text.len);
    else ek_buf_str(out, ", \"content\": null");
    write_calls(out, m);
    ek_buf_char(out, '}');
    ek_buf_fini(&text);
}

ek_err ek_chat_save(const ek_dialogue *d, const char *path, int *n)
{
    ek_buf out = {0};
    char *name = ek_cli_model_name(d->cli, d->m.path);
    ek_buf_str(&out, "{\"model\": ");
    ek_json_quote(&out, name, strlen(name));
    ek_buf_str(&out, ",\n \"messages\": [");
    for (int i = 0; i < d->history.n_messages; i++) {
        ek_buf_str(&out, i ? ",\n  " : "\n  ");
        write_message(&out, &d->history.messages[i]);
    }
    ek_buf_char(&out, ']');
    if (d->tools) {
        ek_buf_str(&out, ",\n \"tools\": ");
        ek_json_write(&out, d->tools);
    }
    ek_buf_str(&out, "}\n");
    *n = d->history.n_messages;
    ek_err err = ek_file_replace(path, out.data, out.len, 0600);
    free(name);
    ek_buf_fini(&out);
    return err;
}

/* ------------------------------------------------------------------ reading */

/* Keeps the messages and tools of a file that another program wrote; other members are left out. False: the text is no
 * object. */
static bool keep_conversation(ek_buf *out, const ek_buf *text)
{
    json_t *all = json_loadb(ek_buf_text(text), text->len, 0, NULL), *kept = json_object();
    const bool object = json_is_object(all);
    for (int i = 0; object && i < 2; i++) {
        const char *name = i ? "tools" : "messages";
        json_t *value = json_object_get(all, name);
        if (value) json_object_set(kept, name, value);
    }
    char *body = object ? json_dumps(kept, 0) : NULL;
    if (body) ek_buf_str(out, body);
    free(body);
    json_decref(kept);
    json_decref(all);
    return object;
}

/* Makes the body of a request from a file: its conversation, or a list of messages. */
static ek_err read_body(ek_buf *out, const char *path)
{
    ek_buf text = {0};
    ek_err err = ek_file_read(&text, path, MAX_FILE);
    size_t blank = strspn(ek_buf_text(&text), " \t\r\n");
    bool list = !err && ek_buf_text(&text)[blank] == '[';
    if (list) ek_buf_str(out, "{\"messages\": ");
    if (!err && (list || !keep_conversation(out, &text))) ek_buf_add(out, ek_buf_text(&text), text.len);
    if (list) ek_buf_char(out, '}');
    ek_buf_fini(&text);
    return err;
}

/* A system message at the beginning becomes the dialogue's system prompt. */
static void take(ek_dialogue *d, ek_api_request *r)
{
    ek_conversation_fini(&d->history);
    d->history = r->conversation;
    r->conversation = (ek_conversation){0};
    free(d->system);
    d->system = NULL;
    ek_buf system = {0};
    const ek_message *first = d->history.n_messages ? &d->history.messages[0] : NULL;
    if (first && first->role == EK_ROLE_SYSTEM && text_of(&system, first, EK_BLOCK_TEXT))
        d->system = ek_strdup(ek_buf_text(&system));
    ek_buf_fini(&system);
    if (!r->tools) return;
    json_decref(d->tools);
    d->tools = json_incref(r->tools);
}

ek_err ek_chat_load(ek_dialogue *d, const char *path, int *n)
{
    ek_buf body = {0};
    ek_api_request r = {0};
    ek_api_limits limits = {.defaults = ek_sampling_greedy(),
                            .media = &d->m.chat.media,
                            .ffmpeg = d->ffmpeg,
                            .n_vocab = ek_model_config(d->m.model)->vocab_size,
                            .ctx_tokens = ek_engine_ctx(d->m.engine)};
    ek_err err = read_body(&body, path);
    if (!err) {
        err = ek_api_parse(&r, &ek_dialect_openai_chat, ek_buf_text(&body), body.len, &limits);
        if (err) err = ek_fail_in(err, "%s", path);
        else take(d, &r);
        *n = d->history.n_messages;
    }
    ek_api_request_fini(&r);
    ek_buf_fini(&body);
    return err;
}
