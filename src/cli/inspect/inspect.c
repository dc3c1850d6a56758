/* Reads a checkpoint for inspect. It is bound and checked like an opened model, but nothing is packed. A checkpoint
 * that cannot run is described as far as its files allow. */
#include "cli/inspect/inspect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/machine/cpu.h"
#include "chat/prompt.h"
#include "cli/frame/hub.h"
#include "engine/budget.h"
#include "open/device.h"
#include "open/open.h"
#include "tensor/checkpoint.h"

/* ------------------------------------------------------------------ tensors */

static void count(ek_inspect *r, const char *type, double bytes)
{
    int i = 0;
    while (i < r->n_types && strcmp(r->type[i].name, type) != 0) i++;
    if (i == EK_INSPECT_TYPES) return;
    if (i == r->n_types) snprintf(r->type[r->n_types++].name, sizeof r->type[i].name, "%s", type);
    r->type[i].n++;
    r->type[i].bytes += bytes;
    r->file_bytes += bytes;
    r->n_tensors++;
}

static int larger_first(const void *a, const void *b)
{
    const ek_inspect_type *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes) : strcmp(x->name, y->name);
}

static ek_err count_tensors(ek_inspect *r)
{
    ek_listing *l;
    EK_TRY(ek_listing_open(&l, r->path));
    for (int i = 0; i < ek_listing_count(l); i++) count(r, ek_listing_at(l, i)->type, ek_listing_at(l, i)->bytes);
    ek_listing_close(l);
    qsort(r->type, (size_t)r->n_types, sizeof *r->type, larger_first);
    return EK_OK;
}

/* ------------------------------------------------------------------ the model */

static ek_err opts_of(ek_model_opts *o, const ek_cli *cli)
{
    *o = (ek_model_opts){.cpu = ek_cpu_detect(), .kv_start = (int)cli->kv_start, .deferred = true};
    EK_TRY(ek_kv_format_parse(cli->kv, &o->k_format, &o->v_format));
    return ek_activations_parse(cli->activations, &o->activations);
}

/* Reads no weights: r->model says how much memory they would take, and where. */
static ek_err measure(ek_inspect *r)
{
    ek_model_opts o;
    EK_TRY(opts_of(&o, r->cli));
    if (r->path) EK_TRY(ek_model_open(&r->model, r->path, &o));
    else EK_TRY(ek_model_synthetic(&r->model, &r->config, atoi(r->cli->bits), 0, &o));
    ek_model_measure(&r->need, r->model);
    r->config.own_head = r->need.config.own_head; /* the weights decide */
    const ek_towers_opts towers = {.cpu = o.cpu, .synthetic = r->path ? NULL : r->cli->synthetic};
    EK_TRY(ek_towers_open(&r->towers, r->path, &towers));
    r->tower_bytes = (double)ek_towers_image_bytes(r->towers) + (double)ek_towers_sound_bytes(r->towers);
    return EK_OK;
}

/* Names the published model that a drafter is for. */
static void drafter_text(ek_inspect *r)
{
    static const char *const name[] = {"e2b", "e4b", "12b", "26b", "31b"};
    static ek_config one;
    size_t n = (size_t)snprintf(r->why, sizeof r->why, "as --drafter of a model with hidden size %d",
                                r->config.backbone_hidden_size);
    bool any = false;
    for (size_t i = 0; i < sizeof name / sizeof *name && n < sizeof r->why; i++) {
        if (ek_config_published(&one, name[i], 0) || one.hidden_size != r->config.backbone_hidden_size) continue;
        n += (size_t)snprintf(r->why + n, sizeof r->why - n, "%s%s", any ? " or " : ": ", ek_about_variant(&one));
        any = true;
    }
    r->runs = true;
}

/* Judges the tokenizer. A model that cannot read text does not run here, but `logits` and `generate` take ids and
 * would. */
static ek_err judge_tokenizer(ek_inspect *r)
{
    ek_tokenizer *t;
    ek_err err = ek_chat_tokenizer_open(&t, r->path);
    r->runs = !err;
    if (!err) ek_tokenizer_close(t);
    else snprintf(r->why, sizeof r->why, "%.1000s; without a tokenizer it takes token ids alone", ek_err_text());
    return err;
}

