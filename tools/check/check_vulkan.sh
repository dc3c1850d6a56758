#!/usr/bin/env bash
# A Vulkan device, in CI lavapipe, which is the CPU: what the program answers there is what the CPU answers, byte by byte;
# what it cannot do is refused by name; Khronos' validation layer has nothing to say. It takes two minutes; `all` has several
# devices, which a layer makes of one, `release` more keys and values, longer prompts and selftest. Usage: check_vulkan.sh BUILD_DIR [check|all|release]
set -u
build=$(realpath "${1:-build/release}")
how=${2:-${TIER:-check}}
program=$build/evenkeel
dir=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill $server 2>/dev/null; rm -rf "$dir"' EXIT
# Mesa's compiled shaders stay where tests/vulkan and tests/open have them; kernels' evidence is kept in folders of this test.
export MESA_SHADER_CACHE_DIR=${MESA_SHADER_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}}
export XDG_CACHE_HOME=$dir/cache
passed=0 failed=0
count() { # status, what
  if [ "$1" -eq 0 ]; then passed=$((passed + 1)); else
    failed=$((failed + 1))
    echo "FAIL $2"
  fi
}

"$program" inspect --device vulkan models/pocket >"$dir/said" 2>&1 || { # a build or a machine without it
  cat "$dir/said"
  grep -Eq 'without Vulkan shaders|no Vulkan loader|finds no driver|there is no device vulkan:0' "$dir/said" && exit 77
  exit 1
}

# the device behind the driver's table, under the validation layer where it is installed
VK_LOADER_DEBUG=layer VK_INSTANCE_LAYERS=VK_LAYER_KHRONOS_validation "$build/tests/vulkan/test_vulkan" >"$dir/layer" 2>&1
count $? "test_vulkan under the validation layer: $(grep -m1 FAILED "$dir/layer")"
! grep -q 'VUID-\|Validation Error' "$dir/layer"
count $? "the validation layer: $(grep -m1 'VUID-\|Validation Error' "$dir/layer")"
if [ -e /usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json ]; then
  grep -q 'VK_LAYER_KHRONOS_validation' "$dir/layer"
  count $? "the validation layer was loaded"
fi

# the first start compares kernels with C and keeps what it found; the second one takes it from the file
for start in "none differs; kept in $dir/cache/evenkeel/proven-" ""; do
  "$program" generate --device vulkan --ids 2,9 --max-tokens 1 >"$dir/out" 2>"$dir/said"
  count $? "generate: $(tail -1 "$dir/said")"
  if [ -n "$start" ]; then grep -q "$start" "$dir/said"; else ! grep -q "none differs" "$dir/said"; fi
  count $? "evidence is made once: $(head -3 "$dir/said")"
done

ids=2,105,71,107,9,33,71,106,12
formats="i12 f16"
[ "$how" = release ] && formats="i12 f16 i8" && ids=$(seq -s, 10 75)
for kv in $formats; do
  "$program" logits --device cpu --kv "$kv" --ids "$ids" --out "$dir/want" >/dev/null 2>"$dir/said" &&
    "$program" logits --device vulkan --kv "$kv" --ids "$ids" --out "$dir/got" >/dev/null 2>"$dir/said" &&
    cmp "$dir/want" "$dir/got"
  count $? "logits, keys and values in $kv: $(tail -1 "$dir/said")"
done

"$program" run --device cpu "Hello" --max-tokens 4 >"$dir/want" 2>"$dir/said" &&
  "$program" run --device vulkan "Hello" --max-tokens 4 >"$dir/got" 2>"$dir/said" && [ -s "$dir/want" ] &&
  cmp "$dir/want" "$dir/got"
count $? "run: $(tail -1 "$dir/said")"

for device in cpu vulkan; do
  "$program" draft --device $device --model models/pocket --drafter models/pocket-drafter --ids "$ids" --tokens 4 \
    >"$dir/draft.$device" 2>"$dir/said"
done
[ -s "$dir/draft.cpu" ] && cmp "$dir/draft.cpu" "$dir/draft.vulkan"
count $? "drafts of a model: $(tail -1 "$dir/said")"

said() { # what, a pattern, options: refused, and nothing else happens
  local what=$1 pattern=$2
  shift 2
  "$program" "$@" >"$dir/said" 2>&1
  [ $? -ne 0 ] && grep -q "$pattern" "$dir/said"
  count $? "$what: $(head -3 "$dir/said")"
}
said "no such device" 'there is no device vulkan:99, the driver has' generate --device vulkan:99 --ids 2,9
said "two makers" 'on CUDA devices or on Vulkan devices, not on both' generate --device vulkan:0,cuda:1 --ids 2,9

# a card, which a layer makes of this device (tests/vulkan/layer): auto takes it behind CUDA's, and leaves it for the CPU
# where a kernel differs. lavapipe itself is the CPU, and only taken by its name.
layer() { # settings and a command: behind the layer; a card's kernels are not timed, which takes a minute
  env EVENKEEL_TUNE=off VK_LAYER_PATH="$dir" VK_INSTANCE_LAYERS=VK_LAYER_EVENKEEL_cards "$@"
}
${CC:-cc} -shared -fPIC -o "$dir/layer.so" tests/vulkan/layer/layer.c >"$dir/said" 2>&1
count $? "the layer: $(head -3 "$dir/said")"
cat >"$dir/layer.json" <<END
{"file_format_version": "1.2.0", "layer": {"name": "VK_LAYER_EVENKEEL_cards", "type": "GLOBAL", "library_path": "./layer.so",
 "api_version": "1.3.239", "implementation_version": "1", "description": "more of a device than there is"}}
