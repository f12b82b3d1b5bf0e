// Compressor contexts, kept per process: ADIOS2 constructs a new plugin object at every write of Python's Stream, and
// decompresses with one object on changing threads.
#pragma once

#include <cusz/cusz.h>

namespace cusz_operator {

// A context of the pool for as long as this lives. get() is nullptr when out of memory.
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
