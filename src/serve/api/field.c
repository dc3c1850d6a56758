#include "serve/api/field.h"
#include "serve/api/media.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/hash.h"
#include "base/hash/rng.h"
#include "media/picture.h"
#include "text/json/json.h"
#include "text/utf8.h"

/* Reads the form in which PDFs are taken, before the first PDF is read. */
static ek_err read_pdf(ek_api_request *r, ek_api_limits *limits, const json_t *body)
{
    const json_t *ours = ek_field(body, "evenkeel");
    if (!json_is_object(ours) || !ek_part_pdf(limits, ours)) return EK_OK;
    r->param = "evenkeel.pdf";
    return ek_fail_in(EK_EINVAL, "evenkeel");
}

ek_err ek_field_body(ek_api_request *r, const char *text, size_t n, const ek_api_limits *limits,
                     ek_body_reader_fn *read)
{
    json_t *body;
    if (ek_json_read_lenient(&body, text, n, 0)) return ek_fail_in(EK_EPARSE, "the body cannot be read");
    ek_api_limits own = *limits;
    ek_err err = json_is_object(body) ? EK_OK : ek_fail(EK_EINVAL, "the body must be a JSON object");
    if (!err) err = read_pdf(r, &own, body);
    if (!err) err = read(r, body, &own);
    json_decref(body);
    return err;
}

ek_err ek_field_json(json_t **out, const char *text, size_t n, const ek_api_limits *limits)
{
    ek_json_size size;
    *out = NULL;
    ek_json_scan(&size, text, n);
    if (limits->count) EK_TRY(limits->count(limits->count_arg, &size, n, 0));
    return ek_json_read_lenient(out, text, n, 0) ? EK_EINVAL : EK_OK;
}

ek_err ek_field_model(ek_api_request *r, const json_t *body)
{
    const json_t *model = ek_field(body, "model");
    if (model && !ek_json_is_text(model)) return ek_field_wrong(r, "model", "a text is needed");
    if (model) r->model = ek_strdup(json_string_value(model));
    return EK_OK;
}

/* Reads the budget of pictures that have no `detail` of their own. */
static ek_err read_image_tokens(ek_api_request *r, const json_t *v, const char *param)
{
    int64_t n = json_is_integer(v) ? json_integer_value(v) : 0;
    if (!v) return EK_OK;
    if (n < 0 || n > INT_MAX || !ek_budget_known((int)n))
        return ek_field_kind(r, param, "70, 140, 280, 560 or 1120 is needed", v);
    r->prompt.image_tokens = (int)n;
    return EK_OK;
}

/* The same option by vLLM's name; no other option of a processor is supported. */
static ek_err read_processor(ek_api_request *r, const json_t *v)
{
    const char *key;
    json_t *one;
    if (!v) return EK_OK;
    if (!json_is_object(v)) return ek_field_wrong(r, "mm_processor_kwargs", "an object is needed");
    json_object_foreach((json_t *)(uintptr_t)v, key, one) if (strcmp(key, "max_soft_tokens") != 0 && !json_is_null(one))
    {
        char quoted[EK_QUOTED];
        r->param = "mm_processor_kwargs";
        return ek_fail(EK_EINVAL, "mm_processor_kwargs: max_soft_tokens can be set, not %s",
                       ek_field_quote(quoted, key, strlen(key)));
    }
    return read_image_tokens(r, ek_field(v, "max_soft_tokens"), "mm_processor_kwargs.max_soft_tokens");
}

/* Reads the treatment of transparent pixels. */
static ek_err read_image_alpha(ek_api_request *r, const json_t *ours)
{
    const json_t *v = ek_field(ours, "image_alpha");
    const char *word = ek_json_is_text(v) ? json_string_value(v) : "";
    if (!v) return EK_OK;
    if (strcmp(word, "drop") != 0 && strcmp(word, "white") != 0)
        return ek_field_kind(r, "evenkeel.image_alpha", "\"drop\" or \"white\" is needed", v);
    r->prompt.alpha = *word == 'w' ? EK_ALPHA_WHITE : EK_ALPHA_DROP;
    return EK_OK;
}

