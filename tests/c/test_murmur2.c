/* The hashes that Kafka's own tests expect of the Java client. */
#include "check.h"
#include "ck_murmur2.h"

static const struct {
        const char *key;
        int32_t hash;
} expected[] = {
    {"21", -973932308},
    {"foobar", -790332482},
    {"a-little-bit-long-string", -985981536},
    {"a-little-bit-longer-string", -1486304829},
    {"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971},
    {"abc", 479470107},
};

int main(void) {
        for (size_t i = 0; i < sizeof(expected) / sizeof(*expected); i++) {
                /* As large as the key: a sanitizer sees a read beyond it. */
                size_t len = strlen(expected[i].key);
                char *key = malloc(len);

                CHECK(key);
                memcpy(key, expected[i].key, len);
                CHECK((int32_t)ck_murmur2(key, len) == expected[i].hash);
                free(key);
        }
        CHECK(ck_murmur2("", 0) == 275646681);
        return 0;
}
