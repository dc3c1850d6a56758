/* Inside src/model/tower: towers in a folder of safetensors. */
#ifndef EK_MODEL_TOWER_FOLDER_H
#define EK_MODEL_TOWER_FOLDER_H

#include "model/tower/source/tower_source.h"

ek_err ek_tower_folder_open(ek_tower_source **out, const char *path);

#endif
