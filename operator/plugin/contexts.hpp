// A per-process pool of compressor contexts: ADIOS2 constructs a new plugin object for every write through Python's
// Stream, and decompresses with one object from different threads.
#pragma once

#include <cusz/cusz.h>

namespace cusz_operator {

// Holds a context of the pool for its lifetime. get() returns nullptr when out of memory.
class PooledContext {
public:
    PooledContext() noexcept;
    ~PooledContext();
    PooledContext(const PooledContext&) = delete;
    PooledContext& operator=(const PooledContext&) = delete;

    cusz_context* get() const noexcept { return m_context; }

private:
    cusz_context* m_context;
};

} // namespace cusz_operator
