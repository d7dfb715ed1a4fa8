#include "ck_pack.h"

#include <errno.h>
#include <stdlib.h>

/* The length of a null value. */
#define CK_PACK_NULL UINT32_MAX

static int ck_pack_reserve(ck_pack_t *pack, size_t more) {
        size_t size = pack->size;
        char *block;

        if (more <= size - pack->len)
                return 0;
        /* A place is 32 bits wide. */
        if (more > UINT32_MAX - pack->len)
                return ENOMEM;
        size = pack->len + more + size + 4096;
        if (!(block = realloc(pack->block, size)))
                return ENOMEM;
        pack->block = block;
        pack->size = size;
        return 0;
}

static void ck_pack_put(ck_pack_t *pack, const void *bytes, size_t len) {
        if (len)
                memcpy(pack->block + pack->len, bytes, len);
        pack->len += len;
}

static void ck_pack_put_number(ck_pack_t *pack, size_t number) {
        uint32_t narrow = (uint32_t)number;

        ck_pack_put(pack, &narrow, sizeof(narrow));
}

int ck_pack_add(ck_pack_t *pack, const rd_kafka_headers_t *headers, uint32_t *at) {
        size_t start = pack->len, cnt = rd_kafka_header_cnt(headers), i, size;
        const void *value;
        const char *name;

        if (ck_pack_reserve(pack, sizeof(uint32_t)))
                return ENOMEM;
        ck_pack_put_number(pack, cnt);
        for (i = 0; i < cnt; i++) {
                size_t name_len;

                rd_kafka_header_get_all(headers, i, &name, &value, &size);
                name_len = strlen(name);
                if (!value)
                        size = 0;
                if (ck_pack_reserve(pack, 2 * sizeof(uint32_t) + name_len + 1 + size)) {
                        pack->len = start;
                        return ENOMEM;
                }
                ck_pack_put_number(pack, name_len);
                ck_pack_put_number(pack, value ? size : CK_PACK_NULL);
                ck_pack_put(pack, name, name_len + 1);
                ck_pack_put(pack, value, size);
        }
        *at = (uint32_t)start;
        return 0;
}

char *ck_pack_take(ck_pack_t *pack) {
        char *block = pack->block;

        if (pack->len) {
                char *fitting = realloc(block, pack->len);

                if (fitting)
                        block = fitting;
        } else {
                free(block);
                block = NULL;
        }
        memset(pack, 0, sizeof(*pack));
        return block;
}

void ck_pack_destroy(ck_pack_t *pack) {
        free(pack->block);
        memset(pack, 0, sizeof(*pack));
}

static uint32_t ck_pack_number(const char **place) {
        uint32_t number;

        memcpy(&number, *place, sizeof(number));
        *place += sizeof(number);
        return number;
}

uint32_t ck_pack_cnt(const char **place) {
        return ck_pack_number(place);
}

void ck_pack_next(const char **place, ck_bytes_t *name, ck_bytes_t *value) {
        uint32_t name_len = ck_pack_number(place);
        uint32_t value_len = ck_pack_number(place);

        name->ptr = *place;
        name->len = name_len;
        *place += name_len + 1;
        value->ptr = value_len == CK_PACK_NULL ? NULL : *place;
        value->len = value_len == CK_PACK_NULL ? 0 : value_len;
        *place += value->len;
}
