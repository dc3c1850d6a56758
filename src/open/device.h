/* The devices that a model runs on. One: auto, cpu, vulkan, vulkan:N, cuda, cuda:N. Several: cuda:0,1, cuda:0-3,
 * cuda:all. With the CPU for layers or experts that do not fit: cuda:0,cpu, cuda:0,cpu:layers, cuda:0,cpu:experts.
 * Vulkan has the same forms. Those of CUDA may end with @sm_80 or the like: the model then runs with another device's
 * kernels, which tests these (docs/CUDA.md). */
#ifndef EK_OPEN_DEVICE_H
#define EK_OPEN_DEVICE_H

#include <stdbool.h>

#include "gpu/gpu.h"
#include "gpu/several/several.h"

typedef struct ek_device {
    bool gpu;        /* a CUDA device is looked for */
    bool vulkan;     /* with gpu: a Vulkan device instead */
    bool may_be_cpu; /* auto: CUDA's first; without one a card of Vulkan's; without both the CPU */
    int n, ordinal[EK_RANKS];
    bool all;  /* all devices; n is 0 */
    bool host; /* the CPU also has layers or experts */
    ek_host_part part;
    ek_split split;
    int features; /* use kernels of this compute capability (times ten); 0: the devices' own */
    enum { EK_TUNE_AUTO, EK_TUNE_OFF, EK_TUNE_AGAIN } tune; /* open/card.h */
} ek_device;

/* The driver of d's devices, with d's features (gpu/gpu.h). */
ek_err ek_device_driver(ek_gpu_driver *out, const ek_device *d);

/* Parses text as above. EINVAL lists the choices. */
ek_err ek_device_parse(ek_device *out, const char *text);
/* How several share a model: "auto" (NULL), "layers" or "outputs". EINVAL: another word, or outputs with the CPU in the
 * list. */
ek_err ek_device_set_split(ek_device *d, const char *split);
/* Whether to measure a card: "auto" (NULL) if it has no times, "off", or "again". EINVAL: another word. */
ek_err ek_device_set_tune(ek_device *d, const char *tune);
/* Several devices, or some and the CPU, share the model. */
static inline bool ek_device_is_split(const ek_device *d)
{
    return d->n > 1 || d->all || d->host;
}

/* Whether a device is requested, or with auto exists. Open a model for it deferred (ek_model_opts): it can then be
 * refused before it is read, and is read in parts. */
bool ek_device_is_wanted(const ek_device *d);

/* Whether the CPU takes over after err on a device: with auto, if the device has no room or no device can run the
 * model. A file that cannot be read or is in use, and a failing device, are errors. */
bool ek_device_may_leave(const ek_device *d, ek_err err);

/* Copies the model, which is borrowed, to one device (*out) or several (*ranks), with room for `beside`. max_bytes: the
 * maximum per device; 0: all free memory. ENOMEM: there is no room; the sentence has the numbers and a remedy. A
 * deferred model is refused before its weights are read. If the CPU is used, both are NULL and *why is the reason,
 * whose sentence is recorded (base/err.h); EK_OK if the CPU was requested. */
ek_err ek_device_open(ek_gpu **out, ek_ranks **ranks, const ek_device *d, double max_bytes, const ek_fit_beside *beside,
                      ek_model *model, ek_err *why);

/* Describes the placement of a model's parts, and the number of requests of ctx tokens with room beside them.
 * max_bytes: memory of each device, present or not; 0: the devices' free memory. Weights may be deferred. ENOMEM: the
 * model does not fit, in ek_device_open's words, or no such request does, with the numbers. */
ek_err ek_device_place(char *out, size_t room, const ek_device *d, double max_bytes, const ek_fit_beside *beside,
                       int ctx, ek_model *model);

/* Bytes on the device for keys and values beside the model's weights, which are not there yet. 0: text (NULL: "auto")
 * names the CPU or several devices, the weights do not fit, or the device cannot be asked. */
double ek_device_room(const char *text, double max_bytes, const ek_model *model);

/* Names the device without copying anything: "cpu", with the reason after a colon if auto found no device, or
 * "cuda:0 (NVIDIA H100 …)", with commas between several. */
ek_err ek_device_text(const ek_device *d, char *out, size_t room);

#endif
