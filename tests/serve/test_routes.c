/* Paths beside the APIs' own: who answers, in whose form, and what a page may ask of them. */
#include "helper.h"

#include <stdio.h>

static ek_server *server;

static int setup(void **state)
{
    (void)state;
    server = start_tiny(2, 256, (ek_server_opts){.cors_origins = "https://page.org"});
    return 0;
}

static ek_buf ask(const char *method, const char *path, const char *headers, const char *body)
{
    char all[1024];
    snprintf(all, sizeof all, "host: x\r\n%s", headers);
    return ask_server(method, path, all, body);
}

static void check(const char *method, const char *path, const char *headers, int status, const char *says)
{
    char all[1024];
    snprintf(all, sizeof all, "host: x\r\n%s", headers);
    check_server(method, path, all, strcmp(method, "POST") ? "" : "{}", status, says);
}

#define ANTHROPIC "anthropic-version: 2023-06-01\r\n"

static void doors_for_routers(void **state)
{
    (void)state;
    check("GET", "/version", "", 200, "{\"version\":\"" EK_VERSION "\"}");
    check("GET", "/ping", "", 200, "\"status\":\"ok\"");
    check("POST", "/ping", "", 200, "\"status\":\"ok\"");
    check("GET", "/load", "", 200, "{\"server_load\":");
    check("GET", "/v1/models", "", 200, ",\"owned_by\":\"evenkeel\",\"max_model_len\":512,");
    check("GET", "/v1/models", "", 200, ",\"parent\":null,\"root\":\"tiny\",");
    check("GET", "/debug", "", 200,
          "\"held\":{\"pages\":0,\"digest\":\"0000000000000000\",\"late\":0},\"pages\":{\"full\":{\"used\":");
    check("GET", "/debug", "", 200, "\"kv_events\":null}");
    check("GET", "/props", "", 200, "{\"default_generation_settings\":{\"id\":0,\"id_task\":-1,\"n_ctx\":512,");
    check("GET", "/props", "", 200, "\"total_slots\":2,");
    check("GET", "/tokenizer_info", "", 200, "{\"tokenizer_class\":\"GemmaTokenizer\",\"bos_token\":\"<bos>\",");
    check("GET", "/tokenizer_info", "", 200, "\"chat_template\":null,\"added_tokens_decoder\":{\"");
    check("POST", "/tokenizer_info", "", 405, "allow: GET");
    check("GET", "/slots", "", 200, "\r\n\r\n[{\"id\":0,");
    check("DELETE", "/ping", "", 405, "allow: GET, POST");
    ek_buf r = ask("POST", "/tokenize", "", "{\"model\":\"m\",\"prompt\":\"a\",\"add_special_tokens\":true}");
    assert_non_null(strstr(ek_buf_text(&r), "{\"count\":2,\"max_model_len\":512,\"tokens\":[2,"));
    ek_buf_fini(&r);
    r = ask("POST", "/detokenize", "", "{\"model\":\"m\",\"tokens\":[2]}");
    assert_non_null(strstr(ek_buf_text(&r), "{\"prompt\":\"<bos>\""));
    ek_buf_fini(&r);
    /* More prompts than requests that may run: nothing runs. */
    ek_buf body = {0};
    ek_buf_str(&body, "{\"prompt\":[[5]");
    for (int i = 1; i < 64; i++) ek_buf_fmt(&body, ",[%d]", i);
    ek_buf_str(&body, "]}");
    r = ask("POST", "/v1/completions/render", "", body.data);
    assert_non_null(strstr(ek_buf_text(&r), "[{\"token_ids\":[5]},{\"token_ids\":[1]},"));
    ek_buf_fini(&r);
    ek_buf_fini(&body);
}

static void paths_of_other_servers(void **state)
{
    (void)state;
    static const char *const paths[] = {"/v1/embeddings",  "/embeddings", "/embedding",     "/completion",
                                        "/infill",         "/v1/rerank",  "/rerank",        "/v2/rerank",
                                        "/score",          "/api/embed",  "/v1/batches/b1", "/v1/images/x",
                                        "/v1/embeddings/", "/v1/infill",  "/v1/completion", "/v1/embedding"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) check("POST", paths[i], "", 404, "is not supported: ");
    check("POST", "/completion", "", 404, "/v1/completions");
    check("POST", "/completions_", "", 404, "there is nothing at");
    check("GET", "/v1/models/", "", 200, "{\"object\":\"list\"");
    check("GET", "/v1/models/tiny/", "", 200, "\"id\":\"tiny\"");
    check("GET", "/health/", "", 200, "\"status\"");
    check("POST", "/v1/chat/completions/", "", 400, "messages");
    check("GET", "/v1/models//", "", 404, "");
}

