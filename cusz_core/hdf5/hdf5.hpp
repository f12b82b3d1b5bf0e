// The parts of HDF5 that this filter uses, declared here so that it builds without HDF5 and one file serves every HDF5
// from 1.10 on. tests/hdf5/test_declarations.py compares them with the headers. Names and meanings are HDF5's.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cusz_hdf5 {

using hid_t = std::int64_t;
using herr_t = int; // negative: failure
using htri_t = int; // negative: failure
using hsize_t = unsigned long long;
using H5Z_filter_t = int;

using H5Z_can_apply_func_t = htri_t (*)(hid_t dcpl, hid_t type, hid_t space);
using H5Z_set_local_func_t = herr_t (*)(hid_t dcpl, hid_t type, hid_t space);
using H5Z_func_t = std::size_t (*)(unsigned flags, std::size_t cd_nelmts, const unsigned* cd_values, std::size_t nbytes,
                                   std::size_t* buf_size, void** buf);

struct H5Z_class2_t {
    int version; // of this structure: class_version
    H5Z_filter_t id;
    unsigned encoder_present;
    unsigned decoder_present;
    const char* name;
    H5Z_can_apply_func_t can_apply; // may be null
    H5Z_set_local_func_t set_local;
    H5Z_func_t filter;
};

constexpr int class_version = 1;           // H5Z_CLASS_T_VERS
constexpr int plugin_type_filter = 0;      // H5PL_TYPE_FILTER
constexpr unsigned flag_reverse = 0x0100;  // H5Z_FLAG_REVERSE: the chunk is read
constexpr int max_rank = 32;               // H5S_MAX_RANK
constexpr int class_float = 1;             // H5T_FLOAT
constexpr int order_little_endian = 0;     // H5T_ORDER_LE
constexpr int fill_value_user_defined = 2; // H5D_FILL_VALUE_USER_DEFINED
constexpr int fill_time_never = 1;         // H5D_FILL_TIME_NEVER
constexpr hid_t default_error_stack = 0;   // H5E_DEFAULT

// Types of functions; enumerations are int.
using H5Epush2_t = herr_t(hid_t stack, const char* file, const char* function, unsigned line, hid_t error_class,
                          hid_t major, hid_t minor, const char* format, ...);
using H5Pfill_value_defined_t = herr_t(hid_t dcpl, int* status);
using H5Pget_chunk_t = int(hid_t dcpl, int max_rank, hsize_t* extents);
using H5Pget_fill_time_t = herr_t(hid_t dcpl, int* time);
using H5Pget_fill_value_t = herr_t(hid_t dcpl, hid_t type, void* value);
using H5Pget_filter2_t = H5Z_filter_t(hid_t dcpl, unsigned number, unsigned* flags, std::size_t* cd_nelmts,
                                      unsigned* cd_values, std::size_t name_bytes, char* name, unsigned* config);
using H5Pmodify_filter_t = herr_t(hid_t dcpl, H5Z_filter_t id, unsigned flags, std::size_t cd_nelmts,
                                  const unsigned* cd_values);
using H5Tget_class_t = int(hid_t type);
using H5Tget_ebias_t = std::size_t(hid_t type);
using H5Tget_fields_t = herr_t(hid_t type, std::size_t* sign, std::size_t* exponent, std::size_t* exponent_bits,
                               std::size_t* mantissa, std::size_t* mantissa_bits);
using H5Tget_order_t = int(hid_t type);
using H5Tget_size_t = std::size_t(hid_t type);
using H5allocate_memory_t = void*(std::size_t bytes, bool clear);
using H5free_memory_t = herr_t(void* memory);

} // namespace cusz_hdf5
