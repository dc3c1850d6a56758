/* audio_config: read and checked. What the encoder does not compute is refused by name. */
#include <string.h>

#include "model/config/setting.h"
#include "model/tower/tower_audio_state.h"

static ek_err read_channels(ek_audio_config *c, const ek_settings *f)
{
    static const char key[] = "subsampling_conv_channels";
    const json_t *v = ek_setting(f, key);
    c->channels[0] = 128, c->channels[1] = 32;
    if (!v) return EK_OK;
    if (!json_is_array(v) || json_array_size(v) != 2) return ek_setting_wrong(f, key, v, "a list of two numbers");
    for (size_t i = 0; i < 2; i++) EK_TRY(ek_setting_to_int(&c->channels[i], f, key, json_array_get(v, i), 1, 1 << 14));
    return EK_OK;
}

static ek_err read_attention(ek_audio_config *c, const ek_settings *f)
{
    int chunk, left, right;
    EK_TRY(ek_setting_may_int(&chunk, f, "attention_chunk_size", 12, 1, 1 << 20));
    EK_TRY(ek_setting_may_int(&left, f, "attention_context_left", 13, 1, 1 << 20));
    EK_TRY(ek_setting_may_int(&right, f, "attention_context_right", 0, 0, 1 << 20));
    if (right)
        return ek_fail(EK_EUNSUPPORTED, "%s: %sattention_context_right is %d, 0 can be run", f->file, f->in, right);
    if (chunk != left - 1)
        return ek_fail(EK_EUNSUPPORTED,
                       "%s: %sattention_chunk_size is %d and attention_context_left %d, the first must be one less",
                       f->file, f->in, chunk, left);
    if (chunk > EK_NEAR_MAX_SPAN)
        return ek_fail(EK_EUNSUPPORTED, "%s: %sattention_chunk_size is %d, at most %d can be run", f->file, f->in,
                       chunk, EK_NEAR_MAX_SPAN);
    c->span = chunk;
    return ek_setting_may_float(&c->cap, f, "attention_logit_cap", 50, 1e-3, 1e6);
}

ek_err ek_audio_config_check(const ek_audio_config *c, const char *file)
{
    if (c->hidden % c->n_heads)
        return ek_fail(EK_EFORMAT, "%s: audio_config.hidden_size is %d, which %d heads cannot share evenly", file,
                       c->hidden, c->n_heads);
    if (c->hidden % 2) return ek_fail(EK_EFORMAT, "%s: audio_config.hidden_size is %d, must be even", file, c->hidden);
    if (c->channels[0] != c->bins)
        return ek_fail(
            EK_EUNSUPPORTED,
            "%s: audio_config.subsampling_conv_channels begins with %d, %d can be run: the number of log-mel "
            "bins, by which transformers sizes the projection behind them",
            file, c->channels[0], c->bins);
    if ((int64_t)c->bins / 4 * c->channels[1] > EK_MAX_WIDTH)
        return ek_fail(EK_EFORMAT, "%s: audio_config.subsampling_conv_channels %d and %d give more than %d values",
                       file, c->channels[0], c->channels[1], EK_MAX_WIDTH);
    return EK_OK;
}

ek_err ek_audio_config_read(ek_audio_config *c, const ek_tower_source *from, const json_t *in, int text)
{
    const ek_settings f = {.file = from->file, .in = "audio_config.", .object = in};
    const char *act;
    *c = (ek_audio_config){.bins = EK_MEL_BINS, .text = text};
    EK_TRY(ek_setting_may_int(&c->hidden, &f, "hidden_size", 1024, 2, EK_MAX_WIDTH / 4));
    EK_TRY(ek_setting_may_int(&c->n_layers, &f, "num_hidden_layers", 12, 1, EK_AUDIO_MAX_LAYERS));
    EK_TRY(ek_setting_may_int(&c->n_heads, &f, "num_attention_heads", 8, 1, 4096));
    EK_TRY(ek_setting_may_int(&c->taps, &f, "conv_kernel_size", 5, 1, EK_AUDIO_MAX_TAPS));
    EK_TRY(ek_setting_may_int(&c->output, &f, "output_proj_dims", 1536, 1, EK_MAX_WIDTH));
    EK_TRY(ek_setting_may_float(&c->residual, &f, "residual_weight", 0.5, -1e6, 1e6));
    EK_TRY(ek_setting_may_float(&c->limit, &f, "gradient_clipping", 1e10, 1e-6, 3e38));
    EK_TRY(ek_setting_may_float(&c->eps, &f, "rms_norm_eps", 1e-6, 1e-12, 1));
    EK_TRY(ek_setting_may_bool(&c->clips, &f, "use_clipped_linears", true));
    EK_TRY(ek_setting_may_text(&act, &f, "hidden_act"));
    if (act && strcmp(act, "silu") != 0)
        return ek_fail(EK_EUNSUPPORTED, "%s: %shidden_act is %.60s, silu can be run", f.file, f.in, act);
    EK_TRY(read_attention(c, &f));
    EK_TRY(read_channels(c, &f));
    return ek_audio_config_check(c, f.file);
}
