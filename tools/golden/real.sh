#!/usr/bin/env bash
# Logits beside a second implementation on models of real shape with random weights. Usage: real.sh BUILD_DIR [MODEL[:LAYERS] ...]
#
# Where torch with a GPU and transformers are: whole models beside transformers, prompts of 1,300 and 9,000 tokens, on
# the CPU and on the device, pictures and sounds. Elsewhere numpy alone, on the CPU, and few layers.
#
#   WORK=DIR   room for the weights (default: a folder of TMPDIR that is removed); 31B whole takes 62 GB
#   TOKENS=, DEVICE=, DAMP=, SCALE=   as of real/compare.py
#   PARTS=words,senses   what runs
set -eu
build=$(cd "$1" && pwd); shift
here=$(cd "$(dirname "$0")" && pwd)/real
export PYTHONDONTWRITEBYTECODE=1
python=
for p in "${PYTHON:-python3}" /usr/bin/python3; do
  if "$p" -c 'import numpy' 2>/dev/null; then python=$p; break; fi
done
if [ -z "$python" ]; then echo "numpy is not installed"; exit 77; fi
reference=numpy device=cpu models="e2b:7 26b:2" tokens=300,700 parts=words
if "$python" -c 'import torch, transformers.models.gemma4, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
  reference=transformers device=cuda models="e2b e4b 12b 26b 31b:30" tokens=1300,9000 parts=words,senses
fi
parts=${PARTS:-$parts}
work=${WORK:-}
if [ -z "$work" ]; then work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; fi
mkdir -p "$work"
bad=0
compare() {
  "$python" "$here/compare.py" --program "$build/evenkeel" --reference $reference --work "$work" --device "${DEVICE:-$device}" \
    ${DAMP:+--damp "$DAMP"} --scale "${SCALE:-bf16,f32,ulp}" "$@" || bad=1
}
case ,$parts, in *,words,*) compare --tokens "${TOKENS:-$tokens}" ${@:-$models} ;; esac
case ,$parts, in *,senses,*) compare --senses ${SENSES:-e2b:10 26b:6} ;; esac
exit $bad
