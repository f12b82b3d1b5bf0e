// Names the namespace of everything that is compiled once for every instruction set. Code compiled for a wider one must
// not be merged by the linker with the same inline function elsewhere, or it would run where it cannot.
#pragma once

#ifndef CUSZ_ISA
#error "define CUSZ_ISA (kernels_*.cpp)"
#endif
