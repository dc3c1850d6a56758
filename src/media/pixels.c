/* Memory for pixels. */
#include "base/alloc.h"
#include "media/image.h"

size_t ek_image_bytes(const ek_image *image)
{
    return 3 * (size_t)image->width * (size_t)image->height;
}

ek_err ek_image_make(ek_image *out, int width, int height)
{
    *out = (ek_image){.width = width, .height = height};
    out->rgb = ek_alloc_big(ek_image_bytes(out));
    return out->rgb ? EK_OK : EK_ENOMEM;
}

void ek_image_free(ek_image *image)
{
    ek_free_big(image->rgb, ek_image_bytes(image));
    *image = (ek_image){0};
}
