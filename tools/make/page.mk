# Libraries of the page at /, copied to where the assembler finds them beside the files of web/: from npm where make setup
# could get them (tools/page, pinned by hash), else the browser files of Debian packages. Where one is missing an empty file
# stands for it, and the page does without: answers as plain text (marked), code without colours (highlight.js), formulas as
# written (Temml).
lib_file  = $(firstword $(wildcard $1))
NPM_PAGE := tools/page/node_modules
PAGE_marked    := $(call lib_file,$(addprefix /usr/share/,javascript/marked/marked.min.js nodejs/marked/lib/marked.umd.min.js nodejs/marked/marked.min.js))
# npm's file has 36 languages; these are added from files of their own.
LANGUAGES      := ada armasm asciidoc awk clojure cmake coq d dart delphi django dockerfile elixir elm erlang fortran fsharp \
  gcode glsl gradle groovy haml handlebars haskell http java julia latex lisp llvm matlab nginx nim nix ocaml pgsql powershell \
  prolog properties protobuf puppet reasonml scala scheme smalltalk stata stylus tcl thrift twig vbnet verilog vhdl vim x86asm
HLJS           := $(NPM_PAGE)/@highlightjs/cdn-assets
PAGE_highlight := $(if $(wildcard $(HLJS)/highlight.min.js),\
  $(HLJS)/highlight.min.js $(wildcard $(patsubst %,$(HLJS)/languages/%.min.js,$(sort $(LANGUAGES)))) tools/page/export_highlight.js,\
  $(wildcard /usr/share/javascript/highlight.js/highlight.min.js))
PAGE_temml     := $(patsubst %,% tools/page/export_temml.js,$(call lib_file,$(NPM_PAGE)/temml/dist/temml.min.js))
PAGE_licences  := $(wildcard $(addprefix /usr/share/doc/,$(addsuffix /copyright,libjs-marked libjs-highlight.js)) \
  $(NPM_PAGE)/@highlightjs/cdn-assets/LICENSE $(NPM_PAGE)/temml/LICENSE)
PAGE_LIBS      := $(addprefix $B/page/,marked.js highlight.js temml.js licences.txt)

# Looked at with every build, because packages come and go; written only if something changed.
$B/page/%: FORCE
	@mkdir -p $(@D)
	@cat $(PAGE_$(basename $*)) </dev/null >$@.new
	@if cmp -s $@.new $@; then rm -f $@.new; else \
	  [ -s $@.new ] || echo "  page: no $* on this machine (make setup installs it): the page does without"; \
	  mv -f $@.new $@; fi
.PHONY: FORCE
FORCE:
.PRECIOUS: $B/page/%

PAGE_OBJECT := $(filter %/serve/page.o,$(call objs,serve))
$(PAGE_OBJECT): $(wildcard web/*) $(PAGE_LIBS)
$(PAGE_OBJECT): CFLAGS += -Wa,-I$B/page
