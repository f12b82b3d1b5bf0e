// The operator's parameters, as given by a user in XML, YAML or code.
#pragma once

#include <cusz/cusz.h>

#include <span>

namespace cusz_operator {

// A key, in lower case, and its value.
struct Parameter {
    const char* key;
    const char* value;
};

struct Parameters {
    cusz_params compression;   // eb = 0 in mode abs, meaning lossless, unless the bound is given, and everything that
                               // affects values is well-formed
    bool missing_bound = true; // no bound was given: reported only at the first block, because readers construct
                               // plugins without parameters
    bool column_major = false; // the first dimension of a block is the fastest in memory (Fortran)
};

// Unknown or malformed parameters are no failure: they are reported once, and ignored if no value can lose its bound by
// that; otherwise blocks are stored raw. May throw std::bad_alloc.
Parameters parse_parameters(std::span<const Parameter> given);

} // namespace cusz_operator