static void a_server_of_ollama(void **state)
{
    (void)state;
    static const char *const others[] = {"application/json", "*/*", "text/plain", "application/json, */*;q=0.5"},
                             *const browsers[] = {"text/html,application/xhtml+xml,*/*;q=0.8", "TEXT/HTML", "text/*"};
    char header[100];
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        snprintf(header, sizeof header, "accept: %s\r\n", others[i]);
        check("GET", "/", header, 200, "\r\n\r\nOllama is running");
        check("HEAD", "/", header, 200, "content-type: text/plain");
    }
    for (size_t i = 0; i < sizeof browsers / sizeof *browsers; i++) {
        snprintf(header, sizeof header, "accept: %s\r\n", browsers[i]);
        check("GET", "/", header, 200, "content-type: text/html");
    }
    check("GET", "/", "", 200, "content-type: text/html");
    check("POST", "/", "accept: */*\r\n", 405, "");
}

static void models_in_both_forms(void **state)
{
    (void)state;
    static const char
        theirs[] = "{\"data\":[{\"type\":\"model\",\"id\":\"tiny\",\"display_name\":\"tiny\",\"created_at\":\"20",
        page[] = "\"max_input_tokens\":512,\"max_tokens\":512,\"capabilities\":null,\"line\":null,"
                 "\"lifecycle\":\"active\",\"deprecated_at\":null,\"retires_at\":null,\"context_length\":512}],"
                 "\"first_id\":\"tiny\",\"last_id\":\"tiny\",\"has_more\":false}";
    check("GET", "/v1/models", "", 200,
          "{\"object\":\"list\",\"data\":[{\"id\":\"tiny\",\"object\":\"model\",\"created\":");
    check("GET", "/v1/models", "authorization: Bearer k\r\n", 200, "\"object\":\"list\"");
    static const char *const headers[] = {ANTHROPIC, "x-api-key: k\r\n", "authorization: Bearer k\r\n" ANTHROPIC};
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        check("GET", "/v1/models?limit=5", headers[i], 200, theirs);
        check("GET", "/v1/models", headers[i], 200, page);
        check("GET", "/v1/models", headers[i], 200, "\r\nrequest-id: req_");
        check("GET", "/v1/models/tiny", headers[i], 200, "\r\n\r\n{\"type\":\"model\",\"id\":\"tiny\",");
        check("GET", "/v1/models/no", headers[i], 404, "{\"type\":\"error\",\"error\":{\"type\":\"not_found_error\",");
        check("POST", "/v1/models", headers[i], 405,
              "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",");
    }
    check("GET", "/v1/models/tiny", "", 200, "\r\n\r\n{\"id\":\"tiny\",\"object\":\"model\",");
    check("GET", "/v1/models/no", "", 404, "{\"error\":{\"message\":");
    check("GET", "/v1/complete", ANTHROPIC, 404, "{\"type\":\"error\",");
}

