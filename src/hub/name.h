/* Names of models on the Hugging Face Hub: users' names, valid repositories, safe file names, and the URLs and folders
 * made of them. Pure functions.
 *
 * A model is written ORG/NAME[@REVISION][:FILE], where FILE is a file of the repository or a quantisation ("Q4_K_M");
 * the Hub's address may stand before it. */
#ifndef EK_HUB_NAME_H
#define EK_HUB_NAME_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>

enum { EK_HUB_REPO = 200, EK_HUB_REVISION = 256, EK_HUB_FILE = 1024 };

typedef struct ek_hub_name {
    char repo[EK_HUB_REPO];         /* "google/gemma-4-E2B-it" */
    char revision[EK_HUB_REVISION]; /* a branch, tag or commit; "main" by default */
    bool has_revision;              /* a revision was given */
    char file[EK_HUB_FILE];         /* "" by default */
} ek_hub_name;

/* Parses text. EINVAL names the invalid part. */
ek_err ek_hub_name_parse(ek_hub_name *out, const char *text);
/* Appends the name as it was written. */
void ek_hub_name_text(ek_buf *out, const ek_hub_name *name);

/* Whether s is a relative path that stays within its folder: its parts have no control characters and backslashes, are
 * not empty, "." or "..", and have at most 255 bytes. Everything that becomes a path is checked by it, such as
 * revisions and file names from a server. */
bool ek_hub_is_path(const char *s);
bool ek_hub_is_commit(const char *s); /* 40 hexadecimal digits */
bool ek_hub_is_hash(const char *s);   /* the same, or 64 */

/* Convert a repository to "models--org--name", and back. repo holds EK_HUB_REPO bytes; false if the folder is no
 * model's. */
void ek_hub_folder(ek_buf *out, const char *repo);
bool ek_hub_repo_of(char *repo, const char *folder);

/* ENDPOINT/api/models/REPO/revision/REVISION?blobs=true: the commit, its files, their sizes and hashes. */
void ek_hub_url_list(ek_buf *out, const char *endpoint, const char *repo, const char *revision);
/* ENDPOINT/REPO/resolve/COMMIT/PATH: a file. */
void ek_hub_url_file(ek_buf *out, const char *endpoint, const char *repo, const char *commit, const char *path);

/* Short names of models on the Hub (names.def): "e2b", "26b:q8". */

typedef struct ek_hub_short {
    const char *name;  /* "e2b:q8" */
    const char *model; /* what ek_hub_name_parse takes */
    double gigabytes;  /* approximate download */
    const char *text;
} ek_hub_short;

extern const ek_hub_short ek_hub_shorts[];
extern const int ek_hub_n_shorts;

/* The row of a name, in any case, or NULL. Other programs' names of the same weights count too: Ollama's
 * "gemma4:26b-a4b-it-q8_0", a repository without its owner ("gemma-4-E2B-it"), "E4B-it". */
const ek_hub_short *ek_hub_short_find(const char *name);

/* The short name nearest to text (base/near.h), or NULL. */
const ek_hub_short *ek_hub_short_near(const char *text);

/* Whether text names another family of models, such as "llama3.2:1b", "qwen3", or a Gemma before the fourth. */
bool ek_hub_is_other_family(const char *text);

/* Appends the end of a sentence about text, which is no model: ", did you mean e2b? …". */
void ek_hub_guess(ek_buf *out, const char *text);

/* Appends suggestions for a wrong name: names that contain the text or a part of it, else the sizes: "e2b, e4b, 12b,
 * 26b, 31b". */
void ek_hub_short_suggest(ek_buf *out, const char *text);

#endif
