/* Where a model lies: what is opened for a path or a name, without any network. */
#ifndef EK_OPEN_FIND_H
#define EK_OPEN_FIND_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

/* Whether text names a repository of the Hub, ORG/NAME[@REVISION][:FILE], or is a short name (hub/name.h): what exists
 * as a path is one. */
bool ek_model_is_name(const char *text);

/* Appends the path to open for a path or the name of a repository in the Hub's cache, whose place the environment says
 * (hub/client.h). ENOTFOUND names the command that fetches it, and says it of a folder
 * that holds no model. */
ek_err ek_model_find(ek_buf *out, const char *text);

/* Appends the folder of the bundled model, found from the running program's path: models/pocket of the source tree or
 * ../share/evenkeel/models/pocket of an installation. ENOTFOUND names the folders that were tried. */
ek_err ek_bundled_find(ek_buf *out);

#endif
