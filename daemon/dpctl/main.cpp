// SPDX-License-Identifier: Apache-2.0
//
// dpctl: slurm-dp's command line. Each subcommand has its options described here and its work in its file.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/help_lines.hpp"
#include "base/text.hpp"
#include "dpctl/commands.hpp"
#include "dpctl/query.hpp"

namespace dp {
namespace {

// The number of a closed stream would go to the next socket, and output would go there.
void keep_standard_descriptors() {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
        if (fcntl(fd, F_GETFD) < 0) open("/dev/null", O_RDONLY);  // the lowest that is free: this one
}

// A subcommand, and a function that runs it with the parsed options and returns the exit code.
struct Command {
    CLI::App* words;
    std::function<int()> run;
};

// `describe` adds the command's options; `run` is called with their values.
template <typename Options, typename Describe>
Command add(CLI::App& app, const char* name, const char* what, int (*run)(const Options&),
            Describe describe) {
    CLI::App* words = app.add_subcommand(name, what);
    auto options = std::make_shared<Options>();
    describe(*words, *options);
    return {words, [run, options] { return run(*options); }};
}

void add_step(CLI::App& words, std::string& step, const char* what) {
    words.add_option("step", step, what)->check([](const std::string& text) {
        return is_step_name(text)
                   ? ""
                   : printable(text, 40) + " is not a step; give JOB or JOB.STEP, such as 12 or 12.0";
    });
}

// The options of srun that make sense on one machine, without their "dp-".
void add_settings(CLI::App& words, Settings& settings) {
    for (const auto& spec : option_specs()) {
        if (!spec.places.dpctl) continue;
        const std::string name = std::string("--") + (spec.name + 3);
        auto take = [&settings, &spec](const std::string& value) {
            auto set = spec.set(settings, value);
            return set ? std::string() : printable(value, 40) + ": " + set.error().message;
        };
        if (spec.argument)
            words.add_option(name, spec.usage)->type_name(spec.argument)->check(take);
        else
            words.add_flag(
                name, [take](int64_t) { take("1"); }, spec.usage);
    }
}

void describe_launch(CLI::App& words, LaunchOptions& options) {
    words.add_option("-n,--ranks", options.ranks, "how many ranks")->required()->check(CLI::Range(1, 4096));
    add_settings(words, options.settings);
    words.add_option("--daemon", options.daemon,
                     "dp-rendezvousd (default: beside dpctl, else where it is installed)");
    words.add_option("command", options.command, "the program and its arguments, after --")->required();
    words.positionals_at_end();
}

void describe_status(CLI::App& words, StatusOptions& options) {
    add_step(words, options.step,
             "JOB or JOB.STEP; needed where several steps that you may ask about are on this node");
    words.add_flag("--json", options.json, "for machines");
}

void describe_waterfall(CLI::App& words, std::string& step) {
    add_step(words, step, "JOB or JOB.STEP, as of status");
}

void describe_tiles(CLI::App& words, TilesOptions& options) {
    words.add_option("--conf", options.conf, std::string("tiles.conf (default: ") + kTilesConf + ")")
        ->check(CLI::ExistingFile);
    words.add_option("--node", options.node, "another node: what tiles.conf says about it");
    words.add_flag("--json", options.json, "for machines");
}

void describe_top(CLI::App& words, TopOptions& options) {
    add_step(words, options.step, "JOB or JOB.STEP, as of status");
    auto* once = words.add_flag("--once", options.once, "one table, of half a second");
    words.add_option("--count", options.count, "the number of tables")
        ->type_name("N")
        ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40))
        ->excludes(once);
    words.add_option("-i,--interval", options.interval, "seconds from table to table (default 1)")
        ->type_name("SECONDS")
        ->check([](const std::string& text) {  // which the next would let pass
            return text.find_first_of("nN") == std::string::npos ? std::string() : "not a number of seconds";
        })
        ->check(CLI::Range(0.1, 86400.0));
    auto* csv = words.add_flag("--csv", options.csv, "a line a tile, for machines");
    words.add_flag("--json", options.json, "a line a table, for machines")->excludes(csv);
    words.add_flag("--skip-idle", options.skip_idle, "without ranks that were idle all the time");
}

