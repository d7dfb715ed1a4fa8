/* Included before every file of csrc in test_no_memory: its allocations use functions
 * that fail on demand. librdkafka's allocations do not, because a failure there would end
 * the process. */
#ifndef FAILING_H
#define FAILING_H

#include <stdlib.h>
#include <string.h>

void *failing_malloc(size_t size);
void *failing_calloc(size_t n, size_t size);
void *failing_realloc(void *old, size_t size);
char *failing_strdup(const char *text);
void *failing_aligned_alloc(size_t alignment, size_t size);

#define malloc failing_malloc
#define calloc failing_calloc
#define realloc failing_realloc
#define aligned_alloc failing_aligned_alloc
#undef strdup
#define strdup failing_strdup

#endif
