# The tarball for x86_64 Linux (docs/PACKAGES.md): the objects of this build, linked against Debian 11's C library, every
# other library in the programs themselves (tools/dist/libraries.sh).
DIST      := build/dist$(if $(filter aarch64,$(ARCH)),-aarch64)
DIST_LIBS := $(DIST)/libraries
# Packages of Debian that are fetched once; another build may use them.
DIST_FETCHED ?= $(DIST)/fetched
DIST_EPOCH = $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null),$(shell stat -c %Y CHANGELOG.md))
DIST_NAME := evenkeel-$(VERSION)-$(ARCH)-linux.tar.xz
DEB_NAME  := evenkeel_$(VERSION)_amd64.deb
IMAGE_NAME := evenkeel-$(VERSION)-x86_64-oci.tar
# Where one can be made.
DIST_HERE = $(and $(filter x86_64,$(ARCH)),$(filter bookworm,$(shell . /etc/os-release && echo $$VERSION_CODENAME)))
# What is needed beside a build's packages.
DIST_SETUP := cmake dpkg-dev xz-utils libmp3lame-dev

# Debian's gcc looks for crt1.o and libc.so beside its own first, --sysroot or not.
DIST_LIBC := $(DIST_LIBS)/libc
DIST_LD   = --sysroot=$(DIST_LIBC) $(foreach d,usr/lib lib,-B$(DIST_LIBC)/$d/$(ARCH)-linux-gnu -L$(DIST_LIBC)/$d/$(ARCH)-linux-gnu) -static-libgcc -s
DIST_BUILT := sndfile mpg123 soxr
# Archives of this Debian for its own processor; for another one they were fetched, jansson was compiled.
archive   = $(if $(filter $(DIST_BUILT) $(if $(DIST_CROSS),jansson),$1),$(DIST_LIBS)/static/lib/lib$1.a,$(if $(DIST_CROSS),$(DIST_LIBS)/archives/usr/lib/aarch64-linux-gnu/lib$1.a,$(shell $(CC) -print-file-name=lib$1.a)))
archives  = -Wl,--start-group $(foreach a,$1,$(call archive,$a)) -Wl,--end-group -lm -ldl -lpthread
DIST_PROGRAM := ssl crypto jansson event event_pthreads sqlite3 edit bsd md tinfo
DIST_HELPER  := jpeg png16 z webp webpdemux gif sndfile FLAC vorbisenc vorbis ogg opus mpg123 mp3lame soxr

$(DIST_LIBS)/whole: tools/dist/libraries.sh
	@CC='$(CC)' tools/dist/libraries.sh $(DIST_LIBS) $(DIST_FETCHED) $(ARCH)

$(DIST)/evenkeel: $(call libs,cli) $(DIST_LIBS)/whole
	$(call say,link $@)$(CC) $(LDFLAGS_ALL) -pie $(DIST_LD) -o $@ -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(call archives,$(DIST_PROGRAM))

# Without the stubs of src/decode, and with its functions hidden from the libraries that libheif brings.
$(DIST)/libraries.o: src/decode/libraries.c $(DIST_LIBS)/whole
	@$(CC) $(ALL_CFLAGS) $(MEDIA_CFLAGS) -DEK_LIBRARIES_LINKED -c -o $@ $<
$(DIST)/evenkeel-decode: $(call objs,helper) $(filter-out %/libraries.o,$(call objs,decode)) $(DIST)/libraries.o $(filter-out %/ek_decode.a,$(call libs,decode)) $(DIST_LIBS)/whole
	$(call say,link $@)$(CC) $(LDFLAGS_ALL) -pie $(DIST_LD) -rdynamic -Wl,--exclude-libs,ALL -o $@ -Wl,--start-group $(filter %.o %.a,$^) -Wl,--end-group $(call archives,$(DIST_HELPER))

