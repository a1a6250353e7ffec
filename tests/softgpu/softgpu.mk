# The software GPU (tests/softgpu/README.md), built where nvcc 13 is: $(SOFTGPU)/libcudart.so.13 and libcublasLt.so.13, and the
# programs that test them. The Makefile includes this file.

SOFTGPU       := $(OUT)/softgpu
SOFTGPU_CAN   := $(if $(CUDA),$(wildcard $(CUDA)/lib64/libcudart.so.13))
SOFTGPU_TESTS := $(if $(SOFTGPU_CAN),$(patsubst tests/softgpu/%.c,$(SOFTGPU)/tests/%,$(wildcard tests/softgpu/test_*.c)))

softgpu: $(if $(SOFTGPU_CAN),$(SOFTGPU)/libcublasLt.so.13)

softgpu-tests: softgpu $(SOFTGPU_TESTS)

tests: softgpu-tests $(SOFTGPU)/nvml/libnvidia-ml.so.1

# The driver's library for measurements, faked; it needs no CUDA, and stands apart so that only tests that ask for it find it.
$(SOFTGPU)/nvml/libnvidia-ml.so.1: tests/softgpu/nvml/nvml.c $(OUT)/flags
	@mkdir -p $(@D)
	$(call SHOW,LINK)
	$(Q)$(CC) $(LANGUAGE) -Wall -Wextra -O1 -fPIC -shared -Wl,-soname,libnvidia-ml.so.1 -o $@ $< -ldl

ifneq ($(SOFTGPU_CAN),)

SOFTGPU_CC   := $(CC) $(LANGUAGE) $(WARNINGS) -isystem $(CUDA)/include -I$(SOFTGPU) -g -fPIC
SOFTGPU_LINK := -L$(CUDA)/lib64 -Wl,-rpath,$(CUDA)/lib64

