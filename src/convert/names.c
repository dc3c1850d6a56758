/* Sources: transformers, modeling_gemma4.py; mlx-lm, gemma4_text.py. GGUF: model/source/gguf_names.h. */
#include "convert/layout.h"

#include "model/source/gguf_names.h"
#include "model/source/source.h"

#include <stdio.h>
#include <string.h>

/* An item's name without the suffix for its part of a tensor: ".tail", or an expert's number. */
static void base_name(char *out, size_t room, const ek_item *it)
{
    snprintf(out, room, "%s", it->name);
    char *dot = strrchr(out, '.');
    if (dot && (strcmp(dot, ".tail") == 0 || (dot[1] >= '0' && dot[1] <= '9'))) *dot = 0;
}

/* mlx-lm splits the experts' projections and names them one level deeper. */
static void mlx_expert(char *out, size_t room, const char *name, const ek_item *it)
{
    static const char *const proj[] = {"gate_proj", "up_proj", "down_proj"};
    int n = (int)(strrchr(name, '.') - name);
    snprintf(out, room, "%.*s.switch_glu.%s", n, name, proj[it->role - EK_ROLE_EXPERT_GATE]);
}

ek_err ek_name_of(char *out, size_t room, ek_convert_form form, bool nested, const ek_item *it)
{
    char name[144], inner[160];
    base_name(name, sizeof name, it);
    if (form == EK_FORM_GGUF)
        return ek_gguf_weight_name(name, out, room) ? EK_OK : ek_fail(EK_EUNSUPPORTED, "%s has no name in GGUF", name);
    bool expert = it->matrix && it->role >= EK_ROLE_EXPERT_GATE && it->role <= EK_ROLE_EXPERT_DOWN;
    if (form == EK_FORM_MLX && expert) mlx_expert(inner, sizeof inner, name, it);
    else snprintf(inner, sizeof inner, "%s", name);
    if (strcmp(name, "lm_head") == 0) { /* the head stands beside the model; mlx-lm has it in its language_model */
        snprintf(out, room, "%s%s", nested && form == EK_FORM_MLX ? "language_model." : "", name);
        return EK_OK;
    }
    if (ek_source_stands_beside(name)) {
        snprintf(out, room, "%s", name);
        return EK_OK;
    }
    const char *prefix = !nested ? "model." : form == EK_FORM_MLX ? "language_model.model." : "model.language_model.";
    snprintf(out, room, "%s%s", prefix, inner);
    return EK_OK;
}
