#define CUSZ_ISA avx512
#include "kernels_of_isa.hpp"

const cusz::cpu::Kernels cusz::cpu::avx512_kernels = cusz::cpu::avx512::kernels_of_isa("avx512");
