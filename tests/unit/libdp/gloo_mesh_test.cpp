// SPDX-License-Identifier: Apache-2.0
//
// libdp-gloo against the real daemon: meshes of groups of ranks, and a mesh that waits for what never comes
// ends when the step does.
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "dp/gloo.hpp"

#if defined(__SANITIZE_THREAD__)
// Debian's Gloo is not instrumented, so the thread sanitizer cannot see how it synchronises.
// NOLINTNEXTLINE(bugprone-reserved-identifier)
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
    return "race:libgloo.so\n";
}
#endif

namespace dp {
namespace {

std::string self() {
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path);
    return std::string(path, n > 0 ? static_cast<size_t>(n) : 0);
}

int sum_of_ranks(Context& context, const std::shared_ptr<::gloo::Context>& mesh) {
    std::vector<int> value{static_cast<int>(context.world().rank)};
    ::gloo::AllreduceOptions options(mesh);
    options.setOutput(value.data(), value.size());
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, size_t)>(&::gloo::sum<int>));
    ::gloo::allreduce(options);
    return value[0];
}

bool is_tcp(int fd) {
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    return getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 && peer.sin_family == AF_INET;
}

// How much of a CPU this process uses in the next 400 ms.
double busy() {
    const auto before = std::clock();
    usleep(400000);
    return static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC / 0.4;
}

// Two ranks. The second gives up in the middle of a message, because the rest of its buffer cannot be read nor
// written, and dies, its connections kept open by a child, so that the first neither gets nor sends the
// rest, whether it `waits` for that or does not want it any more.
int has_half_a_message(bool sends, bool waits) {
    signal(SIGTERM, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    auto context = Context::open();
    if (!context) return 10;
    auto mesh = gloo_full_mesh(*context, "test");
    if (!mesh) return 11;
    const bool is_first = context->world().rank == 0;
    constexpr std::size_t kBytes = std::size_t{64} << 20;  // more than the kernel takes in
    void* message = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (message == MAP_FAILED) return 12;
    if (!is_first) {
        if (fork() == 0) {
            sleep(20);
            _exit(0);
        }
        mprotect(static_cast<char*>(message) + kBytes / 2, kBytes / 2, PROT_NONE);
    }
    auto buffer = (*mesh)->createUnboundBuffer(message, kBytes);
    const int other = is_first ? 1 : 0;
    const std::chrono::milliseconds patience(is_first ? 60000 : 500);
    try {
        if (is_first && !waits) {
            buffer->recv(other, 1);
            usleep(300000);
            buffer.reset();
            while (context->barrier({"never", {}})) continue;
            usleep(50000);
            std::puts(busy() < 0.5 ? "told" : "Gloo spins");
        } else if (is_first == sends) {
            buffer->send(other, 1);
            buffer->waitSend(patience);
        } else {
            buffer->recv(other, 1);
            buffer->waitRecv(patience);
        }
        if (waits) std::puts("it came to an end with a dead rank");
    } catch (const std::exception&) {
        if (!is_first) abort();
        std::puts("told");
    }
    std::fflush(stdout);
    return 0;
}

// Two ranks. The second dies while a child of its keeps its connections open, so that its peer's end of them
// tells nothing: as with a node that is cut off.
int waits_for_the_dead() {
    signal(SIGTERM, SIG_IGN);  // what the daemon sends in a moment
    signal(SIGPIPE, SIG_IGN);
    auto context = Context::open();
    if (!context) return 10;
    auto mesh = gloo_full_mesh(*context, "test");
    if (!mesh) return 11;
    if (sum_of_ranks(*context, *mesh) != 1) return 12;
    if (context->world().rank == 1) {
        if (fork() == 0) {
            sleep(20);
            _exit(0);
        }
        abort();
    }
    try {
        sum_of_ranks(*context, *mesh);
        std::puts("it came to an end with a dead rank");
    } catch (const std::exception&) {
        std::puts("told");
    }
    std::fflush(stdout);
    return 0;
}

// How long a collective waits that is given no time of its own, as all-reduce's are: the transport's.
std::chrono::milliseconds patience_of(::gloo::Context& mesh) {
    struct Reach : ::gloo::Context {
        static std::chrono::milliseconds of(::gloo::Context& one) {
            return (one.*(&Reach::transportContext_))->getTimeout();
        }
    };
    return Reach::of(mesh);
}

// Four ranks: the even and the odd ones have a mesh each, of the same name, and then another one; and each
// has one for itself.
int meets_in_groups() {
    auto context = Context::open();
    if (!context) return 10;
    const std::uint32_t rank = context->world().rank;
    for (int i = 0; i < 2; ++i) {
        const auto mesh = gloo_mesh(*context, {"halves", {rank % 2, rank % 2 + 2}});
        if (!mesh) return 11;
        if ((*mesh)->rank != static_cast<int>(rank / 2) || (*mesh)->size != 2) return 12;
        if (sum_of_ranks(*context, *mesh) != static_cast<int>(rank % 2 * 2 + 2)) return 13;
    }
    const auto alone = gloo_mesh(*context, {"alone", {rank}});
    if (!alone || sum_of_ranks(*context, *alone) != static_cast<int>(rank)) return 14;
    if (patience_of(**alone) != std::chrono::minutes(30)) return 17;  // not the time for connecting
    const auto hasty = gloo_mesh(*context, {"hasty", {rank}}, std::chrono::seconds(7));
    if (!hasty || patience_of(**hasty) != std::chrono::seconds(7)) return 18;
    const auto stranger = gloo_mesh(*context, {"others", {(rank + 1) % 4}});
    if (stranger || stranger.error().status != DP_ERROR_INVALID) return 15;
    const auto all = gloo_full_mesh(*context, "halves");
    return all && sum_of_ranks(*context, *all) == 6 ? 0 : 16;
}

// Two ranks. What a read of the mesh's connection waits at most, where it blocks (Gloo's synchronous mode).
int is_patient() {
    auto context = Context::open();
    if (!context) return 10;
    const auto mesh = gloo_full_mesh(*context, "patient");
    if (!mesh) return 11;
    int found = 0;
    for (int fd = 0; fd < 1024; ++fd) {
        if (!is_tcp(fd)) continue;
        timeval time{};
        socklen_t size = sizeof time;
        if (getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, &size) == 0 && time.tv_sec == 30 * 60) ++found;
    }
    if (sum_of_ranks(*context, *mesh) != 1) return 12;  // nobody leaves before the other has looked
    return found == 1 ? 0 : 13;
}

