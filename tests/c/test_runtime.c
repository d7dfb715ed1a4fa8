#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "ck_runtime.h"

static void test_generation_grows_in_the_child_of_a_fork(void) {
        uint32_t before = ck_runtime_generation;
        int status;
        pid_t pid = fork();

        if (pid == 0)
                _exit(ck_runtime_generation == before + 1 ? 0 : 1);
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        CHECK(ck_runtime_generation == before);
        CHECK(before > 0);
}

static void test_counts_are_kept_by_kind(void) {
        ck_runtime_count(CK_KIND_TOPIC, 3);
        ck_runtime_count(CK_KIND_TOPIC, -1);
        CHECK(ck_runtime_alive(CK_KIND_TOPIC) == 2);
        CHECK(ck_runtime_alive(CK_KIND_HANDLE) == 0);
        ck_runtime_count(CK_KIND_TOPIC, -2);
}

static void test_clock_advances(void) {
        int64_t before = ck_runtime_now_ms();

        usleep(2000);
        CHECK(ck_runtime_now_ms() > before);
}

int main(void) {
        test_generation_grows_in_the_child_of_a_fork();
        test_counts_are_kept_by_kind();
        test_clock_advances();
        return 0;
}