void describe_stacks(CLI::App& words, StacksOptions& options) {
    add_step(words, options.step, "JOB or JOB.STEP, as of status");
    words
        .add_option_function<std::string>(
            "--rank",
            [&options](const std::string& list) {
                const auto ranks = parse_ranges<uint32_t>(list, kMaxWorldSize);
                if (!ranks)
                    throw CLI::ValidationError(
                        "--rank", printable(list, 40) + " is no list of ranks; give such as 3 or 0-3,7");
                options.ranks = *ranks;
            },
            "these ranks alone: 3 or 0-3,7")
        ->type_name("RANKS");
    words.add_option("--pid", options.pids, "processes of this machine, instead of a step")
        ->type_name("PID...")
        ->check(CLI::Range(1, 1 << 22))
        ->excludes("step")
        ->excludes("--rank");
    words.add_flag("--threads", options.threads, "all threads, not the main ones alone");
    words.add_flag("--json", options.json, "for machines");
}

void describe_exporter(CLI::App& words, ExporterOptions& options) {
    words.add_option("--listen", options.listen, "where, by number (default: 127.0.0.1:9951)")
        ->type_name("ADDRESS:PORT");
    words
        .add_option("--web-config", options.web_config,
                    "for other machines: the certificates, as Prometheus' exporters have them in "
                    "their\nweb.config.file")
        ->type_name("FILE");
}

void add_records(CLI::App& words, RecordPlaces& places) {
    auto* paths = words
                      .add_option("records", places.paths,
                                  "directories with records, or single record files (*.dprecord)")
                      ->type_name("DIR");
    auto* job =
        words
            .add_option("--job", places.job, "those of this job, where the site records its steps (record=)")
            ->type_name("N")
            ->check(CLI::Range(1u, UINT32_MAX))
            ->excludes(paths);
    words.callback([paths, job] {
        if (paths->empty() && job->empty()) throw CLI::RequiredError("a directory with records, or --job N,");
    });
}

void describe_report(CLI::App& words, ReportOptions& options) {
    add_records(words, options.places);
    auto* json = words.add_flag("--json", options.json, "for machines");
    auto* html = words.add_option("--html", options.html, "write one HTML page to FILE")
                     ->type_name("FILE")
                     ->excludes(json);
    words.add_option("--trace", options.trace, "write a trace for Perfetto or Chrome to FILE")
        ->type_name("FILE")
        ->excludes(json)
        ->excludes(html);
}

void describe_ledger(CLI::App& words, LedgerOptions& options) {
    add_records(words, options.places);
    words.add_flag("--json", options.json, "for machines");
}

void describe_collect(CLI::App& words, CollectOptions& options) {
    words.add_option("to", options.to, "the directory here that they go to")->type_name("TO")->required();
    words.add_option("--job", options.job, "the records of this job (default: the one that dpctl runs in)")
        ->type_name("N")
        ->check(CLI::Range(1u, UINT32_MAX));
    words
        .add_option(
            "--from", options.from,
            "where they are on the nodes, as of --dp-record (default: where the site records its steps)")
        ->type_name("DIR");
}

void describe_doctor(CLI::App& words, DoctorOptions& options) {
    words.add_flag("--local", options.local, "this node alone, also as one of the ranks of a step");
    words.add_flag("--json", options.json, "for machines");
    words.add_option("command", options.command,
                     "a program, after --: whether its libraries are here, and fit together");
    words.positionals_at_end();
}

void describe_send_records(CLI::App& words, SendRecordsOptions& options) {
    words.group("");  // not in --help
    words.add_option("--job", options.job)->required();
    words.add_option("--directory", options.directory)->required();
}