/* do_remote_prefill needs no action: it says where the pages are, and they are always looked for there. */
static ek_err read_transfer(ek_api_request *r, const json_t *body)
{
    const json_t *transfer = ek_field(body, "kv_transfer_params");
    bool prefilled = false;
    EK_TRY(ek_field_number(r, body, "cache_hit_threshold", 0, 1, &r->turn.min_cached));
    if (transfer && !json_is_object(transfer)) return ek_field_wrong(r, "kv_transfer_params", "an object is needed");
    r->says_share = ek_field(body, "cache_hit_threshold") != NULL;
    r->says_work = ek_field(transfer, "do_remote_prefill") || ek_field(transfer, "do_remote_decode");
    EK_TRY(ek_field_bool(r, transfer, "do_remote_prefill", &prefilled));
    EK_TRY(ek_field_bool(r, transfer, "do_remote_decode", &r->turn.publish));
    if (prefilled && r->turn.publish)
        return ek_field_wrong(r, "kv_transfer_params", "do_remote_prefill or do_remote_decode, not both");
    return EK_OK;
}

/* Routers receive the name of a page's salt (--kv-events); a name that is too long is replaced by its hash. */
static void take_salt(ek_api_request *r, const char *salt, size_t n)
{
    enum { MAX_TOLD = 1024 };
    char hash[65];
    r->turn.cache_salt = ek_hash64(1, salt, n);
    ek_buf_clear(&r->salt_text);
    if (n <= MAX_TOLD) {
        ek_buf_add(&r->salt_text, salt, n);
    } else {
        ek_sha256_hex(hash, salt, n);
        ek_buf_fmt(&r->salt_text, "sha256:%s", hash);
    }
    r->turn.cache_salt_text = ek_buf_text(&r->salt_text);
    r->turn.cache_salt_len = r->salt_text.len;
}

static ek_err read_receipt(ek_api_request *r, const json_t *v, const ek_api_limits *limits)
{
    if (!v || json_is_false(v)) return EK_OK;
    if (!json_is_true(v) && !json_is_object(v))
        return ek_field_kind(r, "evenkeel.receipt", "true, false or {\"nonce\": TEXT} is needed", v);
    if (!limits->receipts)
        return ek_field_wrong(r, "evenkeel.receipt",
                              limits->batch ? "the results of a batch have no time, and so no receipts"
                                            : "this server signs none (--receipts)");
    const json_t *nonce = ek_field(v, "nonce");
    if (nonce && (!ek_json_is_text(nonce) || !ek_nonce_fits(json_string_value(nonce), json_string_length(nonce))))
        return ek_field_wrong(r, "evenkeel.receipt.nonce", "1 to 64 printable ASCII characters are needed");
    if (nonce) memcpy(r->nonce, json_string_value(nonce), json_string_length(nonce));
    r->turn.receipt = true;
    return EK_OK;
}

ek_err ek_field_ours(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    const json_t *ours = ek_field(body, "evenkeel"), *salt = ek_field(body, "cache_salt");
    if (salt && !ek_json_is_text(salt)) return ek_field_wrong(r, "cache_salt", "a text is needed");
    if (salt) take_salt(r, json_string_value(salt), json_string_length(salt));
    if (ours && !json_is_object(ours)) return ek_field_wrong(r, "evenkeel", "an object is needed");
    EK_TRY(ek_field_bool(r, ours, "digest", &r->turn.digest));
    EK_TRY(read_receipt(r, ek_field(ours, "receipt"), limits));
    bool cache = true;
    EK_TRY(ek_field_bool(r, ours, "cache", &cache));
    r->no_stored = !cache;
    EK_TRY(read_transfer(r, body));
    const json_t *resume = ek_field(ours, "resume");
    r->resume.on = r->resume.wished = limits->resume && !resume;
    ek_err err = ek_resume_read(&r->resume, resume, limits->n_vocab, limits->ctx_tokens);
    if (err) {
        r->param = "evenkeel.resume";
        return err;
    }
    EK_TRY(read_processor(r, ek_field(body, "mm_processor_kwargs")));
    EK_TRY(read_image_tokens(r, ek_field(ours, "image_tokens"), "evenkeel.image_tokens"));
    return read_image_alpha(r, ours);
}

