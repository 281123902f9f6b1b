// SPDX-License-Identifier: Apache-2.0
//
// `trainer run`: puts the parts together. Every decision is a pure function elsewhere; here are the effects,
// in the order in which a person would want to hear that they failed.
#include "trainer/commands/run.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "trainer/base/output_file.hpp"
#include "trainer/base/standard_streams.hpp"
#include "trainer/checkpoint/directory.hpp"
#include "trainer/checkpoint/stop.hpp"
#include "trainer/commands/introduction.hpp"
#include "trainer/commands/parallel_choice.hpp"
#include "trainer/commands/preparation.hpp"
#include "trainer/commands/profiling.hpp"
#include "trainer/commands/watching.hpp"
#include "trainer/compile/compiled.hpp"
#include "trainer/devices/cpu/cpu.hpp"
#include "trainer/devices/step_capture.hpp"
#include "trainer/memory/available.hpp"
#include "trainer/models/freezing.hpp"
#include "trainer/models/pipeline_split.hpp"
#include "trainer/parallel/agreement.hpp"
#include "trainer/parallel/consistency.hpp"
#include "trainer/parallel/profiled_communicator.hpp"
#include "trainer/parallel/world.hpp"
#include "trainer/profile/roofline.hpp"
#include "trainer/profile/views.hpp"
#include "trainer/reports/metrics_file.hpp"
#include "trainer/reports/report.hpp"
#include "trainer/reports/tensorboard.hpp"

namespace dp::trainer {
namespace {

// ", layers 8,4", as --pipeline-split would say it; "" where they are divided evenly.
std::string split_text(const GptShape& shape) {
    constexpr std::size_t kMost = 16;  // numbers
    const auto layers = chunk_layers(shape);
    if (layers == even_layers(shape.layers, static_cast<std::int64_t>(layers.size()))) return "";
    if (layers.size() > kMost)
        return fmt::format(", layers {} to {}", std::ranges::min(layers), std::ranges::max(layers));
    return fmt::format(", layers {}", fmt::join(layers, ","));
}

// "tensor 2 pipeline 2 data 2, layers 8,4, micro-batches 8, bubble 11 %", as Megatron-LM's users call it.
std::string division_of(const Ranks& ranks, const Settings& training, const GptShape& shape) {
    const std::int64_t stages = ranks.pipeline.size();
    const std::string tensor = fmt::format("tensor {}{}", ranks.tensor.size(),
                                           training.sequence_parallel ? " with sequence parallel" : "");
    if (stages == 1) return fmt::format("{} data {}", tensor, ranks.data.size());
    const std::string virtual_stages =
        training.virtual_stages > 1 ? fmt::format(", virtual stages {}", training.virtual_stages) : "";
    return fmt::format("{} pipeline {} data {}{}{}, micro-batches {}, bubble {:.0f} %", tensor, stages,
                       ranks.data.size(), virtual_stages, split_text(shape), training.accumulate,
                       100 * predicted_bubble(shape, training));
}

std::string describe(const Prepared& run, const Ranks& ranks) {
    const Settings& training = run.options.training;
    const std::int64_t data = ranks.data.size(), all = ranks.world.size();
    const std::string division =
        all == data ? ""
                    : fmt::format("{} ranks, {}; ", all, division_of(ranks, training, run.options.shape.gpt));
    const std::int64_t count = run.model->parameters().whole_count(),
                       trained = trained_count(run.model->parameters());
    return fmt::format(
        "{}: {} parameters{} on {}{}; {}{} rank{} x batch {}{} = global batch {}; {} training and {} test "
        "samples from {}",
        run.info->name, count, trained < count ? fmt::format(", {} of them trained,", trained) : "",
        run.device().description(), training.precision == Precision::bf16 ? ", in bf16" : "", division, data,
        data == 1 ? "" : "s", training.batch,
        training.accumulate > 1 ? fmt::format(" x {}", training.accumulate) : "",
        training.batch * training.accumulate * data, run.data.train.count, run.data.test.count,
        run.data.source);
}

// Of the primary process. Leaves nothing.
Result<void> outputs_can_be_written(const OutputOptions& output) {
    return can_be_written("--json", output.json)
        .and_then([&] { return can_be_written("--dump-parameters", output.dump); })
        .and_then([&] { return can_be_written("--metrics", output.metrics); })
        .and_then([&] { return can_hold_files("--tensorboard", output.tensorboard); })
        .and_then([&] { return profile_can_be_written(output.profile); });
}

// A run whose ranks are connected.
struct Run {
    Prepared& prepared;
    bool is_primary;  // prints and writes files
    World& world;
    Ranks ranks;
    Report& report;
    Watching& watching;
    Survival& survival;
    // Of this process's first generation. Later, what is left of the last one takes memory.
    struct First {
        std::optional<std::int64_t> available;  // memory, to every rank
        std::optional<double> startup_seconds;
    };
    First& first;
    ProfileRecorder* recorder;  // null: no --profile, and no --per-operation
    const Options& options = prepared.options;
    Device& device = prepared.device();
    MemoryCase memory =
        prepared.memory_case(ranks.data.size(), ranks.data.node_share().value_or(NodeShare{}).fewest);
    RunFacts facts = {};

