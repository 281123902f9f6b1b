// SPDX-License-Identifier: Apache-2.0
//
// `trainer run`: puts the parts together. Every decision is a pure function elsewhere; here are the effects,
// in the order in which a person would want to hear that they failed.
#include "trainer/commands/run.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

#include "trainer/base/output_file.hpp"
#include "trainer/base/standard_streams.hpp"
#include "trainer/checkpoint/stop.hpp"
#include "trainer/commands/preparation.hpp"
#include "trainer/compile/compiled.hpp"
#include "trainer/devices/cpu/cpu.hpp"
#include "trainer/memory/available.hpp"
#include "trainer/parallel/agreement.hpp"
#include "trainer/parallel/consistency.hpp"
#include "trainer/parallel/world.hpp"
#include "trainer/reports/metrics_file.hpp"
#include "trainer/reports/report.hpp"
#include "trainer/reports/tensorboard.hpp"

namespace dp::trainer {
namespace {

std::string describe(const Prepared& run, const Communicator& ranks) {
    const Settings& training = run.options.training;
    return fmt::format(
        "{}: {} parameters on {}{}; {} rank{} x batch {}{} = global batch {}; {} training and {} test "
        "samples from {}",
        run.info->name, run.model->parameters().count(), run.device().description(),
        training.precision == Precision::bf16 ? ", in bf16" : "", ranks.size(), ranks.size() == 1 ? "" : "s",
        training.batch, training.accumulate > 1 ? fmt::format(" x {}", training.accumulate) : "",
        training.batch * training.accumulate * ranks.size(), run.data.train.count, run.data.test.count,
        run.data.source);
}

// Where the world is, and who is in it.
void introduce(Report& report, const dp_world& world, LogStyle style) {
    if (style != LogStyle::pytorch) {
        report.line(fmt::format("MASTER_ADDR={} MASTER_PORT={} WORLD_SIZE={} NODES={}", world.master_addr,
                                world.master_port, world.size, world.nodes));
        if (style == LogStyle::megatron) report.line(megatron_world_line(world.size));
        return;
    }
    report.line(fmt::format("MASTER_ADDR: {}\nMASTER_PORT: {}\nWORLD_SIZE: {}\nNODE_RANK: {}",
                            world.master_addr, world.master_port, world.size, world.node_rank));
    print_if_possible(stdout, fmt::format("Rank {} on Node {}: Initializing process group.\n", world.rank,
                                          world.node_rank));
    std::fflush(stdout);
}

// In the order of Phase.
constexpr std::array kPhases{DP_PHASE_IDLE, DP_PHASE_COMPUTE, DP_PHASE_LOAD, DP_PHASE_COMMUNICATION,
                             DP_PHASE_CHECKPOINT};

// What a person sees, and what the world is told: in case this rank dies, and for dpctl top.
class Watching final : public Observer {
 public:
    Watching(Report& report, World& world) : report_(report), world_(world) {}
    // From now on it is told of logs and epochs, too.
    void add(std::unique_ptr<Observer> also) { also_.push_back(std::move(also)); }
    // Called before the first step.
    void at_begin(std::function<Result<void>()> open) { open_ = std::move(open); }
    Result<void> on_begin() override { return open_ ? open_() : Result<void>(); }
    void on_phase(Phase phase) override { world_.phase(kPhases[static_cast<std::size_t>(phase)]); }
    void on_step(std::int64_t epoch, std::int64_t step, const Schedule& schedule) override {
        world_.at_step((epoch - 1) * schedule.steps_per_epoch + step);
        report_.on_step(epoch, step, schedule);
    }
    void on_log(const LogReport& log, const Schedule& schedule) override {
        report_.on_log(log, schedule);
        for (const auto& other : also_) other->on_log(log, schedule);
    }
    void on_epoch(const EpochReport& epoch, const Schedule& schedule) override {
        report_.on_epoch(epoch, schedule);
        for (const auto& other : also_) other->on_epoch(epoch, schedule);
    }
    void on_resume(const ResumeReport& resume, const Schedule& schedule) override {
        report_.on_resume(resume, schedule);
    }
    void on_damaged(const std::string& what) override { report_.trouble(what); }
    void on_checkpoint(const CheckpointReport& checkpoint) override { report_.on_checkpoint(checkpoint); }

