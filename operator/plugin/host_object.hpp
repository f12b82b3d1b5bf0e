// The objects that the plugin gives to ADIOS2. ADIOS2 calls their virtual functions by position, in the order below,
// and touches nothing else of them (source/adios2/operator/plugin/PluginOperator.cpp in all three versions); names do
// not matter. The destructor comes first; OperatorDestroy calls it, not ADIOS2.
#pragma once

#include "adios2_types.hpp"
#include "host.hpp"

#include <cstddef>

namespace cusz_operator {

struct HostObject {
    virtual ~HostObject() = default;
    bool is_stand_in = false; // in static memory, used when the heap is exhausted
};

// An object for a host with this kind of std::string; `parameters` is its std::map of strings. Never fails: when out of
// memory, returns the stand-in, which stores blocks without loss.
HostObject* object_with_cxx11_strings(Interface interface, const void* parameters) noexcept;
HostObject* object_with_old_strings(Interface interface, const void* parameters) noexcept;

// ADIOS2 2.12: plugin::PluginOperatorInterface. Some unknown functions follow, for an ADIOS2 that has added functions
// although its number does not tell (a development version, or one that is linked statically). Without them, such a
// call would crash.
template <class Params>
struct Interface_2_12 : HostObject {
    virtual std::size_t Operate(const char* field, const Dims& start, const Dims& count, DataType type, char* out) = 0;
    virtual std::size_t InverseOperate(const char* archive, std::size_t archive_bytes, char* field) = 0;
    virtual bool IsDataTypeValid(DataType type) const = 0;
    virtual std::size_t GetEstimatedSize(std::size_t n, std::size_t value_bytes, std::size_t ndim,
                                         const std::size_t* count) const = 0;
    virtual void AddExtraParameters(const Params& parameters) = 0;
    virtual void unknown_1() { refuse_unknown_function(__builtin_return_address(0)); }
    virtual void unknown_2() { refuse_unknown_function(__builtin_return_address(0)); }
    virtual void unknown_3() { refuse_unknown_function(__builtin_return_address(0)); }
    virtual void unknown_4() { refuse_unknown_function(__builtin_return_address(0)); }
};

// ADIOS2 2.11: core::Operator.
template <class Params>
struct Interface_2_11 : HostObject {
    virtual std::size_t GetHeaderSize() const = 0;
    virtual std::size_t GetEstimatedSize(std::size_t n, std::size_t value_bytes, std::size_t ndim,
                                         const std::size_t* count) const = 0;
    virtual void AddExtraParameters(const Params& parameters) = 0;
    virtual std::size_t Operate(const char* field, const Dims& start, const Dims& count, DataType type, char* out) = 0;
    virtual std::size_t InverseOperate(const char* archive, std::size_t archive_bytes, char* field) = 0;
    virtual bool IsDataTypeValid(DataType type) const = 0;
};

// ADIOS2 2.10: core::Operator, whose first virtual functions are callbacks that it never calls on a plugin:
// RunCallback1 for the 15 types of its variables, and RunCallback2.
struct Callbacks : HostObject {
    virtual void callback_1() {}
    virtual void callback_2() {}
    virtual void callback_3() {}
    virtual void callback_4() {}
    virtual void callback_5() {}
    virtual void callback_6() {}
    virtual void callback_7() {}
    virtual void callback_8() {}
    virtual void callback_9() {}
    virtual void callback_10() {}
    virtual void callback_11() {}
    virtual void callback_12() {}
    virtual void callback_13() {}
    virtual void callback_14() {}
    virtual void callback_15() {}
    virtual void callback_16() {}
};

template <class Params>
struct Interface_2_10 : Callbacks {
    virtual std::size_t GetHeaderSize() const = 0;
    virtual std::size_t GetEstimatedSize(std::size_t n, std::size_t value_bytes, std::size_t ndim,
                                         const std::size_t* count) const = 0;
    virtual std::size_t Operate(const char* field, const Dims& start, const Dims& count, DataType type, char* out) = 0;
    virtual std::size_t InverseOperate(const char* archive, std::size_t archive_bytes, char* field) = 0;
    virtual bool IsDataTypeValid(DataType type) const = 0;
};

} // namespace cusz_operator