    bool has_checkpoints() const { return !options.training.checkpoints.directory.empty(); }

    // Says what is trained; an error if it does not fit, or an output of its end cannot be written.
    Result<void> check(const LaunchContext& here, const Plan* plan) {
        report.line(describe(prepared, ranks));
        if (options.training.precision == Precision::bf16 && device.copies_bf16())
            report.line(
                "this CPU has no bf16 instructions (AMX, AVX512-BF16), so it multiplies fp32 copies: slower "
                "than fp32, with more memory; bf16 is useful here only to check its accuracy");
        const auto common = DP_TRY(common_memory(available_here(device, here),
                                                 plan != nullptr ? std::optional(plan->peak) : std::nullopt,
                                                 device, ranks.world));
        if (!first.available) first.available = common.available;
        std::optional<std::int64_t> peak;
        if (common.peak) peak = *common.peak + more_than_was_measured();
        const auto checked = [&]() -> Result<void> {
            DP_TRY(check_fits(peak));
            return is_primary ? outputs_can_be_written(options.output) : Result<void>();
        };
        DP_TRY(all_or_none(checked(), device, ranks.world));
        report.line(fmt::format("memory per rank: {}{} of {}",
                                peak ? size_text(*peak - saved_by_sharing(memory)) + " (measured)"
                                     : needs_text(estimate_memory(memory)),
                                DP_TRY(more_elsewhere()), size_text(*first.available)));
        gather_facts(here);
        for (const auto& line : options_without_effect(options)) report.line(line);
        return {};
    }

    // Of a stage that needs more than this one.
    Result<std::string> more_elsewhere() const {
        if (ranks.pipeline.size() == 1) return "";
        const auto here = estimate_memory(memory).total();
        const auto largest = static_cast<std::int64_t>(
            DP_TRY(largest_of_all_ranks(static_cast<double>(here), device, ranks.world)));
        return largest > here ? fmt::format(", on another stage {}", size_text(largest)) : "";
    }

    // By a rank alone, which has the whole optimizer and sums nothing: a part with a copy of another, or sums in order, may
    // be more. What nodes save is not counted.
    std::int64_t more_than_was_measured() const {
        MemoryCase one = memory;
        one.sharing = 1;
        const MemoryNeeds now = estimate_memory(one);
        one.world = 1;
        const MemoryNeeds then = estimate_memory(one);
        return std::max<std::int64_t>(now.optimizer - then.optimizer, 0) +
               std::max<std::int64_t>(now.gradients - then.gradients, 0) + now.checkpoint;
    }

