/* Included before every file of csrc in test_no_memory: its allocations go through functions that fail when
 * told. librdkafka's do not, which would end the process. */
#ifndef FAILING_H
#define FAILING_H

#include <stdlib.h>
#include <string.h>

void *failing_malloc(size_t size);
void *failing_calloc(size_t n, size_t size);
void *failing_realloc(void *old, size_t size);
char *failing_strdup(const char *text);

#define malloc failing_malloc
#define calloc failing_calloc
#define realloc failing_realloc
#undef strdup
#define strdup failing_strdup

#endif
