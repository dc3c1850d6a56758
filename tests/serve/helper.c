#include "helper.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"

static const char config_json[] =
    "{\"model_type\":\"gemma4_text\",\"vocab_size\":4096,\"hidden_size\":64,\"intermediate_size\":128,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":32,\"global_head_dim\":64,\"num_global_key_value_heads\":1,"
    "\"hidden_activation\":\"gelu_pytorch_tanh\",\"max_position_embeddings\":512,\"rms_norm_eps\":1e-6,\"pad_token_id\":0,"
    "\"eos_token_id\":1,\"bos_token_id\":2,\"tie_word_embeddings\":true,\"sliding_window\":64,"
    "\"layer_types\":[\"sliding_attention\",\"full_attention\"],\"rope_parameters\":{\"sliding_attention\":{\"rope_type\":\"default\","
    "\"rope_theta\":10000.0},\"full_attention\":{\"rope_type\":\"proportional\",\"partial_rotary_factor\":0.25,\"rope_theta\":1000000.0}},"
    "\"final_logit_softcapping\":30.0,\"hidden_size_per_layer_input\":0,\"attention_k_eq_v\":false,\"num_kv_shared_layers\":0,"
    "\"enable_moe_block\":false,\"use_double_wide_mlp\":false}";

ek_model *tiny_model(void)
{
    static ek_config config;
    ek_model *model;
    ek_model_opts mo = {.k_format = EK_KV_BF16, .v_format = EK_KV_BF16};
    assert_int_equal(ek_config_parse(&config, config_json, NULL), EK_OK);
    assert_int_equal(ek_model_synthetic(&model, &config, 0, 1, &mo), EK_OK);
    return model;
}

static ek_server *server;
static ek_chat_model chat; /* the server's */
static pthread_t thread;

static void *serve(void *arg)
{
    (void)arg;
    return (void *)(uintptr_t)ek_server_run(server);
}

ek_server *start_server(ek_engine *engine, const ek_server_opts *opts)
{
    ek_server_opts o = *opts;
    o.http = (ek_http_opts){.host = "127.0.0.1",
                            .max_connections = 16,
                            .max_body = opts->http.max_body,
                            .max_unsent = 1 << 20,
                            .body_timeout = 10,
                            .idle_timeout = 10};
    assert_int_equal(ek_chat_model_open(&chat, o.model_dir), EK_OK);
    o.chat = &chat;
    assert_int_equal(ek_server_open(&server, engine, &o), EK_OK);
    assert_int_equal(pthread_create(&thread, NULL, serve, NULL), 0);
    return server;
}

ek_err await_server(void)
{
    void *err;
    pthread_join(thread, &err);
    ek_server_close(server);
    ek_chat_model_close(&chat);
    return (ek_err)(uintptr_t)err;
}

double stop_server(void)
{
    void *err;
    kill(getpid(), SIGTERM);
    pthread_join(thread, &err);
    assert_null(err);
    double turn = ek_server_max_turn(server);
    ek_server_close(server);
    ek_chat_model_close(&chat);
    return turn;
}

int connect_to(int port)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

void send_all(int fd, const char *bytes, size_t n)
{
    for (ssize_t sent; n > 0; bytes += sent, n -= (size_t)sent) {
        sent = send(fd, bytes, n, MSG_NOSIGNAL);
        assert_true(sent > 0);
    }
}

int post_to(int port, const char *path, const char *body)
{
    int fd = connect_to(port);
    ek_buf b = {0};
    ek_buf_fmt(&b, "POST %s HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %zu\r\n\r\n%s", path,
               strlen(body), body);
    send_all(fd, b.data, b.len);
    ek_buf_fini(&b);
    return fd;
}

ek_buf reply_of(int fd)
{
    ek_buf b = {0};
    char part[4096];
    for (ssize_t n; (n = read(fd, part, sizeof part)) > 0;) ek_buf_add(&b, part, (size_t)n);
    close(fd);
    return b;
}

ek_buf ask_server(const char *method, const char *path, const char *headers, const char *body)
{
    int fd = connect_to(ek_server_port(server));
    ek_buf b = {0};
    ek_buf_fmt(&b, "%s %s HTTP/1.1\r\nconnection: close\r\n%scontent-length: %zu\r\n\r\n%s", method, path, headers,
               strlen(body), body);
    send_all(fd, b.data, b.len);
    ek_buf_fini(&b);
    return reply_of(fd);
}

void check_server(const char *method, const char *path, const char *headers, const char *body, int status,
                  const char *says)
{
    ek_buf r = ask_server(method, path, headers, body);
    char line[20];
    snprintf(line, sizeof line, "HTTP/1.1 %d ", status);
    if (strncmp(ek_buf_text(&r), line, strlen(line)) != 0 || !strstr(r.data, says))
        fail_msg("%s %s %s: not %d with %s: %.800s", method, path, headers, status, says, ek_buf_text(&r));
    ek_buf_fini(&r);
}

/* --- a server that is nothing special --- */

static ek_model *tiny;
static ek_engine *tiny_engine;

void open_tiny_engine(ek_model **model, ek_engine **engine, int max_requests, int max_queue)
{
    ek_engine_opts eo = ek_engine_defaults();
    ek_log_set(EK_LOG_ERROR);
    *model = tiny_model();
    eo.max_requests = max_requests;
    eo.max_queue = max_queue;
    assert_int_equal(ek_engine_open(engine, *model, &eo), EK_OK);
}

ek_server *start_tiny(int max_requests, int max_queue, ek_server_opts opts)
{
    ek_log_set(EK_LOG_ERROR);
    open_tiny_engine(&tiny, &tiny_engine, max_requests, max_queue);
    opts.http.max_body = 1 << 20;
    opts.model = tiny;
    opts.model_dir = "models/pocket";
    opts.model_name = "tiny";
    return start_server(tiny_engine, &opts);
}

void stop_tiny(void)
{
    stop_server();
    ek_engine_close(tiny_engine);
    ek_model_close(tiny);
}

int close_tiny(void **state)
{
    (void)state;
    stop_tiny();
    return 0;
}