    // Ranks with other CPUs have other copies of convolutions: one may not fit where the others do.
    Result<void> check_fits(const std::optional<std::int64_t>& peak) const {
        const auto name = prepared.info->name;
        const auto problem = peak ? planned_problem(name, memory, *peak, device.name(), *first.available)
                                  : memory_problem(name, memory, device.name(), *first.available);
        return problem ? fail(Fault::device, *problem) : Result<void>();
    }

    void gather_facts(const LaunchContext& here) {
        const bool is_pipeline_alone = ranks.data.size() == 1 && ranks.pipeline.size() > 1;
        const Communicator& sums = ranks.tensor.size() > 1 ? ranks.tensor
                                   : is_pipeline_alone     ? ranks.pipeline
                                                           : ranks.data;
        facts = {prepared.info->name, device.name(),         sums.name(),
                 ranks.world.size(),  options.training.seed, 0};
        facts.device_name = device.description();
        facts.precision = options.training.precision;
        facts.deterministic = options.device.deterministic;
        facts.threads = threads_of(device.choices(), threads_for(here));
        facts.has_checkpoints = has_checkpoints();
        facts.tensor_parallel = ranks.tensor.size();
        facts.sequence_parallel = options.training.sequence_parallel;
        facts.pipeline_parallel = ranks.pipeline.size();
        if (ranks.pipeline.size() > 1) {
            facts.virtual_stages = options.training.virtual_stages;
            facts.pipeline_layers = chunk_layers(options.shape.gpt);
        }
        if (prepared.info->data == DataSet::tokens)
            facts.tokens_per_sample = prepared.model->targets_per_sample();
        if (world.facts() != nullptr) facts.nodes = world.facts()->nodes;
    }

    Result<void> measure(const LaunchContext& here) {
        auto measured = dp::trainer::measure(*prepared.info, *prepared.model, prepared.data, options.training,
                                             options.measure, device, ranks, recorder);
        if (!measured) return tl::unexpected(with_advice(measured.error(), device, memory));
        facts.memory_peak = device.memory().peak();
        auto json = measurement_json(facts, *measured);
        report.line(measurement_table(*measured));
        if (recorder != nullptr) json["operations"] = operations(here);
        DP_TRY(finish(json));
        return within_throughput(measured->samples_per_second);
    }

    // Of --per-operation: shows them. Every rank calls.
    nlohmann::ordered_json operations(const LaunchContext& here) {
        recorder->settle();
        const bool is_gpu = device.name() == "cuda" && !here.gpu.is_part();
        const DeviceModel* model = is_gpu ? device_model_of(device.description()) : nullptr;
        const Type type = type_of(options.training.precision);
        const auto peaks = model != nullptr ? peaks_of(*model, type) : peaks_here(device, options, here);
        const Roofline roofline = roofline_of(*recorder, peaks, model, type);
        if (recorder->steps().empty()) {
            report.line("the times of the operations are not known: " + recorder->problem());
            return nullptr;
        }
        if (!peaks)
            report.line(
                "operations of a step; no floor, as there is no memory to measure what this device does");
        else if (model != nullptr)
            report.line(
                fmt::format("operations of a step; floor by the data sheet of the {}: {:.0f} TFLOP/s, and "
                            "{:.2f} of {:.2f} TB/s",
                            model->product, peaks->flops / 1e12, peaks->bytes / 1e12, model->memory / 1e12));
        else
            report.line(fmt::format(
                "operations of a step; floor by what this device does, measured: {:.1f} GFLOP/s, {:.1f} GB/s",
                peaks->flops / 1e9, peaks->bytes / 1e9));
        report.line(roofline_text(roofline, true));
        return roofline_json(roofline, true);
    }

    Result<void> find_rate() {
        auto test = range_test(*prepared.info, *prepared.model, prepared.data, options.training,
                               options.find_rate, device, ranks, watching);
        if (!test) return tl::unexpected(with_advice(test.error(), device, memory));
        facts.memory_peak = device.memory().peak();
        report.line(range_text(*test));
        return finish(range_json(facts, options.find_rate, *test));
    }

