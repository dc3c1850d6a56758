# The CUDA kernels: for each architecture one fatbin a file of src/cuda/kernels, embedded by src/cuda/kernels.S. Nothing
# of CUDA is linked or needed to run. `make CUDA=0` leaves the kernels out, as does a machine without nvcc.
#
# CUDA_ARCHS: whose machine code is built: 80 (A100), 86 (RTX 30; it runs on 8.7 too), 87, 89 (RTX 40), 90a (H100, H200),
# 100 (B200; on 10.3 too), 120 (RTX 50; on 12.1 too); 80on90, 100on90, 120on90: for 9.0 with the kernels of 8.0, 10.0 or
# 12.0, by which a test runs on an H100 what those would run; all: what a program for others needs. Without it: 90a and
# that of the cards in this machine, for each of them takes a minute and more.
CUDA       ?= 1
CUDA_ALL   := 80 86 89 90a 100 120
NVCC       ?= $(or $(shell command -v nvcc 2>/dev/null),$(wildcard /usr/local/cuda/bin/nvcc))
CUDA_ON    := $(if $(filter-out 0,$(CUDA)),$(and $(filter x86_64 aarch64,$(ARCH)),$(NVCC)))
CU_SRC     := $(wildcard src/cuda/kernels/*/*.cu)
ifndef CUDA_ARCHS
CUDA_CARDS := $(if $(CUDA_ON),$(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sort -u))
cuda_card   = $(if $(filter $1.%,$(CUDA_CARDS)),$10)
CUDA_ARCHS := $(strip $(call cuda_card,8) 90a $(call cuda_card,10) $(call cuda_card,12))
endif
ifeq ($(strip $(CUDA_ARCHS)),all)
override CUDA_ARCHS := $(CUDA_ALL)
endif
CUDA_KNOWN := 80 86 87 89 90a 100 120 80on90 100on90 120on90
ifneq ($(filter-out $(CUDA_KNOWN),$(CUDA_ARCHS)),)
$(error CUDA_ARCHS has $(filter-out $(CUDA_KNOWN),$(CUDA_ARCHS)); there are $(CUDA_KNOWN))
endif
# No contraction and IEEE division and square root, as in C (docs/NUMERICS.md 1); no PTX is shipped, for a
# driver's compiler might contract.
CUDA_RELEASE := $(if $(CUDA_ON),$(shell $(NVCC) --version | sed -nE 's/.*release ([0-9]+)\.([0-9]+).*/\1000+\20/p'))
NVFLAGS := -O3 -std=c++17 -fmad=false -prec-div=true -prec-sqrt=true -ftz=false -Isrc -Werror all-warnings
# Capability of the code, and whose kernels it has, ten times.
cu_code     = $(if $(filter %on90,$1),90,$(1:a=))
cu_features = $(patsubst %on90,%,$(1:a=))
cu_like     = $(if $(filter 8%,$1),80,$(patsubst %on90,%,$1))
# Two thirds of the time are the compiler's up to PTX, which all before 9.0 share, and all behind 9.0a: they have the
# instructions of 9.0 without its own (kernels/device.cuh).
cu_front    = $(if $(filter 8%,$1),80,90)
# Every driver of CUDA 13 reads code that is compressed, to a seventh; those of 12 that evenkeel allows do not.
CU_COMPRESS := $(if $(filter 12%,$(CUDA_RELEASE)),,--compress-mode=size)
# Files that live on what an architecture lacks (kernels/device.cuh): wgmma; clusters; copies of whole pieces; much
# shared memory, or little.
CU_WGMMA    := product_wide plane_wide jobs_mid
CU_CLUSTERS := layer_end
CU_BULK     := attn_deep
CU_LARGE    := attn_int_prompt attn_prompt
CU_SMALL    := attn_prompt_small
CU_LACKS_80 := $(CU_WGMMA) $(CU_CLUSTERS) $(CU_BULK) $(CU_LARGE)
CU_LACKS_90a := $(CU_SMALL)
CU_LACKS_100 := $(CU_WGMMA) $(CU_SMALL)
CU_LACKS_120 := $(CU_WGMMA) $(CU_CLUSTERS) $(CU_LARGE)
# Files whose kernels spill there unless ptxas is told to mind registers more than its default, 5. Others spill by it.
CU_FEWER_80  := attn_prompt_small
CU_FEWER_100 := attn_int_prompt experts layer_end warp_64 warp_own warp_own_many
CU_FEWER_120 := attn experts sample_sort warp_64 warp_own warp_own_many
# A toolkit that does not know an architecture says so here, with its version.
CUDA_NO := $(if $(CUDA_ON),$(filter-out $(shell $(NVCC) --list-gpu-code | sed -n 's/sm_//p'),$(foreach a,$(CUDA_ARCHS),$(call cu_code,$a))))
ifneq ($(CUDA_NO),)
$(error nvcc $(shell $(NVCC) --version | sed -nE 's/.*release ([0-9.]+),.*/\1/p') has no code for sm_$(firstword $(CUDA_NO)): 80 to 90a need CUDA 12.0, 100 and 120 CUDA 12.8)
endif
cu_lacks    = $(CU_LACKS_$(call cu_like,$1))
cu_names    = $(filter-out $(call cu_lacks,$1),$(notdir $(basename $(CU_SRC))))

# The same kernels for every configuration.
CUDA_DIR := build/cuda
fatbins   = $(patsubst %,$(CUDA_DIR)/$1/%.fatbin,$(call cu_names,$1))
FATBINS  := $(if $(CUDA_ON),$(foreach a,$(CUDA_ARCHS),$(call fatbins,$a)))

# How the assembler finds them; kernels.S knows from the version that they are there.
ifneq ($(CUDA_ON),)
CUDA_AS := -Wa,-I$(CUDA_DIR) -I$(CUDA_DIR) \
  -DEK_CUDA_BUILT_WITH=$(CUDA_RELEASE)
endif

# What ptxas says of registers and spills is kept for tools/check/check_cuda.sh.
vpath %.cu $(sort $(dir $(CU_SRC)))
cuda_done = 2>$$(@:.fatbin=.ptxas) || { cat $$(@:.fatbin=.ptxas); exit 1; }
define cuda_arch
$(CUDA_DIR)/$1/%.fatbin: $(if $(filter 90a,$1),%.cu,$(CUDA_DIR)/ptx$(call cu_front,$1)/%.ptx)
	@mkdir -p $$(@D)
	$$(call say,nvcc $$< for $1)$$(NVCC) $(if $(filter 90a,$1),$$(NVFLAGS) -Xptxas -v -gencode=arch=compute_90a$(,)code=sm_90a -MD -MP -MT $$@ -MF $$(@:.fatbin=.d) --fatbin,$$(NVFLAGS) $$(CU_COMPRESS) -Xptxas -v $$(if $$(filter $$*,$(CU_FEWER_$(call cu_like,$1))),-Xptxas -regUsageLevel=3) -gencode=arch=compute_$(call cu_front,$1)$(,)code=sm_$(call cu_code,$1) -fatbin) -o $$@.new $$< $(cuda_done)
	@mv $$@.new $$@
endef
$(foreach a,$(CUDA_ARCHS),$(eval $(call cuda_arch,$a)))
define cuda_ptx
$(CUDA_DIR)/ptx$1/%.ptx: %.cu
	@mkdir -p $$(@D)
	$$(call say,nvcc $$< to PTX of $1)$$(NVCC) $$(NVFLAGS) -arch=compute_$1 -MD -MP -MT $$@ -MF $$(@:.ptx=.d) --ptx -o $$@ $$<
endef
$(foreach f,80 90,$(eval $(call cuda_ptx,$f)))
-include $(wildcard $(CUDA_DIR)/*/*.d)

# What kernels.S embeds: written anew where another list is asked for.
CUDA_LINES = $(foreach a,$(CUDA_ARCHS),$(foreach n,$(call cu_names,$a),kernel $a $n $(call cu_code,$a) $(call cu_features,$a)\n))
cuda_list  = printf '$(CUDA_LINES)' | sed 's/^ *//'
$(CUDA_DIR)/kernels.inc: $(CU_SRC)
	@mkdir -p $(@D)
	@$(cuda_list) >$@
ifneq ($(and $(CUDA_ON),$(wildcard $(CUDA_DIR)/kernels.inc)),)
ifneq ($(shell $(cuda_list) | cmp -s - $(CUDA_DIR)/kernels.inc && echo same),same)
$(CUDA_DIR)/kernels.inc: FORCE
endif
endif
.PHONY: FORCE

$B/src/cuda/kernels.o: src/cuda/kernels.S $(FATBINS) $(if $(CUDA_ON),$(CUDA_DIR)/kernels.inc)
	@mkdir -p $(@D)
	$(if $(CUDA_ON),,@echo "  no CUDA kernels: $(if $(filter 0,$(CUDA)),CUDA=0,nvcc is not installed)")
	$(call say,as $< with kernels for $(or $(if $(CUDA_ON),$(CUDA_ARCHS)),none))$(CC) -c -o $@ $(CUDA_AS) $<

cuda: $(FATBINS) $B/lib/ek_cuda.a ## build the CUDA kernels (with nvcc) and say what they use
	@tools/check/check_cuda.sh $B
cuda-archs:
	@echo $(CUDA_ARCHS)
cuda-absent: # files that an architecture has no code of
	@echo $(foreach a,$(CUDA_ARCHS),$(call cu_lacks,$a))
.PHONY: cuda cuda-archs cuda-absent
# Said behind the last link: the program has less than it could have.
cuda_fewer = $(if $(CUDA_ON),$(if $(filter-out $(CUDA_ARCHS),$(CUDA_ALL)),@echo "  GPU kernels for $(CUDA_ARCHS) alone; make CUDA_ARCHS=all: for $(CUDA_ALL)"))

# --- tests on a device: one program, no test library; exits 77 without a driver
DEVICE_TEST := $B/tests/cuda/device/device
$(DEVICE_TEST): $(patsubst %.c,$B/%.o,$(wildcard tests/cuda/device/*.c)) $(addprefix $B/tests/support/,device_pack.o device_cut.o) $(call libs,cuda) $B/lib/ek_vulkan.a
	$(call say,link $@)$(CC) $(LDFLAGS_ALL) $(TEST_LD) -o $@ $(call group,$^) -lm -pthread

check-programs: $(DEVICE_TEST)

# Models on a device, with the scenes of tests/same.
GPU_TEST := $B/tests/gpu/device/device
SCENES   := $(addprefix $B/tests/same/,scene.o cases.o masked.o media.o pictures.o continued.o shared.o stored.o) $(addprefix $B/lib/,ek_replies.a ek_text.a)
$(GPU_TEST): $(patsubst %.c,$B/%.o,$(wildcard tests/gpu/device/*.c)) $(SCENES) $(TEST_SUPPORT) $(call libs,gpu)
	$(call say,link $@)$(CC) $(LDFLAGS_ALL) $(TEST_LD) -o $@ $(call group,$^) $(LDLIBS)

check-programs: $(GPU_TEST)

# --- the kernels on a CPU (tests/emulate): a library that is opened in place of the driver
EMULATED_SAN := $(filter -fsanitize=address,$(OPT))
EMULATED     := $B/tests/emulate/libcuda.so.1
EMULATED_OBJ := $(CU_SRC:src/cuda/kernels/%.cu=$B/tests/emulate/%.cu.o) \
                $(patsubst %.cc,$B/%.cc.o,$(wildcard tests/emulate/*.cc))
# -Og compiles in half the time of -O1 and, with what this machine has for fmaf and for 8-bit products, runs as fast.
EMULATED_ISA := $(if $(filter x86_64,$(ARCH)),$(shell grep -qsw avx2 /proc/cpuinfo && grep -qsw fma /proc/cpuinfo && echo -mavx2 -mfma))
EMULATED_CXX := -std=c++17 -Og $(EMULATED_ISA) $(if $(filter release,$(CONF)),-g0,-g1) -fPIC -fvisibility=hidden -fno-strict-aliasing -ffp-contract=off -Wall \
                -Wno-unknown-pragmas -Wno-uninitialized -Wno-maybe-uninitialized $(EMULATED_SAN) -MMD -MP -Itests -Itests/emulate -Isrc
$B/tests/emulate/%.cu.o: src/cuda/kernels/%.cu
	@mkdir -p $(@D)
	$(call say,c++ $<)$(CXX) $(EMULATED_CXX) -x c++ -include emulate/device.h -c -o $@ $<
$B/tests/emulate/%.cc.o: tests/emulate/%.cc
	@mkdir -p $(@D)
	$(call say,c++ $<)$(CXX) $(EMULATED_CXX) -c -o $@ $<
$(addprefix $B/tests/emulate/,mma.cc.o run.cc.o fiber.cc.o): EMULATED_CXX += -O3
# A thread begins with its arguments by value, 1 KB: by libc's copy instead of `rep movsq`, which takes long to begin.
$B/tests/emulate/run.cc.o: EMULATED_CXX += $(if $(filter x86_64,$(ARCH)),-mmemcpy-strategy=libcall:-1:noalign)
# Products of few rows of experts as before 9.0, all others as on 9.0.
EMULATED_FEW := $(patsubst %,$B/tests/emulate/product/%.cu.o,experts experts_own)
$(EMULATED_FEW): EMULATED_CXX += -include emulate/few_registers.h
$(EMULATED_FEW): tests/emulate/few_registers.h
# The names of the kernels that the code for another device has.
KERNELS_OF := $(patsubst %,$B/tests/emulate/kernels_%.inc,80 100 120)
$(KERNELS_OF): $B/tests/emulate/kernels_%.inc: tools/cuda/registers/%.txt
	@mkdir -p $(@D)
	@awk '!/^#/ && NF { print "\"" $$1 "\"," }' $< >$@
$B/tests/emulate/driver.cc.o $B/tests/races/driver.cc.o $B/tests/gpu/test_launches.o: $(KERNELS_OF)
$B/tests/emulate/driver.cc.o $B/tests/races/driver.cc.o: EMULATED_CXX += -I$B/tests
$B/tests/gpu/test_launches.o: CFLAGS += -I$B/tests
$(EMULATED): $(EMULATED_OBJ)
	$(call say,link $@)$(CXX) -shared $(EMULATED_SAN) -o $@ $^ -ldl

$B/tests/gpu/test_emulated $B/tests/gpu/test_drafter_emulated $B/tests/gpu/test_pages $B/tests/gpu/test_tower $B/tests/gpu/test_ranks_emulated $B/tests/gpu/test_turns_emulated: $(EMULATED)
$B/tests/gpu/test_ranks_emulated $B/tests/gpu/test_turns_emulated: $(SCENES)
check-programs: $(EMULATED)

# --- the same under the thread sanitizer, for races inside of a block (tests/emulate/races.h)
RACES     := $B/tests/races/libcuda.so.1
RACES_OBJ := $(EMULATED_OBJ:$B/tests/emulate/%=$B/tests/races/%)
$B/tests/races/%.cu.o: src/cuda/kernels/%.cu
	@mkdir -p $(@D)
	$(call say,c++ $<)$(CXX) $(EMULATED_CXX) -O1 -DEK_RACES -fsanitize=thread -x c++ -include emulate/device.h -c -o $@ $<
$B/tests/races/%.cc.o: tests/emulate/%.cc
	@mkdir -p $(@D)
	$(call say,c++ $<)$(CXX) $(EMULATED_CXX) -DEK_RACES -c -o $@ $<
$(RACES): $(RACES_OBJ)
	$(call say,link $@)$(CXX) -shared -o $@ $^ -ldl $(shell $(CXX) -print-file-name=libtsan.so)

races: $(RACES) $(DEVICE_TEST) ## look for races in the CUDA kernels of products, on the emulated device (minutes)
	@tools/races.sh $B
.PHONY: races
