# The PTX machine: $(OUT)/softgpu/libvm.a, which libcudart.so of the software GPU contains, and its tests. Included by softgpu.mk.
#
# ops_*.c are compiled once per instruction set by the Makefile's rules, like kernels/cpu. Sums and products are rounded one by one, as
# in PTX, but for mma, where that makes no difference. -fwrapv: integers wrap around.

VM_PER_ISA := $(wildcard tests/softgpu/vm/ops_*.c)
VM_ONCE    := $(filter-out $(VM_PER_ISA),$(wildcard tests/softgpu/vm/*.c))
VM_OBJECTS := $(VM_ONCE:%.c=$(OUT)/%.o) $(foreach isa,$(ISAS),$(VM_PER_ISA:%.c=$(OUT)/%.$(isa).o))
VM_TENSOR  := $(foreach isa,$(ISAS),$(OUT)/tests/softgpu/vm/ops_tensor.$(isa).o)

$(VM_OBJECTS): private CFLAGS += -fPIC -fvisibility=hidden -fwrapv -fno-strict-aliasing -ffp-contract=off
$(VM_TENSOR): private CFLAGS += -ffp-contract=fast

$(OUT)/softgpu/libvm.a: $(VM_OBJECTS)
	@mkdir -p $(@D)
	$(call SHOW,AR  )
	$(Q)rm -f $@ && ar rcs $@ $^

# The tests of the machine alone. cases/*.cu become PTX text where nvcc is found; without it the tests that need them are skipped.
VM_TESTS := $(patsubst %.c,$(OUT)/%,$(wildcard tests/softgpu/test_vm*.c))
VM_CASES := $(if $(NVCC),$(patsubst %.cu,$(OUT)/%.ptx,$(wildcard tests/softgpu/cases/*.cu)))

$(OUT)/tests/softgpu/test_vm%: $(OUT)/tests/softgpu/test_vm%.o $(OUT)/softgpu/libvm.a | $(VM_CASES)
	$(call SHOW,LINK)
	$(Q)$(LINK) -o $@ $^ -lcmocka -lm -lpthread

$(OUT)/tests/softgpu/cases/%.ptx: tests/softgpu/cases/%.cu
	@mkdir -p $(@D)
	$(call SHOW,NVCC)
	$(Q)$(NVCC) -std=c++17 -O2 -lineinfo -arch=compute_80 -ptx -o $@ $<

-include $(VM_OBJECTS:.o=.d) $(VM_TESTS:=.d)