    // --metrics and --tensorboard, of the primary process.
    Result<void> open_metrics() {
        const OutputOptions& output = options.output;
        if (output.metrics) {
            auto json = json_of(facts);
            json["global_batch_size"] =
                options.training.batch * options.training.accumulate * ranks.data.size();
            auto file = DP_TRY(MetricsFile::open(*output.metrics, name_of_this_run(), json));
            watching.add(std::move(file));
        }
        if (output.tensorboard) {
            const double flops = 3 * prepared.model->forward_flops_per_sample();
            auto board = DP_TRY(TensorBoard::open(*output.tensorboard, flops, ranks.world.size()));
            watching.add(std::move(board));
        }
        return {};
    }

    Result<void> train(const LaunchContext& here, const Plan* plan,
                       std::chrono::steady_clock::time_point started) {
        Settings& training = prepared.options.training;
        watching.at_begin(is_primary ? [&] { return open_metrics(); } : std::function<Result<void>()>());
        // Could be made before, so it can be made.
        const auto schedule = *make_schedule(training, prepared.data.train.count, ranks.data.size());
        if (const auto line = steps_left_out(training, schedule)) report.line(*line);
        report.counts(prepared.data.train.count, training.batch * training.accumulate);
        if (options.output.style == LogStyle::pytorch) report.line("Entering training loop...");
        if (!first.startup_seconds)
            first.startup_seconds =
                std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
        facts.startup_seconds = *first.startup_seconds;
        if (has_checkpoints()) {  // not before: until here a signal ends the process, and nothing is lost
            catch_stop_signals();
            training.checkpoints.stop_signal = stop_signal;
        }
        if (recorder != nullptr)
            recorder->follow(prepared.model->parameters(), ranks.data, device.memory(), schedule.total_steps);
        const auto outcome =
            dp::trainer::train(*prepared.info, *prepared.model, prepared.data, training, device, ranks,
                               watching, world.can_restart() ? &survival : nullptr);
        if (!outcome) return tl::unexpected(with_advice(outcome.error(), device, memory));
        facts.memory_peak = device.memory().peak();
        tell_end(*outcome);
        const auto* const steps = dynamic_cast<const StepCapture*>(&device);
        if (steps != nullptr && !steps->refusal().empty())
            report.line(
                fmt::format("--cuda-graphs=on: the training went on without graphs: {}", steps->refusal()));

        watching.on_phase(Phase::checkpoint);
        // Files first, so that the summary stays the last line.
        const auto dumped = write_parameters(*outcome);
        const auto profiled = recorder != nullptr ? profile(here, plan) : Result<void>();
        DP_TRY(finish(summary_of(facts, *outcome)));
        DP_TRY(dumped);
        watching.on_phase(Phase::idle);
        if (!outcome->equal_on_all_ranks)
            return fail(Fault::training,
                        "the parameters differ between ranks (hash {:016x} here): the gradients were not "
                        "averaged the same everywhere; do not use this model",
                        outcome->parameters_hash);
        if (!outcome->end_is_saved)
            return fail(Fault::checkpoint,
                        is_primary ? "the end of the training is not saved; see the lines before this" : "");
        DP_TRY(profiled);
        if (outcome->resumed == outcome->schedule.total_steps) return {};  // nothing was left to measure
        return within_throughput(outcome->samples_per_second);
    }

