# The wheel of the Python package for x86_64 Linux: the package, the library and the decoders' helper as a tarball has them,
# both bundled models and the licences. Nothing comes from an index of packages.
WHEEL      := $(DIST)/evenkeel-$(VERSION)-py3-none-manylinux_2_31_x86_64.whl

# jansson's archive of Debian names variables of the C library as only a program may.
$(DIST)/libevenkeel.so: $(call objs,lib) $(call objs,capi) $(filter-out %/ek_capi.a %/ek_lib.a,$(call libs,capi)) src/lib/evenkeel.map $(DIST_LIBS)/whole
	$(call say,link $@)$(CC) -shared $(LDFLAGS_ALL) -Wl,-soname,libevenkeel.so.$(SOVERSION) -Wl,--version-script=src/lib/evenkeel.map -Wl,-z,defs \
	  $(DIST_LD) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(DIST_LIBS)/static/lib/libjansson.a \
	  $(call archives,ssl crypto sqlite3)

wheel: ## the Python package with the library inside, on Debian 12 (CUDA_ARCHS: all unless given; CUDA=0: none)
	@tools/setup.sh $(DIST_SETUP)
	$(if $(or $(filter 0,$(CUDA)),$(NVCC)),,@echo "wheel: nvcc is not installed; CUDA=0 makes a wheel without kernels for GPUs" >&2; exit 1)
	@$(MAKE) --no-print-directory $(PARALLEL) $(if $(filter file,$(origin CUDA_ARCHS)),CUDA_ARCHS=all) $(WHEEL)

$(WHEEL): $(DIST)/libevenkeel.so $(DIST)/evenkeel-decode tools/dist/wheel.py tools/dist/wheel.sh $(wildcard python/evenkeel/*) $(wildcard models/pocket/* models/pocket-drafter/*)
	@SOURCE_DATE_EPOCH=$(DIST_EPOCH) DIST_FETCHED='$(DIST_FETCHED)' tools/dist/wheel.sh $(DIST) $(VERSION)

.PHONY: wheel
