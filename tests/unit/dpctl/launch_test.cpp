// SPDX-License-Identifier: Apache-2.0
//
// `dpctl launch` as a person at a laptop uses it: exit codes, messages, and nothing left behind.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

namespace {

struct Outcome {
    int code;  // 128 + signal for a death
    std::string output;
};

// Both streams of `dpctl WORDS`.
Outcome dpctl(const std::string& words, const std::string& before = "") {
    FILE* pipe = popen((before + DP_TEST_DPCTL + " " + words + " 2>&1").c_str(), "r");
    if (!pipe) return {-1, ""};
    std::string output;
    std::array<char, 4096> chunk;
    size_t n = 0;
    while ((n = fread(chunk.data(), 1, chunk.size(), pipe)) > 0) output.append(chunk.data(), n);
    const int status = pclose(pipe);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), output};
}

bool has(const Outcome& outcome, const std::string& text) {
    return outcome.output.find(text) != std::string::npos;
}

TEST(Launch, GivesEachRankItsPlace) {
    const Outcome out =
        dpctl("launch -n 3 -- sh -c 'echo $RANK/$WORLD_SIZE $LOCAL_RANK $MASTER_ADDR' | sort");
    EXPECT_EQ(out.output, "0/3 0 127.0.0.1\n1/3 1 127.0.0.1\n2/3 2 127.0.0.1\n");
}

TEST(Launch, TakesTheOptionsOfSrun) {
    const Outcome out = dpctl(
        "launch -n 4 --tensor 2 --pipeline 2 --port 29871 -- sh -c 'echo $RANK=$DP_TENSOR_RANK "
        "$DP_PIPELINE_RANK "
        "$MASTER_PORT'");
    for (const char* line : {"0=0 0 29871\n", "1=1 0 29871\n", "2=0 1 29871\n", "3=1 1 29871\n",
                             "using world size: 4, data-parallel-size: 1, tensor-model-parallel size: 2, "
                             "pipeline-model-parallel size: 2\n"})
        EXPECT_TRUE(has(out, line)) << out.output;
}

TEST(Launch, ServesPyTorchsStore) {
    // ADD "n" 1 as PyTorch 1.13 writes it (3, the key, an i64); each rank gets the sum so far.
    const Outcome out = dpctl(
        "launch -n 3 --store torch -- bash -c 'exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT; printf "
        R"("\x03\x01\0\0\0\0\0\0\0n\x01\0\0\0\0\0\0\0" >&3; head -c 8 <&3 | od -An -td8')"
        " | sort");
    EXPECT_EQ(out.code, 0);
    EXPECT_EQ(out.output, "                    1\n                    2\n                    3\n");
}

TEST(Launch, ReportNamesTheDeadAndLetsTheOthersGoOn) {
    const Outcome out = dpctl(
        "launch -n 3 --on-failure report -- sh -c '[ $RANK != 1 ] || exit 7; sleep 0.5; echo survived'");
    EXPECT_EQ(out.code, 7);
    EXPECT_TRUE(has(out, "survived\nsurvived\n"));
    EXPECT_TRUE(has(out, "rank 1 on ") && has(out, "exited with code 7; the other ranks continue"));
}