    // Its files can have become unwritable; then the training is still told of.
    Result<void> profile(const LaunchContext& here, const Plan* plan) {
        std::optional<Peaks> peaks;  // alone, a rank of several would have more
        if (plan != nullptr && plan->peaks.flops > 0 && plan->peaks.bytes > 0 && ranks.world.size() == 1)
            peaks = plan->peaks;
        recorder->settle();
        const Profile made =
            make_profile(*recorder, {prepared, here, ranks, describe(prepared, ranks), peaks});
        if (!is_primary) return {};
        if (recorder->steps().empty()) {
            report.line("no profile: " +
                        (recorder->problem().empty() ? "no step was left to take" : recorder->problem()));
            return {};
        }
        report.line(profile_text(made));
        const auto file = DP_TRY(write_profile(*options.output.profile, made, *recorder, ranks.world.rank()));
        report.line(fmt::format("profile: {}", file.string()));
        return {};
    }

    // What the log styles end with.
    void tell_end(const Outcome& outcome) {
        if (outcome.bubble && outcome.resumed < outcome.schedule.total_steps)
            report.line(fmt::format(
                "bubble: {:.1f} % of the passes was waiting for other stages, {:.1f} % predicted",
                100 * *outcome.bubble, 100 * predicted_bubble(options.shape.gpt, options.training)));
        if (options.output.style == LogStyle::pytorch)
            report.line(fmt::format("Exiting training loop...\nTraining time = {}", outcome.train_seconds));
        if (options.output.style != LogStyle::samba) return;
        // Each instance prints it, as there; it is the same in all.
        print_if_possible(stdout, samba_line(outcome) + "\n");
        std::fflush(stdout);
        // So that the summary is behind them all. A rank that is lost only now has nothing left to do.
        (void)all_or_none({}, device, ranks.world);
        report.line(samba_summary(outcome));
    }

    Result<void> write_parameters(const Outcome& outcome) const {
        if (!is_primary || !options.output.dump) return {};
        return write_output(*options.output.dump, {reinterpret_cast<const char*>(outcome.parameters.data()),
                                                   outcome.parameters.size() * sizeof(float)});
    }

    // The last line, and the same in a file if asked for. It is printed even if the file cannot be written.
    Result<void> finish(const nlohmann::ordered_json& summary) {
        const std::string text = summary.dump();
        Result<void> written;
        if (is_primary && options.output.json) written = write_output(*options.output.json, text + "\n");
        report.line(text);
        return written;
    }

    // All ranks know the same rate, and end in the same way.
    Result<void> within_throughput(double samples_per_second) const {
        const auto problem = throughput_problem(throughput_of(samples_per_second, facts.tokens_per_sample),
                                                options.output.min_throughput, options.output.max_throughput);
        if (problem) return fail(Fault::throughput, is_primary ? *problem : "");
        return {};
    }
};

// What ranks must have in common before they read their data: the model, then all other options.
Result<void> agree_on_options(World& world, const Result<ModelChoice>& choice, const Options& given,
                              const LaunchContext& here) {
    const auto name = choice.map([](const ModelChoice& chosen) { return std::string(chosen.info->name); });
    DP_TRY(agree_on(world, kFirstCheck, name, "give --model, and the same data on all nodes"));
    const Options options = completed(given, *choice->info);
    auto values = values_alike(options);
    // Some may have been told otherwise by their environment.
    const auto parallel = choose_parallel(options, *choice->info, here, world.size());
    values.emplace_back("DP_TENSOR_SIZE", parallel ? fmt::to_string(parallel->tensor) : "none");
    values.emplace_back("DP_PIPELINE_SIZE", parallel ? fmt::to_string(parallel->pipeline) : "none");
    return agree_on_each(world, values, "give all ranks the same");
}

// What a process trains, from one generation of its world to the next.
class Generations {
 public:
    Generations(const Options& given, const LaunchContext& here, const ParallelDecision& decision,
                const Result<ModelChoice>& choice, Report& report, World& world,
                std::chrono::steady_clock::time_point started)
        : given_(given),
          here_(here),
          decision_(decision),
          choice_(choice),
          report_(report),
          world_(world),
          started_(started),
          watching_(report, world, profiles() ? &*recorder_ : nullptr) {}