static ek_err judge(ek_inspect *r)
{
    ek_err err = ek_about_config(&r->config, r->path, &r->has_config);
    if (!err && r->config.backbone_hidden_size > 0) {
        drafter_text(r);
        return EK_OK;
    }
    if (!err) err = measure(r);
    r->measured = !err;
    if (!err) return judge_tokenizer(r);
    if (r->has_config && r->about.method[0])
        snprintf(r->why, sizeof r->why, "%s (the weights are quantised with %s)", ek_err_text(), r->about.method);
    else snprintf(r->why, sizeof r->why, "%s", ek_err_text());
    return err;
}

/* ------------------------------------------------------------------ keys and values */

/* The layout that the model has (model.c): blocks of the layers with their own keys and values. False if the format
 * cannot store a head of this size. */
static bool layout_of(ek_kv_layout *out, const ek_config *c, ek_kv_format f)
{
    *out = (ek_kv_layout){.sliding_window = c->sliding_window};
    for (int i = 0; i < c->n_layers; i++) {
        const ek_layer_config *l = &c->layer[i];
        if (!l->owns_kv) continue;
        size_t bytes = ek_kv_block_bytes(f, f, l->n_kv_heads, l->head_dim);
        if (!bytes) return false;
        out->page_bytes[l->kind] += (bytes + 63) / 64 * 64;
    }
    return true;
}

static int by_bytes_descending(const void *a, const void *b)
{
    const ek_inspect_kv *x = a, *y = b;
    return x->request != y->request ? (x->request < y->request) - (x->request > y->request) : strcmp(x->name, y->name);
}

static void list_kv(ek_inspect *r)
{
    const int max = r->config.max_position_embeddings;
    for (int f = 0; f < EK_KV_FORMAT_COUNT; f++) {
        ek_kv_layout layout;
        if (!layout_of(&layout, &r->config, (ek_kv_format)f)) continue;
        r->kv[r->n_kv++] = (ek_inspect_kv){.name = ek_kv_format_name((ek_kv_format)f),
                                           .full = ek_budget_token_bytes(&layout, EK_FULL),
                                           .sliding = ek_budget_token_bytes(&layout, EK_SLIDING),
                                           .request = ek_budget_request_bytes(&layout, r->ctx),
                                           .fit = ek_budget_requests_in(&layout, r->free_bytes, r->ctx),
                                           .fit_max = ek_budget_requests_in(&layout, r->free_bytes, max)};
    }
    qsort(r->kv, (size_t)r->n_kv, sizeof *r->kv, by_bytes_descending);
}

/* Places layers on devices. With --gpu-memory, the devices do not have to exist. */
static ek_err place(ek_inspect *r, const ek_device *device)
{
    const double each = r->cli->has.gpu_memory ? r->cli->gpu_memory : 0;
    if (each > 0)
        snprintf(r->device, sizeof r->device, "%.200s of %.1f GB%s", r->cli->device, each / 1e9,
                 device->n > 1 || device->all ? " each" : "");
    else EK_TRY(ek_device_text(device, r->device, sizeof r->device));
    if (!r->measured) return EK_OK;
    const ek_open_opts opts = {.ctx_tokens = r->cli->has.ctx ? r->ctx : 0}; /* the same options as at a start */
    const bool alone = !ek_device_is_split(device) && each == 0;
    const ek_fit_beside beside = ek_open_beside(r->model, r->towers, NULL, &opts, alone);
    if (ek_device_place(r->place, sizeof r->place, device, each, &beside, r->ctx, r->model))
        snprintf(r->place, sizeof r->place, "no: %s", ek_err_text());
    return EK_OK;
}

static ek_err size_up(ek_inspect *r)
{
    enum { CTX = 8192 };
    const int max = r->config.max_position_embeddings;
    r->ctx = r->cli->has.ctx ? (int)r->cli->ctx : max < CTX ? max : CTX;
    EK_TRY(ek_cli_check_ctx(r->cli, max));
    r->weight_bytes = r->measured ? r->need.weight_bytes + r->tower_bytes : r->file_bytes;
    r->free_bytes = (ek_memory_available() - r->weight_bytes) / 2;
    if (r->free_bytes < 0) r->free_bytes = 0;
    if (r->config.backbone_hidden_size == 0) list_kv(r); /* a drafter has no keys and values of its own */
    ek_device device;
    EK_TRY(ek_device_parse(&device, r->cli->device));
    EK_TRY(ek_device_set_split(&device, r->cli->split));
    const bool named = device.gpu && (!device.may_be_cpu || r->cli->has.gpu_memory);
    if (!named && r->measured && !r->path) r->device_room = ek_device_room(r->cli->device, 0, r->model);
    if (!named) return ek_device_text(&device, r->device, sizeof r->device);
    return place(r, &device);
}

