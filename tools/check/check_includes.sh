#!/usr/bin/env bash
# The include rule: a file of src/ may include its own layer and those to its left (docs/ARCHITECTURE.md).
set -u
cd "$(dirname "$0")/../.." || exit
grep -rnE '^#include "' src --include='*.c' --include='*.h' | awk -F: '
BEGIN {
    allow["base"]   = " base "
    allow["text"]   = " base text "
    allow["hub"]    = " base hub "
    allow["tensor"] = " base tensor "
    allow["ops"]    = allow["tensor"] "ops "
    allow["cuda"]   = allow["ops"] "cuda "
    allow["lib"]    = allow["ops"] "lib "
    allow["model"]  = allow["ops"] "model "
    allow["convert"] = allow["model"] "text convert "
    allow["cache"]  = allow["ops"] "cache "
    allow["engine"] = allow["model"] "cache engine "
    allow["gpu"]    = allow["engine"] "cuda gpu "
    allow["chat"]   = allow["engine"] "text chat "
    allow["open"]   = allow["chat"] "cuda gpu hub open "
    allow["serve"]  = allow["chat"] "open serve "
    allow["cli"]    = allow["serve"] "convert cuda gpu hub cli "
}
{
    split($1, path, "/"); layer = path[2]
    match($3, /"[^"]*"/); name = substr($3, RSTART + 1, RLENGTH - 2)
    if (split(name, part, "/") < 2) { print $1 ":" $2 ": include \"" name "\" by its layer, e.g. \"" layer "/" name "\""; bad = 1; next }
    if (index(allow[layer], " " part[1] " ") == 0) { print $1 ":" $2 ": layer " layer " may not include " name; bad = 1 }
}
END { exit bad }'
