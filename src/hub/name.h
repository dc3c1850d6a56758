/* Names of models on the Hugging Face Hub: what a user writes, what a repository may be called, which file names are
 * safe, and the addresses and folders made of them. Pure functions.
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
    char revision[EK_HUB_REVISION]; /* a branch, a tag or a commit; "main" where none was written */
    bool has_revision;              /* one was written */
    char file[EK_HUB_FILE];         /* "" where none was written */
} ek_hub_name;

/* EINVAL says which part cannot be. */
ek_err ek_hub_name_parse(ek_hub_name *out, const char *text);
/* As it was written, appended to out. */
void ek_hub_name_text(ek_buf *out, const ek_hub_name *name);

/* ORG/NAME of letters, digits and . _ -, with nothing at its ends, and no "--" or ".." in it, as the Hub has it. */
bool ek_hub_is_repo(const char *s);
/* A relative path that stays where it is put: parts without control characters and backslashes, none of them empty,
 * "." or "..", none longer than 255 bytes. Everything that becomes a path here was checked by this: revisions, and the
 * names of files that a server sends. */
bool ek_hub_is_path(const char *s);
bool ek_hub_is_commit(const char *s); /* 40 hexadecimal digits */
bool ek_hub_is_hash(const char *s);   /* the same, or 64 */

/* "models--org--name" and back. repo holds EK_HUB_REPO bytes; false where the folder is no model's. */
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
    double gigabytes;  /* to fetch, about */
    const char *text;
} ek_hub_short;

extern const ek_hub_short ek_hub_shorts[];
extern const int ek_hub_n_shorts;

/* The row of a name, in any case; NULL where it is none. Names that other programs give the same weights are names too:
 * Ollama's "gemma4:26b-a4b-it-q8_0", a repository without its owner ("gemma-4-E2B-it"), "E4B-it". */
const ek_hub_short *ek_hub_short_find(const char *name);

/* The short name that text is near to (base/near.h); NULL without. */
const ek_hub_short *ek_hub_short_near(const char *text);

/* Whether text is the name of another family of models, as in "llama3.2:1b" or "qwen3"; Gemmas before the fourth too.
 */
bool ek_hub_is_other_family(const char *text);

/* Appends the rest of a sentence about text, which is no model: ", did you mean e2b? …". */
void ek_hub_guess(ek_buf *out, const char *text);

/* A few names for somebody who wrote something else: those that have the text or a part of it in them, or else the
 * sizes' own: "e2b, e4b, 12b, 26b, 31b". Appended to out. */
void ek_hub_short_suggest(ek_buf *out, const char *text);

#endif
