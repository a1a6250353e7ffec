# tally: build, test, install. `make help` lists the targets.
#
# The product is one binary, build/tally, made of libtally.a (everything but main) so that the tests link what the product
# links. Everything that make writes goes under build/.

BUILD    ?= build
PREFIX   ?= /usr/local
DESTDIR  ?=
CC       ?= cc
SANITIZE ?=
WERROR   ?=
CFLAGS   ?= $(if $(SANITIZE),-O1,-O3) -g

# A sanitized build has a folder of its own below, say build/sanitize-address-undefined.
comma := ,
OUT   := $(BUILD)$(if $(SANITIZE),/sanitize-$(subst $(comma),-,$(SANITIZE)))

# -ffp-contract=fast: fused multiply-add, as every GPU has. No -ffast-math: infinities and NaNs are data here.
LANGUAGE    := -std=gnu11 -I. -D_GNU_SOURCE
WARNINGS    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla $(WERROR)
SANITIZERS  := $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer)
BASE_CFLAGS := $(LANGUAGE) -fopenmp -ffp-contract=fast -fno-math-errno -fno-trapping-math $(WARNINGS) $(SANITIZERS)
LINK        := $(CC) -fopenmp $(SANITIZERS) $(LDFLAGS)
LDLIBS      := -ldnnl -ljansson -lpcre2-8 -lm -lpthread

# kernels/cpu is compiled once per instruction set and chosen at run time; elsewhere than on x86-64, plain C only.
ISAS            := plain $(if $(filter x86_64,$(shell uname -m)),v3 v4)
ISA_FLAGS_plain :=
ISA_FLAGS_v3    := -march=x86-64-v3 -mtune=haswell
ISA_FLAGS_v4    := -march=x86-64-v4 -mprefer-vector-width=512

# nvcc, when it is found, adds the cuda device: machine code for CUDA_ARCHS (`all`: of every GPU from sm_75 on that tally is meant
# for and this nvcc knows), and PTX for CUDA_PTX, which the driver of a newer GPU translates.
# `make NVCC=` builds without it. Sanitized builds are without: the sanitizers do not know the driver's memory. What ptxas says of
# each kernel is kept for tests/registers.sh.
NVCC       ?= $(or $(shell command -v nvcc),$(wildcard /usr/local/cuda/bin/nvcc))
CUDA_ARCHS ?= 80
CUDA_PTX   ?= 80
CUDA_HOME  := $(if $(NVCC),$(patsubst %/bin/nvcc,%,$(realpath $(shell command -v $(NVCC)))))
CUDA       := $(if $(SANITIZE),,$(CUDA_HOME))
KNOWN      := $(if $(filter all,$(CUDA_ARCHS)),$(patsubst sm_%,%,$(shell $(NVCC) --list-gpu-code)))
SASS       := $(if $(filter all,$(CUDA_ARCHS)),$(filter 75 80 86 90 120,$(KNOWN)),$(CUDA_ARCHS))
NVCC_FLAGS := -std=c++17 -O3 -lineinfo -I. -Xptxas -v -Xcompiler -Wall,-Wno-unknown-pragmas,-fno-exceptions \
              $(foreach arch,$(SASS),-gencode arch=compute_$(arch),code=sm_$(arch)) \
              -gencode arch=compute_$(CUDA_PTX),code=compute_$(CUDA_PTX)
CUDA_LIBS  := $(if $(CUDA),-L$(CUDA)/lib64 -Wl$(comma)-rpath$(comma)$(CUDA)/lib64 -lcudart -lstdc++ -ldl)
LDLIBS     += $(CUDA_LIBS)