    Result<void> run() {
        for (;;) {
            auto done = generation();
            if (done || done.error().fault != Fault::world) return done;
            survival_.begin(std::chrono::steady_clock::now());
            if (!world_.rejoin()) return done;
            let_go();
        }
    }

 private:
    const Options& given_;
    const LaunchContext& here_;
    const ParallelDecision& decision_;
    const Result<ModelChoice>& choice_;
    Report& report_;
    World& world_;
    const std::chrono::steady_clock::time_point started_;
    std::optional<ProfileRecorder> recorder_ =
        profiles() ? std::optional<ProfileRecorder>(std::in_place, given_.command == Command::measure
                                                                       ? steps_to_record(given_.measure)
                                                                       : given_.output.profile_steps)
                   : std::nullopt;
    Watching watching_;
    std::optional<Compiled> compiled_;
    std::optional<Prepared> prepared_;
    std::string contents_;  // of its data
    Run::First first_;
    std::int64_t accumulate_ = 0;  // in a world of the first size
    Groups groups_;
    Survival survival_;  // destroyed before all that its state uses

    // What the next generation makes anew; what the last one holds may still use the communicator.
    void let_go() {
        if (prepared_) prepared_->device().set_shared_memory({});
        survival_.keep(std::move(groups_.world));
        groups_ = {};
    }

    // Steps of a training, or those that measure-performance repeats.
    bool profiles() const {
        if (given_.command == Command::measure) return given_.measure.per_operation;
        return given_.command == Command::run && given_.output.profile;
    }

    bool is_primary() const {
        const dp_world* facts = world_.facts();
        return facts ? facts->rank == 0 : decision_.is_primary;
    }

    // The data, once, because that takes time.
    Result<void> prepare(const Result<ModelParallel>& parallel) {
        // All before the mesh: what cannot work is refused in one line, not in a time-out.
        const auto load = [&]() -> Result<std::string> {
            const std::int64_t data = DP_TRY(parallel).data;
            if (prepared_) return contents_;
            Options mine = completed(given_, *choice_->info);
            choose_micro_batches(mine, *parallel);
            if (const dp_world* facts = world_.facts()) {
                // In a world that has shrunk there are more.
                Settings now = mine.training;
                now.accumulate =
                    DP_TRY(accumulate_in(world_.size(), world_.first_size(), mine.training.accumulate,
                                         micro_batches_at_a_time(mine.training, *parallel)));
                mine.shape.gpt.layout = layout_of(*parallel, facts->rank, now);
            }
            Prepared prepared = DP_TRY(prepare_training(
                std::move(mine), *choice_->info, here_, data,
                [&](const Options& options) {
                    DataRequest request = options.data;
                    request.is_checked = request.is_checked || !world_.is_first_of_node();
                    return compiled_.emplace(cache_directory(options.cache), std::move(request)).load();
                },
                profiles() ? &recorder_->log() : nullptr));
            if (given_.command != Command::measure) DP_TRY(begin_with_weights(prepared));
            accumulate_ = prepared.options.training.accumulate;
            prepared_ = std::move(prepared);
            contents_ = text_of(prepared_->data);
            if (prepared_->info->data != DataSet::tokens) return contents_;
            // Ranks with another number of tokens would have another model, and with other documents another attention.
            const GptShape& shape = prepared_->options.shape.gpt;
            const std::string documents =
                shape.document_begins < 0 ? ""
                                          : fmt::format(", documents from token {}", shape.document_begins);
            return fmt::format("vocabulary {}{}, {}", shape.vocabulary, documents, contents_);
        };
        DP_TRY(agree_on(world_, "the data", load(), "give the same data on all nodes"));
        Settings& training = prepared_->options.training;
        const dp_world* here = world_.facts();
        training.checkpoints.succeeds = world_.can_restart() && here && here->generation > 0;
        training.accumulate = DP_TRY(accumulate_in(world_.size(), world_.first_size(), accumulate_,
                                                   micro_batches_at_a_time(training, *parallel)));
        return {};
    }

