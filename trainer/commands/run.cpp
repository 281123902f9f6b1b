// SPDX-License-Identifier: Apache-2.0
//
// `trainer run`: puts the parts together. Every decision is a pure function elsewhere; here are the effects,
// in the order in which a person would want to hear that they failed.
#include "trainer/commands/run.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <functional>

#include "trainer/base/output_file.hpp"
#include "trainer/base/standard_streams.hpp"
#include "trainer/checkpoint/stop.hpp"
#include "trainer/compile/compiled.hpp"
#include "trainer/data/fingerprint.hpp"
#include "trainer/data/tokenizer.hpp"
#include "trainer/devices/cpu/cpu.hpp"
#include "trainer/memory/left.hpp"
#include "trainer/parallel/agreement.hpp"
#include "trainer/parallel/findings.hpp"
#include "trainer/parallel/world.hpp"
#include "trainer/prepare/prepare.hpp"
#include "trainer/reports/metrics_file.hpp"
#include "trainer/reports/report.hpp"
#include "trainer/reports/tensorboard.hpp"
#include "trainer/training/training.hpp"

namespace dp::trainer {
namespace {

std::string describe(const Model& model, const ModelInfo& info, const Device& device,
                     const Communicator& ranks, const Settings& settings, const Dataset& data) {
    return fmt::format(
        "{}: {} parameters on {}{}; {} rank{} x batch {}{} = global batch {}; {} training and {} test "
        "samples from {}",
        info.name, model.parameters().count(), device.description(),
        settings.precision == Precision::bf16 ? ", in bf16" : "", ranks.size(), ranks.size() == 1 ? "" : "s",
        settings.batch, settings.accumulate > 1 ? fmt::format(" x {}", settings.accumulate) : "",
        settings.batch * settings.accumulate * ranks.size(), data.train.count, data.test.count, data.source);
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

dp_phase_kind kind_of(Phase phase) {
    switch (phase) {
        case Phase::compute:
            return DP_PHASE_COMPUTE;
        case Phase::load:
            return DP_PHASE_LOAD;
        case Phase::communication:
            return DP_PHASE_COMMUNICATION;
        case Phase::checkpoint:
            return DP_PHASE_CHECKPOINT;
        case Phase::idle:
            break;
    }
    return DP_PHASE_IDLE;
}

// What a person sees, and what the world is told: in case this rank dies, and for dpctl top.
class Watching final : public Observer {
 public:
    Watching(Report& report, World& world) : report_(report), world_(world) {}
    // From now on it is told of logs and epochs, too.
    void add(std::unique_ptr<Observer> also) { also_.push_back(std::move(also)); }
    // Called before the first step.
    void at_begin(std::function<Result<void>()> open) { open_ = std::move(open); }
    Result<void> on_begin() override { return open_ ? open_() : Result<void>(); }
    void on_phase(Phase phase) override { world_.phase(kind_of(phase)); }
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

// The last line, and the same in a file where that was asked for. It is printed also where the file cannot be
// written: the training is not made again for it.
Result<void> finish(const nlohmann::ordered_json& summary, const Options& options,
                    const ParallelDecision& decision, Report& report) {
    const std::string text = summary.dump();
    Result<void> written;
    if (decision.speaks && options.json) written = write_output(*options.json, text + "\n");
    report.line(text);
    return written;
}

// All ranks know the same rate, and end in the same way.
Result<void> within_throughput(const Throughput& throughput, const Options& options,
                               const ParallelDecision& decision) {
    const auto problem = throughput_problem(throughput, options.min_throughput, options.max_throughput);
    if (problem) return fail(Fault::throughput, decision.speaks ? *problem : "");
    return {};
}

// By the process that speaks. Leaves nothing.
Result<void> outputs_can_be_written(const Options& options) {
    return can_be_written("--json", options.json)
        .and_then([&] { return can_be_written("--dump-parameters", options.dump); })
        .and_then([&] { return can_be_written("--metrics", options.metrics); })
        .and_then([&] { return can_hold_files("--tensorboard", options.tensorboard); });
}

// --metrics and --tensorboard, for the process that speaks.
Result<void> open_metrics(const Options& options, const RunFacts& facts, const Model& model,
                          const Settings& settings, Watching& watching) {
    if (options.metrics) {
        auto file = MetricsFile::open(
            *options.metrics, name_of_this_run(),
            {{"model", facts.model},
             {"device", facts.device},
             {"world_size", facts.world_size},
             {"seed", facts.seed},
             {"precision", name_of(facts.precision)},
             {"global_batch_size", settings.batch * settings.accumulate * facts.world_size}});
        if (!file) return tl::make_unexpected(file.error());
        watching.add(std::move(*file));
    }
    if (options.tensorboard) {
        auto board =
            TensorBoard::open(*options.tensorboard, 3 * model.forward_flops_per_sample(), facts.world_size);
        if (!board) return tl::make_unexpected(board.error());
        watching.add(std::move(*board));
    }
    return {};
}

// What a run is about, as far as one rank sees.
struct Subject {
    ModelShape shape;
    Dataset data;
    Compiled compiled;
};
Result<Subject> find_subject(const Options& options, const ModelInfo& info, const Settings& settings,
                             const World& world) {
    const auto vocabulary =
        info.data == DataSet::tokens ? vocabulary_of(options.data_directory) : std::nullopt;
    const auto shape = shape_of(options.shape, info.name, vocabulary);
    if (!shape) return tl::make_unexpected(shape.error());
    DataRequest request = data_request(options, info, *shape);
    request.is_checked = !world.is_first_of_node();
    Compiled compiled(cache_directory(options.cache), std::move(request));
    auto data = compiled.load();
    if (!data) return tl::make_unexpected(data.error());
    const auto schedule = make_schedule(settings, data->train.count, world.size());
    if (!schedule) return tl::make_unexpected(schedule.error());
    return Subject{*shape, std::move(*data), std::move(compiled)};
}

// For people, and to compare.
std::string text_of(const Dataset& data) {
    const auto part = [](const Samples& samples) { return fingerprint_of(samples).substr(0, 16); };
    return fmt::format("{} training samples ({}) and {} test samples ({})", data.train.count,
                       part(data.train), data.test.count, part(data.test));
}

}  // namespace

Result<void> run(const Options& options, std::chrono::steady_clock::time_point started) {
    const Surroundings here = gather_surroundings();
    auto decision = decide_parallel(options.data_parallel, here);
    if (!decision && !speaks_for_all(here)) decision.error().message.clear();
    if (!decision) return tl::make_unexpected(decision.error());
    const LogStyle style = options.log_style;
    Report report(decision->speaks, isatty(STDERR_FILENO) != 0, style);
    if (decision->warning) report.warning(*decision->warning);

    const auto choice = choose_model(options, has_fashion_mnist(options.data_directory));
    if (choice && choice->reason) report.line(*choice->reason);
    const bool has_checkpoints = !options.checkpoints.directory.empty();
    if (has_checkpoints && !decision->join && std::max(here.slurm_tasks, here.local_size) > 1)
        return tl::make_unexpected(refused_by_all(
            here, {Fault::usage,
                   "several tasks that train alone cannot share a --checkpoint-dir; start them "
                   "as one world, or leave it out"}));

    if (has_checkpoints) hold_stop_signals();
    // Hello first, so that the others see this rank; then what takes time; then the mesh between the ranks.
    auto world = decision->join ? World::join() : Result<World>(World::alone());
    if (!world) return tl::make_unexpected(world.error());
    const auto name = choice.map([](const ModelChoice& chosen) { return std::string(chosen.info->name); });
    if (auto same = found_by_all(*world, kFirstFinding, name, "give --model, and the same data on all nodes");
        !same)
        return same;
    const ModelInfo& info = *choice->info;
    Settings settings = settings_for(options, info);
    report.line(fmt::format("DataParallel run: {}", world->size() > 1 ? "True" : "False"));
    if (const dp_world* facts = world->facts()) introduce(report, *facts, style);

    Watching watching(report, *world);
    watching.on_phase(Phase::load);
    // All before the mesh: what cannot work is refused in one line, not in a time-out.
    auto subject = find_subject(options, info, settings, *world);
    auto opened = subject ? open_device(options.device, here.gpu, threads_for(here))
                          : tl::make_unexpected(subject.error());
    const auto contents = opened.map([&](const OpenedDevice&) { return text_of(subject->data); });
    if (auto same = found_by_all(*world, "the data", contents, "give the same data on all nodes"); !same)
        return same;
    const ModelShape* const shape = &subject->shape;
    const Dataset* const data = &subject->data;
    if (opened->note) report.line(*opened->note);
    Device& device = *opened->device;
    if (options.memory_limit) device.memory().set_limit(*options.memory_limit);
    device.set_deterministic(options.deterministic);
    const auto model = info.make(*shape);
    Compiled& compiled = subject->compiled;
    const Plan* plan = compiled.plan(info, *model, *shape, settings, here.omp_threads.has_value(), device);
    if (const auto line = compiled.line(time_now())) report.line(*line);
    watching.on_phase(Phase::communication);
    auto communicator = world->connect(device, here.gpu.is_part());
    if (!communicator) return tl::make_unexpected(communicator.error());
    if (world->note()) report.line(*world->note());

    watching.on_phase(Phase::compute);
    report.line(describe(*model, info, device, **communicator, settings, *data));
    if (settings.precision == Precision::bf16 && device.name() == "cpu")
        report.line(
            "bf16 on the CPU is computed in fp32 copies, slower than fp32 and with more memory: it shows "
            "what a "
            "training in bf16 gives");
    const std::int64_t ranks = (*communicator)->size();
    const auto available = available_to_every_rank(device, **communicator, here);
    if (!available) return tl::make_unexpected(available.error());
    const auto recomputing = recomputing_model(info, *shape);
    const auto sharing = (*communicator)->node_share().value_or(NodeShare{}).fewest;
    const MemoryCase memory_case{*model, settings, data, ranks, recomputing.get(), &device, sharing};
    const auto measured_peak = measured_by_every_rank(
        plan != nullptr ? std::optional(plan->peak) : std::nullopt, device, **communicator);
    if (!measured_peak) return tl::make_unexpected(measured_peak.error());
    const std::optional<std::int64_t> peak = *measured_peak;
    const auto problem = peak ? planned_problem(info.name, memory_case, *peak, device.name(), *available)
                              : memory_problem(info.name, memory_case, device.name(), *available);
    if (problem) return fail(Fault::device, decision->speaks ? *problem : "");
    report.line(fmt::format("memory a rank: {} of {}",
                            peak ? size_text(*peak - saved_by_sharing(memory_case)) + " (measured)"
                                 : needs_text(estimate_memory(memory_case)),
                            size_text(*available)));
    RunFacts facts{info.name, device.name(), (*communicator)->name(), ranks, settings.seed, 0};
    facts.device_name = device.description();
    facts.precision = settings.precision;
    facts.deterministic = options.deterministic;
    facts.threads = threads_of(device.choices(), threads_for(here));
    facts.has_checkpoints = has_checkpoints;
    if (info.data == DataSet::tokens) facts.tokens_per_sample = model->targets_per_sample();
    if (world->facts() != nullptr) facts.nodes = world->facts()->nodes;
    // What is written later is tried now: a training may take days, and may yet be refused.
    auto writable = decision->speaks ? outputs_can_be_written(options) : Result<void>();
    writable = all_or_none(writable, device, **communicator);
    if (!writable) return writable;
    if (options.verb == Verb::measure) {
        if (const auto line = not_written_by_measuring(options)) report.line(*line);
        auto measured = measure(info, *model, *data, settings, options.measure, device, **communicator);
        if (!measured) return tl::make_unexpected(with_advice(measured.error(), device, memory_case));
        facts.memory_peak = device.memory().peak();
        report.line(measurement_table(*measured));
        if (auto done = finish(measurement_json(facts, *measured), options, *decision, report); !done)
            return done;
        return within_throughput(throughput_of(samples_per_second(*measured), facts.tokens_per_sample),
                                 options, *decision);
    }
    if (decision->speaks)
        watching.at_begin([&] { return open_metrics(options, facts, *model, settings, watching); });
    // Made by find_subject(), so it can be made.
    const auto left_out = steps_left_out(settings, *make_schedule(settings, data->train.count, ranks));
    if (left_out) report.line(*left_out);
    report.counts(data->train.count, settings.batch * settings.accumulate);
    if (style == LogStyle::pytorch) report.line("Entering training loop...");
    facts.startup_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    if (has_checkpoints) {  // not before: until here a signal ends the process, and nothing is lost
        catch_stop_signals();
        settings.checkpoints.stop_signal = stop_signal;
    }
    const auto outcome = train(info, *model, *data, settings, device, **communicator, watching);
    if (!outcome) return tl::make_unexpected(with_advice(outcome.error(), device, memory_case));
    facts.memory_peak = device.memory().peak();
    if (style == LogStyle::pytorch)
        report.line(fmt::format("Exiting training loop...\nTraining time = {}", outcome->train_seconds));
    if (style == LogStyle::samba) {
        // Each instance prints it, as there; it is the same in all.
        print_if_possible(stdout, samba_line(*outcome) + "\n");
        std::fflush(stdout);
        // So that the summary is behind them all. A rank that is lost only now has nothing left to do.
        (void)all_or_none({}, device, **communicator);
        report.line(samba_summary(*outcome));
    }

    const auto summary = summary_of(facts, *outcome);
    watching.on_phase(Phase::checkpoint);
    // Files first, so that the summary stays the last line; who does not speak writes none.
    Result<void> dumped;
    if (decision->speaks && options.dump) {
        const auto& parameters = outcome->parameters;
        const std::string_view bytes(reinterpret_cast<const char*>(parameters.data()),
                                     parameters.size() * sizeof(float));
        dumped = write_output(*options.dump, bytes);
    }
    if (auto done = finish(summary, options, *decision, report); !done) return done;
    if (!dumped) return dumped;
    watching.on_phase(Phase::idle);
    if (!outcome->equal_on_all_ranks) {
        return fail(Fault::training,
                    fmt::format("the parameters differ between ranks (hash {:016x} here): the gradients "
                                "were not averaged the same everywhere; do not use this model",
                                outcome->parameters_hash));
    }
    if (!outcome->end_is_saved)
        return fail(Fault::checkpoint, decision->speaks
                                           ? "the end of the training is not saved; see the lines before this"
                                           : "");
    if (outcome->resumed == outcome->schedule.total_steps) return {};  // there was nothing left to measure
    return within_throughput(throughput_of(outcome->samples_per_second, facts.tokens_per_sample), options,
                             *decision);
}

Result<void> prepare(const Options& options) {
    auto line = prepare_data(options.prepare);
    const bool speaks = gather_surroundings().local_rank == 0;  // one of a node: another may have other files
    if (!line) {
        if (!speaks) line.error().message.clear();
        return tl::make_unexpected(line.error());
    }
    if (speaks) fmt::print("{}\n", *line);
    return {};
}

}  // namespace dp::trainer