void describe_read_stacks(CLI::App& words, ReadStacksOptions& options) {
    words.group("");  // not in --help
    words.add_option("pids", options.pids)->required();
    words.add_flag("--threads", options.threads);
}

void describe_watch_ranks(CLI::App& words, WatchRanksOptions& options) {
    words.group("");  // not in --help
    words.add_option("pids", options.pids)->required();
    words.add_option("--timeout", options.timeout_seconds)
        ->required()
        ->check(CLI::Range(1u, kMaxTimeoutSeconds));
}

void describe_examine(CLI::App& words, ExamineOptions& options) {
    words.group("");  // not in --help
    words.add_flag("--full", options.full);
    words.add_option("--port", options.ports);
    words.add_option("--address", options.address);
    words.add_option("--temporary", options.temporary);
    words.add_flag("--gpus", options.gpus);
    words.add_option("--cuda-devices", options.cuda_devices);
}

void describe_nccl_files(CLI::App& words, NcclFilesOptions& options) {
    words.group("");  // not in --help
    words.add_option("--since", options.since);
    words.add_option("files", options.files)->required();
}

void describe_gpu_use(CLI::App& words, GpuUseOptions& options) {
    words.group("");  // not in --help
    words.add_option("--node", options.node)->required();
    words.add_option("--conf", options.conf);
    words.add_option_function<int>("--every",
                                   [&options](int ms) { options.every = std::chrono::milliseconds(ms); });
}

std::vector<Command> add_commands(CLI::App& app) {
    return {
        add<LaunchOptions>(
            app, "launch",
            "Start N ranks of a program on this machine, without Slurm, with the same daemon, plan and\n"
            "environment as `srun --dp-world=auto`. Example: dpctl launch -n 4 -- ./trainer",
            launch, describe_launch),
        add<StatusOptions>(
            app, "status",
            "What the ranks of a step are doing: which are there, which are missing, which ended and how, "
            "who waits\nfor whom. On any node of the step, as its user or root.",
            show_status, describe_status),
        add<StatusOptions>(
            app, "history",
            "The deaths after which a step's ranks started again (--dp-on-failure=restart), with their "
            "times.\nOn any node of the step, as its user or root.",
            show_history, describe_status),
        add<std::string>(
            app, "waterfall",
            "How a step's world came up: when each rank was started, said hello, had its unique id and its "
            "communicator;\nmedian, worst, and whom to look at. On any node of the step, as its user or "
            "root.",
            show_waterfall, describe_waterfall),
        add<TilesOptions>(
            app, "tiles",
            "The accelerators of this node and how their tiles are numbered: what tiles.conf says,\n"
            "else what is detected in the machine.",
            show_tiles, describe_tiles),
        add<TopOptions>(
            app, "top",
            "What the ranks of a step do with their time, tile by tile: idle, compute, load data, "
            "communicate,\ncheckpoint, as they say it with libdp's dp_phase. Live, until Ctrl-C or the "
            "step's end.\nOn any node of the step, as its user or root.",
            show_top, describe_top),
        add<StacksOptions>(app, "stacks",
                           "What the ranks of a step are doing: the functions they are in, of Python, C, "
                           "C++ and Fortran, by file and\nline or by library, those that are alike "
                           "together. The programs run on meanwhile. On any node of the step,\nas its user "
                           "or root; or with --pid, of any process: dpctl stacks --pid $(pgrep -u $USER "
                           "python3)",
                           show_stacks, describe_stacks),
        add<ReportOptions>(
            app, "report",
            "What a recorded run did (--dp-record): where each rank's time went, how it started, what "
            "happened and when,\nas tables, or with --html as a page with pictures. Several runs follow "
            "one another; the page also compares them.",
            show_report, describe_report),
        add<LedgerOptions>(
            app, "ledger",
            "Where the time of a recorded run's tasks went, and how much of it was goodput. Every second "
            "is counted once,\nacross restarts and the runs of a requeued job.",
            show_ledger, describe_ledger),
        add<ExporterOptions>(app, "exporter",
                             "The metrics of all steps on this node, for Prometheus: "
                             "http://127.0.0.1:9951/metrics. As root, or as the user "
                             "that\nplugstack.conf names with exporter=.",
                             run_exporter, describe_exporter),
        add<CollectOptions>(app, "collect",
                            "Brings records together that are on the nodes' own disks (--dp-record=DIR), for "
                            "dpctl report. It "
                            "starts a\nstep in the job, or, if that is over, in the allocation that it runs "
                            "in; run it as the "
                            "job's user, where srun works.",
                            collect, describe_collect),
        add<DoctorOptions>(
            app, "doctor",
            "Whether this machine is fit for a training: limits, names and network, Slurm's configuration, "
            "cores,\ndisks, GPUs, libraries and PyTorch. Each check says what was seen, and if that is bad, "
            "why, and what mends it.\nAs any user, in or out of a job; exit code 1 if there is a fault.",
            examine, describe_doctor),
        add<ExamineOptions>(app, "examine", "For dp-rendezvousd: whether this node is fit for a training.",
                            print_examination, describe_examine),
        add<NcclFilesOptions>(app, "nccl-warning",
                              "For dp-rendezvousd: the last warning in each rank's NCCL log.",
                              print_nccl_warning, describe_nccl_files),
        add<NcclFilesOptions>(app, "nccl-transports", "For dp-rendezvousd: what NCCL's ranks talk over.",
                              print_nccl_transports, describe_nccl_files),
        add<SendRecordsOptions>(app, "send-records", "For dpctl collect: this node's records of a job.",
                                send_records, describe_send_records),
        add<ReadStacksOptions>(app, "read-stacks", "For dp-rendezvousd: what this node's ranks are doing.",
                               print_stacks, describe_read_stacks),
        add<WatchRanksOptions>(app, "watch-ranks",
                               "For dp-rendezvousd: whether this node's ranks make progress.", watch_ranks,
                               describe_watch_ranks),
        add<GpuUseOptions>(app, "gpu-use", "For dp-rendezvousd: how busy this node's GPUs are.",
                           print_gpu_use, describe_gpu_use),
    };
}

