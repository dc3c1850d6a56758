# Libraries of the page at /: the browser files of Debian packages (make setup installs them), copied to where the assembler
# finds them beside the files of web/. Where one is missing an empty file stands for it, and the page does without: answers
# as plain text (marked), code without colours (highlight.js).
lib_file = $(firstword $(wildcard $(addprefix /usr/share/,$1)))
PAGE_marked    := $(call lib_file,javascript/marked/marked.min.js nodejs/marked/lib/marked.umd.min.js nodejs/marked/marked.min.js)
PAGE_highlight := $(call lib_file,javascript/highlight.js/highlight.min.js)
PAGE_licences  := $(wildcard $(addprefix /usr/share/doc/,$(addsuffix /copyright,libjs-marked libjs-highlight.js)))
PAGE_LIBS      := $B/page/marked.js $B/page/highlight.js $B/page/licences.txt

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

PAGE_OBJECT := $(filter %/page_files.o,$(call objs,serve))
$(PAGE_OBJECT): $(wildcard web/*) $(PAGE_LIBS)
$(PAGE_OBJECT): CFLAGS += -Wa,-I$B/page
