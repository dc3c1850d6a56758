# What differs between the systems: Linux with GNU's linker, and macOS with Apple's (docs/PACKAGES.md, macOS), where only
# compilation and link were ever tried, from Linux (tools/check/check_macos.sh). GNU make 3.81 reads all of it.
ifndef UNAME_S
UNAME_S := $(shell uname -s)
endif
DARWIN  := $(filter Darwin,$(UNAME_S))
ARCH    := $(patsubst arm64,aarch64,$(shell uname -m))

ifneq ($(DARWIN),)
# Homebrew's folders, those of libraries that stand beside macOS's own too.
BREW    ?= $(shell brew --prefix 2>/dev/null)
PKG_CONFIG ?= PKG_CONFIG_PATH="$$PKG_CONFIG_PATH:$(BREW)/opt/openssl@3/lib/pkgconfig:$(BREW)/opt/sqlite/lib/pkgconfig:$(BREW)/opt/libedit/lib/pkgconfig" pkg-config
# Apple's linker looks into every archive as often as it takes.
group    = $1
as_needed = -Wl,-dead_strip_dylibs $1
STRIP_DEBUG := -Wl,-S
# Every program is one that may lie anywhere.
PIE :=
EXPORT_ALL :=
LIB_FILE  = libevenkeel.$(SOVERSION).dylib
LIB_LINKS = libevenkeel.dylib
LIB_EXPORTS = $B/exported.txt
LIB_LD      = -dynamiclib -install_name $(LIBDIR)/$(LIB_FILE) -current_version $(VERSION) -compatibility_version $(SOVERSION) \
              -Wl,-exported_symbols_list,$(LIB_EXPORTS)
# A library's own word for where it is; zlib is a part of macOS.
soname = $(or $(shell otool -D "$$($(PKG_CONFIG) --variable=libdir $1 2>/dev/null)/lib$(patsubst lib%,%,$1).dylib" 2>/dev/null | sed -n 2p),$(if $(filter zlib,$1),/usr/lib/libz.1.dylib,lib$(patsubst lib%,%,$1).dylib))
# Neither such cards nor a way to embed shaders.
CUDA   := 0
VULKAN := 0
else
PKG_CONFIG ?= pkg-config
group    = -Wl,--start-group $1 -Wl,--end-group
as_needed = -Wl,--push-state,--as-needed $1 -Wl,--pop-state
STRIP_DEBUG := -Wl,--strip-debug
PIE := -pie
EXPORT_ALL := -rdynamic
LIB_FILE  = libevenkeel.so.$(VERSION)
LIB_LINKS = libevenkeel.so.$(SOVERSION) libevenkeel.so
LIB_EXPORTS = src/lib/evenkeel.map
LIB_LD      = -shared -Wl,-soname,libevenkeel.so.$(SOVERSION) -Wl,--version-script=$(LIB_EXPORTS) -Wl,-z,defs
soname = $(shell readelf -d "$$($(CC) -print-file-name=lib$(patsubst lib%,%,$(patsubst zlib,z,$1)).so)" 2>/dev/null | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
endif
