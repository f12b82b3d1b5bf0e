// Runs on the CPU the PTX that nvcc generates from kernels, instead of the kernels compiled by the host compiler. So
// the emulator's runtime (tests/simt), and everything above it, runs the code that ptxas would be given.
//
// The 32 lanes of a warp run in lockstep. Lanes that branch differently run path by path, and meet again where all
// paths do (at the immediate post-dominator). Warps take turns, each until it waits in a barrier, sleeps, or has had
// its share; several blocks are in flight; the order is the emulator's schedule. A launch fails, with a report that
// names the kernel, the line of PTX, block, warp and lanes, if
//   - an access is out of bounds of shared, local, parameter or allocated global memory, or is not aligned;
//   - a register is read that has no value on the path taken;
//   - lanes that a mask names are not there, masks differ, or a lane reads from one that does not take part;
//   - threads wait for ever in a barrier, or all of them only spin;
//   - an instruction is not in the table: it has those of our kernels, many for other types, too, and those of the
//     kernels of other compressors that docs/benchmarks/gpu-predictions.md compares with the model.
//
// It also counts: see simt_ptx_counts. It cannot show races, the order in which writes become visible on a GPU, or the
// code that ptxas generates.
#pragma once

#include "emulator.hpp"

extern "C" {
// From now on kernels run from this PTX file, or this text; null: as compiled by the host compiler. Returns 0, or 1 if
// the PTX cannot be read; simt_ptx_error() then says why.
SIMT_API int simt_use_ptx(const char* path);
SIMT_API int simt_use_ptx_text(const char* text);
SIMT_API const char* simt_ptx_error();

// Launches the entry of this name, with the bytes of its parameters. sizes: of the grid and of a block. Returns the
// error of the launch.
SIMT_API int simt_ptx_launch(const char* entry, const unsigned (*sizes)[3], size_t shared_bytes, const void* parameters,
                             size_t parameter_bytes);

// The counts since simt_ptx_clear(), as JSON, as much as fits with a final zero. Returns the size needed.
// One object per launch, in order: what was launched, instructions by class, and so on (machine.hpp, Counts).
SIMT_API size_t simt_ptx_counts(char* buffer, size_t size);
// Executions by warps and by threads, for every kernel and line of the file.
SIMT_API size_t simt_ptx_lines(char* buffer, size_t size);
// All known forms of instructions: "opcode results operands", one per line.
SIMT_API size_t simt_ptx_forms(char* buffer, size_t size);
SIMT_API void simt_ptx_clear();
}