const json_t *ek_field(const json_t *object, const char *key)
{
    const json_t *v = ek_json_get(object, key);
    return json_is_null(v) ? NULL : v;
}

ek_err ek_field_thinking(ek_api_request *r, const json_t *object, const char *key, const char *param)
{
    int64_t v = 0;
    bool found = false;
    ek_err err = ek_field_int(r, object, key, 1, INT64_MAX, &v, &found);
    if (err) r->param = param;
    if (!err && found) r->turn.max_thinking = v < INT_MAX ? (int)v : INT_MAX;
    return err;
}

ek_err ek_field_wrong(ek_api_request *r, const char *param, const char *need)
{
    r->param = param;
    return ek_fail(EK_EINVAL, "%s: %s", param, need);
}

static void quote(ek_buf *out, const char *s, size_t n)
{
    enum { MAX = 80 };
    ek_buf_char(out, '"');
    for (size_t i = 0, chars = 0; i < n; chars++) {
        uint32_t cp;
        int len = ek_utf8_next(s + i, n - i, &cp);
        if (chars == MAX) {
            ek_buf_str(out, "…");
            break;
        }
        if (cp > ' ' && !ek_utf8_is_printable(cp)) ek_buf_fmt(out, cp > 0xffff ? "\\u{%x}" : "\\u%04x", (unsigned)cp);
        else if (len < 0) ek_buf_str(out, EK_UTF8_BAD);
        else ek_json_escape(out, s + i, (size_t)len);
        i += (size_t)(len < 0 ? -len : len);
    }
    ek_buf_char(out, '"');
}

static const char *copy(char out[EK_QUOTED], ek_buf *text)
{
    snprintf(out, EK_QUOTED, "%s", ek_buf_text(text));
    ek_buf_fini(text);
    return out;
}

const char *ek_field_quote(char out[EK_QUOTED], const char *s, size_t n)
{
    ek_buf b = {0};
    quote(&b, s, n);
    return copy(out, &b);
}

const char *ek_field_not(char out[EK_QUOTED], const json_t *v)
{
    ek_buf b = {0}, number = {0};
    if (v) ek_buf_str(&b, ", not ");
    if (ek_json_is_text(v)) {
        quote(&b, json_string_value(v), json_string_length(v));
    } else if (json_is_object(v) || json_is_array(v)) {
        ek_buf_str(&b, json_is_object(v) ? "an object" : "a list");
    } else if (v) {
        ek_json_write(&number, v);
        ek_buf_fmt(&b, "%.80s", ek_buf_text(&number));
    }
    ek_buf_fini(&number);
    return copy(out, &b);
}

ek_err ek_field_wrong_role(const json_t *message, const char *roles)
{
    char says[EK_QUOTED];
    return ek_fail(EK_EINVAL, "role must be one of %s%s", roles, ek_field_not(says, ek_json_get(message, "role")));
}

ek_err ek_field_kind(ek_api_request *r, const char *param, const char *need, const json_t *v)
{
    char says[EK_QUOTED];
    r->param = param;
    return ek_fail(EK_EINVAL, "%s: %s%s", param, need, ek_field_not(says, v));
}

ek_err ek_field_wrong_text(ek_api_request *r, const char *param, const char *before, const char *text,
                           const char *after)
{
    char quoted[EK_QUOTED];
    r->param = param;
    return ek_fail(EK_EINVAL, "%s: %s %s%s%s", param, before, ek_field_quote(quoted, text, strlen(text)),
                   *after ? " " : "", after);
}

ek_err ek_field_bool(ek_api_request *r, const json_t *object, const char *key, bool *out)
{
    const json_t *v = ek_field(object, key);
    if (!v) return EK_OK;
    if (!json_is_boolean(v)) return ek_field_kind(r, key, "true or false is needed", v);
    *out = json_is_true(v);
    return EK_OK;
}

ek_err ek_field_number(ek_api_request *r, const json_t *object, const char *key, double min, double max, float *out)
{
    const json_t *v = ek_field(object, key);
    if (!v) return EK_OK;
    double x = json_is_number(v) ? json_number_value(v) : NAN;
    if (!(x >= min && x <= max)) {
        char need[80];
        snprintf(need, sizeof need, "a number from %g to %g is needed", min, max);
        return ek_field_kind(r, key, need, v);
    }
    *out = (float)x;
    return EK_OK;
}