 private:
    Report& report_;
    World& world_;
    std::vector<std::unique_ptr<Observer>> also_;
    std::function<Result<void>()> open_;
};

// Of the primary process. Leaves nothing.
Result<void> outputs_can_be_written(const OutputOptions& output) {
    return can_be_written("--json", output.json)
        .and_then([&] { return can_be_written("--dump-parameters", output.dump); })
        .and_then([&] { return can_be_written("--metrics", output.metrics); })
        .and_then([&] { return can_hold_files("--tensorboard", output.tensorboard); });
}

// For people, and to compare.
std::string text_of(const Dataset& data) {
    const auto part = [](const Split& samples) { return fingerprint_of(samples).substr(0, 16); };
    return fmt::format("{} training samples ({}) and {} test samples ({})", data.train.count,
                       part(data.train), data.test.count, part(data.test));
}

// A run whose ranks are connected.
struct Run {
    Prepared& prepared;
    const ParallelDecision& decision;
    World& world;
    Communicator& ranks;
    Report& report;
    Watching& watching;
    const Options& options = prepared.options;
    Device& device = prepared.device();
    MemoryCase memory = prepared.memory_case(ranks.size(), ranks.node_share().value_or(NodeShare{}).fewest);
    RunFacts facts = {};

    bool has_checkpoints() const { return !options.training.checkpoints.directory.empty(); }

    // Says what is trained; an error if it does not fit, or an output of its end cannot be written.
    Result<void> check(const LaunchContext& here, const Plan* plan) {
        report.line(describe(prepared, ranks));
        if (options.training.precision == Precision::bf16 && device.name() == "cpu")
            report.line(
                "the CPU computes bf16 in fp32 copies, slower than fp32 and with more memory: use it to see "
                "what training in bf16 gives");
        DP_TRY(check_memory(here, plan));
        gather_facts(here);
        for (const auto& line : options_without_effect(options)) report.line(line);
        const auto writable = decision.is_primary ? outputs_can_be_written(options.output) : Result<void>();
        return all_or_none(writable, device, ranks);
    }

    Result<void> check_memory(const LaunchContext& here, const Plan* plan) {
        const auto available = DP_TRY(available_to_every_rank(device, ranks, here));
        const auto peak = DP_TRY(measured_by_every_rank(
            plan != nullptr ? std::optional(plan->peak) : std::nullopt, device, ranks));
        const auto name = prepared.info->name;
        const auto problem = peak ? planned_problem(name, memory, *peak, device.name(), available)
                                  : memory_problem(name, memory, device.name(), available);
        // Ranks with other CPUs have other copies of convolutions: one may not fit where the others do.
        const auto fits = problem ? Result<void>(fail(Fault::device, *problem)) : Result<void>();
        DP_TRY(all_or_none(fits, device, ranks));
        report.line(fmt::format("memory per rank: {} of {}",
                                peak ? size_text(*peak - saved_by_sharing(memory)) + " (measured)"
                                     : needs_text(estimate_memory(memory)),
                                size_text(available)));
        return {};
    }

    void gather_facts(const LaunchContext& here) {
        facts = {prepared.info->name, device.name(), ranks.name(), ranks.size(), options.training.seed, 0};
        facts.device_name = device.description();
        facts.precision = options.training.precision;
        facts.deterministic = options.device.deterministic;
        facts.threads = threads_of(device.choices(), threads_for(here));
        facts.has_checkpoints = has_checkpoints();
        if (prepared.info->data == DataSet::tokens)
            facts.tokens_per_sample = prepared.model->targets_per_sample();
        if (world.facts() != nullptr) facts.nodes = world.facts()->nodes;
    }

