/* Preloaded into a test's process: its first rd_kafka_seek_partitions() begins late, as
 * if the system did not run the calling thread for half a second. */
/* NOLINTNEXTLINE(*-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <unistd.h>

typedef void *seek_t(void *rk, void *partitions, int timeout_ms);

/* The symbol under a name that does not hide librdkafka's. */
/* NOLINTNEXTLINE(misc-use-internal-linkage): the process calls it */
seek_t late_seek __asm__("rd_kafka_seek_partitions");

void *late_seek(void *rk, void *partitions, int timeout_ms) {
        static atomic_int calls;
        void *library = dlopen("librdkafka.so.1", RTLD_LAZY | RTLD_NOLOAD);
        seek_t *real = (seek_t *)dlsym(library, "rd_kafka_seek_partitions");

        dlclose(library);
        if (atomic_fetch_add(&calls, 1) == 0)
                usleep(500000);
        return real(rk, partitions, timeout_ms);
}