ek_err ek_field_int(ek_api_request *r, const json_t *object, const char *key, int64_t min, int64_t max, int64_t *out,
                    bool *found)
{
    const json_t *v = ek_field(object, key);
    *found = v != NULL;
    if (!v) return EK_OK;
    bool ok = json_is_integer(v);
    int64_t x = ok ? json_integer_value(v) : 0;
    if (json_is_real(v)) {
        double d = json_real_value(v);
        ok = d >= -9e15 && d <= 9e15 && d == floor(d);
        x = ok ? (int64_t)d : 0;
    }
    if (!ok || x < min || x > max) {
        char need[96];
        snprintf(need, sizeof need, "a whole number from %lld to %lld is needed", (long long)min, (long long)max);
        return ek_field_kind(r, key, need, v);
    }
    *out = x;
    return EK_OK;
}

/* --- known members --- */

/* Names of members from the documentation and clients of each API. Members that are not read change nothing here.
 * Members that would change a reply are refused, with a sentence, by the API's reader. */
enum {
    OPENAI = EK_MEMBERS_CHAT | EK_MEMBERS_COMPLETIONS | EK_MEMBERS_RESPONSES,
    OLLAMA = EK_MEMBERS_OLLAMA_CHAT | EK_MEMBERS_OLLAMA_GENERATE,
    ALL = OPENAI | OLLAMA | EK_MEMBERS_ANTHROPIC
};

