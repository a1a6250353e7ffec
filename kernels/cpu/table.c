/* The op table of one build of kernels/cpu. */
#include "kernels/cpu/cpu.h"

const Device CPU(cpu_table) = {.name = "cpu",
                               .memory_take = cpu_memory_take,
                               .memory_give = cpu_memory_give,
                               .synchronize = cpu_synchronize,
                               .host_take = cpu_host_take,
                               .host_give = cpu_host_give,
#define X(op) .op = CPU(op),
                               TALLY_OPS(X)
#undef X
};
