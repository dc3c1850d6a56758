/* The device that a model runs on: auto, cpu, cuda or cuda:N. */
#ifndef EK_OPEN_DEVICE_H
#define EK_OPEN_DEVICE_H

#include <stdbool.h>

#include "gpu/gpu.h"

typedef struct ek_device {
    bool cuda;       /* a CUDA device is looked for */
    bool may_be_cpu; /* auto: without one, the CPU */
    int ordinal;
} ek_device;

/* EINVAL lists the choices. */
ek_err ek_device_parse(ek_device *out, const char *text);

/* Copies the model, which is borrowed, to the device. *out is NULL where that is the CPU; why (room bytes) then gets
 * the reason, "" if it was asked for. */
ek_err ek_device_open(ek_gpu **out, const ek_device *d, ek_model *model, char *why, size_t room);

/* The device in words; nothing is copied there: "cpu", with the reason after a colon if auto found no device, or
 * "cuda:0 (NVIDIA H100 …)". */
ek_err ek_device_text(const ek_device *d, char *out, size_t room);

#endif
