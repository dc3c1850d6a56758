# The CUDA kernels: one fatbin a file of src/cuda/kernels, embedded by src/cuda/kernels.S. Nothing of CUDA is
# linked or needed to run. `make CUDA=0` leaves the kernels out, as does a machine without nvcc.
CUDA    ?= 1
NVCC    ?= $(or $(shell command -v nvcc 2>/dev/null),$(wildcard /usr/local/cuda/bin/nvcc))
CUDA_ON := $(if $(filter-out 0,$(CUDA)),$(and $(filter x86_64 aarch64,$(ARCH)),$(NVCC)))
CU_SRC  := $(wildcard src/cuda/kernels/*/*.cu)
# No contraction and IEEE division and square root, as in C (docs/NUMERICS.md 1); no PTX is shipped, for a
# driver's compiler might contract.
NVFLAGS := -O3 -std=c++17 -fmad=false -prec-div=true -prec-sqrt=true -ftz=false -Isrc \
           -gencode=arch=compute_90a,code=sm_90a -Werror all-warnings -Xptxas -v

# The same kernels for every configuration.
CUDA_DIR := build/cuda
FATBINS  := $(if $(CUDA_ON),$(patsubst %.cu,$(CUDA_DIR)/%.fatbin,$(notdir $(CU_SRC))))

# How the assembler finds them; kernels.S knows from the version that they are there.
ifneq ($(CUDA_ON),)
CUDA_AS := -Wa,-I$(CUDA_DIR) -I$(CUDA_DIR) \
  -DEK_CUDA_BUILT_WITH=$(shell $(NVCC) --version | sed -nE 's/.*release ([0-9]+)\.([0-9]+).*/\1000+\20/p')
endif

# What ptxas says of registers and spills is kept for tools/check/check_cuda.sh.
vpath %.cu $(sort $(dir $(CU_SRC)))
$(CUDA_DIR)/%.fatbin: %.cu
	@mkdir -p $(@D)
	$(call say,nvcc $<)$(NVCC) $(NVFLAGS) -MD -MP -MT $@ -MF $(@:.fatbin=.d) --fatbin -o $@.new $< 2>$(@:.fatbin=.ptxas) || { cat $(@:.fatbin=.ptxas); exit 1; }
	@mv $@.new $@
-include $(wildcard $(CUDA_DIR)/*.d)

# What kernels.S embeds.
$(CUDA_DIR)/kernels.inc: $(CU_SRC)
	@mkdir -p $(@D)
	@printf 'kernel %s\n' $(notdir $(basename $(CU_SRC))) >$@

$B/src/cuda/kernels.o: src/cuda/kernels.S $(FATBINS) $(if $(CUDA_ON),$(CUDA_DIR)/kernels.inc)
	@mkdir -p $(@D)
	$(if $(CUDA_ON),,@echo "  no CUDA kernels: $(if $(filter 0,$(CUDA)),CUDA=0,nvcc is not installed)")
	$(call say,as $<)$(CC) -c -o $@ $(CUDA_AS) $<

cuda: $(FATBINS) $B/lib/ek_cuda.a ## build the CUDA kernels (with nvcc) and say what they use
	@tools/check/check_cuda.sh $B
.PHONY: cuda

# --- tests on a device: one program, no test library; exits 77 without a driver
DEVICE_TEST := $B/tests/cuda/device/device
$(DEVICE_TEST): $(patsubst %.c,$B/%.o,$(wildcard tests/cuda/device/*.c)) $(addprefix $B/tests/support/,device_pack.o device_cut.o) $(call libs,cuda)
	$(call say,link $@)$(CC) $(LDFLAGS_ALL) $(TEST_LD) -o $@ -Wl,--start-group $^ -Wl,--end-group -lm -pthread

check-programs: $(DEVICE_TEST)

# Models on a device, with the scenes of tests/same.
GPU_TEST := $B/tests/gpu/device/device
SCENES   := $(addprefix $B/tests/same/,scene.o cases.o masked.o media.o pictures.o continued.o shared.o)
$(GPU_TEST): $(patsubst %.c,$B/%.o,$(wildcard tests/gpu/device/*.c)) $(SCENES) $(TEST_SUPPORT) $(call libs,gpu)
	$(call say,link $@)$(CC) $(LDFLAGS_ALL) $(TEST_LD) -o $@ -Wl,--start-group $^ -Wl,--end-group $(LDLIBS)

check-programs: $(GPU_TEST)

# --- the kernels on a CPU (tests/emulate): a library that is opened in place of the driver
EMULATED_SAN := $(filter -fsanitize=address,$(OPT))
EMULATED     := $B/tests/emulate/libcuda.so.1
EMULATED_OBJ := $(CU_SRC:src/cuda/kernels/%.cu=$B/tests/emulate/%.cu.o) \
                $(patsubst %.cc,$B/%.cc.o,$(wildcard tests/emulate/*.cc))
EMULATED_CXX := -std=c++17 -O1 $(if $(filter release,$(CONF)),-g0,-g1) -fPIC -fvisibility=hidden -fno-strict-aliasing -ffp-contract=off -Wall \
                -Wno-unknown-pragmas -Wno-uninitialized -Wno-maybe-uninitialized $(EMULATED_SAN) -MMD -MP -Itests -Itests/emulate -Isrc
$B/tests/emulate/%.cu.o: src/cuda/kernels/%.cu
	@mkdir -p $(@D)
	$(call say,c++ $<)$(CXX) $(EMULATED_CXX) -x c++ -include emulate/device.h -c -o $@ $<
$B/tests/emulate/%.cc.o: tests/emulate/%.cc
	@mkdir -p $(@D)
	$(call say,c++ $<)$(CXX) $(EMULATED_CXX) -c -o $@ $<
$B/tests/emulate/mma.cc.o: EMULATED_CXX += -O3
$(EMULATED): $(EMULATED_OBJ)
	$(call say,link $@)$(CXX) -shared $(EMULATED_SAN) -o $@ $^ -ldl

$B/tests/gpu/test_emulated $B/tests/gpu/test_pages $B/tests/gpu/test_tower $B/tests/gpu/test_ranks_emulated: $(EMULATED)
$B/tests/gpu/test_ranks_emulated: $(SCENES)
check-programs: $(EMULATED)

# --- the same under the thread sanitizer, for races inside of a block (tests/emulate/races.h)
RACES     := $B/tests/races/libcuda.so.1
RACES_OBJ := $(EMULATED_OBJ:$B/tests/emulate/%=$B/tests/races/%)
$B/tests/races/%.cu.o: src/cuda/kernels/%.cu
	@mkdir -p $(@D)
	$(call say,c++ $<)$(CXX) $(EMULATED_CXX) -DEK_RACES -fsanitize=thread -x c++ -include emulate/device.h -c -o $@ $<
$B/tests/races/%.cc.o: tests/emulate/%.cc
	@mkdir -p $(@D)
	$(call say,c++ $<)$(CXX) $(EMULATED_CXX) -DEK_RACES -c -o $@ $<
$(RACES): $(RACES_OBJ)
	$(call say,link $@)$(CXX) -shared -o $@ $^ -ldl $(shell $(CXX) -print-file-name=libtsan.so)

races: $(RACES) $(DEVICE_TEST) ## look for races in the CUDA kernels of products, on the emulated device (minutes)
	@tools/races.sh $B
.PHONY: races