TEST(Launch, BadInputIsOneLineAndStartsNothing) {
    struct {
        const char* words;
        const char* text;
    } const cases[] = {
        {"launch -n 0 -- echo started", "dpctl: --ranks: Value 0 not in range"},
        {"launch -n many -- echo started", "many"},
        {"launch -- echo started", "--ranks is required"},
        {"launch -n 2", "command"},
        {"launch -n 2 --timeout 0 -- echo started", "--timeout"},
        {"launch -n 2 --port 80 -- echo started", "dpctl: --port: 80: not a port; give auto"},
        {"launch -n 2 --store redis -- echo started", "no such store; give hold"},
        {"launch -n 2 --record '' -- echo started", "not a directory's name; give off"},
        {"launch -n 4 --tensor 3 -- echo started", "do not divide this step's 4 tasks; give -n"},
        {"launch -n 2 --daemon /nowhere -- echo started", "cannot open the daemon /nowhere"},
        {"launch -n 2 --daemon /etc/passwd -- echo started",
         "dp-rendezvousd cannot be executed (Permission denied): install it again"},
    };
    for (const auto& c : cases) {
        const Outcome out = dpctl(c.words);
        EXPECT_NE(out.code, 0) << c.words;
        EXPECT_TRUE(has(out, c.text)) << c.words << ": " << out.output;
        EXPECT_FALSE(has(out, "started\n")) << c.words << ": " << out.output;
    }
}

TEST(Launch, TooFewDescriptorsAreSaidToBeTooFew) {
    for (int limit = 12; limit <= 24; ++limit) {
        const Outcome out = dpctl("launch -n 1 -- echo started", "ulimit -n " + std::to_string(limit) + "; ");
        EXPECT_TRUE(has(out, "Too many open files; raise the limit of open files") || has(out, "started\n"))
            << limit << ": " << out.output;
        EXPECT_FALSE(has(out, "Bad file descriptor")) << limit << ": " << out.output;
    }
}

TEST(Launch, WhatIsNoProgramIsSaidToBeNoneAsAShellSaysIt) {
    const Outcome out = dpctl("launch -n 2 -- /tmp");
    EXPECT_EQ(out.code, 126);
    EXPECT_TRUE(has(out, "cannot run /tmp: Permission denied"));
}

TEST(Launch, AMissingProgramIsNamedOnce) {
    const Outcome out = dpctl("launch -n 2 -- /no/such/program");
    EXPECT_EQ(out.code, 127);
    EXPECT_TRUE(has(out, "cannot run /no/such/program: No such file or directory"));
    EXPECT_EQ(out.output.find("cannot run"), out.output.rfind("cannot run"));
}

TEST(Launch, TheFirstBadEndIsTheResult) {
    EXPECT_EQ(dpctl("launch -n 3 -- sh -c '[ $RANK != 1 ] || exit 7; sleep 30'").code, 7);
    const Outcome killed = dpctl("launch -n 3 -- sh -c '[ $RANK != 1 ] || kill -SEGV $$; sleep 30'");
    EXPECT_EQ(killed.code, 128 + SIGSEGV);
    EXPECT_TRUE(has(killed, "was killed by signal 11 (SIGSEGV); ending the step"));
}

TEST(Launch, LeavesNoProcessOfItsRanks) {
    // The background children hold the pipe open: popen only returns when they are gone.
    const Outcome out = dpctl("launch -n 2 -- sh -c 'sleep 300 & exit 0'");
    EXPECT_EQ(out.code, 0);
}

// Two ranks, to whose dpctl signals are sent once they are there.
Outcome signalled(const std::string& program, int signal, int times,
                  std::chrono::milliseconds pause = std::chrono::milliseconds(1200)) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl(DP_TEST_DPCTL, "dpctl", "launch", "-n", "2", "--", "sh", "-c", program.c_str(), nullptr);
        _exit(99);
    }
    close(ends[1]);
    std::string output;
    char c = 0;
    while (output.size() < std::string("here\nhere\n").size() && read(ends[0], &c, 1) == 1) output += c;
    for (int i = 0; i < times; ++i) {
        kill(pid, signal);
        std::this_thread::sleep_for(pause);  // a second one within a second is the same wish
    }
    while (read(ends[0], &c, 1) == 1) output += c;
    close(ends[0]);
    int status = 0;
    waitpid(pid, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), output};
}

constexpr const char* kDeaf = "trap '' INT TERM HUP; echo here; for i in $(seq 300); do sleep 0.1; done";
// Says so once it is stopped.
constexpr const char* kStopped =
    "sh -c 'kill -STOP $PPID; until grep -q State:.T /proc/$PPID/status; do :; done; echo here'; true";

