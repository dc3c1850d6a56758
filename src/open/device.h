/* The devices that a model runs on: auto, cpu, vulkan, vulkan:N, cuda, cuda:N; several as cuda:0,1, cuda:0-3 and
 * cuda:all; and with the CPU for layers or experts that do not fit, as cuda:0,cpu, cuda:0,cpu:layers and
 * cuda:0,cpu:experts; of Vulkan all but vulkan:all. Behind any of them @sm_80 or the like: with the kernels of another
 * device, for a test of what would run there (docs/CUDA.md). */
#ifndef EK_OPEN_DEVICE_H
#define EK_OPEN_DEVICE_H

#include <stdbool.h>

#include "gpu/gpu.h"
#include "gpu/several/several.h"

typedef struct ek_device {
    bool gpu;        /* a device is looked for: CUDA's, */
    bool vulkan;     /* or Vulkan's */
    bool may_be_cpu; /* auto: CUDA's first; without one a card of Vulkan's; without both the CPU */
    int n, ordinal[EK_RANKS];
    bool all;  /* every device that there is; n is 0 */
    bool host; /* the CPU has layers, or experts, too: */
    ek_host_part part;
    ek_split split;
    int features; /* the compute capability to whose kernels they keep, ten times; 0: their own */
    enum { EK_TUNE_AUTO, EK_TUNE_OFF, EK_TUNE_AGAIN } tune; /* open/tuning.h */
} ek_device;

/* The driver of its devices, with its features (gpu/gpu.h). */
ek_err ek_device_driver(ek_gpu_driver *out, const ek_device *d);

/* EINVAL lists the choices. */
ek_err ek_device_parse(ek_device *out, const char *text);
/* How several share a model: "auto" (NULL), "layers" or "outputs". EINVAL: another word, or outputs with the CPU in the
 * list. */
ek_err ek_device_set_split(ek_device *d, const char *split);
/* Whether a card without times is measured: "auto" (NULL), "off", or "again", whatever was. EINVAL: another word. */
ek_err ek_device_set_tune(ek_device *d, const char *tune);
/* Several devices, or some and the CPU, share the model. */
static inline bool ek_device_is_split(const ek_device *d)
{
    return d->n > 1 || d->all || d->host;
}

/* There is one, or must be. A model for it is best opened deferred (ek_model_opts): it is then refused before it is
 * read, and read in parts. */
bool ek_device_is_wanted(const ek_device *d);

/* Whether the CPU takes over what failed on a device: with auto where it has no room, or there is none that can run the
 * model. A file that cannot be read or is in use, and a device that fails, are errors. */
bool ek_device_may_leave(const ek_device *d, ek_err err);

/* Copies the model, which is borrowed, to the device, or to several, with room for `beside`: *out or *ranks is set.
 * max_bytes: what each may give; 0: what is free there. ENOMEM: it has no room, with the numbers and what would hold
 * it, before a weight is read of a deferred model. Both are NULL where that is the CPU; *why is then the
 * reason, whose sentence is recorded (base/err.h), EK_OK if it was asked for. */
ek_err ek_device_open(ek_gpu **out, ek_ranks **ranks, const ek_device *d, double max_bytes, const ek_fit_beside *beside,
                      ek_model *model, ek_err *why);

/* What of a model would lie where, in words, on what the devices have free or, whether they are there or not, on
 * max_bytes each, and for how many requests of ctx tokens keys and values have room beside it. Weights may be deferred.
 * ENOMEM: it does not fit, in the words of ek_device_open, or no such request does, with the numbers. */
ek_err ek_device_place(char *out, size_t room, const ek_device *d, double max_bytes, const ek_fit_beside *beside,
                       int ctx, ek_model *model);

/* Bytes that keys and values may take of the device beside the model's weights, which are not there yet. 0: text (NULL:
 * "auto") names the CPU or several devices, it has no room for the weights, or cannot be asked. */
double ek_device_room(const char *text, double max_bytes, const ek_model *model);

/* The device in words; nothing is copied there: "cpu", with the reason after a colon if auto found no device, or
 * "cuda:0 (NVIDIA H100 …)", with commas between several. */
ek_err ek_device_text(const ek_device *d, char *out, size_t room);

#endif
