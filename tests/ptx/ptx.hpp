// Runs the PTX that nvcc has made of kernels, on the CPU, in place of the kernels that the host's compiler has made: so
// the emulator's runtime (tests/simt), and everything over it, runs what a GPU's own compiler would be given.
//
// A warp's 32 lanes go in lockstep. Lanes that go different ways do so one after another and meet again where all ways
// do (at the immediate post-dominator). Warps take turns: until they wait in a barrier, sleep, or have had their share;
// several blocks are in flight; the order is the emulator's schedule. A launch fails, with a report that names the
// kernel, the line of PTX, block, warp and lanes, where
//   - an access is out of bounds of shared, local, parameter or allocated global memory, or is not aligned;
//   - a register is read that has no value on the way taken;
//   - lanes that a mask names are not there, masks differ, or a lane reads another that does not take part;
//   - threads wait for ever in a barrier, or everything only spins;
//   - an instruction is not in the table (instructions that our kernels have, and their siblings).
//
// Meanwhile it counts: see simt_ptx_counts. It cannot show races, the order in which a GPU's memory makes writes
// visible, or what ptxas makes of the PTX.
#pragma once

#include "emulator.hpp"

extern "C" {
// From now on kernels are run from this PTX file, or this text; null: as the host's compiler has made them. Returns 0,
// or 1 if the file cannot be read; simt_ptx_error() then says why.
SIMT_API int simt_use_ptx(const char* path);
SIMT_API int simt_use_ptx_text(const char* text);
SIMT_API const char* simt_ptx_error();

// Launches the entry of this name, with the bytes of its parameters. sizes: of the grid and of a block. Returns the
// launch's error.
SIMT_API int simt_ptx_launch(const char* entry, const unsigned (*sizes)[3], size_t shared_bytes, const void* parameters,
                             size_t parameter_bytes);

// What has been counted since simt_ptx_clear(), as JSON, as much as fits with a final zero. Returns the size needed.
// An object for every launch, in order: what was launched, instructions by class, and so on (machine.hpp, Counts).
SIMT_API size_t simt_ptx_counts(char* buffer, size_t size);
// By kernel and line of the file: how often it was executed, by warps and by threads.
SIMT_API size_t simt_ptx_lines(char* buffer, size_t size);
// All forms of instructions that are known: "opcode results operands", one a line.
SIMT_API size_t simt_ptx_forms(char* buffer, size_t size);
SIMT_API void simt_ptx_clear();
}
