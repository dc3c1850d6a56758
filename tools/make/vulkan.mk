# The Vulkan shaders: each file of src/vulkan/shaders twice, with the device's fma and (soft) with one by integers,
# embedded by src/vulkan/shaders.S. Nothing of Vulkan is linked or needed to run. `make VULKAN=0` leaves them out, as does
# a machine without glslc or Vulkan's headers.
VULKAN_DIR  := build/vulkan
COMP        := $(wildcard src/vulkan/shaders/*.comp)
SPIRV       := $(if $(VULKAN_ON),$(foreach d,hard soft,$(COMP:src/vulkan/shaders/%.comp=$(VULKAN_DIR)/$d/%.spv)))

# Without optimisation: a driver compiles them again, and glslc's must not decide how floats are computed.
define vulkan_shader
$(VULKAN_DIR)/$1/%.spv: src/vulkan/shaders/%.comp
	@mkdir -p $$(@D)
	$$(call say,glslc $$< $1)$$(GLSLC) --target-env=vulkan1.2 -Werror -O0 -Isrc/vulkan/shaders -DEK_SOFT=$(if $(filter soft,$1),1,0) -MD -MF $$(@:.spv=.d) -MT $$@ -o $$@ $$<
endef
$(eval $(call vulkan_shader,hard))
$(eval $(call vulkan_shader,soft))
-include $(wildcard $(VULKAN_DIR)/*/*.d)
# One that is not there any more is no error.
src/vulkan/shaders/%.glsl: ;

vulkan_list = printf '$(patsubst src/vulkan/shaders/%.comp,shader %\n,$(COMP))' | sed 's/^ *//'
$(VULKAN_DIR)/shaders.inc: $(COMP)
	@mkdir -p $(@D)
	@$(vulkan_list) >$@
ifneq ($(and $(VULKAN_ON),$(wildcard $(VULKAN_DIR)/shaders.inc)),)
ifneq ($(shell $(vulkan_list) | cmp -s - $(VULKAN_DIR)/shaders.inc && echo same),same)
$(VULKAN_DIR)/shaders.inc: FORCE
endif
endif

$B/src/vulkan/shaders.o: src/vulkan/shaders.S $(SPIRV) $(if $(VULKAN_ON),$(VULKAN_DIR)/shaders.inc)
	@mkdir -p $(@D)
	$(call say,as $< with $(words $(COMP)) shaders)$(CC) -c -o $@ -Wa,-I$(VULKAN_DIR) -I$(VULKAN_DIR) $<
$B/src/vulkan/absent.o: src/vulkan/absent.c
	@mkdir -p $(@D)
	@echo "  no Vulkan shaders: $(if $(filter 0,$(VULKAN)),VULKAN=0,$(if $(GLSLC),Vulkan's headers are,glslc is) not installed)"
	$(call say,cc $<)$(CC) $(ALL_CFLAGS) $(PIC) -MMD -MP -c -o $@ $<
