# The Vulkan shaders: each twice, with the device's fma and (soft) with one by integers, embedded by
# src/vulkan/shaders.S. A shader is a file NAME.comp of src/vulkan/shaders, or a form of a file FAMILY.glsl there. Nothing of Vulkan is linked or needed to run. `make VULKAN=0` leaves them out, as does
# a machine without glslc or Vulkan's headers.
VULKAN_DIR  := build/vulkan
COMP        := $(wildcard src/vulkan/shaders/*.comp)

# Forms: NAME:FAMILY:DEFINITION:... Weights' bits and an activation's limbs; FLOAT_BITS 0 is bf16; TILE counts queries.
of_bits = $(foreach b,4 8,$(foreach l,1 2,$1_q$b_l$l:$2:BITS=$b:LIMBS=$l$3))
SHADER_FORMS := $(call of_bits,product,product_q) $(call of_bits,products,product_q,:EXPERTS) \
  gated_q4_l1:product_q:BITS=4:LIMBS=1:GATED gated_q8_l2:product_q:BITS=8:LIMBS=2:GATED \
  $(call of_bits,product_tile,product_tile) $(call of_bits,product_many,product_many) \
  $(foreach l,1 2,product_many16_q8_l$l:product_many:BITS=8:LIMBS=$l:GROUP_16) \
  $(foreach b,4 8,$(foreach l,1 2,product_coop_q$b_l$l:product_many:BITS=$b:LIMBS=$l:COOPERATIVE:SUBGROUPS_DOWN=2:DOWN=$(if $(filter 1,$l),4,2):ACROSS=2)) \
  $(foreach f,0=bf16 16=f16 32=f32,$(foreach e,product products,$e_$(lastword $(subst =, ,$f)):product_f:FLOAT_BITS=$(firstword $(subst =, ,$f))$(if $(filter products,$e),:EXPERTS))) \
  attn_int:attn_int:TILE=8 $(foreach t,1 2 4,attn_int_$t:attn_int:TILE=$t) \
  attn_int_many:attn_int_many attn_int_coop:attn_int_many:COOPERATIVE \
  attn_join:attn_join:JOIN_FLOATS attn_int_join:attn_join:JOIN_INTEGERS soft_cap:logits:SOFT_CAP argmax:logits:ARGMAX \
  route:route:ROUTE group:route:GROUP_PAIRS choose:route:CHOOSE embed:gather:EMBED gather:gather:GATHER \
  pack_q:pack:PACK_Q pack_planes:pack:PACK_PLANES \
  draft_centroids:draft:DRAFT_CENTROIDS draft_ordered:draft:DRAFT_ORDERED draft_next:draft:DRAFT_NEXT \
  $(foreach s,MASK=mask EDIT=edit SCALE=scale WEIGHTS=weights ALL=all,sample_$(lastword $(subst =, ,$s)):sample_row:SAMPLE_$(firstword $(subst =, ,$s)))
SHADERS     := $(sort $(COMP:src/vulkan/shaders/%.comp=%) $(foreach f,$(SHADER_FORMS),$(firstword $(subst :, ,$f))))
SPIRV       := $(if $(VULKAN_ON),$(foreach d,hard soft,$(SHADERS:%=$(VULKAN_DIR)/$d/%.spv)))

# Without optimisation: a driver compiles them again, and glslc's must not decide how floats are computed.
# $1: hard or soft; $2: NAME, or % for files; $3: the file; $4: definitions
define vulkan_shader
$(VULKAN_DIR)/$1/$2.spv: src/vulkan/shaders/$3 $(if $(filter-out %,$2),tools/make/vulkan.mk)
	@mkdir -p $$(@D)
	$$(call say,glslc $$< $1 $4)$$(GLSLC) --target-env=vulkan1.2 -fshader-stage=compute -Werror -O0 -Isrc/vulkan/shaders -DEK_SOFT=$(if $(filter soft,$1),1,0) $(4:%=-D%) -MD -MF $$(@:.spv=.d) -MT $$@ -o $$@ $$<
endef
vulkan_form = $(eval $(call vulkan_shader,$1,$(word 1,$2),$(word 2,$2).glsl,$(wordlist 3,9,$2)))
$(foreach d,hard soft,$(eval $(call vulkan_shader,$d,%,%.comp))$(foreach f,$(SHADER_FORMS),$(call vulkan_form,$d,$(subst :, ,$f))))
-include $(wildcard $(VULKAN_DIR)/*/*.d)
# One that is not there any more is no error.
src/vulkan/shaders/%.glsl src/vulkan/shaders/%.comp: ;

vulkan_list = printf '$(SHADERS:%=shader %\n)' | sed 's/^ *//'
$(VULKAN_DIR)/shaders.inc: $(COMP) tools/make/vulkan.mk
	@mkdir -p $(@D)
	@$(vulkan_list) >$@
ifneq ($(and $(VULKAN_ON),$(wildcard $(VULKAN_DIR)/shaders.inc)),)
ifneq ($(shell $(vulkan_list) | cmp -s - $(VULKAN_DIR)/shaders.inc && echo same),same)
$(VULKAN_DIR)/shaders.inc: FORCE
endif
endif

$B/src/vulkan/shaders.o: src/vulkan/shaders.S $(SPIRV) $(if $(VULKAN_ON),$(VULKAN_DIR)/shaders.inc)
	@mkdir -p $(@D)
	$(call say,as $< with $(words $(SHADERS)) shaders)$(CC) -c -o $@ -Wa,-I$(VULKAN_DIR) -I$(VULKAN_DIR) $<
$B/src/vulkan/absent.o: src/vulkan/absent.c
	@mkdir -p $(@D)
	@echo "  no Vulkan shaders: $(if $(filter 0,$(VULKAN)),VULKAN=0,$(if $(GLSLC),Vulkan's headers are,glslc is) not installed)"
	$(call say,cc $<)$(CC) $(ALL_CFLAGS) $(PIC) -MMD -MP -c -o $@ $<
