# evenkeel: the only build file. `make help` lists the targets.
#
# Layers, left to right; a file includes its own layer and those to its left (tools/check/check_includes.sh
# enforces it). One archive per layer, so that a layer's tests build without the layers to its right.
SHELL  := /bin/bash
, := ,
CC     ?= gcc
CONF   ?= release
B      ?= build/$(CONF)
include tools/make/system.mk
LAYERS := base text receipts hub media decode helper tensor ops cuda vulkan lib model convert cache engine gpu replies chat open serve capi batch cli

DEPS_base   := base
DEPS_text   := text base
DEPS_receipts := receipts text base
DEPS_hub    := hub base
DEPS_media  := media base
DEPS_decode := decode media base
DEPS_helper := helper decode media base
DEPS_tensor := tensor base
DEPS_ops    := ops tensor base
DEPS_cuda   := engine cache model media cuda ops tensor base
DEPS_vulkan := vulkan cuda ops tensor base
DEPS_lib    := lib ops tensor base
DEPS_model  := model media ops tensor base
DEPS_convert := convert engine cache model media ops tensor text base
DEPS_cache  := cache ops tensor base
DEPS_engine := engine cache model media ops tensor base
DEPS_same   := replies text engine cache model media ops tensor base
DEPS_golden := engine cache model media ops tensor base
DEPS_gpu    := gpu engine cache model media vulkan cuda ops tensor base
DEPS_replies := replies engine cache model media ops tensor text base
DEPS_chat   := chat replies engine cache model media ops tensor receipts text base
DEPS_serve  := serve chat replies engine cache model media ops tensor receipts hub text base
DEPS_open   := open chat replies gpu engine cache model media vulkan cuda ops tensor receipts hub text base
DEPS_capi   := capi lib serve open chat replies gpu engine cache model vulkan cuda ops tensor media receipts hub text base
DEPS_batch  := batch serve open chat replies gpu engine cache model vulkan cuda ops tensor media receipts hub text base
DEPS_cli    := cli batch capi lib serve open chat replies convert gpu engine cache model vulkan cuda ops tensor media receipts hub text base

PKGS_serve := jansson libevent libevent_pthreads
PKGS := jansson libevent libevent_pthreads sqlite3 libedit
# Where pkg-config does not know them yet (before `make setup`), the build says what to do.
PKG_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(PKGS) 2>/dev/null)
PKG_LIBS   := $(shell $(PKG_CONFIG) --libs $(PKGS) 2>/dev/null)
# Decoders of pictures and sounds, for src/decode, and for tests that write such files. The helper program finds them when
# it runs, under the names that they have here: one that is missing, here or there, costs its formats alone.
MEDIA_LIBRARIES := JPEG=libjpeg PNG=libpng ZLIB=zlib WEBP=libwebp WEBPDEMUX=libwebpdemux GIF=libgif HEIF=libheif SNDFILE=sndfile SOXR=soxr
MEDIA_PKGS := $(foreach l,$(MEDIA_LIBRARIES),$(shell $(PKG_CONFIG) --exists $(lastword $(subst =, ,$l)) 2>/dev/null && echo $(lastword $(subst =, ,$l))))
MEDIA_SO := $(foreach l,$(MEDIA_LIBRARIES),$(if $(filter $(lastword $(subst =, ,$l)),$(MEDIA_PKGS)),-DEK_SO_$(firstword $(subst =, ,$l))='"$(call soname,$(lastword $(subst =, ,$l)))"'))
MEDIA_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(MEDIA_PKGS) 2>/dev/null) $(if $(filter libheif,$(MEDIA_PKGS)),-DEK_HAVE_HEIF) $(MEDIA_SO)
MEDIA_LIBS   := $(shell $(PKG_CONFIG) --libs $(MEDIA_PKGS) 2>/dev/null)
# Readers whose library this build does not have.
without = $(if $(filter $1,$(MEDIA_PKGS)),,$2)
NO_READER := $(call without,libjpeg,src/decode/jpeg.c) $(call without,libpng,src/decode/png.c) $(call without,libwebpdemux,src/decode/webp.c) \
             $(call without,libgif,src/decode/gif.c) $(call without,sndfile,src/decode/sndfile.c)
