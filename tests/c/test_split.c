/* Pieces of texts: each text is as large as its memory, so that a sanitizer sees a read
 * beyond it. */
#include "check.h"
#include "ck_split.h"

static char *copy_of(const char *text) {
        size_t len = strlen(text);
        char *copy = malloc(len ? len : 1);

        CHECK(copy);
        memcpy(copy, text, len);
        return copy;
}

static void check_piece(ck_bytes_t piece, const char *expected) {
        CHECK(piece.ptr);
        CHECK(piece.len == strlen(expected));
        CHECK(memcmp(piece.ptr, expected, piece.len) == 0);
}

static void check_split(const char *text, const char *delimiter, size_t end, size_t cnt,
                        const char *const *expected) {
        char *copy = copy_of(text);
        size_t found, found_end;
        ck_bytes_t *pieces = ck_split(copy, strlen(text), delimiter, strlen(delimiter),
                                      &found, &found_end);

        CHECK(pieces);
        CHECK(found == cnt);
        CHECK(found_end == end);
        for (size_t i = 0; i < cnt; i++)
                check_piece(pieces[i], expected[i]);
        free(pieces);
        free(copy);
}

static void test_pieces_end_with_the_delimiter(void) {
        check_split("", "\n", 0, 0, NULL);
        check_split("abc", "\n", 0, 0, NULL);
        check_split("\n", "\n", 1, 1, (const char *const[]){""});
        check_split("a\n\nbc\nrest", "\n", 6, 3, (const char *const[]){"a", "", "bc"});
        check_split("a--b-c--", "--", 8, 2, (const char *const[]){"a", "b-c"});
        /* From the left: the third character is the rest. */
        check_split("---", "--", 2, 1, (const char *const[]){""});
        check_split("-", "--", 0, 0, NULL);
}

static void test_many_short_pieces(void) {
        enum { CNT = 10000 };
        char *text = malloc(CNT);
        size_t cnt, end;
        ck_bytes_t *pieces;

        CHECK(text);
        memset(text, '\n', CNT);
        pieces = ck_split(text, CNT, "\n", 1, &cnt, &end);
        CHECK(pieces);
        CHECK(cnt == CNT);
        CHECK(end == CNT);
        for (size_t i = 0; i < cnt; i++) {
                CHECK(pieces[i].ptr == text + i);
                CHECK(pieces[i].len == 0);
        }
        free(pieces);
        free(text);
}

static void test_first_delimiter_separates_the_key(void) {
        char *text = copy_of("k:v:w|:|none|x:y|");
        size_t cnt, end;
        ck_bytes_t keys[4], values[4];
        ck_bytes_t *pieces = ck_split(text, 17, "|", 1, &cnt, &end);

        CHECK(pieces);
        CHECK(cnt == 4);
        CHECK(ck_split_first(pieces, 2, ":", 1, keys, values) == 2);
        check_piece(keys[0], "k");
        check_piece(values[0], "v:w");
        check_piece(keys[1], "");
        check_piece(values[1], "");
        CHECK(ck_split_first(pieces, cnt, ":", 1, keys, values) == 2);
        CHECK(ck_split_first(pieces + 2, 1, "on", 2, keys, values) == 1);
        check_piece(keys[0], "n");
        check_piece(values[0], "e");
        CHECK(ck_split_first(pieces, 0, ":", 1, keys, values) == 0);
        free(pieces);
        free(text);
}

int main(void) {
        test_pieces_end_with_the_delimiter();
        test_many_short_pieces();
        test_first_delimiter_separates_the_key();
        return 0;
}