/* What an API has and this server has not: about that path, in that API's form. */
static void what_is_missing(void **state)
{
    (void)state;
    check("POST", "/v1/responses/resp_1/cancel", "", 404, "{\"error\":{\"message\":\"there is no response resp_1 here");
    check("POST", "/v1/responses/resp_1/cancel", ANTHROPIC, 404, "{\"error\":{"); /* the path decides */
    check("GET", "/v1/responses/resp_1/cancel", "", 405, "allow: POST");
    check("GET", "/v1/responses/resp_1/cancel", "", 405, "\"/v1/responses/resp_1/cancel takes POST, not GET\"");
    check("POST", "/v1/responses/resp_1", "", 405, "\"/v1/responses/resp_1 takes GET, DELETE, not POST\"");
    check("DELETE", "/v1/responses/resp_1/input_items", "", 405, "allow: GET");
    check("GET", "/v1/responses/resp_1/input_items", "", 404, "there is no response resp_1 here");
    check("GET", "/v1/responses/input_tokens", "", 405, "\"/v1/responses/input_tokens takes POST, not GET\"");
    static const char *const methods[] = {"GET", "POST", "PUT", "DELETE", "PATCH"},
                             *const paths[] = {"/v1/messages/batches", "/v1/messages/batches/b", "/messages/batches/b",
                                               "/v1/messages/batches/b/cancel", "/v1/messages/batches/b/results"};
    for (size_t i = 0; i < 5; i++)
        for (size_t k = 0; k < 5; k++) {
            ek_buf says = {0};
            ek_buf_fmt(&says,
                       "{\"type\":\"error\",\"error\":{\"type\":\"not_found_error\",\"message\":\"%s is not supported",
                       paths[k]);
            check(methods[i], paths[k], "", 404, says.data);
            check(methods[i], paths[k], "", 404, "\r\nrequest-id: req_");
            ek_buf_fini(&says);
        }
    /* Ollama's paths in its form, whatever the client's headers say. */
    static const char *const theirs[] = {"/api/embed",  "/api/embeddings", "/api/create",        "/api/copy",
                                         "/api/delete", "/api/push",       "/api/blobs/sha256:0"};
    for (size_t i = 0; i < 5; i++)
        for (size_t k = 0; k < sizeof theirs / sizeof *theirs; k++) {
            ek_buf says = {0};
            ek_buf_fmt(&says, "\r\n\r\n{\"error\":\"%s is not supported", theirs[k]);
            check(methods[i], theirs[k], i % 2 ? ANTHROPIC : "", 404, says.data);
            ek_buf_fini(&says);
        }
    check("GET", "/api/nowhere", "", 404, "\r\n\r\n{\"error\":\"there is nothing at /api/nowhere");
    check("GET", "/api/chat/more", "", 404, "\r\n\r\n{\"error\":\"");
    check("GET", "/api/show", "", 405, "{\"error\":\"/api/show takes POST, not GET\"}");
    check("POST", "/api/tags", "", 405, "{\"error\":\"/api/tags takes GET, not POST\"}");
    check("POST", "/props", "", 405, "allow: GET");
    check("POST", "/v1/messages/other", "", 404, "{\"type\":\"error\",\"error\":{\"type\":\"not_found_error\",");
}

static void methods_of_a_path(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"/v1/chat/completions", "POST, OPTIONS"},
        {"/v1/messages", "POST, OPTIONS"},
        {"/v1/responses/input_tokens", "POST, OPTIONS"},
        {"/v1/models", "GET, HEAD, OPTIONS"},
        {"/v1/models/a/b", "GET, HEAD, OPTIONS"},
        {"/v1/responses/resp_1", "GET, DELETE, HEAD, OPTIONS"},
        {"/responses/resp_1", "GET, DELETE, HEAD, OPTIONS"},
        {"/v1/responses/resp_1/input_items", "GET, HEAD, OPTIONS"},
        {"/v1/responses/resp_1/cancel", "POST, OPTIONS"},
        {"/v1/messages/batches/b", "GET, POST, DELETE, HEAD, OPTIONS"},
        {"/health", "GET, HEAD, OPTIONS"},
        {"/api/chat", "POST, OPTIONS"},
        {"/api/tags", "GET, HEAD, OPTIONS"},
        {"/api/delete", "GET, POST, DELETE, HEAD, OPTIONS"},
        {"/nowhere", "GET, POST, DELETE, HEAD, OPTIONS"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[100];
        snprintf(line, sizeof line, "\r\naccess-control-allow-methods: %s\r\n", cases[i][1]);
        check("OPTIONS", cases[i][0], "origin: https://page.org\r\naccess-control-request-method: DELETE\r\n", 204,
              line);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doors_for_routers),  cmocka_unit_test(paths_of_other_servers),
        cmocka_unit_test(a_server_of_ollama), cmocka_unit_test(models_in_both_forms),
        cmocka_unit_test(what_is_missing),    cmocka_unit_test(methods_of_a_path),
    };
    return cmocka_run_group_tests(tests, setup, close_tiny);
}
