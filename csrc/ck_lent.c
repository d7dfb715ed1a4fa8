#include "ck_lent.h"

#include <stdlib.h>

ck_lent_t *ck_lent_new(void) {
        ck_lent_t *lent = calloc(1, sizeof(*lent));

        if (lent)
                lent->refs = 1;
        return lent;
}

void ck_lent_return(ck_lent_t *lent) {
        if (!lent->rkmessage)
                return;
        rd_kafka_message_detach_headers(lent->rkmessage, &lent->headers);
        if (lent->generation == ck_runtime_generation)
                rd_kafka_message_destroy(lent->rkmessage);
        lent->rkmessage = NULL;
}

void ck_lent_unref(ck_lent_t *lent) {
        if (--lent->refs)
                return;
        if (lent->headers)
                rd_kafka_headers_destroy(lent->headers);
        free(lent);
}