static ek_err read_checkpoint(ek_inspect *r)
{
    EK_TRY(ek_cli_find_model(r->cli->arg, &r->path));
    if (!ek_is_dir(r->path)) EK_TRY(ek_file_check(r->path));
    ek_about_read(&r->about, r->path);
    ek_err stored = count_tensors(r);
    char stored_why[512] = "";
    if (stored) snprintf(stored_why, sizeof stored_why, "%.500s", ek_err_text());
    if ((stored == EK_EFORMAT || stored == EK_EIO) && strcmp(r->about.container, "file") != 0)
        return stored; /* a damaged file is an error, not a property of the model */
    ek_err err = judge(r);
    if (stored && err && !r->has_config && !r->about.model_type[0]) /* nothing is known about the checkpoint */
        return ek_fail(stored, "%s",
                       strcmp(r->about.container, "safetensors") || ek_is_dir(r->path) ? r->why : stored_why);
    return r->has_config ? size_up(r) : EK_OK;
}

/* Reads a published model by its name. None of its files need to be here. */
static ek_err read_published(ek_inspect *r)
{
    const ek_cli *cli = r->cli;
    EK_TRY(ek_config_published(&r->config, cli->synthetic, cli->has.layers ? (int)cli->layers : 0));
    r->has_config = true;
    snprintf(r->about.container, sizeof r->about.container, "published shape");
    snprintf(r->about.model_type, sizeof r->about.model_type, "%s", r->config.model_type);
    snprintf(r->about.variant, sizeof r->about.variant, "%s", ek_about_variant(&r->config));
    snprintf(r->about.format, sizeof r->about.format, strcmp(cli->bits, "0") ? "%s bits in groups of 64" : "bf16",
             cli->bits);
    EK_TRY(measure(r));
    r->measured = r->runs = true;
    return size_up(r);
}

/* Fails only if nothing is known: no such path, a file of another kind, damaged weights, impossible options. */
static ek_err inspect_read(ek_inspect *r, const ek_cli *cli)
{
    ek_kv_format k, v;
    ek_activations activations;
    *r = (ek_inspect){.cli = cli};
    EK_TRY(ek_kv_format_parse(cli->kv, &k, &v)); /* a wrong option is an error, not a property of the checkpoint */
    EK_TRY(ek_activations_parse(cli->activations, &activations));
    const ek_err err = cli->has.synthetic ? read_published(r) : read_checkpoint(r);
    ek_towers_close(r->towers);
    ek_model_close(r->model);
    r->model = NULL, r->towers = NULL;
    return err;
}

ek_err ek_inspect_fits(ek_inspect_fit *out, const ek_cli *cli, const char *size, const char *bits)
{
    static ek_inspect r; /* large */
    ek_cli of = *cli;
    of.command = EK_CMD_inspect;
    of.synthetic = size, of.has.synthetic = true;
    of.bits = bits;
    *out = (ek_inspect_fit){0};
    EK_TRY(inspect_read(&r, &of));
    out->needs = r.weight_bytes, out->free = ek_memory_available(), out->reads = r.need.bytes_per_token;
    for (int i = 0; i < r.n_kv; i++)
        if (!strcmp(r.kv[i].name, cli->kv)) {
            out->needs += r.kv[i].request;
            out->on_device = r.device_room >= r.kv[i].request;
        }
    return EK_OK;
}

/* inspect: the kind of a checkpoint, its needs, and whether it runs. If it does not run, the reason. */
int ek_cmd_inspect(const ek_cli *cli)
{
    static ek_inspect r; /* large */
    ek_err err = inspect_read(&r, cli);
    if (err) return ek_cli_refused(cli, err);
    if (cli->json) ek_inspect_print_json(&r);
    else ek_inspect_print(&r);
    return 0;
}
