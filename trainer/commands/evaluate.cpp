// SPDX-License-Identifier: Apache-2.0
#include "trainer/commands/evaluate.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "trainer/base/output_file.hpp"
#include "trainer/base/sha256.hpp"
#include "trainer/commands/options.hpp"
#include "trainer/commands/preparation.hpp"
#include "trainer/data/image_arrays.hpp"
#include "trainer/devices/cpu/cpu.hpp"
#include "trainer/parallel/agreement.hpp"
#include "trainer/parallel/consistency.hpp"
#include "trainer/parallel/world.hpp"
#include "trainer/prepare/corpus.hpp"
#include "trainer/prepare/image_set.hpp"
#include "trainer/training/evaluation.hpp"
#include "trainer/training/training.hpp"

namespace dp::trainer {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_from(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// What ranks compare: a directory that a training writes to may show them different ones.
std::string which(const SavedModel& saved) {
    Sha256 sha;
    const std::string text = text_of(saved.manifest);
    sha.update(text.data(), text.size());
    return fmt::format("{} of step {} ({})", saved.info->name, saved.manifest.progress.step,
                       hex_of(sha.digest()).substr(0, 16));
}

constexpr const char* kBytes = "bytes";  // --tokenizer

// Texts as tokens, which are kept in the cache. Those of a training are found there, if it had the same tokenizer.
Result<std::filesystem::path> tokens_of(const SavedModel& saved, const std::filesystem::path& where,
                                        const EvaluateOptions& options) {
    const auto corpus = DP_TRY(find_corpus(where));
    if (!corpus) return where;
    const auto& tokenizer = options.tokenizer;
    // A checkpoint does not say which tokenizer it was trained with.
    if (!tokenizer && !tokenizer_file_in(where) &&
        saved.shape.gpt.vocabulary != make_byte_tokenizer()->vocabulary())
        return fail(Fault::usage,
                    "{}: texts, and no tokenizer beside them; give the training's as --tokenizer (bytes, if "
                    "it had none), or the directory in which it kept their tokens (it says which)",
                    where.string());
    const auto cache = cache_directory({.directory = options.cache});
    if (!cache)
        return fail(Fault::usage, "{}: there is no cache to keep its tokens in; give --cache-dir DIR",
                    where.string());
    TokenizerSources sources{.bytes = tokenizer == kBytes};
    if (!sources.bytes) sources.given = tokenizer;
    return DP_TRY(tokenize_corpus(*corpus, *cache, options.bad_samples, sources)).directory;
}

// The data that it was trained on, where that is generated or composed; else what the directory has.
Result<Dataset> data_for(const SavedModel& saved, const std::filesystem::path& directory,
                         const std::optional<TrainTestRest>& split, bool is_checked) {
    DataRequest request{.set = saved.info->data, .directory = directory};
    request.samples = saved.manifest.training.samples;
    request.seed = saved.manifest.training.seed;
    request.image_size = saved.shape.image_size;
    request.sequence = saved.shape.gpt.sequence;
    request.vocabulary = saved.shape.gpt.vocabulary;
    request.is_checked = is_checked;
    request.split = split;
    if (request.set == DataSet::tokens)
        DP_TRY(check_vocabulary(vocabulary_of(directory).value_or(0), directory, saved.shape.gpt));
    if (DP_TRY(find_image_set(directory, request.set)))
        return fail(
            Fault::usage,
            "{}: images as they are, and a test needs them as the model takes them; give the directory in "
            "which the training kept them (it says which)",
            directory.string());
    if (request.set == DataSet::fashion_mnist && !has_fashion_mnist(directory) &&
        !has_image_arrays(directory))
        return fail(Fault::usage,
                    "{}: no images there that {} can be tested on; give the directory of their idx files as "
                    "--data-dir",
                    directory.string(), saved.info->name);
    return load(request);
}

std::vector<std::pair<std::string, std::string>> values_alike(EvaluateOptions options) {
    std::vector<std::pair<std::string, std::string>> values;
    const OptionList list = evaluate_options(options);
    for (const OptionRow& row : list.rows())
        if (row.uses.may_differ == nullptr) values.emplace_back(row.name(), row.text());
    return values;
}

struct TestSet {
    std::string name;
    double weight;
    std::filesystem::path directory;  // of tokens, where it was texts
    Dataset data;
};

// One, or those of a mix.
Result<std::vector<TestSet>> sets_for(const SavedModel& saved, const EvaluateOptions& options,
                                      bool is_checked) {
    if (options.mix && saved.info->data != DataSet::tokens)
        return fail(Fault::usage, "--data is only for gpt, and {} is of {}; give --data-dir",
                    saved.path.string(), saved.info->name);
    const DataMix one{{{options.data_directory, 1}}};
    const auto& parts = options.mix ? options.mix->parts : one.parts;
    double whole = 0;
    for (const auto& [where, weight] : parts) whole += weight;
    std::vector<TestSet> sets;
    bool has_texts = false;
    for (const auto& [where, weight] : parts) {
        const auto tokens =
            saved.info->data == DataSet::tokens ? DP_TRY(tokens_of(saved, where, options)) : where;
        auto data = DP_TRY(data_for(saved, tokens, options.split, is_checked));
        if (tokens != where) {
            data.source = where.string();
            has_texts = true;
        }
        if (options.mix && data.test.count == 0)
            return fail(Fault::usage, "--data: {} has nothing to test with; leave it out", where.string());
        sets.push_back({where.string(), weight / whole, tokens, std::move(data)});
    }
    if (options.tokenizer && !has_texts && options.tasks.empty())
        return fail(Fault::usage, "--tokenizer is only for texts and --tasks, and {} has none; leave it out",
                    parts.front().where.string());
    return sets;
}

std::string describe(const SavedModel& saved, const std::vector<TestSet>& sets, Precision precision,
                     const Device& device, std::int64_t ranks) {
    std::int64_t samples = 0;
    std::vector<std::string> sources;
    for (const TestSet& set : sets) {
        samples += set.data.test.count;
        sources.push_back(sets.size() == 1 ? set.data.source
                                           : fmt::format("{} ({:.3g} %)", set.name, 100 * set.weight));
    }
    return fmt::format("{}: {} of step {} on {}{}; {} rank{}; {} test samples from {}", saved.path.string(),
                       saved.info->name, saved.manifest.progress.step, device.description(),
                       precision == Precision::bf16 ? ", in bf16" : "", ranks, ranks == 1 ? "" : "s", samples,
                       fmt::join(sources, " and "));
}

// --tokenizer, else that of the data.
Result<std::unique_ptr<Tokenizer>> tokenizer_of_tasks(const SavedModel& saved, const EvaluateOptions& options,
                                                      const TestSet& first) {
    const auto& given = options.tokenizer;
    if (given == kBytes) return make_byte_tokenizer();
    auto tokenizer = DP_TRY(given ? open_tokenizer_file(*given) : open_tokenizer(first.directory));
    if (given && tokenizer->vocabulary() > saved.shape.gpt.vocabulary)
        return fail(Fault::usage, "--tokenizer {}: has {} tokens, and the model {}; give the training's",
                    given->string(), tokenizer->vocabulary(), saved.shape.gpt.vocabulary);
    return tokenizer;
}

// --tasks
Result<std::vector<LanguageTask>> tasks_for(const SavedModel& saved, const EvaluateOptions& options,
                                            const std::vector<TestSet>& sets) {
    std::vector<LanguageTask> tasks;
    if (options.tasks.empty()) return tasks;
    if (saved.info->data != DataSet::tokens)
        return fail(Fault::usage, "--tasks is only for gpt, and {} is of {}; leave it out",
                    saved.path.string(), saved.info->name);
    const auto tokenizer = DP_TRY(tokenizer_of_tasks(saved, options, sets.front()));
    for (const auto& file : options.tasks) {
        auto task = DP_TRY(read_task(file, *tokenizer, saved.shape.gpt));
        tasks.push_back(std::move(task));
    }
    return tasks;
}

nlohmann::ordered_json json_of(const AnsweredTask& answered) {
    const auto& [task, scores] = answered;
    nlohmann::ordered_json json{{"file", task.file}, {"questions", scores.questions}, {"acc", scores.acc}};
    if (scores.acc_norm) json["acc_norm"] = *scores.acc_norm;
    if (scores.perplexity) json["perplexity"] = *scores.perplexity;
    return json;
}

Result<Precision> precision_of(const SavedModel& saved, const std::optional<Precision>& wanted) {
    if (wanted) return *wanted;
    for (const Precision one : {Precision::fp32, Precision::bf16})
        if (saved.manifest.precision == name_of(one)) return one;
    return fail(Fault::usage, "{}: was trained in {}, which this trainer does not have; give --precision",
                saved.path.string(), saved.manifest.precision);
}

}  // namespace

Result<SavedModelEvaluation> SavedModelEvaluation::make(const SavedModel& saved, Precision precision,
                                                        Device& device) {
    auto model = saved.info->make(saved.shape);
    DP_TRY(check_parameters(saved, *model));
    Settings settings;  // one sample at a time, where more are too large
    settings.precision = precision;
    place_model(*model, settings, std::nullopt, device);
    DP_TRY(device.status());
    DP_TRY(load_values(saved, *model, device));
    return SavedModelEvaluation(*saved.info, std::move(settings), device, std::move(model));
}

Result<Evaluated> SavedModelEvaluation::test(const Dataset& data, Communicator& ranks) {
    const auto start = Clock::now();
    Observer nobody;
    const Schedule no_steps{1, 0, 0, 1};
    const TrainingContext context{info_, *model_, data, settings_, no_steps, device_, ranks, nobody};
    GlobalMetrics metrics(context);
    Evaluation evaluation(context);
    DP_TRY(device_.status());
    MaskCounts masks;
    if (info_.data == DataSet::segmentation)
        evaluation.on_batch = [&](const Batch& batch) { add_masks(*model_, batch, device_, masks); };
    const auto tested = DP_TRY(evaluation.test(metrics));
    Evaluated evaluated{data.test.count, tested.loss,        std::nullopt, perplexity_of(info_, tested.loss),
                        std::nullopt,    seconds_from(start)};
    if (info_.classifies) evaluated.accuracy = tested.correct;
    if (evaluation.on_batch) evaluated.masks = DP_TRY(sum_of_all_ranks(masks, device_, ranks));
    if (!std::isfinite(evaluated.loss))
        return metrics.fail("the test loss is NaN or infinite: the weights or the data are not usable");
    return evaluated;
}

std::string evaluation_line(const Evaluated& evaluated) {
    std::string line = fmt::format("test loss {:.4g}", evaluated.loss);
    if (evaluated.perplexity) line += fmt::format(", perplexity {:.4g}", *evaluated.perplexity);
    if (evaluated.accuracy) line += fmt::format(", accuracy {:.2f} %", *evaluated.accuracy * 100);
    if (evaluated.masks)
        line += fmt::format(", IoU {:.4f}, Dice {:.4f}", evaluated.masks->iou(), evaluated.masks->dice());
    return line + fmt::format("  {:.2f} s", evaluated.seconds);
}

Evaluated mixed(const std::vector<EvaluatedSet>& sets) {
    Evaluated all{0, 0, std::nullopt, std::nullopt, std::nullopt, 0};
    for (const auto& [data, weight, tested] : sets) {
        all.samples += tested.samples;
        all.loss += weight * tested.loss;
        all.seconds += tested.seconds;
    }
    all.perplexity = std::exp(all.loss);
    return all;
}

nlohmann::ordered_json evaluation_json(const RunFacts& facts, const SavedModel& saved,
                                       const Evaluated& evaluated, const std::vector<AnsweredTask>& tasks,
                                       const std::vector<EvaluatedSet>& sets) {
    nlohmann::ordered_json json = json_of(facts, "evaluated");
    json["checkpoint"] = saved.path.string();
    json["step"] = saved.manifest.progress.step;
    json["test_samples"] = evaluated.samples;
    json["test_loss"] = evaluated.loss;
    if (evaluated.accuracy) json["test_accuracy"] = *evaluated.accuracy;
    if (evaluated.perplexity) json["test_perplexity"] = *evaluated.perplexity;
    if (evaluated.masks) {
        json["test_iou"] = evaluated.masks->iou();
        json["test_dice"] = evaluated.masks->dice();
    }
    json["test_seconds"] = evaluated.seconds;
    for (const auto& [data, weight, tested] : sets)
        json["mix"].push_back({{"data", data},
                               {"weight", weight},
                               {"test_samples", tested.samples},
                               {"test_loss", tested.loss},
                               {"test_perplexity", *tested.perplexity}});
    for (const AnsweredTask& one : tasks) json["tasks"].push_back(json_of(one));
    json["startup_seconds"] = facts.startup_seconds;
    json["memory_peak_bytes"] = facts.memory_peak;
    return json;
}

Result<void> evaluate(const EvaluateOptions& options, Clock::time_point started) {
    const LaunchContext here = read_launch_context();
    const auto decision = DP_TRY(decide_parallel(DataParallel::automatic, here));
    if (!decision.join && !decision.is_primary) return {};  // tasks without a world: one does it
    auto world = DP_TRY(decision.join ? World::join() : Result<World>(World::alone()));
    const dp_world* facts = world.facts();
    if (facts != nullptr) set_rank(facts->rank);
    Report report(facts == nullptr || facts->rank == 0, false);
    const bool is_primary = facts == nullptr || facts->rank == 0;

    const auto saved = open_saved_model("--checkpoint-dir", options.checkpoint, {"", "", options.averaged});
    DP_TRY(agree_on(world, kFirstCheck, saved.map(which),
                    "name one checkpoint, such as DIR/step-000000100, if a training writes there now"));
    DP_TRY(agree_on_each(world, values_alike(options), "give all ranks the same"));
    world.phase(DP_PHASE_LOAD);
    std::vector<TestSet> sets;
    std::vector<LanguageTask> tasks;
    std::optional<OpenedDevice> opened;
    Precision precision{};
    const auto prepare = [&]() -> Result<std::string> {
        if (is_primary) DP_TRY(can_be_written("--json", options.json));
        precision = DP_TRY(precision_of(*saved, options.precision));
        sets = DP_TRY(sets_for(*saved, options, !world.is_first_of_node()));
        tasks = DP_TRY(tasks_for(*saved, options, sets));
        opened = DP_TRY(open_device(options.device, here.gpu, threads_for(here)));
        std::string found;
        for (const auto& [name, weight, directory, data] : sets)
            found += fmt::format("{}{} test samples ({})", found.empty() ? "" : ", ", data.test.count,
                                 fingerprint_of(data.test).substr(0, 16));
        for (const LanguageTask& task : tasks)
            found += fmt::format(", {} questions ({})", task.questions.size(), task.sha256.substr(0, 16));
        return found;
    };
    DP_TRY(agree_on(world, "the data", prepare(), "give the same data on all nodes"));
    Device& device = *opened->device;
    if (opened->note) report.line(*opened->note);
    world.phase(DP_PHASE_COMMUNICATION);
    // Each rank has the whole model and some of the samples, however the step divides models.
    const auto groups =
        DP_TRY(world.connect(device, here.gpu.is_part(), {1, static_cast<std::uint32_t>(world.size()), 1}));
    Communicator& ranks = *groups.world;
    if (world.note()) report.line(*world.note());
    report.line(describe(*saved, sets, precision, device, ranks.size()));

    world.phase(DP_PHASE_COMPUTE);
    auto evaluation = SavedModelEvaluation::make(*saved, precision, device);
    // Not through the device, which may have failed.
    DP_TRY(
        agree_on(world, "the model", evaluation.map([](const auto&) { return std::string("ready"); }), ""));
    RunFacts about{
        saved->info->name,    device.name(), ranks.name(), ranks.size(), saved->manifest.training.seed,
        seconds_from(started)};
    about.device_name = device.description();
    about.threads = threads_of(device.choices(), threads_for(here));
    about.precision = precision;
    if (facts != nullptr) about.nodes = facts->nodes;
    Evaluated evaluated{};
    std::vector<EvaluatedSet> of_sets;
    for (const auto& [name, weight, directory, data] : sets) {
        evaluated = DP_TRY(evaluation->test(data, ranks));
        if (!options.mix) break;
        report.line(fmt::format("{}: {}", name, evaluation_line(evaluated)));
        of_sets.push_back({name, weight, evaluated});
    }
    if (options.mix) evaluated = mixed(of_sets);
    report.line((options.mix ? "the mix: " : "") + evaluation_line(evaluated));
    std::vector<AnsweredTask> answered;
    for (LanguageTask& task : tasks) {
        auto* model = dynamic_cast<LanguageModel*>(&evaluation->model());
        const auto scores = DP_TRY(scores_of(task, *model, device, ranks));
        report.line(task_line(task, scores));
        answered.push_back({std::move(task), scores});
    }
    about.memory_peak = device.memory().peak();
    const std::string summary =
        evaluation_json(about, *saved, evaluated, answered, of_sets)
            .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);  // a path may be no text
    Result<void> written;
    if (is_primary && options.json) written = write_output(*options.json, summary + "\n");
    report.line(summary);
    world.phase(DP_PHASE_IDLE);
    return written;
}

}  // namespace dp::trainer