    Result<void> measure() {
        auto measured = dp::trainer::measure(*prepared.info, *prepared.model, prepared.data, options.training,
                                             options.measure, device, ranks);
        if (!measured) return tl::unexpected(with_advice(measured.error(), device, memory));
        facts.memory_peak = device.memory().peak();
        report.line(measurement_table(*measured));
        DP_TRY(finish(measurement_json(facts, *measured)));
        return within_throughput(measured->samples_per_second);
    }

    // --metrics and --tensorboard, of the primary process.
    Result<void> open_metrics() {
        const OutputOptions& output = options.output;
        if (output.metrics) {
            auto json = json_of(facts);
            json["global_batch_size"] = options.training.batch * options.training.accumulate * ranks.size();
            auto file = DP_TRY(MetricsFile::open(*output.metrics, name_of_this_run(), json));
            watching.add(std::move(file));
        }
        if (output.tensorboard) {
            const double flops = 3 * prepared.model->forward_flops_per_sample();
            auto board = DP_TRY(TensorBoard::open(*output.tensorboard, flops, ranks.size()));
            watching.add(std::move(board));
        }
        return {};
    }

    Result<void> train(std::chrono::steady_clock::time_point started) {
        Settings& training = prepared.options.training;
        if (decision.is_primary) watching.at_begin([&] { return open_metrics(); });
        // Could be made before, so it can be made.
        const auto schedule = *make_schedule(training, prepared.data.train.count, ranks.size());
        if (const auto line = steps_left_out(training, schedule)) report.line(*line);
        report.counts(prepared.data.train.count, training.batch * training.accumulate);
        if (options.output.style == LogStyle::pytorch) report.line("Entering training loop...");
        facts.startup_seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
        if (has_checkpoints()) {  // not before: until here a signal ends the process, and nothing is lost
            catch_stop_signals();
            training.checkpoints.stop_signal = stop_signal;
        }
        const auto outcome = dp::trainer::train(*prepared.info, *prepared.model, prepared.data, training,
                                                device, ranks, watching);
        if (!outcome) return tl::unexpected(with_advice(outcome.error(), device, memory));
        facts.memory_peak = device.memory().peak();
        tell_end(*outcome);

        watching.on_phase(Phase::checkpoint);
        // Files first, so that the summary stays the last line.
        const auto dumped = write_parameters(*outcome);
        DP_TRY(finish(summary_of(facts, *outcome)));
        DP_TRY(dumped);
        watching.on_phase(Phase::idle);
        if (!outcome->equal_on_all_ranks)
            return fail(Fault::training,
                        "the parameters differ between ranks (hash {:016x} here): the gradients were not "
                        "averaged the same everywhere; do not use this model",
                        outcome->parameters_hash);
        if (!outcome->end_is_saved)
            return fail(
                Fault::checkpoint,
                decision.is_primary ? "the end of the training is not saved; see the lines before this" : "");
        if (outcome->resumed == outcome->schedule.total_steps) return {};  // nothing was left to measure
        return within_throughput(outcome->samples_per_second);
    }

    // What the log styles end with.
    void tell_end(const Outcome& outcome) {
        if (options.output.style == LogStyle::pytorch)
            report.line(fmt::format("Exiting training loop...\nTraining time = {}", outcome.train_seconds));
        if (options.output.style != LogStyle::samba) return;
        // Each instance prints it, as there; it is the same in all.
        print_if_possible(stdout, samba_line(outcome) + "\n");
        std::fflush(stdout);
        // So that the summary is behind them all. A rank that is lost only now has nothing left to do.
        (void)all_or_none({}, device, ranks);
        report.line(samba_summary(outcome));
    }

    Result<void> write_parameters(const Outcome& outcome) const {
        if (!decision.is_primary || !options.output.dump) return {};
        return write_output(*options.output.dump, {reinterpret_cast<const char*>(outcome.parameters.data()),
                                                   outcome.parameters.size() * sizeof(float)});
    }

    // The last line, and the same in a file if asked for. It is printed even if the file cannot be written.
    Result<void> finish(const nlohmann::ordered_json& summary) {
        const std::string text = summary.dump();
        Result<void> written;
        if (decision.is_primary && options.output.json)
            written = write_output(*options.output.json, text + "\n");
        report.line(text);
        return written;
    }