ONCE    := kernels/cpu/gemm.c kernels/cpu/cpu_device.c
PER_ISA := $(filter-out $(ONCE),$(wildcard kernels/cpu/*.c))
KERNELS := $(if $(CUDA),$(wildcard kernels/cuda/*.cu))
ABSENT  := $(if $(CUDA),,kernels/cuda_absent.c)
SOURCES := $(wildcard base/*.c kernels/dry/*.c model/*.c data/*.c train/*.c tools/*.c) $(ONCE) \
           $(filter-out kernels/cuda_absent.c,$(wildcard kernels/*.c)) $(if $(CUDA),$(wildcard kernels/cuda/*.c)) $(ABSENT)
LIBRARY := $(filter-out tools/main.c,$(SOURCES))
OBJECTS := $(LIBRARY:%.c=$(OUT)/%.o) $(foreach isa,$(ISAS),$(PER_ISA:%.c=$(OUT)/%.$(isa).o)) $(KERNELS:%.cu=$(OUT)/%.cu.o)
TESTS   := $(patsubst tests/%.c,$(OUT)/unit/%,$(wildcard tests/test_*.c))
FUZZERS := $(patsubst tests/fuzz/%.c,$(OUT)/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))

# What runs is shown in short; V=1 shows it whole.
V    ?=
Q    := $(if $(V),,@)
SHOW  = $(if $(V),@:,@echo '  $(1)  $@')

# For targets that call make again: as many jobs as there are cores, unless -j says otherwise.
JOBS = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(shell nproc))

all: $(OUT)/tally ## Build build/tally (the default)

# ---- The product -------------------------------------------------------------------------------------------------------

$(OUT)/tally: $(OUT)/tools/main.o $(OUT)/libtally.a
	$(call SHOW,LINK)
	$(Q)$(LINK) -o $@ $^ $(LDLIBS)
	$(if $(CUDA)$(SANITIZE),,@echo 'Built for the CPU only: for a GPU, install the CUDA toolkit (nvcc) and make again.')

$(OUT)/libtally.a: $(OBJECTS)
	$(call SHOW,AR  )
	$(Q)rm -f $@ && ar rcs $@ $^

$(OUT)/%.o: %.c $(OUT)/flags
	@mkdir -p $(@D)
	$(call SHOW,CC  )
	$(Q)$(CC) $(BASE_CFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

define per_isa
$(OUT)/%.$(1).o: %.c $(OUT)/flags
	@mkdir -p $$(@D)
	$$(call SHOW,CC  )
	$(Q)$(CC) $(BASE_CFLAGS) $(CFLAGS) $(ISA_FLAGS_$(1)) -DCPU_ISA=$(1) -MMD -MP -c -o $$@ $$<
endef
$(foreach isa,$(ISAS),$(eval $(call per_isa,$(isa))))

$(OUT)/%.cu.o: %.cu $(OUT)/flags
	@mkdir -p $(@D)
	$(call SHOW,NVCC)
	$(Q)$(NVCC) $(NVCC_FLAGS) -MMD -MP -c -o $@ $< 2>$(@:.o=.log) || { cat $(@:.o=.log); exit 1; }
	@grep -A3 warning $(@:.o=.log) || true

# Debian's toolkit has its headers where the compiler looks anyway.
$(OUT)/kernels/cuda/%.o: private CFLAGS += $(if $(filter-out /usr,$(CUDA)),-isystem $(CUDA)/include)

# The table of GPUs as C: {"name", "capability", numbers, 0 for what is empty}, a line each; without comments and heading.
$(OUT)/gpus.inc: tools/gpus.csv
	@mkdir -p $(@D)
	$(Q)sed -e '/^#/d; /^name,/d; s/,,/,0,/g; s/,,/,0,/g; s/^\([^,]*\),\([^,]*\),/{"\1", "\2", /; s/$$/},/' $< >$@

$(OUT)/tools/cards.o: $(OUT)/gpus.inc
$(OUT)/tools/cards.o: private CFLAGS += -I$(OUT)

# The page that `tally report` fills in, as a string of C.
$(OUT)/report.inc: tools/report.html
	@mkdir -p $(@D)
	$(Q)sed -e 's/[\\"]/\\&/g; s/.*/"&\\n"/' $< >$@

$(OUT)/tools/report.o: $(OUT)/report.inc
$(OUT)/tools/report.o: private CFLAGS += -I$(OUT)

# Changes when the flags do, and then everything is compiled again.
ALL_FLAGS = $(CC) $(BASE_CFLAGS) $(CFLAGS) $(if $(CUDA),$(NVCC) $(NVCC_FLAGS),without nvcc)
$(OUT)/flags: FORCE | $(OUT)/found-build
	@echo '$(ALL_FLAGS)' | cmp -s - $@ || echo '$(ALL_FLAGS)' >$@

# Looks once for what a group of targets needs (tools/deps.sh), and stops with a line for each thing that is missing.
$(OUT)/found-%: tools/deps.sh
	@mkdir -p $(@D)
	@CC='$(CC)' tools/deps.sh check $*
	@touch $@

install: all ## Install below PREFIX (/usr/local), itself below DESTDIR
	install -D -m 755 $(OUT)/tally $(DESTDIR)$(PREFIX)/bin/tally
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/doc/tally README.md LICENSE

deps: ## Install the Debian packages that build and tests need (as root), or say which
	@CC='$(CC)' tools/deps.sh install build test
	@tools/deps.sh install fuzz || echo 'Without it the fuzzers are skipped.'

quickstart: ## Train a small GPT on real text and let it write: about 3 minutes; TEXT=file for your own text
	@CC='$(CC)' tools/deps.sh install build
	+@$(MAKE) $(JOBS) --no-print-directory all
	@tools/quickstart.sh '$(OUT)' '$(subst ','\'',$(TEXT))'

clean: ## Remove build/
	rm -rf $(BUILD)

# ---- Tests -------------------------------------------------------------------------------------------------------------

tests: $(OUT)/tally $(TESTS) $(OUT)/tests ## Build the unit tests; then `build/tests --device cuda` tests a device

$(OUT)/unit/test_%: $(OUT)/unit/test_%.o $(OUT)/libtally.a
	$(call SHOW,LINK)
	$(Q)$(LINK) -o $@ $^ -lcmocka $(LDLIBS)

$(OUT)/unit/%.o: tests/%.c $(OUT)/flags | $(OUT)/found-test
	@mkdir -p $(@D)
	$(call SHOW,CC  )
	$(Q)$(CC) $(BASE_CFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

# The tests that every device has to pass, as one command.
$(OUT)/tests: Makefile
	@rm -rf $@ && printf '#!/bin/sh\ncd "%s" && exec tests/run.sh device "%s" "$$@"\n' '$(CURDIR)' '$(abspath $(OUT))' >$@ && chmod +x $@

fuzzers: $(FUZZERS) ## Build the fuzzers (clang)

# What the fuzzers reach needs neither OpenMP nor oneDNN, so clang builds it alone.
FUZZ_OBJECTS := $(patsubst %.c,$(OUT)/fuzz/%.o,$(wildcard base/*.c data/*.c) model/config.c)
FUZZ_CC      := clang $(LANGUAGE) -O1 -g -fno-sanitize-recover=all

$(OUT)/fuzz/fuzz_%: $(OUT)/fuzz/tests/fuzz/fuzz_%.o $(OUT)/fuzz/libfuzz.a
	$(call SHOW,LINK)
	$(Q)$(FUZZ_CC) -fsanitize=fuzzer,address,undefined -o $@ $^ -ljansson -lpcre2-8 -lm

$(OUT)/fuzz/libfuzz.a: $(FUZZ_OBJECTS)
	$(call SHOW,AR  )
	$(Q)rm -f $@ && ar rcs $@ $^

$(OUT)/fuzz/%.o: %.c | $(OUT)/found-build $(OUT)/found-fuzz
	@mkdir -p $(@D)
	$(call SHOW,CC  )
	$(Q)$(FUZZ_CC) -fsanitize=fuzzer-no-link,address,undefined -MMD -MP -c -o $@ $<

include tests/softgpu/softgpu.mk

check: ## Unit and golden tests and a short run end to end: under 5 minutes
	@CC='$(CC)' tools/deps.sh install build test
	+@$(MAKE) $(JOBS) --no-print-directory tests
	@tests/run.sh check $(OUT)

test: test-build ## All tests, with the sanitizers too, and a minute of each fuzzer: under 35 minutes
	@tests/run.sh test $(OUT)

test-long: test-build ## For hours: more of everything, and FUZZ_SECONDS (3600) of each fuzzer
	@tests/run.sh test-long $(OUT)

# Sanitizers hide from the compiler what its warnings reason with, so no warning is an error there.
test-build: deps ## Build what `make test` runs
	+@$(MAKE) $(JOBS) --no-print-directory tests
	+@$(MAKE) $(JOBS) --no-print-directory SANITIZE=address,undefined WERROR= tests
	+@if tools/deps.sh check fuzz; then $(MAKE) $(JOBS) --no-print-directory fuzzers; fi

test-report: all ## The browser test of `tally report`: Chromium, without a window
	@tools/deps.sh install report
	@tests/report_check.sh $(OUT)/tally

# Hugging Face's transformers, for tests/hf_check.sh: 50 MB of Debian packages, and 160 MB in .venv (20 MB to download).
hf-venv: ## Make .venv with transformers, for the test against Hugging Face
	@tools/deps.sh install hf
	test -x .venv/bin/python || /usr/bin/python3 -m venv --system-site-packages .venv
	.venv/bin/pip install -q 'transformers<4.46' 'numpy<2'

bench: ## A training step against PyTorch's, in turns; BENCH_PYTHON=path for another PyTorch than Debian's
	@CC='$(CC)' tools/deps.sh install build
	@tools/deps.sh check bench
	+@$(MAKE) $(JOBS) --no-print-directory all
	@/usr/bin/env python3 tools/peers/compare.py --tally $(OUT)/tally $(BENCH_FLAGS)

# With few multiprocessors there are few partial sums, which are then as small beside the test's matrices as beside a run's.
profile: tests ## Write docs/profile.txt: what the GPU's kernels cost, counted on the software GPU
	LD_LIBRARY_PATH=$(OUT)/softgpu OMP_WAIT_POLICY=passive TALLY_TEST_DEVICE=cuda SOFTGPU_SMS=8 TALLY_PROFILE_OUT=docs/profile.txt \
	    $(OUT)/unit/test_profile

help: ## This list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 18
	@echo
	@echo 'Variables: CC, CFLAGS, BUILD=folder, SANITIZE=address,undefined, WERROR=-Werror, V=1'

FORCE:
.PHONY: all install deps quickstart clean tests fuzzers check test test-long test-build test-report hf-venv bench profile help FORCE
.SECONDARY:
-include $(OBJECTS:.o=.d) $(OUT)/tools/main.d $(TESTS:=.d) $(FUZZ_OBJECTS:.o=.d) $(wildcard $(OUT)/fuzz/tests/fuzz/*.d)