# Nobody shall publish by mistake what has no kernels for GPUs.
dist: ## the tarball for x86_64 Linux, packages for Debian, an OCI image, SBOM and SHA-256 (CUDA_ARCHS: all unless given; CUDA=0: none), on Debian 12
	@tools/setup.sh $(DIST_SETUP)
	$(if $(or $(filter 0,$(CUDA)),$(NVCC)),,@echo "dist: nvcc is not installed; CUDA=0 makes a tarball without kernels for GPUs" >&2; exit 1)
	@$(MAKE) --no-print-directory $(PARALLEL) $(if $(filter file,$(origin CUDA_ARCHS)),CUDA_ARCHS=all) $(DIST)/$(DIST_NAME) $(DIST)/$(DEB_NAME) $(DIST)/$(IMAGE_NAME)

$(DIST)/$(DIST_NAME): $(DIST)/evenkeel $(DIST)/evenkeel-decode tools/dist/pack.sh tools/dist/layout.sh tools/dist/parts.py tools/dist/parts.tsv tools/manuals.sh deploy/evenkeel.service $(wildcard models/pocket/* models/pocket-drafter/*)
	@SOURCE_DATE_EPOCH=$(DIST_EPOCH) DIST_FETCHED='$(DIST_FETCHED)' tools/dist/pack.sh $(DIST) $(VERSION) $(ARCH) '$(or $(if $(CUDA_ON),$(CUDA_ARCHS)),none)'

# Packages for every Debian from 11 on, and for Ubuntu, out of the folder that the tarball was made of.
$(DIST)/$(DEB_NAME): $(DIST)/$(DIST_NAME) $(DIST)/libevenkeel.so tools/dist/deb.sh $(wildcard tools/dist/deb/* tools/dist/deb/*/* python/evenkeel/* include/* examples/engine/*)
	@SOURCE_DATE_EPOCH=$(DIST_EPOCH) tools/dist/deb.sh $(DIST) $(VERSION)

$(DIST)/$(IMAGE_NAME): $(DIST)/$(DIST_NAME) tools/dist/image.py
	@SOURCE_DATE_EPOCH=$(DIST_EPOCH) tools/dist/image.py $(DIST) $(VERSION)

dist-check: ## make tarball, packages and image twice, in folders, time zones and masks that differ: the same bytes
	@tools/dist/twice.sh $(if $(filter 0,$(CUDA)),CUDA=0) $(if $(filter file,$(origin CUDA_ARCHS)),,'CUDA_ARCHS=$(CUDA_ARCHS)')

# 64-bit Arm, kernels for CPUs alone, by the cross compiler. The headers of the libraries come first.
DIST_CROSS_FOUND := build/dist-aarch64/libraries
DIST_CROSS_FLAGS := $(foreach d,static/include archives/usr/include archives/usr/include/aarch64-linux-gnu,-isystem $(DIST_CROSS_FOUND)/$d)
cross_make = $(MAKE) --no-print-directory $(PARALLEL) ARCH=aarch64 DIST_CROSS=1 CUDA=0 B=build/aarch64-dist CC='$(filter ccache,$(CC)) aarch64-linux-gnu-gcc' \
  AR=aarch64-linux-gnu-ar PKG_CFLAGS='$(DIST_CROSS_FLAGS)' PKG_LIBS= MEDIA_PKGS='$(foreach l,$(MEDIA_LIBRARIES),$(lastword $(subst =, ,$l)))' \
  MEDIA_CFLAGS='-DEK_HAVE_HEIF $(foreach l,$(MEDIA_LIBRARIES),-DEK_SO_$(firstword $(subst =, ,$l))=\"$(if $(filter HEIF=%,$l),libheif.so.1)\")'
dist-aarch64: ## the tarball for 64-bit Arm Linux, cross-compiled, without kernels for GPUs, on Debian 12
	@tools/setup.sh $(DIST_SETUP) gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
	@$(cross_make) $(DIST_CROSS_FOUND)/whole
	@$(cross_make) build/dist-aarch64/evenkeel-$(VERSION)-aarch64-linux.tar.xz

.PHONY: dist dist-check dist-aarch64