TEST(Launch, TheSecondSignalKillsRanksThatDoNotEndAtTheFirst) {
    for (int signal : {SIGTERM, SIGINT, SIGHUP})
        for (const char* program : {kDeaf, kStopped}) {
            const Outcome out = signalled(program, signal, 2);
            EXPECT_EQ(out.code, 128 + signal) << program << out.output;
            EXPECT_TRUE(has(out, "dpctl: ranks 0-1 did not end at signal ")) << out.output;
            EXPECT_TRUE(has(out, "and were killed at the second\n")) << out.output;
        }
}

TEST(Launch, RanksThatDoNotEndAtASignalAreKilledSomeSecondsLater) {
    const Outcome out = signalled(kDeaf, SIGTERM, 1);
    EXPECT_EQ(out.code, 128 + SIGTERM) << out.output;
    EXPECT_TRUE(has(out, "dpctl: ranks 0-1 did not end within 10 s of signal 15 (SIGTERM) and were killed\n"))
        << out.output;
}

// A session that is closed sends SIGTERM and SIGHUP at once.
TEST(Launch, ASecondSignalAtOnceIsTheSameWish) {
    const Outcome out =
        signalled("trap 'sleep 1; echo saved; exit 0' TERM HUP; echo here; while :; do sleep 0.1; done",
                  SIGTERM, 2, std::chrono::milliseconds(50));
    EXPECT_EQ(out.code, 0) << out.output;
    EXPECT_FALSE(has(out, "were killed")) << out.output;
}

TEST(Launch, RanksThatEndWellAtASignalAreNotKilled) {
    const Outcome out = signalled(
        "trap 'sleep 1; echo saved; exit 0' TERM; echo here; while :; do sleep 0.1; done", SIGTERM, 1);
    EXPECT_EQ(out.code, 0);
    EXPECT_TRUE(has(out, "saved\nsaved\n")) << out.output;
}

TEST(Dpctl, AWrongWordIsNamedWithWhatThereIs) {
    const std::pair<const char*, const char*> cases[] = {
        {"", "A subcommand is required; see dpctl --help"},
        {"frob",
         "dpctl: frob: no such command; there are launch, status, history, waterfall, tiles, top, "
         "stacks, report, ledger, exporter, collect, doctor; see dpctl --help"},
        {"--frob", "dpctl: --frob: no such command"},
        {"status 1.2.3",
         "dpctl: step: 1.2.3 is not a step; give JOB or JOB.STEP, such as 12 or 12.0; see dpctl status "
         "--help"},
        {"status -5", "-5 is not a step"},
        {"status 5.", "5. is not a step"},
        {"status .5", ".5 is not a step"},
        {"waterfall 12_3", "12_3 is not a step"},
        {"top -5",
         "dpctl: step: -5 is not a step; give JOB or JOB.STEP, such as 12 or 12.0; see dpctl top --help"},
        {"top 5 6", "6; see dpctl top --help"},
    };
    for (const auto& [words, text] : cases) {
        const Outcome out = dpctl(words);
        EXPECT_EQ(out.code, 2) << words;
        EXPECT_TRUE(has(out, text)) << words << ": " << out.output;
    }
    for (const char* words : {"status 12", "status 12.0", "status local.4711", "top 12.0 --once"})
        EXPECT_EQ(dpctl(words).code, 1) << words;  // no such step here
}

TEST(Launch, SigtermEndsAllRanksWithoutACulprit) {
    const Outcome out = dpctl("launch -n 2 -- sh -c '[ $RANK != 0 ] || kill -TERM $PPID; sleep 300'");
    EXPECT_EQ(out.code, 128 + SIGTERM);
    EXPECT_FALSE(has(out, "slurm-dp:")) << out.output;
}

}  // namespace