softgpu_objects = $(patsubst tests/softgpu/%.c,$(SOFTGPU)/%.o,$(wildcard tests/softgpu/$(1)/*.c))
VM_OBJECTS      := $(call softgpu_objects,vm)
RUNTIME_OBJECTS := $(filter-out %/list_errors.o,$(call softgpu_objects,runtime))
LT_OBJECTS      := $(call softgpu_objects,cublaslt)

# Kernels run for minutes, so what executes them is compiled for this machine. Integers wrap, as a GPU's do, and nothing but an
# fma is one.
$(VM_OBJECTS): private SOFTGPU_FLAGS := -O3 -march=native -mprefer-vector-width=512 -fwrapv -ffp-contract=off -fno-math-errno \
    -fno-trapping-math -fno-strict-aliasing
$(RUNTIME_OBJECTS): private SOFTGPU_FLAGS := -O2
$(LT_OBJECTS): private SOFTGPU_FLAGS := -O3 -march=native -mprefer-vector-width=512 -fopenmp

$(SOFTGPU)/%.o: tests/softgpu/%.c $(OUT)/flags
	@mkdir -p $(@D)
	$(call SHOW,CC  )
	$(Q)$(SOFTGPU_CC) $(SOFTGPU_FLAGS) -MMD -MP -c -o $@ $<

# What the toolkit's own library knows of errors.
$(SOFTGPU)/runtime/error.o: $(SOFTGPU)/errors.inc
$(SOFTGPU)/errors.inc: tests/softgpu/runtime/list_errors.c
	@mkdir -p $(@D)
	$(Q)$(SOFTGPU_CC) -o $(@D)/list_errors $< $(SOFTGPU_LINK) -lcudart
	$(Q)LD_LIBRARY_PATH= $(@D)/list_errors >$@

$(SOFTGPU)/cudart_stubs.c: tests/softgpu/stubs.sh $(RUNTIME_OBJECTS)
	$(Q)$< $(CUDA)/lib64/libcudart.so cuda softgpu_unimplemented $(RUNTIME_OBJECTS) >$@

$(SOFTGPU)/cublaslt_stubs.c: tests/softgpu/stubs.sh $(LT_OBJECTS)
	$(Q)$< $(CUDA)/lib64/libcublasLt.so cublasLt lt_unimplemented $(LT_OBJECTS) >$@

$(SOFTGPU)/%_stubs.o: $(SOFTGPU)/%_stubs.c
	$(Q)$(CC) -fPIC -c -o $@ $<

$(SOFTGPU)/libcudart.so.13: $(VM_OBJECTS) $(RUNTIME_OBJECTS) $(SOFTGPU)/cudart_stubs.o tests/softgpu/runtime/exports.map
	$(call SHOW,LINK)
	$(Q)$(CC) -shared -o $@ $(filter %.o,$^) -Wl,-soname,libcudart.so.13 -Wl,--version-script=$(lastword $^) -Wl,-Bsymbolic \
	    -Wl,-z,defs -ldl -lpthread -lm -lstdc++

$(SOFTGPU)/libcublasLt.so.13: $(LT_OBJECTS) $(SOFTGPU)/cublaslt_stubs.o tests/softgpu/cublaslt/exports.map \
    $(SOFTGPU)/libcudart.so.13
	$(call SHOW,LINK)
	$(Q)$(CC) -shared -fopenmp -o $@ $(filter %.o,$^) -Wl,-soname,libcublasLt.so.13 \
	    -Wl,--version-script=tests/softgpu/cublaslt/exports.map -Wl,-z,defs $(SOFTGPU)/libcudart.so.13 -lm

# ---- Tests -------------------------------------------------------------------------------------------------------------
# test_vm*: the machine alone, on PTX from cases/. The others are ordinary CUDA programs, run with LD_LIBRARY_PATH=$(SOFTGPU).

NVCC_TEST := $(NVCC) -std=c++17 -O2 -lineinfo -I.

$(SOFTGPU)/cases/%.ptx: tests/softgpu/cases/%.cu
	@mkdir -p $(@D)
	$(call SHOW,NVCC)
	$(Q)$(NVCC_TEST) -arch=compute_80 -ptx -o $@ $<

$(SOFTGPU)/tests/%.o: tests/softgpu/%.c $(OUT)/flags | $(OUT)/found-test
	@mkdir -p $(@D)
	$(call SHOW,CC  )
	$(Q)$(SOFTGPU_CC) -O1 -MMD -MP -c -o $@ $<

$(SOFTGPU)/tests/%.cu.o: tests/softgpu/%.cu
	@mkdir -p $(@D)
	$(call SHOW,NVCC)
	$(Q)$(NVCC_TEST) -gencode arch=compute_80,code=compute_80 -c -o $@ $<

# The same source in every form that a fat binary can have.
SOFTGPU_FORMS := none speed size
$(SOFTGPU)/tests/form_%.cu.o: tests/softgpu/form.cu
	@mkdir -p $(@D)
	$(call SHOW,NVCC)
	$(Q)$(NVCC_TEST) -DFORM=form_$* -gencode arch=compute_80,code=compute_80 --compress-mode=$* -c -o $@ $<
$(SOFTGPU)/tests/form_sass.cu.o: tests/softgpu/form.cu
	@mkdir -p $(@D)
	$(call SHOW,NVCC)
	$(Q)$(NVCC_TEST) -DFORM=form_sass -gencode arch=compute_80,code=sm_80 -c -o $@ $<

SOFTGPU_KERNELS := $(SOFTGPU)/tests/kernels.cu.o $(SOFTGPU)/tests/kernels_other.cu.o \
                   $(patsubst %,$(SOFTGPU)/tests/form_%.cu.o,$(SOFTGPU_FORMS) sass)

$(SOFTGPU)/tests/test_vm%: $(SOFTGPU)/tests/test_vm%.o $(VM_OBJECTS) \
    | $(patsubst tests/softgpu/%.cu,$(SOFTGPU)/%.ptx,$(wildcard tests/softgpu/cases/*.cu))
	$(call SHOW,LINK)
	$(Q)$(CC) -o $@ $^ -lcmocka -lpthread -lm

$(SOFTGPU)/tests/test_%: $(SOFTGPU)/tests/test_%.o $(SOFTGPU_KERNELS) | softgpu
	$(call SHOW,LINK)
	$(Q)$(CC) -o $@ $^ $(SOFTGPU_LINK) -lcublasLt -lcudart -lcmocka -lstdc++ -lm

-include $(wildcard $(SOFTGPU)/*/*.d)

endif

.PHONY: softgpu softgpu-tests
