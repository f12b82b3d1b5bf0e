#include "contexts.hpp"

#include "cusz_operator.h"

#include <array>
#include <cstddef>
#include <mutex>

namespace cusz_operator {
namespace {

// The most contexts that are kept. More threads may run at once.
constexpr std::size_t max_idle = 64;

// Static storage without destructors, because ADIOS2 may still decode while the process exits. Contexts that are idle
// then end with the process.
std::mutex mutex;
std::array<cusz_context*, max_idle> idle;
std::size_t n_idle = 0;

} // namespace

PooledContext::PooledContext() noexcept {
    {
        const std::lock_guard<std::mutex> lock(mutex);
        m_context = n_idle > 0 ? idle[--n_idle] : nullptr;
    }
    if (m_context == nullptr) m_context = cusz_create();
}

PooledContext::~PooledContext() {
    if (m_context == nullptr) return;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        if (n_idle < max_idle) {
            idle[n_idle++] = m_context;
            return;
        }
    }
    cusz_destroy(m_context);
}

} // namespace cusz_operator

void cusz_operator_release_scratch(void) {
    using namespace cusz_operator;
    const std::lock_guard<std::mutex> lock(mutex);
    for (std::size_t i = 0; i < n_idle; ++i) cusz_release_scratch(idle[i]);
}