# TLS for pages shared by a server (src/cache/shared), and the keys of receipts (src/receipts), where it is installed.
SSL := $(shell $(PKG_CONFIG) --atleast-version=1.1.1 openssl 2>/dev/null && echo openssl)
SHARED_CFLAGS := $(if $(SSL),-DEK_HAVE_TLS)
SHARED_LIBS   := $(if $(SSL),$(call as_needed,$(shell $(PKG_CONFIG) --libs $(SSL) 2>/dev/null)))
# News of cached pages for routers (src/serve/events), where msgpack-c is installed.
MSGPACK := $(firstword $(foreach p,msgpack-c msgpack,$(shell $(PKG_CONFIG) --exists $p 2>/dev/null && echo $p)))
EVENTS_PKGS := $(MSGPACK)
EVENTS_CFLAGS := $(if $(EVENTS_PKGS),$(shell $(PKG_CONFIG) --cflags $(EVENTS_PKGS)) -DEK_HAVE_EVENTS)
TEST_LIBS  := $(shell $(PKG_CONFIG) --libs cmocka 2>/dev/null || echo -lcmocka)

VERSION := 0.1.0
OPT_release := -O3
OPT_debug   := -O0
OPT_asan    := -DEK_SANITIZED -O1 -fsanitize=address -fno-omit-frame-pointer
OPT_ubsan   := -DEK_SANITIZED -O1 -fsanitize=undefined -fno-sanitize-recover=all
OPT_tsan    := -DEK_SANITIZED -O1 -fsanitize=thread
OPT := $(OPT_$(CONF))

# What an overflow meets in a release: a checked stack and checked copies (level 3 where compiler and C library have it),
# code at random addresses, tables of pointers that are read-only before main, and marks where a jump may land. Each is
# taken if the compiler has it; tools/check/check_hardened.sh looks at the program.
takes = $(shell $(CC) -Werror $1 -c -x c /dev/null -o /dev/null 2>/dev/null && echo $1)
ifeq ($(OPT),-O3)
FORTIFY := $(if $(shell $(CC) -O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -include features.h -dM -E -x c /dev/null 2>/dev/null | grep 'FORTIFY_LEVEL 3'),3,2)
HARDEN  := -fPIE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=$(FORTIFY) $(call takes,-fstack-protector-strong) \
           $(call takes,-fcf-protection=full) $(call takes,-mbranch-protection=standard)
HARDEN_LD := $(if $(DARWIN),,-Wl$(,)-z$(,)relro$(,)-z$(,)now$(,)-z$(,)noexecstack)
endif
# No contraction and no fast-math: the order and the rounding of every addition is written in
# the source (docs/NUMERICS.md 1).
# Of a release lines alone, which a backtrace needs: variables of kernels that are all vectors take a third of gcc's time.
CFLAGS  ?= $(if $(filter release,$(CONF)),-g1,-g)
WARN    := -Wall -Wextra -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wconversion
# Warnings stop `make check` and CI, not somebody's build with a newer compiler.
WERROR  ?=
ALL_CFLAGS = -std=gnu11 $(OPT) $(HARDEN) -ffp-contract=off -fno-math-errno -fvisibility=hidden -pthread $(WARN) $(WERROR) \
             -Isrc -Iinclude -DEK_VERSION='"$(VERSION)"' $(PKG_CFLAGS) $(if $(findstring /decode/,$@)$(findstring tests/media/,$@),$(MEDIA_CFLAGS)) \
             $(if $(findstring /cache/shared/,$@)$(findstring receipts,$@),$(SHARED_CFLAGS)) $(if $(findstring events,$@),$(EVENTS_CFLAGS)) $(CFLAGS)
LDLIBS  = $(if $(filter %/ek_cache.a %/ek_receipts.a,$^),$(SHARED_LIBS)) $(if $(findstring /tests/media/,$@),$(MEDIA_LIBS)) $(PKG_LIBS) -lm -pthread
LDFLAGS_ALL = $(OPT) $(HARDEN_LD) -pthread $(LDFLAGS)

ISA_avx2   := -mavx2 -mfma -mf16c
ISA_avxvnni := $(ISA_avx2) -mavxvnni
ISA_avx512 := $(ISA_avx2) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni
ISA_dotprod := -march=armv8.2-a+dotprod
ISA_i8mm   := -march=armv8.2-a+dotprod+i8mm
ISA_bf16   := $(ISA_avx512) -mavx512bf16
ISA_amx    := $(ISA_avx512) -mamx-tile -mamx-int8
# Where prefetches stand between multiplications, they shall stay there: gcc's last scheduling pass gathers them.
AS_WRITTEN := $(shell $(CC) -Werror -fno-schedule-insns2 -c -x c /dev/null -o /dev/null 2>/dev/null && echo -fno-schedule-insns2)
# Checks of addresses as calls where kernels are large after inlining: as code they take gcc minutes per file.
AS_CALLS := $(if $(filter asan,$(CONF)),$(shell echo | $(CC) -Werror --param asan-instrumentation-with-call-threshold=64 -c -x c - -o /dev/null 2>/dev/null && echo --param asan-instrumentation-with-call-threshold=64))
isa_x86_64 = $(if $(findstring /x86/,$1),$(AS_CALLS)) $(if $(filter %/attn_rows_bf16.o,$1),$(AS_WRITTEN)) $(if $(filter %_avx2.o,$1),$(ISA_avx2))$(if $(filter %_avxvnni.o,$1),$(ISA_avxvnni))$(if $(filter %_avx512.o,$1),$(ISA_avx512))$(if $(filter %_bf16.o,$1),$(ISA_bf16))$(if $(filter %_amx.o,$1),$(ISA_amx))
isa_aarch64 = $(if $(filter %_dotprod.o,$1),$(ISA_dotprod))$(if $(filter %_i8mm.o,$1),$(ISA_i8mm))
isa = $(call isa_$(ARCH),$1)

