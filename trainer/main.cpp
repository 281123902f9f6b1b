// SPDX-License-Identifier: Apache-2.0
//
// The bundled trainer's entry: command line in, verb, exit code out (result.hpp has the codes).
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "trainer/compile/compile.hpp"
#include "trainer/generate.hpp"
#include "trainer/options/options.hpp"
#include "trainer/parallel/surroundings.hpp"
#include "trainer/parallel/world.hpp"
#include "trainer/run.hpp"
#include "trainer/standard_streams.hpp"

namespace {

// "rank 3 on node2: " for a rank of a world, so that one line tells who it was.
std::string who() {
    const char* rank = std::getenv("DP_RANK");
    if (rank == nullptr) return {};
    std::array<char, 256> host{};
    gethostname(host.data(), host.size() - 1);
    return fmt::format("rank {} on {}: ", rank, host.data());
}

// Says it, and gives the exit code. A message that is empty is another rank's to say.
int end_with(const dp::trainer::Error& error) {
    if (!error.message.empty())
        dp::trainer::print_if_possible(stderr, fmt::format("trainer: {}{}\n", who(), error.message));
    return static_cast<int>(error.fault);
}

// The ranks of a step begin some time apart, and the first that ends has the others ended, also the one that
// is to say what is wrong: so each waits for all. A rank that got other words learns of it where run() asks
// for the model.
void tell_all_ranks(const std::string& complaint) {
    if (auto world = dp::trainer::World::join())
        (void)world->agree("the model", complaint, "give all ranks the same");
}

}  // namespace

int main(int argc, char** argv) {
    using namespace dp::trainer;
    const auto started = std::chrono::steady_clock::now();
    hold_standard_streams();
    try {
        const Surroundings here = gather_surroundings();
        const bool speaks = speaks_for_all(here);
        const Parsed parsed = parse_options({argv + 1, argv + argc});
        if (!parsed.options) {
            // All got the same words: one complaint is enough.
            if (speaks) print_if_possible(parsed.code == 0 ? stdout : stderr, parsed.text);
            if (parsed.code != 0 && here.in_step) tell_all_ranks(parsed.text);
            return all_is_printed() ? parsed.code : static_cast<int>(Fault::usage);
        }
        const Options& options = *parsed.options;
        if (is_for_one(options.verb) && !speaks) return 0;
        auto done = options.verb == Verb::info       ? info(options)
                    : options.verb == Verb::compile  ? compile(options, started)
                    : options.verb == Verb::prepare  ? prepare(options)
                    : options.verb == Verb::report   ? report_runs(options.report)
                    : options.verb == Verb::generate ? generate(options.generate)
                                                     : run(options, started);
        if (done) done = all_is_printed();
        if (done) return 0;
        return end_with(done.error());
    } catch (const std::exception& error) {  // from a library; ours are values
        return end_with(error_of(error));
    }
}
