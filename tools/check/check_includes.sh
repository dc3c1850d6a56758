#!/usr/bin/env bash
# The include rule: a file of src/ may include its own layer and those to its left (docs/ARCHITECTURE.md). Inside of a
# layer the folders are layers too: which of them a folder may include stands below. A folder x86 or arm belongs to the
# one that holds it.
set -u
cd "$(dirname "$0")/../.." || exit
grep -rnE '^#include "' src --include='*.c' --include='*.h' --include='*.cu' --include='*.cuh' | awk -F: '
BEGIN {
    allow["base"]   = " base "
    allow["text"]   = " base text "
    allow["receipts"] = " base text receipts "
    allow["hub"]    = " base hub "
    allow["media"]  = " base media "
    allow["decode"] = " base media decode "
    allow["helper"] = " base media decode helper "
    allow["tensor"] = " base tensor "
    allow["ops"]    = allow["tensor"] "ops "
    allow["cuda"]   = allow["ops"] "cuda "
    allow["vulkan"] = allow["cuda"] "vulkan "
    allow["lib"]    = allow["ops"] "lib "
    allow["model"]  = allow["ops"] "media model "
    allow["convert"] = allow["model"] "text convert "
    allow["cache"]  = allow["ops"] "cache "
    allow["engine"] = allow["model"] "cache engine "
    allow["gpu"]    = allow["engine"] "cuda vulkan gpu "
    allow["replies"] = allow["engine"] "text replies "
    allow["chat"]   = allow["replies"] "receipts chat "
    allow["open"]   = allow["chat"] "cuda vulkan gpu hub open "
    allow["serve"]  = allow["chat"] "hub open serve "
    allow["capi"]   = allow["serve"] "lib capi "
    allow["batch"]  = allow["serve"] "cuda gpu batch "
    allow["cli"]    = allow["batch"] "convert cuda gpu hub capi cli "

    inner["base/hash"] = inner["base/machine"] = " base "
    inner["media"] = " media/locked "
    inner["text/json"] = inner["text/regex"] = " text "
    inner["text/tokenizer"] = inner["text/template"] = " text text/json "
    inner["text/reply"] = " text text/json text/tokenizer "
    inner["text/graph"] = inner["text/reply"] "text/reply text/regex "
    inner["text/schema"] = inner["text/graph"] "text/graph "
    inner["text/grammar"] = inner["text/schema"] "text/schema "
    inner["ops/kv"] = inner["ops/weights"] = inner["ops/rows"] = " ops "
    inner["ops/linear"] = " ops ops/weights "
    inner["ops/attn"] = " ops ops/kv "
    inner["cuda/kernels"] = " cuda "
    inner["cuda/kernels/attn"] = inner["cuda/kernels/product"] = inner["cuda/kernels/sample"] = " cuda cuda/kernels "
    inner["cuda/kernels/rows"] = " cuda cuda/kernels cuda/kernels/product "
    inner["cuda/product"] = inner["cuda/attn"] = " cuda "
    inner["cuda/rows"] = inner["cuda/tower"] = " cuda cuda/product "
    inner["gpu/step"] = " gpu/weights "
    inner["gpu/recipe"] = " gpu/weights gpu/step "
    inner["gpu/tower"] = inner["gpu/recipe"] "gpu/recipe "
    inner["gpu/fit"] = " gpu/weights gpu/step "
    inner["gpu/evidence"] = " gpu/weights gpu/recipe "
    inner["gpu"] = " gpu/weights gpu/step gpu/recipe gpu/fit "
    inner["gpu/several"] = " gpu gpu/weights gpu/step gpu/recipe gpu/fit "
    inner["model/source"] = " model/config "
    inner["model/weights"] = " model/config model/source "
    inner["model/tower/source"] = " model/config model/source "
    inner["model/tower"] = inner["model/tower/source"] "model/tower/source model/weights "
    inner["model"] = " model/config model/source model/weights "
    inner["media/part"] = inner["media/video"] = " media media/locked "
    inner["cache/shared"] = " cache "
    inner["engine"] = " engine/sample engine/media "
    inner["serve/store"] = inner["serve/ollama"] = " serve/api serve/resume serve/http "
    inner["serve/openai"] = inner["serve/anthropic"] = inner["serve/store"] "serve/store "
    inner["serve/threads"] = inner["serve/fetch"] = " serve/http "
    inner["serve/api"] = " serve/resume "
    inner["serve"] = " serve/resume serve/events serve/http serve/fetch serve/journal serve/api serve/store serve/openai serve/anthropic serve/ollama serve/threads "
    inner["cli/bench"] = " cli/frame cli/media "
    inner["cli/hub"] = " cli/frame cli/inspect "
    inner["cli/inspect"] = inner["cli/media"] = inner["cli/receipts"] = inner["cli/selftest"] = inner["cli/local"] = " cli/frame "
    inner["cli/batch"] = inner["cli/text"] = inner["cli"] = " cli/frame "
    inner["cli/agents"] = " cli/frame cli/local "
    inner["cli/run"] = " cli/frame cli/hub "
    inner["cli/serve"] = " cli/frame cli/hub cli/local "
}
function folder(path) {
    sub(/\/[^\/]*$/, "", path)
    sub(/\/(x86|arm)(\/.*)?$/, "", path)
    return path
}
{
    split($1, path, "/"); layer = path[2]
    match($3, /"[^"]*"/); name = substr($3, RSTART + 1, RLENGTH - 2)
    if (split(name, part, "/") < 2) { print $1 ":" $2 ": include \"" name "\" by its layer, e.g. \"" layer "/" name "\""; bad = 1; next }
    if (index(allow[layer], " " part[1] " ") == 0) { print $1 ":" $2 ": layer " layer " may not include " name; bad = 1 }
    from = folder(substr($1, 5)); to = folder(name)
    if (part[1] == layer && from != to && index(inner[from], " " to " ") == 0) { print $1 ":" $2 ": folder " from " may not include " name; bad = 1 }
}
END { exit bad }'