static const struct {
    int apis;
    const char *names; /* each between blanks */
} known[] = {
    /* chat completions */
    {EK_MEMBERS_CHAT, " messages modalities audio functions function_call prediction web_search_options "},
    /* completions */
    {EK_MEMBERS_COMPLETIONS, " prompt suffix "},
    /* responses */
    {EK_MEMBERS_RESPONSES, " input instructions previous_response_id max_output_tokens max_tool_calls include text "
                           "truncation background conversation prompt context_management access_programs image top_k "},
    /* Anthropic's messages */
    {EK_MEMBERS_ANTHROPIC,
     " messages system stop_sequences thinking mcp_servers container context_management "
     "output_config output_format diagnostics fallbacks fallback_credit_token inference_geo speed "
     "user_profile_id workspace_id billing_policy betas anthropic_version anthropic_beta thread "
     "compaction effort chat_template_kwargs "},
    {EK_MEMBERS_CONVERSATIONS, " items metadata "},
    /* tokenize and detokenize: vLLM's and llama.cpp's */
    {EK_MEMBERS_TOKENIZE, " prompt content tokens add_special add_special_tokens parse_special with_pieces "
                          "return_token_strs return_tokens skip_special_tokens "},
    /* Ollama's */
    {OLLAMA,
     " messages prompt name options keep_alive format think truncate shift _debug_render_only parallel_tool_calls "
     "response_format max_completion_tokens "},
    /* its generate */
    {EK_MEMBERS_OLLAMA_GENERATE, " suffix system template context raw images width height steps "},
    /* every API: members that all of them read, sampling fields of other APIs, and labels */
    {ALL, " model stream temperature top_p top_k min_p seed presence_penalty frequency_penalty "
          "repetition_penalty logit_bias cache_salt cache_hit_threshold kv_transfer_params evenkeel "
          "mm_processor_kwargs metadata user session_id request_id priority tools tool_choice logprobs "
          "top_logprobs extra_headers extra_query extra_body timeout service_tier safety_identifier "
          "prompt_cache_key cache_control stop max_tokens n "},
    /* OpenAI's APIs: their own */
    {OPENAI, " stream_options parallel_tool_calls prompt_cache_retention prompt_cache_options moderation image "
             "store response_format max_completion_tokens verbosity reasoning reasoning_effort "
             "include_reasoning "},
    /* forms of the reply under vLLM's, SGLang's and llama.cpp's names */
    {OPENAI, " guided_json guided_json_object guided_choice guided_regex guided_grammar guided_decoding_backend "
             "guided_whitespace_pattern structured_outputs structural_tag json_schema grammar grammar_lazy "
             "grammar_triggers regex ebnf "},
    /* vLLM and SGLang */
    {OPENAI, " ignore_eos min_tokens length_penalty use_beam_search early_stopping stop_token_ids bad_words "
             "allowed_token_ids include_stop_str_in_output skip_special_tokens spaces_between_special_tokens "
             "truncate_prompt_tokens truncation_side prompt_logprobs add_special_tokens "
             "add_generation_prompt continue_final_message chat_template chat_template_kwargs documents echo "
             "best_of return_tokens_as_token_ids return_token_ids return_hidden_states return_prompt_text "
             "logits_processors logits_processor_args detokenize vllm_xargs media_io_kwargs rid "
             "separate_reasoning stream_reasoning no_stop_trim lora_path session_params "
             "custom_logit_processor custom_params bootstrap_host bootstrap_port bootstrap_room "
             "data_parallel_rank routing_key thinking_token_budget enable_response_messages "
             "previous_input_messages thinking_budget repetition_detection "},
    /* llama.cpp, KoboldCpp and text-generation-webui; SillyTavern sends all of them */
    {OPENAI, " cache_prompt n_predict id_slot n_keep n_discard n_indent n_probs min_keep t_max_predict_ms "
             "timings_per_token return_progress return_tokens post_sampling_probs response_fields samplers "
             "sampler_seq mirostat mirostat_tau mirostat_eta mirostat_mode tfs tfs_z typical typical_p "
             "dynatemp_range dynatemp_exponent dynamic_temperature dynatemp_low dynatemp_high xtc_threshold "
             "xtc_probability dry_multiplier dry_base dry_allowed_length dry_penalty_last_n "
             "dry_sequence_breakers top_a top_n_sigma nsigma epsilon_cutoff eta_cutoff smoothing_factor "
             "smoothing_curve rep_pen rep_pen_range rep_pen_slope repeat_penalty repeat_last_n "
             "repetition_penalty_range penalty_alpha guidance_scale negative_prompt penalize_nl do_sample "
             "add_bos_token ban_eos_token custom_token_bans banned_strings banned_tokens sampler_order "
             "sampler_priority temperature_last max_new_tokens max_length max_context_length num_beams "
             "no_repeat_ngram_size encoder_repetition_penalty min_length adaptive_target adaptive_decay "
             "speculative.n_max speculative.n_min speculative.p_min reasoning_format reasoning_in_content "
             "reasoning_budget reasoning_budget_tokens reasoning_budget_message thinking_forced_open "
             "parse_tool_calls lora auto_max_new_tokens mode instruction_template character legacy_api "
             "trim_stop using_openai_api quiet genkey memory "},
    /* routers and hosts of models */
    {OPENAI, " provider models route transforms plugins usage trace debug fallbacks tags api_key base_url "
             "custom_llm_provider drop_params num_retries caching litellm_metadata enable_thinking "
             "enable_search search_options incremental_output vl_high_resolution_images thinking tool_stream "
             "do_thinking random_seed safe_prompt prompt_mode ttl draft_model citation_options "
             "compound_custom search_parameters search_settings deferred data_sources google intent "
             "intent_threshold intent_content options keep_alive num_ctx think client_metadata "
             "conversation_id user_id chat_id "},
};

static bool is_known(const char *name, size_t n, ek_member_apis api)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!(known[i].apis & (int)api)) continue;
        for (const char *p = known[i].names; (p = strchr(p, ' ')) && *++p;)
            if (!strncmp(p, name, n) && p[n] == ' ') return true;
    }
    return false;
}

ek_err ek_members_check(ek_api_request *r, const json_t *body, ek_member_apis api)
{
    const char *key;
    size_t n;
    json_t *v;
    json_object_keylen_foreach((json_t *)(uintptr_t)body, key, n, v)
    {
        bool label = n > 2 && key[0] == 'x' && (key[1] == '-' || key[1] == '_'); /* a client's own */
        if (json_is_null(v) || label || (strlen(key) == n && !strchr(key, ' ') && is_known(key, n, api))) continue;
        char quoted[EK_QUOTED];
        r->param = NULL;
        return ek_fail(EK_EINVAL, "%s: this API has no such member here; ignored, it might change what is asked",
                       ek_field_quote(quoted, key, n));
    }
    return EK_OK;
}
