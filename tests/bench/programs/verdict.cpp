// SPDX-License-Identifier: Apache-2.0
//
// How soon a hang is told after --dp-hang-timeout in a step of any size on one machine: the real broker, which watches its own node's
// ranks, real processes that wait in a barrier; all other nodes simulated (simulated_nodes.hpp): they say when the timeout has passed
// that their ranks stand still, one of which is elsewhere.
//   bench-verdict DAEMON NODES RANKS_PER_NODE TIMEOUT_S
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/fd.hpp"
#include "failing.hpp"
#include "latencies.hpp"
#include "real_broker.hpp"
#include "simulated_nodes.hpp"

namespace dp::bench {
namespace {

constexpr const char* kElsewhere = "load_batch (train.py:88)";

struct Pipe {
    Pipe() {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) die_of_errno("pipe");
        read.reset(ends[0]);
        write.reset(ends[1]);
    }
    Fd read, write;
};

// What the daemon writes for the users to see. The verdict's time.
class Verdict {
 public:
    // Nothing but the daemon may write to it.
    explicit Verdict(int errors) : reader_([this, errors] { read(errors); }) {}
    ~Verdict() { reader_.join(); }  // once the daemon has left
    bool is_told() const { return is_told_; }
    const std::string& line() const { return line_; }
    Clock::time_point at() const { return at_; }

 private:
    std::string line_;
    Clock::time_point at_;
    std::atomic<bool> is_told_{false};
    std::thread reader_;  // the last one: it uses the others

    void read(int errors) {
        FILE* const file = fdopen(dup(errors), "r");
        char line[4096];
        while (file && fgets(line, sizeof line, file)) {
            if (is_told_ || !strstr(line, "no progress for")) continue;
            at_ = Clock::now();
            line_ = line;
            is_told_ = true;
        }
        if (file) fclose(file);
    }
};

// A program with libdp that has worked for some time, and waits for all others in a barrier (tests/cluster/programs/rank.cpp). It says so
// in a line just before.
[[noreturn]] void be_rank(const RealBroker& broker, const StepShape& shape, uint32_t rank, int output) {
    dup2(output, STDOUT_FILENO);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("DP_SOCKET", broker.socket().c_str(), 1);
    setenv("DP_MASTER_ADDR", "127.0.0.1", 1);
    const std::pair<const char*, uint32_t> numbers[] = {{"DP_RANK", rank},
                                                        {"DP_WORLD_SIZE", shape.world()},
                                                        {"DP_LOCAL_RANK", rank},
                                                        {"DP_LOCAL_WORLD_SIZE", shape.ranks_per_node},
                                                        {"DP_NODE_RANK", 0},
                                                        {"DP_NODES", shape.nodes},
                                                        {"DP_GENERATION", 0},
                                                        {"DP_TENSOR_SIZE", 1},
                                                        {"DP_DATA_SIZE", shape.world()},
                                                        {"DP_PIPELINE_SIZE", 1},
                                                        {"DP_MASTER_PORT", broker.master_port()}};
    for (const auto& [name, value] : numbers) setenv(name, std::to_string(value).c_str(), 1);
    const std::string program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "rank";
    execl(program.c_str(), program.c_str(), "wait", "3", nullptr);
    die_of_errno(program);
}

wire::Stillness still(Time timeout, bool waits) {
    wire::Stillness still;
    still.set_for_ms(timeout.count());
    still.set_waits_for_others(waits);
    still.set_where(waits ? "all_reduce (distributed_c10d.py:2501)" : kElsewhere);
    still.set_place(waits ? 1 : 2);
    return still;
}

int run(const std::string& daemon, const StepShape& shape) {
    raise_file_limit();
    Pipe errors;
    const int own_errors = dup(STDERR_FILENO);
    dup2(errors.write.get(), STDERR_FILENO);
    RealBroker broker(daemon, shape);
    dup2(own_errors, STDERR_FILENO);
    errors.write.reset();
    Verdict verdict(errors.read.get());
    SimulatedNodes others(shape, broker, [](uint32_t, const wire::ToRank&) {});
    others.join();
    broker.wait_for_plan();
    Pipe waits;
    const auto ranks =
        broker.start_ranks([&](uint32_t rank) { be_rank(broker, shape, rank, waits.write.get()); });
    waits.write.reset();
    for (size_t lines = 0; lines < ranks.size();) {
        char said = 0;
        if (read(waits.read.get(), &said, 1) != 1) die("a rank has ended");
        lines += said == '\n';
    }

    const Time timeout(shape.hang_timeout_seconds * 1000);
    const auto due = Clock::now() + timeout;
    others.run_until([&] { return Clock::now() >= due; });
    const uint32_t culprit = shape.world() - 3;
    for (uint32_t rank = others.first_rank(); rank < shape.world(); ++rank)
        others.stands_still(rank, still(timeout, rank != culprit));
    others.run_until([&] { return verdict.is_told(); });
    const std::string expected = "rank " + std::to_string(culprit) + " on sim" +
                                 std::to_string(shape.nodes - 1) + " is in " + kElsewhere;
    if (verdict.line().find(expected) == std::string::npos) die("not the culprit: " + verdict.line());
    std::printf("{\"ranks\": %u, \"ms\": %.3f}\n", shape.world(),
                std::chrono::duration<double, std::milli>(verdict.at() - due).count());
    for (const pid_t rank : ranks) kill(rank, SIGKILL);
    for (const pid_t rank : ranks) waitpid(rank, nullptr, 0);
    others.leave();
    return broker.leave() ? 0 : 1;
}

}  // namespace
}  // namespace dp::bench

int main(int argc, char** argv) {
    if (argc != 5) {
        std::fprintf(stderr, "usage: bench-verdict DAEMON NODES RANKS_PER_NODE TIMEOUT_S\n");
        return 2;
    }
    dp::bench::StepShape shape;
    shape.nodes = static_cast<uint32_t>(std::atol(argv[2]));
    shape.ranks_per_node = static_cast<uint32_t>(std::atol(argv[3]));
    shape.hang_timeout_seconds = static_cast<uint32_t>(std::atol(argv[4]));
    shape.on_failure = dp::FailureAction::report;
    if (shape.nodes < 2 || shape.ranks_per_node < 3 || shape.hang_timeout_seconds < 1) {
        std::fprintf(stderr, "bench-verdict: at least 2 nodes of 3 ranks, and a second\n");
        return 2;
    }
    return dp::bench::run(argv[1], shape);
}
