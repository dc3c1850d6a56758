# libevenkeel, its examples, its bench, and the installation of everything.
#
# The archives of the layers hold internal names that begin with ek_ too. The shared object has the engine and the operators
# and exports what src/lib/evenkeel.map lists; the static one is one object whose hidden names are made local.
PREFIX  ?= /usr/local
LIBDIR  ?= $(PREFIX)/lib
SOVERSION := 0
# The static library has the operators alone: they need no other library.
OPS_LAYERS := lib ops tensor base
OPS_OBJS   := $(foreach l,$(OPS_LAYERS),$(call objs,$l))
# The program has the same objects: hidden names cost nothing where code may lie anywhere.
LIB_OBJS   := $(foreach l,$(DEPS_capi),$(call objs,$l))
SO = $(LIB_FILE)
# With types, which abidiff compares (tools/check/check_abi.sh).
$(call objs,lib) $(call objs,capi): CFLAGS += -g
$(LIB_OBJS): PIC := -fPIC

$B/lib/ek_below.a: $(filter-out $B/src/lib/%,$(OPS_OBJS))
	@mkdir -p $(@D)
	@rm -f $@ && $(AR) rcs $@ $^

$B/$(SO): $(call objs,lib) $(call objs,capi) $(filter-out %/ek_capi.a %/ek_lib.a,$(call libs,capi)) $(LIB_EXPORTS)
	$(call say,link $@)$(CC) $(LIB_LD) $(LDFLAGS_ALL) -o $@ $(filter %.o,$^) $(call group,$(filter %.a,$^)) $(call as_needed,$(LDLIBS))
	@$(foreach l,$(LIB_LINKS),ln -sf $(SO) $B/$l;)

ifneq ($(DARWIN),)
# The names of the version script as a list.
$B/exported.txt: src/lib/evenkeel.map
	@mkdir -p $(@D)
	@sed -n 's/^ *\([a-z][a-z0-9_]*\);$$/_\1/p' $< >$@
# Its own linker makes hidden names local in one object.
$B/lib/evenkeel.o: $(call objs,lib) $B/lib/ek_below.a
	$(LD) -r -o $@ $(filter %.o,$^) $(filter %.a,$^)
else
$B/lib/evenkeel.o: $(call objs,lib) $B/lib/ek_below.a
	$(LD) -r -o $@ $^
	objcopy --localize-hidden $@
endif
$B/libevenkeel.a: $B/lib/evenkeel.o
	@rm -f $@ && $(AR) rcs $@ $<

$B/evenkeel.pc: Makefile tools/make/lib.mk FORCE
	@printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$(LIBDIR)' 'includedir=$${prefix}/include' '' 'Name: evenkeel' \
	  'Description: Inference of Gemma 4 and its operators, bit for bit the same in any company' 'Version: $(VERSION)' \
	  'Libs: -L$${libdir} -levenkeel' 'Libs.private: -lm -pthread' 'Cflags: -I$${includedir}' > $@

.PHONY: lib examples install install-lib uninstall FORCE lib-grid bench-lib
lib: $B/$(SO) $B/libevenkeel.a ## libevenkeel, shared and static

