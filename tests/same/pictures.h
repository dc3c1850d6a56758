/* Pictures, frames and sounds of scenes (SCENE_MEDIA), and a tower that reads them. */
#ifndef TESTS_SAME_PICTURES_H
#define TESTS_SAME_PICTURES_H

#include "scene.h"

/* Puts contents into the prompts of a scene that has grown. */
void scene_grow_media(scene *s);
void scene_free_media(scene *s); /* nobody else may hold any */
/* Rows are a hash of the content. Of one engine at a time. */
ek_encoder scene_encoder(const scene *s);

#endif