# Kernels of other machines than this one's; folders are at most four deep.
FOUND := $(foreach l,$(LAYERS),$(wildcard src/$l/*.c src/$l/*/*.c src/$l/*/*/*.c src/$l/*/*/*/*.c))
foreign = $(foreach f,$(FOUND),$(if $(findstring $1,$f),$f))
NOT_HERE := $(if $(filter x86_64,$(ARCH)),,$(call foreign,/x86/)) $(if $(filter aarch64,$(ARCH)),,$(call foreign,/arm/))
# Shaders (tools/make/vulkan.mk) need glslc and Vulkan's headers: without them one file is all of src/vulkan.
VULKAN      ?= 1
GLSLC       ?= $(shell command -v glslc 2>/dev/null)
VULKAN_HAS  := $(shell $(CC) -E -include vulkan/vulkan_core.h -x c /dev/null >/dev/null 2>&1 && echo 1)
VULKAN_ON   := $(if $(filter-out 0,$(VULKAN)),$(and $(filter x86_64 aarch64,$(ARCH)),$(GLSLC),$(VULKAN_HAS)))
NO_VULKAN := $(if $(VULKAN_ON),src/vulkan/absent.c,$(filter-out src/vulkan/absent.c,$(call foreign,src/vulkan/)))
SRC  := $(filter-out $(NOT_HERE) $(NO_READER) $(NO_VULKAN),$(FOUND))
# NAME_isa.c is compiled once for each instruction set (src/ops/x86/isa.h), to NAME_isa_avx2.o and so on.
ISAS_peak := avx2 avxvnni avx512 amx
ISAS_attn := avx2 avxvnni avx512 zen4_avx512
ISAS_linear_q_256 := avx2 avxvnni
isas = $(or $(ISAS_$(patsubst %_isa.c,%,$(notdir $1))),avx2 avx512)
objects_of = $(if $(filter %_isa.c,$1),$(foreach i,$(call isas,$1),$B/$(1:.c=_$i.o)),$B/$(1:.c=.o))
objs = $(foreach s,$(filter src/$1/%,$(SRC)),$(call objects_of,$s)) $(if $(filter cuda,$1),$B/src/cuda/kernels.o)$(if $(VULKAN_ON),$(if $(filter vulkan,$1),$B/src/vulkan/shaders.o))
libs = $(foreach l,$(DEPS_$1),$B/lib/ek_$l.a)

# One short line per file; `make V=1` shows the commands.
say = $(if $(V),,@echo "  $1" && )

.PHONY: all help setup check check-all demo asan ubsan tsan fuzz docs eval pass-table clean distclean quick
all: $B/evenkeel $B/evenkeel-decode

help: ## list targets
	@grep -hE '^[a-z% -]+:.*##' $(filter-out %.d,$(MAKEFILE_LIST)) | sed -E 's/:.*## /\t/' | expand -t 18

setup: ## install the Debian packages that are missing
	@tools/setup.sh

$B/%.o: %.c
	@mkdir -p $(@D)
	$(call say,cc $<)$(CC) $(ALL_CFLAGS) $(PIC) $(call isa,$@) -MMD -MP -c -o $@ $<

define isa_object
$B/$(1:.c=_$2.o): $1
	@mkdir -p $$(@D)
	$$(call say,cc $1 for $2)$$(CC) $$(ALL_CFLAGS) $$(PIC) $$(call isa,$$@) -DEK_ISA=$2 -DEK_ISA_$2 -MMD -MP -c -o $$@ $$<
endef
$(foreach s,$(filter %_isa.c,$(SRC)),$(foreach i,$(call isas,$s),$(eval $(call isa_object,$s,$i))))

define layer_lib
$B/lib/ek_$1.a: $(call objs,$1)
	@mkdir -p $$(@D)
	@rm -f $$@ && $(AR) rcs $$@ $$^
endef
$(foreach l,$(LAYERS),$(eval $(call layer_lib,$l)))

$B/evenkeel: $(call libs,cli)
	$(call say,link $@)$(CC) $(LDFLAGS_ALL) $(if $(HARDEN),$(PIE)) -o $@ $(call group,$^) $(LDLIBS)
	$(cuda_fewer)

# What decodes strangers' pictures and sounds, in processes of its own. Its functions stand before those of the libraries.
$B/evenkeel-decode: $(call objs,helper) $(call libs,decode)
	$(call say,link $@)$(CC) $(LDFLAGS_ALL) $(if $(HARDEN),$(PIE)) $(EXPORT_ALL) -o $@ $(call group,$^) -lm -pthread
# Whoever asks for the program has it too.
$B/evenkeel: | $B/evenkeel-decode

# --- tests: tests/LAYER/test_X.c is one program over the archives of DEPS_LAYER; other .c files of the
# folder are linked into each of them, and from tests/support (an archive) what it calls.
TEST_DIRS := $(filter-out tests/clients/ $(if $(VULKAN_ON),,tests/vulkan/),$(sort $(dir $(wildcard tests/*/test_*.c))))
TEST_SUPPORT := $B/lib/test_support.a
# A malloc that counts would be every program's: those that ask for it name it.
COUNTED := $B/tests/support/allocated.o
$(TEST_SUPPORT): $(filter-out $(COUNTED),$(patsubst %.c,$B/%.o,$(wildcard tests/support/*.c)))
	@mkdir -p $(@D)
	@rm -f $@ && $(AR) rcs $@ $^
TEST_BINS :=
# A test program of a release has its symbols without lines: 38 MB of them in each of 150 programs took two minutes to link,
# and writing those of the tests a fifth of their compiler's time. CONF=debug and the sanitizers keep them.
# gold, where it is, halves the time of two hundred links.
GOLD := $(shell $(CC) -fuse-ld=gold -Wl,--version >/dev/null 2>&1 && echo -fuse-ld=gold)
TEST_LD ?= $(if $(filter release,$(CONF)),$(GOLD) $(STRIP_DEBUG))
ifeq ($(CONF),release)
$B/tests/%.o: CFLAGS += -g0
# Kernels of src once more, instructions that this machine may lack replaced by functions over memory: at -O3 the compiler
# needs up to twice as long for them, and nobody measures them.
$B/tests/ops/%_avx512.o: CFLAGS += -O1
endif
define test_dir
TEST_BINS += $(patsubst tests/%.c,$B/tests/%,$(wildcard tests/$1/test_*.c))
$B/tests/$1/test_%: $B/tests/$1/test_%.o $(patsubst %.c,$B/%.o,$(filter-out tests/$1/test_%,$(wildcard tests/$1/*.c))) $(TEST_SUPPORT) $(call libs,$1)
	$$(call say,link $$@)$(CC) $(LDFLAGS_ALL) $(TEST_LD) -o $$@ $$(call group,$$^) $(TEST_LIBS) $$(LDLIBS)
# The program that decodes is looked for beside the one that asks. NO_DECODER=1: its libraries are missing (check_arm.sh).
$B/tests/$1/evenkeel-decode: $B/evenkeel-decode
	@mkdir -p $$(@D) && ln -sf ../../evenkeel-decode $$@
$(patsubst tests/%.c,$B/tests/%,$(wildcard tests/$1/test_*.c)): | $(if $(NO_DECODER),,$B/tests/$1/evenkeel-decode)
endef
$(foreach d,$(TEST_DIRS),$(eval $(call test_dir,$(patsubst tests/%/,%,$d))))
.SECONDARY:
$B/tests/gpu/test_tower: $(addprefix $B/tests/model/,tower_case.o tower_gguf_case.o audio_scene.o)
$B/tests/gpu/test_launches $B/tests/same/test_alloc $B/tests/text/test_grammar_alloc: $(COUNTED)
# A clock that the test makes up.
$B/tests/open/test_tuning: LDLIBS += -Wl,--wrap=ek_now

tests: $(TEST_BINS)

include tools/make/cuda.mk
include tools/make/vulkan.mk
include tools/make/page.mk
-include $(shell find $B -name '*.d' 2>/dev/null)
include tools/make/targets.mk

# The last rule, as every later one would be expanded twice too. The programs are its prerequisites: a make of its own for
# each layer would write the archives that another one links. tests_of holds the %, which the rule would take for its own.
tests_of = $(filter $B/tests/$1/%,$(TEST_BINS))
.SECONDEXPANSION:
test-%: $$(call tests_of,$$*) ## the unit tests of one layer: make test-ops
	$(if $(call tests_of,$*),,$(error tests/$* has no test programs))
	@CHECKS= tools/check/run.sh $B $(call tests_of,$*)
