/* Aborts a process in which any thread but the first calls MPI: LD_PRELOAD=libthread.so. With CALLS in the
 * environment, prints the number of calls at the end. Works with any MPI, because it needs no MPI header. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static unsigned long calls;

static void* checked(const char* name) {
    if (gettid() != getpid()) {
        fprintf(stderr, "thread.c: a thread of its own calls %s\n", name);
        abort();
    }
    ++calls;
    return dlsym(RTLD_NEXT, name);
}

__attribute__((destructor)) static void report(void) {
    if (getenv("CALLS")) fprintf(stderr, "thread.c: %lu calls by the first thread\n", calls);
}

/* All arguments of these functions are integers or pointers, at most 12; passing on extra ones does no harm. */
#define CHECK(name)                                                                                                    \
    int name(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k, long l) {         \
        int (*real)(long, long, long, long, long, long, long, long, long, long, long, long);                           \
        *(void**)&real = checked(#name);                                                                               \
        return real(a, b, c, d, e, f, g, h, i, j, k, l);                                                               \
    }

CHECK(MPI_Abort)
CHECK(MPI_Allgather)
CHECK(MPI_Allgatherv)
CHECK(MPI_Allreduce)
CHECK(MPI_Barrier)
CHECK(MPI_Bcast)
CHECK(MPI_Comm_dup)
CHECK(MPI_Comm_free)
CHECK(MPI_Comm_rank)
CHECK(MPI_Comm_size)
CHECK(MPI_Comm_split)
CHECK(MPI_Comm_split_type)
CHECK(MPI_Gather)
CHECK(MPI_Gatherv)
CHECK(MPI_Ibarrier)
CHECK(MPI_Ibcast)
CHECK(MPI_Iprobe)
CHECK(MPI_Irecv)
CHECK(MPI_Isend)
CHECK(MPI_Mprobe)
CHECK(MPI_Mrecv)
CHECK(MPI_Probe)
CHECK(MPI_Recv)
CHECK(MPI_Reduce)
CHECK(MPI_Scatter)
CHECK(MPI_Scatterv)
CHECK(MPI_Send)
CHECK(MPI_Sendrecv)
CHECK(MPI_Ssend)
CHECK(MPI_Test)
CHECK(MPI_Testall)
CHECK(MPI_Wait)
CHECK(MPI_Waitall)
