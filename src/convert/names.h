/* What a weight is called in a file. */
#ifndef EK_CONVERT_NAMES_H
#define EK_CONVERT_NAMES_H

#include "convert/layout.h"

/* The tensor that the item is (the first part of): in GGUF its whole name, as llama.cpp's converter gives it; in
 * safetensors without .weight where it is a matrix. EUNSUPPORTED for one that GGUF has no name for. */
ek_err ek_name_of(char *out, size_t room, ek_convert_form form, bool nested, const ek_item *it);

#endif
