/* Inside src/model/tower: settings for preparing pictures and frames, from the files beside config.json.
 *
 * Transformers' rule chooses the file: image_processor in processor_config.json, else preprocessor_config.json; for
 * videos video_processor in processor_config.json, else video_preprocessor_config.json, else preprocessor_config.json.
 * Without any file the defaults of Gemma4ImageProcessor and Gemma4VideoProcessor hold. image_seq_length is ignored,
 * because a picture's number of tokens follows from its size. */
#ifndef EK_MODEL_TOWER_PROCESSOR_H
#define EK_MODEL_TOWER_PROCESSOR_H

#include "media/picture.h"

typedef struct ek_processor {
    int image_tokens, frame_tokens; /* maximum soft tokens (max_soft_tokens), for which ek_budget_known is true */
    int frames;                     /* frames per video, 1 to 32: num_frames */
} ek_processor;

/* The settings of the published models. */
void ek_processor_default(ek_processor *out);
/* folder: the one with config.json. patching: the model's, with which the files must agree. EFORMAT for an invalid
 * value, EUNSUPPORTED for another kind of preparation; both name file and key. */
ek_err ek_processor_read(ek_processor *out, const char *folder, ek_patching patching);

#endif
