/* receipts: keys, and the contents of a receipt. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/frame/cli.h"
#include "cli/frame/terminal.h"
#include "receipts/log.h"

static ek_err make_key(const char *path)
{
    ek_public_key k;
    EK_TRY(ek_signing_key_make(path, &k));
    ek_cli_put(stdout, path);
    printf(" signs (mode 0600: keep it); ");
    ek_cli_put(stdout, path);
    printf(".pub checks: give it to everybody\nkey %s\n", k.id);
    return EK_OK;
}

static ek_err show(const char *path)
{
    ek_buf text = {0}, out = {0};
    int n = 0;
    json_t *file = NULL;
    ek_err err = strcmp(path, "-") ? ek_file_read(&text, path, EK_RECEIPT_BYTES)
                                   : ek_fd_read(&text, STDIN_FILENO, EK_RECEIPT_BYTES);
    if (!err && (err = ek_receipts_parse(&file, &n, ek_buf_text(&text), text.len)) != EK_OK)
        ek_fail_in(err, "%s", path);
    for (int i = 0; !err && i < n; i++) {
        ek_receipt r;
        err = ek_receipt_of_file(&r, file, i);
        if (i > 0) ek_buf_char(&out, '\n');
        if (!err) ek_receipt_show(&out, &r);
        ek_receipt_fini(&r);
        if (err) ek_fail_in(err, "%s", path);
    }
    for (char *line = out.data, *end; !err && line && *line; line = end + 1) { /* texts of strangers: one line each */
        end = strchr(line, '\n');
        *end = '\0';
        ek_cli_put(stdout, line);
        putchar('\n');
    }
    json_decref(file);
    ek_buf_fini(&text), ek_buf_fini(&out);
    return err;
}

/* Each line has to follow from the line before, and each root has to be the root of its entries. */
static ek_err check_log(const char *path)
{
    ek_receipt_log *l;
    size_t size;
    char text[65];
    EK_TRY(ek_receipt_log_open(&l, path, "", true));
    const ek_hash root = ek_receipt_log_root(l, &size);
    ek_hash_text(text, &root);
    printf("%s: %zu entries, root %s\n", ek_receipt_log_origin(l), size, text);
    ek_receipt_log_close(l);
    return EK_OK;
}

int ek_cmd_receipts(const ek_cli *cli)
{
    ek_err err;
    if (!strcmp(cli->arg_before, "key")) err = make_key(cli->arg);
    else if (!strcmp(cli->arg_before, "show")) err = show(cli->arg);
    else if (!strcmp(cli->arg_before, "log")) err = check_log(cli->arg);
    else return ek_cli_wrong(cli, "%s: key FILE, show FILE or log FILE is needed", cli->arg_before);
    return err ? ek_cli_failed(cli) : 0;
}