EXAMPLES := $(patsubst %.c,$B/%,$(wildcard examples/*.c))
$B/examples/%: examples/%.c $B/libevenkeel.a
	@mkdir -p $(@D)
	$(call say,cc $<)$(CC) -std=c99 -O2 $(WARN) -Iinclude -pthread $(CFLAGS) $(filter -fsanitize=%,$(OPT)) -o $@ $< $B/libevenkeel.a -lm
examples: $(EXAMPLES) ## the founding reports as small programs, each prints a table

# Folders that an installation had to create; they go when it goes.
SHARE := $(PREFIX)/share/evenkeel
NEW_DIRS := $(SHARE)/new-dirs
install_dirs = tools/install_dirs.sh '$(DESTDIR)' $(NEW_DIRS)

install-lib: lib $B/evenkeel.pc $B/evenkeel-decode ## install libevenkeel, its decoders, headers and pkg-config file (PREFIX, LIBDIR, DESTDIR)
	$(install_dirs) $(LIBDIR)/pkgconfig $(PREFIX)/include $(PREFIX)/libexec/evenkeel
	install -m 755 $B/evenkeel-decode $(DESTDIR)$(PREFIX)/libexec/evenkeel/evenkeel-decode
	install -m 755 $B/$(SO) $(DESTDIR)$(LIBDIR)/$(SO)
	$(foreach l,$(LIB_LINKS),ln -sf $(SO) $(DESTDIR)$(LIBDIR)/$l;)
	install -m 644 $B/libevenkeel.a $(DESTDIR)$(LIBDIR)/libevenkeel.a
	install -m 644 $B/evenkeel.pc $(DESTDIR)$(LIBDIR)/pkgconfig/evenkeel.pc
	install -m 644 include/evenkeel.h include/evenkeel_ops.h $(DESTDIR)$(PREFIX)/include

install: install-lib $B/evenkeel ## install the program, its man pages, the bundled model and libevenkeel (PREFIX, DESTDIR)
	$(install_dirs) $(PREFIX)/bin $(addprefix $(PREFIX)/share/,$(shell tools/manuals.sh --dirs))
	install -m 755 $B/evenkeel $(DESTDIR)$(PREFIX)/bin/evenkeel
	tools/manuals.sh $B/evenkeel $(DESTDIR)$(PREFIX)/share
	@if [ -e models/pocket/config.json ]; then \
	  echo "install models/pocket"; $(install_dirs) $(SHARE)/models/pocket && \
	  install -m 644 models/pocket/* $(DESTDIR)$(SHARE)/models/pocket; fi
	@if [ -e models/pocket-drafter/config.json ]; then \
	  echo "install models/pocket-drafter"; $(install_dirs) $(SHARE)/models/pocket-drafter && \
	  install -m 644 models/pocket-drafter/* $(DESTDIR)$(SHARE)/models/pocket-drafter; fi
	@case ":$$PATH:" in *:$(PREFIX)/bin:*) echo "installed: evenkeel run" ;; \
	  *) echo "installed: $(PREFIX)/bin/evenkeel run; $(PREFIX)/bin is not in PATH" ;; esac

uninstall: ## remove what install put there, and the folders that it created and that are empty now
	rm -f $(DESTDIR)$(PREFIX)/bin/evenkeel $(DESTDIR)$(PREFIX)/libexec/evenkeel/evenkeel-decode $(DESTDIR)$(LIBDIR)/libevenkeel.* $(DESTDIR)$(LIBDIR)/pkgconfig/evenkeel.pc \
	  $(DESTDIR)$(PREFIX)/include/evenkeel.h $(DESTDIR)$(PREFIX)/include/evenkeel_ops.h
	rm -rf $(DESTDIR)$(SHARE)/models/pocket $(DESTDIR)$(SHARE)/models/pocket-drafter
	cd $(DESTDIR)$(PREFIX)/share 2>/dev/null && rm -f man/man1/evenkeel.1 man/man1/evenkeel-*.1 bash-completion/completions/evenkeel \
	  zsh/site-functions/_evenkeel fish/vendor_completions.d/evenkeel.fish || true
	@if [ -e $(DESTDIR)$(NEW_DIRS) ]; then \
	  dirs=$$(sed '1!G;h;$$!d' $(DESTDIR)$(NEW_DIRS)); rm -f $(DESTDIR)$(NEW_DIRS); \
	  for dir in $$dirs; do [ ! -d $(DESTDIR)$$dir ] || rmdir $(DESTDIR)$$dir 2>/dev/null || true; done; fi

# Programs of the tests over the shared library, found by LD_LIBRARY_PATH (tools/check/check_library_device.sh, tools/carry.sh).
$B/tests/capi/installed/%: tests/capi/installed/%.c include/evenkeel.h $B/$(SO)
	@mkdir -p $(@D)
	$(call say,cc $<)$(CC) -std=gnu99 $(OPT) $(WARN) -Iinclude $(CFLAGS) -o $@ $< -L$B -levenkeel -pthread

lib-grid: $(patsubst tests/%.c,$B/tests/%,$(wildcard tests/lib/test_*.c)) ## the operator tests with nothing thinned
	@for t in $^; do echo "$$t all"; $$t all 2>&1 | grep -vE 'RUN|\] test_' || exit 1; done

$B/bench/bench_lib: $B/bench/bench_lib.o $(call libs,lib)
	$(CC) $(LDFLAGS_ALL) -o $@ $(call group,$^) -lm -pthread
bench-lib: $B/bench/bench_lib ## the operator library against the engine's kernels and the machine
	@$<
