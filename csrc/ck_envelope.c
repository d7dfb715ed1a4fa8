#include "ck_envelope.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ck_base64.h"
#include "ck_json.h"

/* -- encoding */

static const char ck_envelope_null[] = "null";

/* The text before the value of each member, in the order of the members. */
static const char *const ck_envelope_before[] = {
    "{\"message_id\":", ",\"trace_id\":", ",\"message_type\":", ",\"sent_time\":",
    ",\"message\":"};

/* The size of a text with its quotes, or of null. */
static size_t ck_envelope_text_size(ck_bytes_t text) {
        return text.ptr ? 2 + ck_json_size(text) : sizeof(ck_envelope_null) - 1;
}

static size_t ck_envelope_size(const ck_envelopes_t *envelopes, size_t i) {
        size_t size = CK_TIME_MAX + 2 + 1,
               m; /* the time with its quotes, and the last brace */
        ck_bytes_t body = envelopes->bodies[i];

        for (m = 0; m < 5; m++)
                size += strlen(ck_envelope_before[m]);
        size += ck_envelope_text_size(envelopes->message_ids[i]) +
                ck_envelope_text_size(envelopes->trace_ids[i]) +
                ck_envelope_text_size(envelopes->message_types[i]);
        return size +
               (body.ptr ? 2 + ck_base64_size(body.len) : sizeof(ck_envelope_null) - 1);
}

static char *ck_envelope_put(char *into, const char *text) {
        size_t len = strlen(text);

        memcpy(into, text, len);
        return into + len;
}

static char *ck_envelope_text(char *into, ck_bytes_t text) {
        if (!text.ptr)
                return ck_envelope_put(into, ck_envelope_null);
        *into++ = '"';
        into = ck_json_write(into, text);
        *into++ = '"';
        return into;
}

/* Writes the sent time; null if it is not a date. */
static char *ck_envelope_time(char *into, const ck_sent_t *sent, int64_t now_us,
                              ck_zone_t *zone) {
        int64_t wall_us = sent->wall_us;
        int32_t offset = sent->offset;
        ck_civil_t civil;
        size_t len;

        if (sent->kind == CK_SENT_NOT) {
                if (!ck_time_local(zone, now_us, &civil))
                        return ck_envelope_put(into, ck_envelope_null);
                wall_us = ck_time_of_wall(&civil);
                offset = (int32_t)((wall_us - now_us) / 1000000);
        } else if (sent->kind == CK_SENT_LOCAL) {
                offset = ck_time_offset(zone, wall_us, sent->fold);
        }
        if (!(len = ck_time_write(into + 1, wall_us, offset)))
                return ck_envelope_put(into, ck_envelope_null);
        into[0] = into[len + 1] = '"';
        return into + len + 2;
}

int ck_envelope_encode(const ck_envelopes_t *envelopes, char **arena,
                       ck_bytes_t *values) {
        static const ck_sent_t not_said = {0, 0, CK_SENT_NOT, 0};
        ck_zone_t zone = {0};
        char now[CK_TIME_MAX + 2]; /* the same for all envelopes without a sent time */
        size_t now_len, size = 1, i;
        char *at;

        for (i = 0; i < envelopes->cnt; i++)
                size += ck_envelope_size(envelopes, i);
        if (!(*arena = at = malloc(size)))
                return ENOMEM;
        now_len =
            (size_t)(ck_envelope_time(now, &not_said, envelopes->now_us, &zone) - now);
        for (i = 0; i < envelopes->cnt; i++) {
                ck_bytes_t body = envelopes->bodies[i];

                values[i].ptr = at;
                at = ck_envelope_put(at, ck_envelope_before[0]);
                at = ck_envelope_text(at, envelopes->message_ids[i]);
                at = ck_envelope_put(at, ck_envelope_before[1]);
                at = ck_envelope_text(at, envelopes->trace_ids[i]);
                at = ck_envelope_put(at, ck_envelope_before[2]);
                at = ck_envelope_text(at, envelopes->message_types[i]);
                at = ck_envelope_put(at, ck_envelope_before[3]);
                if (envelopes->sent[i].kind == CK_SENT_NOT) {
                        memcpy(at, now, now_len);
                        at += now_len;
                } else {
                        at = ck_envelope_time(at, &envelopes->sent[i], 0, &zone);
                }
                at = ck_envelope_put(at, ck_envelope_before[4]);
                if (body.ptr) {
                        *at++ = '"';
                        at = ck_base64_write(at, body.ptr, body.len);
                        *at++ = '"';
                } else {
                        at = ck_envelope_put(at, ck_envelope_null);
                }
                *at++ = '}';
                values[i].len = (size_t)(at - (const char *)values[i].ptr);
        }
        return 0;
}

