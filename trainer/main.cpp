// SPDX-License-Identifier: Apache-2.0
//
// The bundled trainer's entry: command line in, subcommand, exit code out (result.hpp has the codes).
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <exception>

#include "trainer/base/standard_streams.hpp"
#include "trainer/commands/compile.hpp"
#include "trainer/commands/options.hpp"
#include "trainer/commands/run.hpp"
#include "trainer/devices/cpu/spinning.hpp"
#include "trainer/parallel/consistency.hpp"
#include "trainer/parallel/launch_context.hpp"

namespace {

// Says it, and gives the exit code.
int end_with(const dp::trainer::Error& error) {
    dp::trainer::print_error(error.message);
    return static_cast<int>(error.fault);
}

// A set of tokens may be of more files than a process may open by default.
void allow_many_files() {
    rlimit files{};
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace

int main(int argc, char** argv) {
    using namespace dp::trainer;
    const auto started = std::chrono::steady_clock::now();
    hold_standard_streams();
    allow_many_files();
    try {
        const LaunchContext here = read_launch_context();
        cpu::bound_spinning(threads_for(here), argv);
        const bool is_primary = is_primary_process(here);
        const Parsed parsed = parse_options({argv + 1, argv + argc});
        if (!parsed.options && parsed.code != 0)
            return end_with(refuse_together(here, {Fault::usage, parsed.text}));
        if (!parsed.options) {  // --help
            if (is_primary) print_if_possible(stdout, parsed.text);
            return all_is_printed() ? 0 : static_cast<int>(Fault::usage);
        }
        const Options& options = *parsed.options;
        if (is_for_one(options.command) && !is_primary) return 0;
        if (writes_files(options)) outlive_readers();
        auto done = options.command == Command::info           ? info(options)
                    : options.command == Command::plan         ? plan(options)
                    : options.command == Command::compile      ? compile(options, started)
                    : options.command == Command::prepare      ? prepare(options)
                    : options.command == Command::report       ? report_runs(options.report)
                    : options.command == Command::generate     ? generate(options.generate)
                    : options.command == Command::export_model ? export_model(options.export_model)
                    : options.command == Command::evaluate     ? evaluate(options.evaluate, started)
                                                               : run(options, started);
        if (done) done = all_is_printed();
        return done ? 0 : end_with(done.error());
    } catch (const std::exception& error) {  // from a library; ours are values
        return end_with(error_of(error));
    }
}
