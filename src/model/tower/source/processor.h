/* Inside src/model/tower: how pictures and frames are prepared for a model, as the files beside its config.json say it.
 *
 * Which file counts is transformers' choice: image_processor in processor_config.json, else preprocessor_config.json;
 * of videos video_processor in processor_config.json, else video_preprocessor_config.json, else
 * preprocessor_config.json. Without any, the defaults of Gemma4ImageProcessor and Gemma4VideoProcessor hold.
 * image_seq_length says nothing: a picture's number of tokens follows from its size. */
#ifndef EK_MODEL_TOWER_PROCESSOR_H
#define EK_MODEL_TOWER_PROCESSOR_H

#include "media/budget.h"

typedef struct ek_processor {
    int image_tokens, frame_tokens; /* soft tokens at most, ek_budget_known: max_soft_tokens */
    int frames;                     /* that stand for a video, 1 to 32: num_frames */
} ek_processor;

/* Those of the published models. */
void ek_processor_default(ek_processor *out);
/* folder: with config.json. patching: of the model, which the files must agree with. EFORMAT for a value that cannot
 * be, EUNSUPPORTED for a preparation that is another one: they name file and key. */
ek_err ek_processor_read(ek_processor *out, const char *folder, ek_patching patching);

#endif
