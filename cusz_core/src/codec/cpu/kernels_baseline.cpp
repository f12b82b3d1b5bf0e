#define CUSZ_ISA baseline
#include "kernels_of_isa.hpp"

const cusz::cpu::Kernels cusz::cpu::baseline_kernels = cusz::cpu::baseline::kernels_of_isa("baseline");