    // All ranks know the same rate, and end in the same way.
    Result<void> within_throughput(double samples_per_second) const {
        const auto problem = throughput_problem(throughput_of(samples_per_second, facts.tokens_per_sample),
                                                options.output.min_throughput, options.output.max_throughput);
        if (problem) return fail(Fault::throughput, decision.is_primary ? *problem : "");
        return {};
    }
};

// What ranks must have in common before they read their data: the model, then all other options.
Result<void> agree_on_options(World& world, const Result<ModelChoice>& choice, const Options& given) {
    const auto name = choice.map([](const ModelChoice& chosen) { return std::string(chosen.info->name); });
    DP_TRY(agree_on(world, kFirstCheck, name, "give --model, and the same data on all nodes"));
    return agree_on_each(world, values_alike(completed(given, *choice->info)), "give all ranks the same");
}

}  // namespace

Result<void> run(const Options& given, std::chrono::steady_clock::time_point started) {
    const LaunchContext here = read_launch_context();
    auto decision = decide_parallel(given.device.data_parallel, here);
    if (!decision && !is_primary_process(here)) decision.error().message.clear();
    if (!decision) return tl::unexpected(decision.error());
    Report report(decision->is_primary, isatty(STDERR_FILENO) != 0, given.output.style);
    if (decision->warning) report.warning(*decision->warning);
    const auto choice = choose_model(given, has_fashion_mnist(given.data.directory));
    if (choice && choice->reason) report.line(*choice->reason);
    const bool has_checkpoints = !given.training.checkpoints.directory.empty();
    if (has_checkpoints && !decision->join && std::max(here.slurm_tasks, here.local_size) > 1)
        return tl::unexpected(
            refuse_together(here, {Fault::usage,
                                   "several tasks that train alone cannot share a --checkpoint-dir; start "
                                   "them as one world, or leave it out"}));

    if (has_checkpoints) hold_stop_signals();
    // Hello first, so that the others see this rank; then what takes time; then the mesh between the ranks.
    auto world = decision->join ? World::join() : Result<World>(World::alone());
    if (!world) return tl::unexpected(world.error());
    DP_TRY(agree_on_options(*world, choice, given));
    report.line(fmt::format("DataParallel run: {}", world->size() > 1 ? "True" : "False"));
    if (const dp_world* facts = world->facts()) introduce(report, *facts, given.output.style);

    Watching watching(report, *world);
    watching.on_phase(Phase::load);
    // All before the mesh: what cannot work is refused in one line, not in a time-out.
    std::optional<Compiled> compiled;
    auto prepared = prepare_training(
        completed(given, *choice->info), *choice->info, here, world->size(), [&](const Options& options) {
            DataRequest request = options.data;
            request.is_checked = !world->is_first_of_node();
            return compiled.emplace(cache_directory(options.cache), std::move(request)).load();
        });
    const auto contents = prepared.map([](const Prepared& one) { return text_of(one.data); });
    DP_TRY(agree_on(*world, "the data", contents, "give the same data on all nodes"));
    if (prepared->opened.note) report.line(*prepared->opened.note);
    const Plan* plan =
        compiled->plan(values_of_plan(prepared->options), here.omp_threads.has_value(), prepared->device());
    if (const auto line = compiled->line(time_now())) report.line(*line);
    watching.on_phase(Phase::communication);
    auto communicator = DP_TRY(world->connect(prepared->device(), here.gpu.is_part()));
    if (world->note()) report.line(*world->note());

    watching.on_phase(Phase::compute);
    Run ready{*prepared, *decision, *world, *communicator, report, watching};
    DP_TRY(ready.check(here, plan));
    return given.command == Command::measure ? ready.measure() : ready.train(started);
}

Result<void> prepare(const Options& options) {
    const auto line = prepare_data(options.prepare);
    const bool prints = read_launch_context().local_rank == 0;  // one of a node: another may have other files
    if (!line) return fail(line.error().fault, prints ? line.error().message : "");
    if (prints) fmt::print("{}\n", *line);
    return {};
}

}  // namespace dp::trainer
