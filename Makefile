# tally: build, test, install. `make help` lists the targets.
#
# The product is one binary, build/tally. Everything that `make` writes goes under build/.

BUILD    ?= build
PREFIX   ?= /usr/local
CC       ?= cc
SANITIZE ?=

WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Werror
CFLAGS   ?= -O3 -g
# -ffp-contract=fast: fused multiply-add, as every GPU has. No -ffast-math: infinities and NaNs are data here.
BASE_CFLAGS := -std=gnu11 -I. -D_GNU_SOURCE -fopenmp -ffp-contract=fast -fno-math-errno -fno-trapping-math $(WARNINGS) -MMD -MP
LDLIBS   := -ldnnl -ljansson -lm -lpthread

ifneq ($(SANITIZE),)
BUILD       := $(BUILD)/sanitize-$(subst $(shell echo ,),-,$(SANITIZE))
BASE_CFLAGS += -fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer
LDFLAGS     += -fsanitize=$(SANITIZE)
endif

# kernels/cpu is compiled once per instruction set and chosen at run time; elsewhere than on x86-64, plain C only.
ISAS := plain
ifeq ($(shell uname -m),x86_64)
ISAS := plain v3 v4
endif
ISA_FLAGS_plain :=
ISA_FLAGS_v3    := -march=x86-64-v3 -mtune=haswell
ISA_FLAGS_v4    := -march=x86-64-v4 -mprefer-vector-width=512

ONCE    := kernels/cpu/gemm.c kernels/cpu/cpu_device.c
PER_ISA := $(filter-out $(ONCE),$(wildcard kernels/cpu/*.c))
SOURCES := $(wildcard base/*.c kernels/*.c kernels/dry/*.c model/*.c data/*.c train/*.c tools/*.c) $(ONCE)
LIBRARY := $(filter-out tools/main.c,$(SOURCES))
OBJECTS := $(LIBRARY:%.c=$(BUILD)/%.o) $(foreach isa,$(ISAS),$(PER_ISA:%.c=$(BUILD)/%.$(isa).o))

all: $(BUILD)/tally

$(BUILD)/tally: $(BUILD)/tools/main.o $(BUILD)/libtally.a
	$(CC) -fopenmp $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(BUILD)/libtally.a: $(OBJECTS)
	rm -f $@ && ar rcs $@ $^

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(BASE_CFLAGS) $(CFLAGS) -c -o $@ $<

define per_isa
$(BUILD)/%.$(1).o: %.c
	@mkdir -p $$(@D)
	$(CC) $(BASE_CFLAGS) $(CFLAGS) $(ISA_FLAGS_$(1)) -DCPU_ISA=$(1) -c -o $$@ $$<
endef
$(foreach isa,$(ISAS),$(eval $(call per_isa,$(isa))))

TESTS := $(patsubst tests/%.c,%,$(wildcard tests/test_*.c))
$(BUILD)/tests/test_%: $(BUILD)/tests/test_%.o $(BUILD)/libtally.a
	$(CC) -fopenmp $(LDFLAGS) -o $@ $^ -lcmocka $(LDLIBS)

tests: $(TESTS:%=$(BUILD)/tests/%)

clean:
	rm -rf $(BUILD)

.PHONY: all tests clean
.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
