// SPDX-License-Identifier: Apache-2.0
//
// dpctl's subcommands: the options of each, the function that does it, with its exit code, and its texts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/failure.hpp"
#include "common/options.hpp"
#include "doctor/examination.hpp"
#include "dp.pb.h"
#include "nvml/devices.hpp"
#include "stacks/stack.hpp"
#include "tiles/inventory.hpp"

namespace dp {

// slurmstepd's part on one machine: starts the daemon and the ranks, and leaves nothing behind.
struct LaunchOptions {
    uint32_t ranks = 0;
    Settings settings;  // no world, no interface, no dry run
    std::string daemon;
    std::vector<std::string> command;
};
// Returns 0 if every rank succeeded, else the first failed rank's code, or 128 + its signal; 1 if nothing was
// started; 127 if the program does not exist, 126 if it cannot be run. Ranks that do not end at SIGINT,
// SIGTERM, SIGHUP or SIGQUIT are killed: 128 + that signal.
int launch(const LaunchOptions& options);

// What a step's ranks are doing.
struct StatusOptions {
    std::string step;  // "123.0" or "123"; "": that of DP_SOCKET, else the only one here
    bool json = false;
};
int show_status(const StatusOptions& options);
// One line per node, ranks of one state together, and who waits for whom.
std::string status_text(const std::string& step, const wire::StepStatus& status);
// dpctl(1) documents the keys.
std::string status_json(const std::string& step, const wire::StepStatus& status);
// "generation 2, 8 restarts left"; the second part with --dp-on-failure=restart alone.
std::string generation_in_words(const wire::StepStatus& status);
// "hello", "exited".
const char* name_of(wire::StepStatus::State state);

// The deaths after which a step's ranks started again: when, who, and how soon.
int show_history(const StatusOptions& options);
std::string history_text(const std::string& step, const wire::StepStatus& status);
// dpctl(1) documents the keys.
std::string history_json(const std::string& step, const wire::StepStatus& status);

// How a world came up, rank by rank, and which rank to look at.
int show_waterfall(const std::string& step);
// One line per rank (in a large world: the slowest), with times in ms since the first task's start and a bar;
// then the medians, the slowest rank of each phase, and who stands out.
std::string waterfall_text(const std::string& step, const wire::StepStatus& status);

// A node's accelerators and the numbers of their tiles.
struct TilesOptions {
    std::string conf = kTilesConf;
    std::string node;  // "": this one
    bool json = false;
    // Except in tests these are the machine's own.
    std::string root = {};
    std::string nvml = "libnvidia-ml.so.1";
    std::string scontrol = "scontrol";
};
// 1 if nothing is known about the node, 2 if tiles.conf has a mistake.
int show_tiles(const TilesOptions& options);
// `uuids` are the devices', in order, "" if unknown.
std::string tiles_text(const std::string& node, const TileInventory& inventory,
                       const std::vector<std::string>& uuids);
// dpctl(1) documents the keys.
std::string tiles_json(const std::string& node, const TileInventory& inventory,
                       const std::vector<std::string>& uuids);
// How the inventory and Slurm's gres of the node ("gpu:4,rdu:8") disagree, and what to do.
std::optional<std::string> disagreement(const TileInventory& inventory, std::string_view node_gres);

// What the ranks of a step do with their time, tile by tile, live.
struct TopOptions {
    std::string step;
    bool once = false;
    std::optional<uint64_t> count;   // so many tables; else until Ctrl-C or the step's end
    std::optional<double> interval;  // seconds
    bool csv = false;
    bool json = false;
    bool skip_idle = false;
};
// 0 also at the end of the step, if there was a table.
int show_top(const TopOptions& options);

// What the ranks of a step are doing, call by call, or processes of this machine.
struct StacksOptions {
    std::string step;
    std::vector<uint32_t> ranks;  // none: all
    std::vector<pid_t> pids;      // instead of a step
    bool threads = false;         // all of them, not the main ones alone
    bool json = false;
};
// 1 if one of them cannot be read; the others are shown all the same.
int show_stacks(const StacksOptions& options);
// Those that are alike together, the largest group first; without those that are not known.
std::string stacks_text(const std::vector<stacks::ProcessStacks>& processes, bool all_threads);
std::string stacks_text(const wire::StepStacks& step, bool all_threads);
// dpctl(1) documents the keys.
std::string stacks_json(const std::vector<stacks::ProcessStacks>& processes);
std::string stacks_json(const wire::StepStacks& step);
// What the two above leave out, a line each: the nodes and ranks that are not known, and why.
std::vector<std::string> not_known(const wire::StepStacks& step);

// Which records (--dp-record): directories or files, or those of a job where the site records its steps.
struct RecordPlaces {
    std::vector<std::string> paths;
    uint32_t job = 0;
};
// What they say.
struct ReportOptions {
    RecordPlaces places;
    bool json = false;
    std::string html;   // a page goes to this file
    std::string trace;  // or a trace to this one; both "": text or JSON to standard output
};
int show_report(const ReportOptions& options);
// Of that, where the time went.
struct LedgerOptions {
    RecordPlaces places;
    bool json = false;
};
int show_ledger(const LedgerOptions& options);

// The metrics of all steps on this node, for Prometheus.
struct ExporterOptions {
    std::string listen = "127.0.0.1:9951";
    std::string web_config;  // a file for TLS (exporter/web_config.hpp)
};
// Becomes that program (exporter/exporter.hpp); returns only if there is none.
int run_exporter(const ExporterOptions& options);

// Brings records that are on the nodes' own disks together.
struct CollectOptions {
    uint32_t job = 0;  // 0: the one that dpctl runs in
    std::string from;  // as of --dp-record; "": where the site records its steps
    std::string to;    // a directory here
};
// 1 if a node of the allocation sent no record, or something is not whole; the others are there all the same.
int collect(const CollectOptions& options);

// For `dpctl collect`, on each node: this node's records of a job, as lines (dpctl/record_lines.hpp) to standard output.
struct SendRecordsOptions {
    uint32_t job = 0;
    std::string directory;  // with Slurm's patterns
};
int send_records(const SendRecordsOptions& options);

// Whether this machine is fit for a training: checks, each with what was seen, why it matters and what mends it. In a step
// of ours with several ranks, all its nodes, what differs between them, and the links from each to each; rank 0 reports.
struct DoctorOptions {
    bool json = false;
    bool local = false;                // this node alone, also in a step
    std::vector<std::string> command;  // a program whose libraries are looked at, too
};
// 1 if there is a fault.
int examine(const DoctorOptions& options);
// Of all nodes of a step, in the order of their ranks.
struct StepExamination {
    std::vector<doctor::Examination> nodes;
    doctor::Findings between;  // the nodes
};
// For each rank of a step; what it found for rank 0, nullopt for the others.
Try<std::optional<StepExamination>> examine_step(const doctor::Machine& machine);
std::string doctor_text(const doctor::Examination& node);
std::string doctor_text(const StepExamination& step);
// dpctl(1) documents the keys.
std::string doctor_json(const doctor::Examination& node);
std::string doctor_json(const StepExamination& step);

// For the daemon (loop/examiner.hpp): what this node is like, and how fast its links are.
struct ExamineOptions {
    bool full = false;            // measure, too
    std::vector<uint16_t> ports;  // where partners may come to, in the order to try
    std::string address;          // of this node for the others, if it is known
    std::string temporary;        // the step's TMPDIR
    bool gpus = false;            // the step has some here
    std::string cuda_devices;     // likewise, as in CUDA_VISIBLE_DEVICES, or "all"; "": not known
};
int print_examination(const ExamineOptions& options);

// For the daemon (loop/last_words.hpp, loop/transports_reader.hpp), of NCCL's files (--dp-nccl-debug): a line with the last warning in
// each; and a wire::NcclTransports of all together, or nothing before they say anything of that.
struct NcclFilesOptions {
    std::vector<std::string> files;
    int64_t since = 0;  // Unix time: older files are an earlier step's
};
int print_nccl_warning(const NcclFilesOptions& options);
int print_nccl_transports(const NcclFilesOptions& options);

// For the daemon (loop/stack_reader.hpp): a NodeStacks of these processes on standard output.
struct ReadStacksOptions {
    std::vector<pid_t> pids;
    bool threads = false;
};
int print_stacks(const ReadStacksOptions& options);
wire::RankStacks message_of(const stacks::ProcessStacks& process, bool all_threads);

// For the daemon (loop/gpu_probe.hpp): a NodeUsage with only `gpus` on standard output.
int print_gpu_use(const GpuUseOptions& options);

// For the daemon (loop/rank_watcher.hpp), until the last of these tasks has ended: a frame with a Watched on standard output each
// time that one has not moved for the timeout, or moves again.
struct WatchRanksOptions {
    std::vector<pid_t> pids;
    uint32_t timeout_seconds = 0;
};
int watch_ranks(const WatchRanksOptions& options);

}  // namespace dp
