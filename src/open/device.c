#include "open/device.h"

#include <stdio.h>
#include <string.h>

ek_err ek_device_parse(ek_device *out, const char *text)
{
    char rest;
    *out = (ek_device){.cuda = true};
    if (!strcmp(text, "auto")) out->may_be_cpu = true;
    else if (!strcmp(text, "cpu")) out->cuda = false;
    else if (strcmp(text, "cuda") != 0 && (strspn(text + 5 * !strncmp(text, "cuda:", 5), "0123456789") == 0 ||
                                           sscanf(text, "cuda:%4d%c", &out->ordinal, &rest) != 1))
        return ek_fail(EK_EINVAL, "device %.40s; there are auto, cpu, cuda and cuda:N", text);
    return EK_OK;
}

ek_err ek_device_open(ek_gpu **out, const ek_device *d, ek_model *model, char *why, size_t room)
{
    ek_gpu_driver driver;
    *out = NULL;
    why[0] = '\0';
    if (!d->cuda) return EK_OK;
    ek_err err = ek_gpu_driver_load(&driver);
    if (!err) err = ek_gpu_open(out, &driver, model, d->ordinal);
    if (!err || !d->may_be_cpu) return err;
    snprintf(why, room, "%s", ek_err_text());
    return EK_OK;
}

ek_err ek_device_text(const ek_device *d, char *out, size_t room)
{
    ek_gpu_driver driver;
    ek_cuda *c;
    snprintf(out, room, "cpu");
    if (!d->cuda) return EK_OK;
    ek_err err = ek_gpu_driver_load(&driver);
    if (!err) err = ek_cuda_open(&c, &driver.api, driver.modules, driver.built_with, d->ordinal);
    if (err && !d->may_be_cpu) return err;
    if (err) snprintf(out, room, "cpu: %s", ek_err_text());
    else snprintf(out, room, "cuda:%d (%s)", d->ordinal, ek_cuda_text(c));
    if (!err) ek_cuda_close(c);
    return EK_OK;
}
