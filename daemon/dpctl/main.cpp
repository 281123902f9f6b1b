// SPDX-License-Identifier: Apache-2.0
//
// dpctl: slurm-dp's command line. `dpctl launch` starts ranks on this machine without Slurm; `dpctl status`
// and `dpctl waterfall` say what a step's ranks are doing, and how they came up; `dpctl top` what they do
// with their time; `dpctl tiles` what accelerators a node has.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "dpctl/gpu_use.hpp"
#include "dpctl/launch.hpp"
#include "dpctl/status.hpp"
#include "dpctl/tiles.hpp"
#include "dpctl/top.hpp"
#include "dpctl/waterfall.hpp"

// One that is closed would be given to the next socket, and what is printed would go there.
static void keep_standard_descriptors() {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
        if (fcntl(fd, F_GETFD) < 0) open("/dev/null", O_RDONLY);  // the lowest that is free: this one
}

int main(int argc, char** argv) {
    keep_standard_descriptors();
    CLI::App app{"dpctl: data-parallel worlds of slurm-dp"};
    app.require_subcommand(1);
    app.set_version_flag("--version", DP_VERSION);

    dp::LaunchOptions launch;
    CLI::App* verb = app.add_subcommand(
        "launch",
        "Start N ranks of a program on this machine, without Slurm, with the same daemon, plan and\n"
        "environment as `srun --dp-world=auto`. Example: dpctl launch -n 4 -- ./trainer");
    verb->add_option("-n,--ranks", launch.ranks, "how many ranks")->required()->check(CLI::Range(1, 4096));
    // The options of srun that make sense on one machine, without their "dp-".
    for (const auto& spec : dp::option_specs()) {
        const std::string name = std::string("--") + (spec.name + 3);
        if (name == "--world" || name == "--interface" || name == "--tiles" || name == "--visible" ||
            name == "--dry-run")
            continue;
        auto take = [&launch, &spec](const std::string& value) {
            auto set = spec.set(launch.settings, value);
            return set ? std::string() : dp::printable(value, 40) + ": " + set.error().message;
        };
        if (spec.argument)
            verb->add_option(name, spec.usage)->type_name(spec.argument)->check(take);
        else
            verb->add_flag(
                name, [take](int64_t) { take("1"); }, spec.usage);
    }
    verb->add_option("--daemon", launch.daemon,
                     "dp-rendezvousd (default: beside dpctl, else where it is installed)");
    verb->add_option("command", launch.command, "the program and its arguments, after --")->required();
    verb->positionals_at_end();

    dp::StatusOptions status;
    CLI::App* status_verb = app.add_subcommand("status",
                                               "What the ranks of a step are doing: which are there, which "
                                               "are missing, which ended and how, who waits\n"
                                               "for whom. On any node of the step, as its user or root.");
    status_verb->add_option(
        "step", status.step,
        "JOB or JOB.STEP; needed where several steps that you may ask about are on this node");
    status_verb->add_flag("--json", status.json, "for machines");

    dp::WaterfallOptions waterfall;
    CLI::App* waterfall_verb = app.add_subcommand(
        "waterfall",
        "How a step's world came up: when each rank was started, said hello, had its "
        "unique id and its communicator;\n"
        "median, worst, and whom to look at. On any node of the step, as its user or root.");
    waterfall_verb->add_option("step", waterfall.step, "JOB or JOB.STEP, as of status");

    dp::TilesOptions tiles;
    CLI::App* tiles_verb =
        app.add_subcommand("tiles",
                           "The accelerators of this node and how their tiles are numbered: what tiles.conf "
                           "says of it,\nelse what is found in the machine.");
    tiles_verb->add_option("--conf", tiles.conf, std::string("tiles.conf (default: ") + dp::kTilesConf + ")")
        ->check(CLI::ExistingFile);
    tiles_verb->add_option("--node", tiles.node, "another node: what tiles.conf says of it");
    tiles_verb->add_flag("--json", tiles.json, "for machines");

    dp::TopOptions top;
    CLI::App* top_verb = app.add_subcommand(
        "top",
        "What the ranks of a step do with their time, tile by tile: idle, compute, load data, communicate,\n"
        "checkpoint, as they say it with libdp's dp_phase. Live, until Ctrl-C or the step's end.\n"
        "On any node of the step, as its user or root.");
    top_verb->add_option("step", top.step, "JOB or JOB.STEP, as of status");
    auto* once = top_verb->add_flag("--once", top.once, "one table, of half a second");
    top_verb->add_option("--count", top.count, "so many tables")
        ->type_name("N")
        ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40))
        ->excludes(once);
    top_verb->add_option("-i,--interval", top.interval, "seconds from table to table (default 1)")
        ->type_name("SECONDS")
        ->check([](const std::string& text) {  // which the next would let pass
            return text.find_first_of("nN") == std::string::npos ? std::string() : "not a number of seconds";
        })
        ->check(CLI::Range(0.1, 86400.0));
    auto* csv = top_verb->add_flag("--csv", top.csv, "a line a tile, for machines");
    top_verb->add_flag("--json", top.json, "a line a table, for machines")->excludes(csv);
    top_verb->add_flag("--skip-idle", top.skip_idle, "without ranks that were idle all the time");

    dp::GpuUseOptions gpu_use;
    CLI::App* gpu_use_verb =
        app.add_subcommand("gpu-use", "For dp-rendezvousd: how busy this node's GPUs are.");
    gpu_use_verb->group("");  // not in --help
    gpu_use_verb->add_option("--node", gpu_use.node)->required();
    gpu_use_verb->add_option("--conf", gpu_use.conf);

    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
        std::fprintf(stderr, "dpctl: %s; see dpctl %s\n", e.what(),
                     status_verb->parsed()      ? "status --help"
                     : waterfall_verb->parsed() ? "waterfall --help"
                     : tiles_verb->parsed()     ? "tiles --help"
                     : top_verb->parsed()       ? "top --help"
                     : verb->parsed()           ? "launch --help"
                                                : "--help");
        return 2;
    }
    if (top_verb->parsed()) return dp::show_top(top);
    if (gpu_use_verb->parsed()) return dp::print_gpu_use(gpu_use);
    if (waterfall_verb->parsed()) return dp::show_waterfall(waterfall);
    if (tiles_verb->parsed()) return dp::show_tiles(tiles);
    return status_verb->parsed() ? dp::show_status(status) : dp::launch(launch);
}
