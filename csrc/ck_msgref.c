#include "ck_msgref.h"

#include <stdlib.h>

ck_msgref_t *ck_msgref_new(void) {
        ck_msgref_t *ref = calloc(1, sizeof(*ref));

        if (ref)
                ref->refs = 1;
        return ref;
}

void ck_msgref_return(ck_msgref_t *ref) {
        if (!ref->rkmessage)
                return;
        rd_kafka_message_detach_headers(ref->rkmessage, &ref->headers);
        if (ref->generation == ck_runtime_generation)
                rd_kafka_message_destroy(ref->rkmessage);
        ref->rkmessage = NULL;
}

void ck_msgref_unref(ck_msgref_t *ref) {
        if (--ref->refs)
                return;
        if (ref->headers)
                rd_kafka_headers_destroy(ref->headers);
        free(ref);
}