END
if ! "$program" inspect --device cuda models/pocket >/dev/null 2>&1; then
  if "$program" inspect --device vulkan models/pocket | grep -q llvmpipe; then
    "$program" inspect models/pocket 2>&1 | grep -q 'device *cpu: no NVIDIA driver'
    count $? "auto leaves a Vulkan device that is the CPU"
  fi
  layer "$program" inspect models/pocket 2>&1 | grep -q 'device *vulkan:0 ('
  count $? "auto takes a card"
  "$program" generate --device cpu --ids 2,9 --max-tokens 3 >"$dir/want" 2>"$dir/said"
  layer "$program" generate --verbose --ids 2,9 --max-tokens 3 >"$dir/got" 2>"$dir/said"
  cmp "$dir/want" "$dir/got" && grep -q 'device vulkan:0: ' "$dir/said"
  count $? "generate on a card: $(tail -1 "$dir/said")"
  layer LAYER_SKIP=12 XDG_CACHE_HOME="$dir/none" "$program" generate --ids 2,9 --max-tokens 3 >"$dir/got" 2>"$dir/said"
  cmp "$dir/want" "$dir/got" && grep -q 'device cpu: vulkan:0 .* differ from the definition' "$dir/said"
  count $? "auto leaves a card whose kernel differs: $(tail -1 "$dir/said")"
fi

# several devices, which the layer makes of one, and a device too small for the model beside the CPU: the least memory that
# is accepted leaves layers to the CPU
if [ "$how" != check ]; then
  "$program" logits --device cpu --ids 2,105,71,107 --out "$dir/want" >/dev/null 2>"$dir/said"
  for devices in vulkan:0,1 vulkan:all; do
    layer LAYER_CARDS=2 "$program" logits --device $devices --ids 2,105,71,107 --out "$dir/got" >/dev/null 2>"$dir/said"
    cmp "$dir/want" "$dir/got" && grep -q 'on vulkan:0 .* and the head on vulkan:1' "$dir/said"
    count $? "layers over two devices, $devices: $(tail -1 "$dir/said")"
  done
  for size in $(seq 20 3 80); do
    "$program" logits --device vulkan:0,cpu --gpu-memory "${size}M" --chunk 16 --ids 2,105,71,107 --out "$dir/got" \
      >/dev/null 2>"$dir/said" && break
  done
  cmp "$dir/want" "$dir/got" && grep -q ' on the CPU, .* and the head on vulkan:0' "$dir/said"
  count $? "layers on a device and the CPU: $(tail -1 "$dir/said")"
  layer LAYER_CARDS=2 "$program" logits --device vulkan:0,1 --split outputs --ids 2,9 --out "$dir/got" >"$dir/said" 2>&1
  [ $? -ne 0 ] && grep -q 'vulkan:0 does not reach the memory of vulkan:1' "$dir/said"
  count $? "outputs over two devices: $(tail -1 "$dir/said")"
fi

# a server: two requests together and one behind their cached pages have the CPU's replies
ask() { # port, words
  curl -sS -m 300 "http://127.0.0.1:$1/v1/chat/completions" -H 'Content-Type: application/json' \
    -d "{\"messages\":[{\"role\":\"user\",\"content\":\"$2\"}],\"max_tokens\":6,\"temperature\":0.7,\"seed\":5}" |
    python3 -c 'import json,sys; print(json.load(sys.stdin)["choices"][0]["message"]["content"])'
}
replies() { # device, file
  "$program" serve --host 127.0.0.1 --port 0 --device "$1" >"$dir/serve" 2>&1 &
  server=$!
  for _ in $(seq 2400); do # a first start compiles for a minute, and longer beside other work
    grep -q ' serves ' "$dir/serve" && break
    kill -0 $server 2>/dev/null || break
    sleep 0.1
  done
  local port
  port=$(sed -n 's/.*http:\/\/127\.0\.0\.1:\([0-9]*\).*/\1/p' "$dir/serve" | head -1)
  ask "$port" "Who are you?" >"$2.1" &
  local first=$!
  ask "$port" "What is two and two?" >"$2.2"
  wait $first
  ask "$port" "Who are you?" >"$2.3"
  kill $server 2>/dev/null
  wait $server 2>/dev/null
  server=
}
replies cpu "$dir/cpu"
replies vulkan "$dir/vulkan"
for i in 1 2 3; do
  [ -s "$dir/cpu.$i" ] && cmp "$dir/cpu.$i" "$dir/vulkan.$i"
  count $? "reply $i of a server: $(tail -1 "$dir/serve")"
done

if [ "$how" = release ]; then
  VK_INSTANCE_LAYERS=VK_LAYER_KHRONOS_validation timeout 1800 "$program" selftest --device vulkan >"$dir/said" 2>&1
  count $? "selftest under the validation layer: $(tail -3 "$dir/said")"
  ! grep -q 'VUID-\|Validation Error' "$dir/said"
  count $? "the validation layer in selftest: $(grep -m1 'VUID-\|Validation Error' "$dir/said")"
  for section in "linear few" "int quick" "kv quick"; do # tiles of many rows and queries, with matrices made of packed products
    # shellcheck disable=SC2086 # two words
    timeout 600 "$build/tests/cuda/device/device" vulkan $section >"$dir/said" 2>&1
    count $? "shaders against C, $section: $(grep -m1 FAIL "$dir/said") $(tail -1 "$dir/said")"
  done
  layer LAYER_CARDS=2 timeout 1800 "$program" selftest --device vulkan:0,1 >"$dir/said" 2>&1
  count $? "selftest over two devices: $(tail -3 "$dir/said")"
fi
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