    Result<void> generation() {
        if (const dp_world* facts = world_.facts()) {
            survival_.enter(facts->generation);
            set_rank(facts->rank);
        }
        report_.set_primary(is_primary());
        DP_TRY(agree_on_options(world_, choice_, given_, here_));
        const auto parallel =
            choose_parallel(completed(given_, *choice_->info), *choice_->info, here_, world_.size());
        const bool is_first = !prepared_;
        if (is_first) {
            report_.line(fmt::format("DataParallel run: {}", world_.size() > 1 ? "True" : "False"));
            if (const dp_world* facts = world_.facts())
                introduce(report_, *facts, parallel.value_or(ModelParallel{}), given_.output.style);
        }
        watching_.on_phase(Phase::load);
        DP_TRY(prepare(parallel));
        if (is_first)
            for (const auto& note : prepared_->notes) report_.line(note);
        if (is_first && prepared_->opened.note) report_.line(*prepared_->opened.note);
        // Plans are of whole models.
        const Plan* plan = parallel->tensor * parallel->pipeline > 1
                               ? nullptr
                               : compiled_->plan(values_of_plan(prepared_->options),
                                                 here_.omp_threads.has_value(), prepared_->device());
        if (is_first && is_primary())
            if (const auto line = compiled_->line(time_now())) report_.line(*line);
        watching_.on_phase(Phase::communication);
        const bool in_ring = prepared_->options.training.virtual_stages > 1;
        groups_ = DP_TRY(world_.connect(prepared_->device(), here_.gpu.is_part(), *parallel,
                                        in_ring ? StageMessages::in_a_ring : StageMessages::in_a_row));
        if (world_.note()) report_.line(*world_.note());
        if (profiles() && world_.size() > 1)
            groups_.wrap([&](std::unique_ptr<Communicator> one) {
                return std::make_unique<ProfiledCommunicator>(recorder_->log(), std::move(one));
            });
        // A part of a model dies with its rank.
        const bool survives = !groups_.divides_model && groups_.world->survives_deaths();
        if (survives) world_.enable_rejoin();
        if (const auto line = peer_copy_without_effect(given_, *parallel)) report_.line(*line);
        Settings& training = prepared_->options.training;
        if (!survives || !world_.can_restart() || given_.command != Command::run)
            training.peer_copy = 0;
        else if (!given_.gave("--peer-copy"))
            training.peer_copy = 1;

        watching_.on_phase(Phase::compute);
        Run ready{*prepared_,      is_primary(), world_,
                  groups_.ranks(), report_,      watching_,
                  survival_,       first_,       profiles() ? &*recorder_ : nullptr};
        DP_TRY(ready.check(here_, plan));
        if (given_.command == Command::find_rate) return ready.find_rate();
        return given_.command == Command::measure ? ready.measure(here_) : ready.train(here_, plan, started_);
    }
};

}  // namespace

Result<void> run(const Options& as_given, std::chrono::steady_clock::time_point started) {
    const Options given = sized_by_weights(as_given);
    const LaunchContext here = read_launch_context();
    auto decision = decide_parallel(given.device.data_parallel, here);
    if (!decision && !is_primary_process(here)) decision.error().message.clear();
    if (!decision) return tl::unexpected(decision.error());
    Report report(decision->is_primary, isatty(STDERR_FILENO) != 0, given.output.style);
    if (decision->warning) report.warning(*decision->warning);
    const auto choice = choose_model(given, has_images(given));
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
    Generations generations(given, here, *decision, choice, report, *world, started);
    return generations.run();
}

Result<void> prepare(const Options& options) {
    const auto line = prepare_data(options.prepare);
    const bool prints = read_launch_context().local_rank == 0;  // one of a node: another may have other files
    if (!line) return fail(line.error().fault, prints ? line.error().message : "");
    if (prints) fmt::print("{}\n", *line);
    return {};
}

}  // namespace dp::trainer
