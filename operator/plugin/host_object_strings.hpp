// Included once for each kind of std::string that a host may use (host_object_*.cpp): here std::string is the host's.
// Neither it nor a type that contains it may be passed on to other files.
#pragma once

#include "block_operator.hpp"
#include "host_object.hpp"
#include "report.hpp"

#include <array>
#include <map>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cusz_operator {

using Params = std::map<std::string, std::string>;

// A BlockOperator as seen by ADIOS2. On the write path, an exception ends the simulation, and a returned size of 0
// makes the block unreadable. On the read path, an exception is safe, and the only way to report a damaged block.
// Functions that the base does not declare are not virtual and never called: hence no `override`.
template <class Base>
class Object final : public Base {
public:
    Object() { this->is_stand_in = true; }
    explicit Object(std::span<const Parameter> given) : m_operator(given) {}

    std::size_t GetHeaderSize() const { return 0; }
    bool IsDataTypeValid(DataType type) const { return BlockOperator::accepts(type); }
    std::size_t GetEstimatedSize(std::size_t n, std::size_t value_bytes, std::size_t, const std::size_t*) const {
        m_has_room = true;
        return BlockOperator::max_bytes(n * value_bytes);
    }
    void AddExtraParameters(const Params& parameters) {
        const auto name = parameters.find("VariableName");
        m_operator.set_variable(name != parameters.end() ? name->second.c_str() : "");
    }
    std::size_t Operate(const char* field, const Dims&, const Dims& count, DataType type, char* out) {
        return m_operator.compress(field, count, type, out, std::exchange(m_has_room, false));
    }
    std::size_t InverseOperate(const char* archive, std::size_t archive_bytes, char* field) {
        return m_operator.decompress(archive, archive_bytes, field);
    }

private:
    BlockOperator m_operator;
    mutable bool m_has_room = false; // ADIOS2 has asked how much room the next block needs
};

template <class Base>
HostObject* make(const Params& parameters) noexcept {
    alignas(Object<Base>) static std::array<unsigned char, sizeof(Object<Base>)> memory;
    static Object<Base>* const stand_in = new (memory.data()) Object<Base>(); // never destroyed
    try {
        std::vector<Parameter> given;
        given.reserve(parameters.size());
        for (const auto& [key, value] : parameters) given.push_back({key.c_str(), value.c_str()});
        return new Object<Base>(given);
    } catch (...) {
        report_once("no operator", "out of memory: blocks are stored raw");
        return stand_in;
    }
}

inline HostObject* make(Interface interface, const void* parameters) noexcept {
    const Params& given = *static_cast<const Params*>(parameters);
    switch (interface) {
    case Interface::v2_10: return make<Interface_2_10<Params>>(given);
    case Interface::v2_11: return make<Interface_2_11<Params>>(given);
    case Interface::v2_12: break;
    }
    return make<Interface_2_12<Params>>(given);
}

} // namespace cusz_operator