// Three ranks that continue without their dead. The third dies; the first waits for the second, which sends nothing. Their mesh of two
// is still good.
int waits_for_the_living() {
    auto context = Context::open();
    if (!context) return 10;
    const std::uint32_t rank = context->world().rank;
    const auto mesh = gloo_full_mesh(*context, "test");
    if (!mesh || sum_of_ranks(*context, *mesh) != 3) return 11;
    if (rank == 2) abort();
    const auto both = gloo_mesh(*context, {"both", {0, 1}});
    if (!both) return 12;
    if (rank == 0) {
        int number = 0;
        auto buffer = (*mesh)->createUnboundBuffer(&number, sizeof number);
        try {
            buffer->recv(1, 1);
            buffer->waitRecv(std::chrono::seconds(20));
            return 13;
        } catch (const std::exception& error) {
            std::puts(std::string_view(error.what()).find("has died") != std::string_view::npos
                          ? "told"
                          : error.what());
        }
    }
    std::fflush(stdout);
    return sum_of_ranks(*context, *both) == 1 ? 0 : 14;
}

struct Launched {
    int code;
    std::string output;
};

Launched launch(int ranks, const std::string& body, const std::string& options = "") {
    const std::string command = std::string(DP_TEST_DPCTL) + " launch -n " + std::to_string(ranks) + " " +
                                options + " -- env DP_TEST_BODY=" + body + " " + self() + " 2>&1";
    FILE* pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) return {-1, "popen"};
    std::string output;
    std::array<char, 4096> chunk;
    size_t n = 0;
    while ((n = fread(chunk.data(), 1, chunk.size(), pipe)) > 0) output.append(chunk.data(), n);
    const int status = pclose(pipe);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
}

TEST(GlooMesh, EndsItsWaitsWhenTheStepEnds) {
    const Launched run = launch(2, "waits");
    EXPECT_EQ(run.code, 128 + SIGABRT) << run.output;
    EXPECT_NE(("\n" + run.output).find("\ntold\n"), std::string::npos) << run.output;
}

TEST(GlooMesh, EndsTheWaitForTheRestOfAMessage) {
    for (const char* body : {"sends", "receives"}) {
        const Launched run = launch(2, body);
        EXPECT_EQ(run.code, 128 + SIGABRT) << run.output;
        EXPECT_NE(("\n" + run.output).find("\ntold\n"), std::string::npos) << run.output;
    }
}

TEST(GlooMesh, EndsWithAMemberWhereTheOthersContinue) {
    const Launched run = launch(3, "continues", "--on-failure=report");
    EXPECT_NE(("\n" + run.output).find("\ntold\n"), std::string::npos) << run.output;
    EXPECT_EQ(run.output.find("exited with code"), std::string::npos) << run.output;
}

TEST(GlooMesh, UsesNoCpuForTheRestOfAMessageThatNobodyWaitsFor) {
    const Launched run = launch(2, "forgets");
    EXPECT_NE(("\n" + run.output).find("\ntold\n"), std::string::npos) << run.output;
}

TEST(GlooMesh, IsOfAGroupAsOfTheWorld) {
    const Launched run = launch(4, "groups");
    EXPECT_EQ(run.code, 0) << run.output;
}

TEST(GlooMesh, ItsConnectionsWaitAsLongAsItsCollectives) {
    const Launched run = launch(2, "patient");
    EXPECT_EQ(run.code, 0) << run.output;
}

}  // namespace
}  // namespace dp

int main(int argc, char** argv) {
    if (const char* body = std::getenv("DP_TEST_BODY")) {
        const std::string_view name = body;
        if (name == "groups") return dp::meets_in_groups();
        if (name == "patient") return dp::is_patient();
        if (name == "continues") return dp::waits_for_the_living();
        if (name == "sends" || name == "receives" || name == "forgets")
            return dp::has_half_a_message(name == "sends", name != "forgets");
        return dp::waits_for_the_dead();
    }
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
