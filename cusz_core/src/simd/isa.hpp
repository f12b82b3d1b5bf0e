// Names the namespace of everything that is compiled once per instruction set. The linker must not merge code compiled
// for a wider one with the same inline function elsewhere, or it would run on processors without it.
#pragma once

#ifndef CUSZ_ISA
#error "define CUSZ_ISA (kernels_*.cpp)"
#endif