/* -- traceparent */

/* Whether the text consists of hexadecimal digits, not all of them zero. */
static bool ck_envelope_is_id(const char *text, size_t len, bool upper_too) {
        bool zero = true;
        size_t i;

        for (i = 0; i < len; i++) {
                char c = text[i];

                if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') ||
                      (upper_too && c >= 'A' && c <= 'F')))
                        return false;
                zero = zero && c == '0';
        }
        return !zero;
}

/* The next of a sequence of pseudorandom numbers (splitmix64). */
static uint64_t ck_envelope_random(uint64_t *seed) {
        uint64_t number = (*seed += UINT64_C(0x9e3779b97f4a7c15));

        number = (number ^ (number >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        number = (number ^ (number >> 27)) * UINT64_C(0x94d049bb133111eb);
        return number ^ (number >> 31);
}

void ck_envelope_traceparents(const ck_bytes_t *trace_ids, size_t cnt, uint64_t seed,
                              char *arena, ck_bytes_t *values, int64_t *starts) {
        static const char hex[] = "0123456789abcdef";
        int64_t made = 0;
        size_t i;
        int d;

        for (i = 0; i < cnt; i++) {
                const char *id = trace_ids[i].ptr;
                char *at = arena;
                uint64_t span;

                starts[i] = made;
                if (!id || trace_ids[i].len != 32 || !ck_envelope_is_id(id, 32, true))
                        continue;
                at = ck_envelope_put(at, "00-");
                for (d = 0; d < 32; d++) /* in lower case */
                        *at++ =
                            (char)(id[d] >= 'A' && id[d] <= 'F' ? id[d] | 0x20 : id[d]);
                *at++ = '-';
                while (!(span = ck_envelope_random(&seed)))
                        continue;
                for (d = 60; d >= 0; d -= 4)
                        *at++ = hex[span >> d & 15];
                ck_envelope_put(at, "-01");
                values[made].ptr = arena;
                values[made].len = CK_TRACEPARENT;
                made++;
                arena += CK_TRACEPARENT;
        }
        starts[cnt] = made;
}

/* The trace id of a traceparent, or NULL if it is invalid. Versions after 00 may have
 * more after the flags. */
static ck_bytes_t ck_envelope_traceparent_id(ck_bytes_t value) {
        const char *text = value.ptr;
        ck_bytes_t id = {NULL, 0};

        if (!text || value.len < CK_TRACEPARENT || text[2] != '-' || text[35] != '-' ||
            text[52] != '-' || memcmp(text, "ff", 2) == 0)
                return id;
        if (memcmp(text, "00", 2) == 0
                ? value.len != CK_TRACEPARENT
                : !ck_envelope_is_id(text, 2, false) ||
                      (value.len > CK_TRACEPARENT && text[CK_TRACEPARENT] != '-'))
                return id;
        if (!ck_envelope_is_id(text + 3, 32, false) ||
            !ck_envelope_is_id(text + 36, 16, false) ||
            (!ck_envelope_is_id(text + 53, 2, false) && memcmp(text + 53, "00", 2) != 0))
                return id;
        id.ptr = text + 3;
        id.len = 32;
        return id;
}

/* -- headers */

static bool ck_envelope_is_name(ck_bytes_t name, const char *expected, size_t len) {
        return name.len == len && memcmp(name.ptr, expected, len) == 0;
}

#define CK_ENVELOPE_IS(name, expected) \
        ck_envelope_is_name(name, expected, sizeof(expected) - 1)

/* The sources of a trace id, in ascending priority. */
enum {
        CK_RANK_TYPED = 1,
        CK_RANK_TRACEPARENT = 2,
        CK_RANK_CORRELATION = 4,
        CK_RANK_TRACE = 8
};

void ck_envelope_header(ck_envelope_t *envelope, int *rank, bool traceparent,
                        ck_bytes_t name, ck_bytes_t value) {
        int tells;

        if (CK_ENVELOPE_IS(name, "message_type")) {
                if (!(*rank & CK_RANK_TYPED))
                        envelope->message_type = value;
                *rank |= CK_RANK_TYPED;
                return;
        }
        if (CK_ENVELOPE_IS(name, "trace_id")) {
                tells = CK_RANK_TRACE;
        } else if (CK_ENVELOPE_IS(name, "correlation_id")) {
                tells = CK_RANK_CORRELATION;
        } else if (traceparent && CK_ENVELOPE_IS(name, "traceparent")) {
                tells = CK_RANK_TRACEPARENT;
                value = ck_envelope_traceparent_id(value);
        } else {
                return;
        }
        /* A null value has no trace id. */
        if (value.ptr && tells > (*rank & ~CK_RANK_TYPED)) {
                envelope->trace_id = value;
                *rank |= tells;
        }
}

int ck_envelope_headers(const ck_batch_t *batch, size_t start, ptrdiff_t step, size_t cnt,
                        bool traceparent, ck_envelope_t *envelopes, uint32_t *at,
                        char **block) {
        ck_pack_t pack = {0};
        size_t i;

        memset(envelopes, 0, cnt * sizeof(*envelopes));
        *block = NULL;
        for (i = 0; i < cnt; i++) {
                const rd_kafka_headers_t *headers = ck_batch_headers(
                    batch, (size_t)((ptrdiff_t)start + (ptrdiff_t)i * step));

                at[i] = UINT32_MAX;
                if (headers && ck_pack_add(&pack, headers, &at[i])) {
                        ck_pack_destroy(&pack);
                        return ENOMEM;
                }
        }
        /* From here on the block does not move. */
        *block = ck_pack_take(&pack);
        for (i = 0; i < cnt; i++) {
                const char *place;
                uint32_t left;
                int rank = 0;

                if (at[i] == UINT32_MAX)
                        continue;
                place = *block + at[i];
                for (left = ck_pack_cnt(&place); left; left--) {
                        ck_bytes_t name, value;

                        ck_pack_next(&place, &name, &value);
                        ck_envelope_header(&envelopes[i], &rank, traceparent, name,
                                           value);
                }
        }
        return 0;
}

/* -- JSON */

typedef enum ck_member_e {
        CK_MEMBER_ID = 0,
        CK_MEMBER_TRACE,
        CK_MEMBER_TYPE,
        CK_MEMBER_SENT,
        CK_MEMBER_BODY,
        CK_MEMBER_CORRELATION,
        CK_MEMBER__CNT,
} ck_member_t;

static const struct {
        const char *name;
        size_t len;
} ck_envelope_members[CK_MEMBER__CNT] = {
    {"message_id", 10}, {"trace_id", 8}, {"message_type", 12},
    {"sent_time", 9},   {"message", 7},  {"correlation_id", 14},
};

static ck_member_t ck_envelope_member(ck_bytes_t name) {
        ck_member_t member = CK_MEMBER_ID;

        while (member < CK_MEMBER__CNT &&
               !ck_envelope_is_name(name, ck_envelope_members[member].name,
                                    ck_envelope_members[member].len))
                member++;
        return member;
}

static bool ck_envelope_fail(ck_json_t *json, const char *at, const char *problem) {
        json->at = at;
        json->problem = problem;
        return false;
}

/* Reads the body, whose string begins at json->at. */
static bool ck_envelope_body(ck_json_t *json, ck_bytes_t *body) {
        const char *start = json->at, *text = start + 1, *problem;
        char *room = json->room, *into = room;
        size_t run = ck_base64_run(text, (size_t)(json->end - text), &into);
        size_t left = (size_t)(json->end - text) - run;
        ck_bytes_t string;

        /* Usually only the last group is left. */
        if (left && text[run] == '"') {
                json->at = text + run + 1;
        } else if (left > 4 && text[run + 4] == '"' && text[run + 3] == '=') {
                if ((problem = ck_base64_read(text + run, 4, &into)))
                        return ck_envelope_fail(json, start, problem);
                json->at = text + run + 5;
        } else {
                if (!ck_json_string(json, &string))
                        return false;
                into = room;
                if ((problem = ck_base64_read(string.ptr, string.len, &into)))
                        return ck_envelope_fail(json, start, problem);
        }
        body->ptr = room;
        body->len = (size_t)(into - room);
        json->room = into;
        return true;
}

/* Reads the value of a member. */
static bool ck_envelope_value(ck_json_t *json, ck_member_t member,
                              ck_envelope_t *envelope, ck_bytes_t *correlation_id) {
        ck_bytes_t text = {NULL, 0};
        const char *start;
        bool is_string;

        if (member == CK_MEMBER__CNT)
                return ck_json_skip(json);
        is_string = ck_json_peek(json) == '"';
        start = json->at;
        if (!is_string && !ck_json_null(json))
                return ck_envelope_fail(json, start, "expected a string or null");
        if (member == CK_MEMBER_BODY) {
                envelope->body = text;
                return !is_string || ck_envelope_body(json, &envelope->body);
        }
        if (is_string && !ck_json_string(json, &text))
                return false;
        switch (member) {
        case CK_MEMBER_ID:
                envelope->message_id = text;
                break;
        case CK_MEMBER_TRACE:
                /* A null keeps the trace id of the headers. */
                if (text.ptr)
                        envelope->trace_id = text;
                break;
        case CK_MEMBER_TYPE:
                envelope->message_type = text;
                break;
        case CK_MEMBER_SENT:
                envelope->is_sent = is_string;
                if (is_string && !ck_time_read(text.ptr, text.len, &envelope->sent_us,
                                               &envelope->is_local))
                        return ck_envelope_fail(json, start,
                                                "expected an ISO 8601 date and time");
                break;
        default:
                *correlation_id = text;
        }
        return true;
}

static bool ck_envelope_object(ck_json_t *json, ck_envelope_t *envelope) {
        ck_bytes_t header_trace_id = envelope->trace_id;
        ck_bytes_t correlation_id = {NULL, 0};
        bool traced = false;

        if (!ck_json_take(json, '{', "expected an object"))
                return false;
        if (ck_json_peek(json) != '}') {
                do {
                        char *room = json->room;
                        ck_member_t member;
                        ck_bytes_t name;

                        if (ck_json_peek(json) != '"')
                                return ck_envelope_fail(json, json->at,
                                                        "expected the name of a member");
                        if (!ck_json_string(json, &name))
                                return false;
                        member = ck_envelope_member(name);
                        json->room = room;
                        if (!ck_json_take(json, ':', "expected a colon after the name"))
                                return false;
                        if (!ck_envelope_value(json, member, envelope, &correlation_id)) {
                                if (member < CK_MEMBER__CNT)
                                        envelope->field =
                                            ck_envelope_members[member].name;
                                return false;
                        }
                        traced = envelope->trace_id.ptr != header_trace_id.ptr;
                } while (ck_json_peek(json) == ',' && json->at++);
        }
        if (!ck_json_take(json, '}', "expected a comma or } after the value"))
                return false;
        if (ck_json_peek(json) >= 0)
                return ck_envelope_fail(json, json->at, "data after the object");
        if (correlation_id.ptr && !traced)
                envelope->trace_id = correlation_id;
        return true;
}

int ck_envelope_decode(const ck_bytes_t *values, size_t cnt, ck_envelope_t *envelopes,
                       char **arena) {
        size_t size = 1, i;
        ck_json_t json;

        for (i = 0; i < cnt; i++)
                size += values[i].len;
        if (!(*arena = malloc(size)))
                return ENOMEM;
        json.room = *arena;
        for (i = 0; i < cnt; i++) {
                if (!values[i].ptr) {
                        envelopes[i].problem = "the value is null";
                        continue;
                }
                json.at = values[i].ptr;
                json.end = json.at + values[i].len;
                json.problem = NULL;
                if (!ck_envelope_object(&json, &envelopes[i])) {
                        envelopes[i].problem = json.problem;
                        envelopes[i].at = (size_t)(json.at - (const char *)values[i].ptr);
                }
        }
        return 0;
}
