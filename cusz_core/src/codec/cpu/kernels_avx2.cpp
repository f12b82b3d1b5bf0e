#define CUSZ_ISA avx2
#include "kernels_of_isa.hpp"

const cusz::cpu::Kernels cusz::cpu::avx2_kernels = cusz::cpu::avx2::kernels_of_isa("avx2");
