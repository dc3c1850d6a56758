#!/bin/sh
# One piece of training: train, export, evaluate. On the machine with the accelerator, from the
# repository's root; results go to $OUT.
#   SECONDS_=480 LR=1,1,0.3 SEED=1 RESUME=build/checkpoint N=60 sh models/training/piece.sh
set -e
: "${OUT:=build/out}" "${SECONDS_:=480}" "${LR:=1,1,0.1}" "${SEED:=1}" "${N:=60}" "${WARMUP:=150}"
export PYTHONUNBUFFERED=1
here=models/training
# A machine that still holds the last piece continues from its own disk, optimiser included.
test -d /tmp/checkpoint && RESUME=/tmp/checkpoint
mkdir -p "$OUT"
python3 $here/train.py --out /tmp/checkpoint --seconds "$SECONDS_" --lr "$LR" --seed "$SEED" --warmup "$WARMUP" ${RESUME:+--resume $RESUME} $TRAIN_ARGS
cp /tmp/checkpoint/plane*.bin /tmp/checkpoint/log.jsonl "$OUT"/
mkdir -p /tmp/pocket
cp models/pocket/tokenizer.json /tmp/pocket/
python3 $here/export.py /tmp/checkpoint /tmp/pocket
cp /tmp/pocket/model.safetensors /tmp/pocket/config.json "$OUT"/
python3 $here/evaluate.py /tmp/pocket ${N:+--n $N} --say --out "$OUT"/table.json ${EVAL_ARGS}
