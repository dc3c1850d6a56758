#include "serve/api/field.h"

#include <string.h>

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
        ek_buf quoted = {0};
        ek_field_quote(&quoted, key, n);
        r->param = NULL;
        ek_err err = ek_fail(EK_EINVAL, "%s: this API has no such member here; ignored, it might change what is asked",
                             ek_buf_text(&quoted));
        ek_buf_fini(&quoted);
        return err;
    }
    return EK_OK;
}