// For an unknown command CLI11 only says that there is none.
std::string complaint_about(const CLI::App& app, const std::string& first) {
    std::vector<std::string> known;
    for (const CLI::App* one : app.get_subcommands([](const CLI::App*) { return true; })) {
        if (one->get_name() == first) return "";
        if (!one->get_group().empty()) known.push_back(one->get_name());
    }
    if (app.get_option_no_throw(first)) return "";
    return printable(first, 40) + ": no such command; there are " + join(known, ", ");
}

int wrong_words(const std::string& why, const std::string& command) {
    std::fprintf(stderr, "dpctl: %s; see dpctl %s--help\n", why.c_str(), command.c_str());
    return 2;
}

int run(int argc, char** argv) {
    keep_standard_descriptors();
    CLI::App app{"dpctl: data-parallel worlds of slurm-dp"};
    keep_help_lines(*app.get_formatter());
    app.require_subcommand(1);
    app.set_version_flag("--version", DP_VERSION);
    const std::vector<Command> commands = add_commands(app);
    if (argc > 1)
        if (const std::string why = complaint_about(app, argv[1]); !why.empty()) return wrong_words(why, "");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
        const auto parsed = app.get_subcommands();
        return wrong_words(e.what(), parsed.empty() ? "" : parsed.front()->get_name() + " ");
    }
    for (const Command& command : commands)
        if (command.words->parsed()) return command.run();
    return 2;
}

}  // namespace
}  // namespace dp

int main(int argc, char** argv) {
    return dp::run(argc, argv);
}
