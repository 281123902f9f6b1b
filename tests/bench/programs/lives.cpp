// SPDX-License-Identifier: Apache-2.0
//
// A rank that lives several times: in each generation it notes when it began; once all ranks of the generation have,
// one of them notes the time and kills itself. Lines in FOLDER/times: "RANK GENERATION began NS" and "RANK GENERATION
// died NS", where a rank's generation is the number of its lives before (torchrun's count differs from node to node).
// Ends in generation LAST.
//   bench-lives FOLDER LAST
#include <signal.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "dp/dp.hpp"
#include "start_line.hpp"

namespace {

using namespace dp::bench;

// Until the others have written their lines and wait.
constexpr std::chrono::milliseconds kStill{300};
constexpr std::chrono::milliseconds kLook{20};

unsigned number_of(const char* name) {
    const char* text = std::getenv(name);
    return text ? static_cast<unsigned>(std::atoi(text)) : 0;
}

// The lines about beginnings so far for which this holds.
template <typename Holds>
unsigned begun(const std::string& times, Holds holds) {
    std::ifstream file(times);
    unsigned count = 0;
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        unsigned rank = 0, generation = 0;
        std::string what;
        if (words >> rank >> generation >> what && what == "began" && holds(rank, generation)) ++count;
    }
    return count;
}

}  // namespace

int main(int argc, char** argv) {
    const int64_t began = monotonic_ns();
    if (argc != 3) die("usage: bench-lives FOLDER LAST");
    const std::string times = std::string(argv[1]) + "/times";
    const unsigned rank = number_of("RANK"), world = number_of("WORLD_SIZE");
    const unsigned generation = begun(times, [&](unsigned one, unsigned) { return one == rank; });
    end_after(kAllCome);
    const auto note = [&](const char* what, int64_t at) {
        append(times, std::to_string(rank) + " " + std::to_string(generation) + " " + what + " " +
                          std::to_string(at) + "\n");
    };
    note("began", began);
    // A training step, without which three generations in a row would end the step.
    std::optional<dp::Context> context;
    if (std::getenv("DP_SOCKET")) {
        auto opened = dp::Context::open();
        if (!opened) die(opened.error().message);
        context.emplace(std::move(*opened));
        context->at_step(generation + 1);
    }
    if (generation >= static_cast<unsigned>(std::atoi(argv[2]))) return 0;
    if (rank != (7 * generation + 3) % world) {
        pause();
        return 1;
    }
    while (begun(times, [&](unsigned, unsigned of) { return of == generation; }) < world)
        std::this_thread::sleep_for(kLook);
    std::this_thread::sleep_for(kStill);
    note("died", monotonic_ns());
    raise(SIGKILL);
    return 1;
}
