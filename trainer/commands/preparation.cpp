// SPDX-License-Identifier: Apache-2.0
#include "trainer/commands/preparation.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <map>
#include <tuple>

#include "trainer/checkpoint/directory.hpp"
#include "trainer/checkpoint/manifest.hpp"
#include "trainer/commands/freezing.hpp"
#include "trainer/commands/parallel_choice.hpp"
#include "trainer/compile/cache.hpp"
#include "trainer/data/image_arrays.hpp"
#include "trainer/data/tokenizer.hpp"
#include "trainer/devices/step_capture.hpp"
#include "trainer/memory/available.hpp"
#include "trainer/models/freezing.hpp"
#include "trainer/models/gpt.hpp"
#include "trainer/models/gpt2_weights.hpp"
#include "trainer/prepare/corpus.hpp"
#include "trainer/prepare/image_set.hpp"
#include "trainer/training/schedule.hpp"

namespace dp::trainer {
namespace {

// An option that was given, and that only another model or optimizer looks at.
Result<void> refuse_foreign(Options& options) {
    std::vector<std::string> names;
    std::string of;  // of which model or optimizer they are
    const std::string_view optimizer = name_of(options.training.optimizer);
    const OptionList list = training_options(options);
    for (const OptionRow& row : list.rows()) {
        const bool is_known = row.only_of.empty() || row.only_of == options.model || row.only_of == optimizer;
        if (is_known || !options.gave(row.name())) continue;
        if (names.empty()) of = row.only_of;
        if (row.only_of == of) names.push_back(row.name());
    }
    if (names.empty()) return {};
    const bool is_model = find_model(of) != nullptr, is_one = names.size() == 1;
    return fail(Fault::usage, "{} {} only for {}, and this run uses {}; leave {} out, or give --{}={}",
                fmt::join(names, ", "), is_one ? "is" : "are", of, is_model ? options.model : optimizer,
                is_one ? "it" : "them", is_model ? "model" : "optimizer", of);
}

// The same model with --recompute, for advice; null if that makes no difference.
std::unique_ptr<Model> recomputing_model(const ModelInfo& info, ModelShape shape) {
    if (info.name != "gpt" || shape.gpt.recompute) return nullptr;
    shape.gpt.recompute = true;
    return make_model(info, shape);
}

// The directories of the data: one, or those of a mix.
std::vector<DataMix::Part> parts_of(const DataRequest& data) {
    if (data.mix) return data.mix->parts;
    return {DataMix::Part{data.directory, 1}};
}

}  // namespace

bool has_images(const Options& options) {
    const ModelInfo* info = find_model(options.model);
    if (info != nullptr && info->data != DataSet::fashion_mnist) return false;
    const auto& directory = options.data.directory;
    return has_fashion_mnist(directory) || has_image_arrays(directory) || has_image_folder(directory);
}

Result<ModelChoice> choose_model(const Options& options, bool data_there) {
    const std::string directory = options.data.directory.string();
    const bool is_given = options.gave("--data-dir");
    const std::string advice = is_given
                                   ? "give the directory of its idx files, or one with a directory of images "
                                     "for each class, as --data-dir"
                                   : "install Debian's package dataset-fashion-mnist, or give --data-dir";
    if (!options.model.empty()) {
        const ModelInfo* info = find_model(options.model);
        if (info->data == DataSet::fashion_mnist && !data_there && options.command != Command::info)
            return fail(Fault::usage, "{}: no Fashion-MNIST there, which {} trains on; {}", directory,
                        info->name, advice);
        return ModelChoice{info, std::nullopt};
    }
    if (options.init_from)
        return ModelChoice{find_model("gpt"),
                           "no --model given: gpt, because --init-from has weights of GPT-2"};
    if (data_there)
        return ModelChoice{find_model("ffn"),
                           fmt::format("no --model given: ffn, because {} in {}",
                                       is_given ? "images of classes are" : "Fashion-MNIST is", directory)};
    if (is_given) return fail(Fault::usage, "{}: no Fashion-MNIST there; {}", directory, advice);
    return ModelChoice{
        find_model("linear"),
        fmt::format(
            "no --model given: linear on generated points, because there is no Fashion-MNIST in {} ({})",
            directory, advice)};
}

Options completed(Options options, const ModelInfo& info) {
    options.model = info.name;
    Settings& training = options.training;
    // Who gives --steps alone means just these.
    if (!options.gave("--epochs"))
        training.epochs = training.max_steps ? std::nullopt : std::optional(info.defaults.epochs);
    if (!options.gave("--batch-size")) training.batch = info.defaults.batch;
    if (!options.gave("--lr")) training.rate.rate = info.defaults.rate;
    if (!options.gave("--optimizer")) training.optimizer = info.defaults.optimizer;
    if (training.pipeline_schedule == PipelineSchedule::interleaved && !options.gave("--virtual-stages"))
        training.virtual_stages = 2;

    GptShape& gpt = options.shape.gpt;
    if (const GptSize* size = find_named(kGptSizes, options.gpt_size)) {
        if (!options.gave("--num-layers")) gpt.layers = size->layers;
        if (!options.gave("--hidden-size")) gpt.hidden = size->hidden;
        if (!options.gave("--num-attention-heads")) gpt.heads = size->heads;
        if (!options.gave("--seq-length")) gpt.sequence = size->sequence;
    }
    options.gpt_size.clear();
    if (!options.gave("--lora-alpha")) gpt.lora_alpha = 2 * gpt.lora_rank;
    gpt.freeze = options.shape.freeze;

    OutputOptions& output = options.output;
    if (!tells_steps(output.style) && !output.metrics && !output.tensorboard) output.log_interval = 0;
    training.log_every = output.log_interval;
    training.log_single = output.style == LogStyle::pytorch;
    // Megatron's line has the norm of the gradients.
    if (output.style == LogStyle::megatron) training.skip_bad_steps = true;

    options.data.set = info.data;
    options.data.seed = training.seed;
    options.data.image_size = options.shape.image_size;
    return options;
}

Result<void> fit(Options& options, std::optional<std::int64_t> vocabulary) {
    DP_TRY(refuse_foreign(options));
    GptShape& gpt = options.shape.gpt;
    if (!options.gave("--vocab-size")) gpt.vocabulary = vocabulary.value_or(gpt.vocabulary);
    if (gpt.hidden % gpt.heads != 0)
        return fail(
            Fault::usage,
            "--hidden-size {} is not a multiple of --num-attention-heads {}; give one that is, such as {}",
            gpt.hidden, gpt.heads, (gpt.hidden / gpt.heads + 1) * gpt.heads);
    if (gpt.lora_rank == 0 && options.gave("--lora-alpha"))
        return fail(Fault::usage, "--lora-alpha scales adapters, and there are none; give --lora-rank, too");
    if (gpt.lora_rank > gpt.hidden)
        return fail(Fault::usage, "--lora-rank {} is more than --hidden-size, which is {}; give less",
                    gpt.lora_rank, gpt.hidden);
    if (vocabulary && gpt.vocabulary < *vocabulary)
        return fail(
            Fault::usage, "--vocab-size {} is smaller than the data's, {}; {}", gpt.vocabulary, *vocabulary,
            options.init_from ? "weights with fewer tokens than the data has are of another tokenizer; "
                                "prepare the data with theirs"
                              : "give at least that, or leave it out");
    options.data.sequence = gpt.sequence;
    if (gpt.vocabulary < gpt.layout.tensor_ranks)
        return fail(Fault::usage,
                    "{} ranks cannot divide a vocabulary of {} tokens; give a smaller --tensor-parallel",
                    gpt.layout.tensor_ranks, gpt.vocabulary);
    options.data.vocabulary = gpt.vocabulary;
    return check_freeze(*find_model(options.model), options.shape);
}

Result<std::optional<std::int64_t>> vocabulary_for(const Options& options) {
    const DataRequest& data = options.data;
    if (data.set != DataSet::tokens) return std::nullopt;
    std::string first;
    std::optional<std::int64_t> vocabulary;
    if (data.tokenizer) {
        const auto tokenizer = DP_TRY(open_tokenizer_file(*data.tokenizer));
        vocabulary = tokenizer->vocabulary();
        first = "--tokenizer " + data.tokenizer->string();
    }
    const auto parts = parts_of(data);
    for (const auto& [where, weight] : parts) {
        const auto its = vocabulary_of(where);
        if (!its) continue;
        if (vocabulary && its != vocabulary)
            return fail(
                Fault::usage,
                "--data: {} has a tokenizer of {} tokens, and {} one of {}; prepare both with the same",
                first, *vocabulary, where.string(), *its);
        vocabulary = its;
        first = where.string();
    }
    return vocabulary;
}

Result<void> choose_documents(Options& options) {
    if (!options.resets_attention) return {};
    std::int64_t& begins = options.shape.gpt.document_begins;
    const DataRequest& data = options.data;
    if (data.tokenizer) {
        const auto tokenizer = DP_TRY(open_tokenizer_file(*data.tokenizer));
        begins = tokenizer->end_of_text();
        return {};
    }
    // Of tokens alone, as llm.c's and Megatron-LM's tools write them. A multiple of 128 may be their number, rounded up.
    constexpr std::int64_t kGpt2EndOfText = 50256, kGpt2Tokens = 50257, kMostGpt2Tokens = 50304;
    const std::int64_t vocabulary = options.shape.gpt.vocabulary;
    const bool may_be_gpt2 = vocabulary >= kGpt2Tokens && vocabulary <= kMostGpt2Tokens;
    const auto parts = parts_of(data);
    for (const auto& [where, weight] : parts) {
        const auto said = document_begins_in(where);
        if (!said && !may_be_gpt2)
            return fail(Fault::usage,
                        "--reset-attention-mask: {} does not say which token begins a document; give its "
                        "tokenizer as --tokenizer FILE",
                        where.string());
        const std::int64_t its = said.value_or(kGpt2EndOfText);
        if (begins >= 0 && its != begins)
            return fail(
                Fault::usage,
                "--reset-attention-mask: documents of {} begin with token {}, and those of {} with {}; "
                "prepare both with the same tokenizer",
                parts.front().where.string(), begins, where.string(), its);
        begins = its;
    }
    return {};
}

Result<std::vector<std::string>> make_data_ready(Options& options) {
    std::vector<std::string> lines;
    DataRequest& data = options.data;
    const auto cache_for = [&](const std::filesystem::path& where,
                               std::string_view what) -> Result<std::filesystem::path> {
        if (auto cache = cache_directory(options.cache)) return *std::move(cache);
        return fail(
            Fault::usage,
            "{}: there is no cache to keep its {} in; give --cache-dir DIR, or leave out --no-cache{}",
            where.string(), what,
            what == "tokens" ? fmt::format(", or prepare it with `trainer prepare --text {}`", where.string())
                             : "");
    };
    const auto tokenize = [&](std::filesystem::path& where) -> Result<void> {
        const auto corpus = DP_TRY(find_corpus(where));
        if (!corpus) return {};
        const auto cache = DP_TRY(cache_for(where, "tokens"));
        auto made =
            DP_TRY(tokenize_corpus(*corpus, cache, data.bad_samples, {data.tokenizer, options.init_from}));
        lines.push_back(std::move(made.note));
        where = std::move(made.directory);
        return {};
    };
    if (data.set != DataSet::tokens) {
        const auto images = DP_TRY(find_image_set(data.directory, data.set));
        if (!images && data.set == DataSet::segmentation && options.gave("--data-dir") &&
            !reads_image_arrays(data) && !has_fashion_mnist(data.directory))
            return fail(
                Fault::usage,
                "{}: no images with masks there (images.npy and masks.npy, or images/ and masks/), and no "
                "Fashion-MNIST to compose some of",
                data.directory.string());
        if (!images) return lines;
        const auto cache = DP_TRY(cache_for(data.directory, "images"));
        auto made = DP_TRY(convert_images(*images, data, cache));
        lines.push_back(std::move(made.note));
        data.directory = std::move(made.directory);
        data.split.reset();  // it has been made
        data.is_checked = true;
    } else if (data.mix) {
        for (auto& part : data.mix->parts) DP_TRY(tokenize(part.where));
    } else {
        DP_TRY(tokenize(data.directory));
        data.is_checked = !lines.empty();  // a name that says what it was made from
    }
    return lines;
}

std::vector<std::pair<std::string, std::string>> values_alike(Options options) {
    std::vector<std::pair<std::string, std::string>> values{
        {"the subcommand", std::string(name_of(options.command))}};
    const OptionList training = training_options(options), measuring = measure_options(options.measure),
                     finding = find_rate_options(options.find_rate);
    for (const OptionList* list : {&training, &measuring, &finding})
        for (const OptionRow& row : list->rows())
            if (row.uses.may_differ == nullptr) values.emplace_back(row.name(), row.text());
    return values;
}

std::map<std::string, std::string> values_of_plan(Options options) {
    std::map<std::string, std::string> values;
    const OptionList list = training_options(options);
    for (const OptionRow& row : list.rows()) {
        const std::string text = row.text();
        if (row.uses.plan == PlanUse::every_value) values[row.name()] = text;
        if (row.uses.plan == PlanUse::given)
            values[row.name()] = text == "none" || text == "0" ? "none" : "given";
    }
    return values;
}

std::optional<std::filesystem::path> cache_directory(const CacheOptions& options) {
    if (options.off || options.directory == "none") return std::nullopt;
    if (options.directory) return options.directory;
    return default_cache_directory(std::getenv("XDG_CACHE_HOME"), std::getenv("HOME"));
}

std::string text_of(const Dataset& data) {
    const auto part = [](const Split& samples) { return fingerprint_of(samples).substr(0, 16); };
    return fmt::format("{} training samples ({}) and {} test samples ({})", data.train.count,
                       part(data.train), data.test.count, part(data.test));
}

MemoryCase Prepared::memory_case(std::int64_t ranks, std::int64_t sharing) const {
    return {*model, options.training, &data, ranks, &device(), sharing, recomputing.get(), [this] {
                return evenly_split(*info, options.shape, options.training);
            }};
}

Options sized_by_weights(Options options) {
    const bool is_gpt = options.model.empty() || options.model == "gpt";
    if (!options.init_from || !is_gpt || !options.gpt_size.empty()) return options;
    GptShape& gpt = options.shape.gpt;
    std::map<std::string, std::int64_t> theirs;
    const auto& saved = options.training.checkpoints.directory;
    if (const auto steps = saved.empty() ? std::vector<std::int64_t>() : checkpoints_in(saved);
        !steps.empty()) {
        const auto manifest = read_manifest(checkpoint_path(saved, steps.front()));
        if (manifest && manifest->training.model == "gpt") theirs = manifest->training.shape;
    } else if (const auto shape = gpt2_shape_of(*options.init_from, gpt)) {
        theirs = {{"num_layers", shape->layers},
                  {"hidden_size", shape->hidden},
                  {"num_attention_heads", shape->heads},
                  {"seq_length", shape->sequence},
                  {"vocab_size", shape->vocabulary}};
    }
    const std::tuple<const char*, const char*, std::int64_t*> sizes[]{
        {"--num-layers", "num_layers", &gpt.layers},
        {"--hidden-size", "hidden_size", &gpt.hidden},
        {"--num-attention-heads", "num_attention_heads", &gpt.heads},
        {"--seq-length", "seq_length", &gpt.sequence},
        {"--vocab-size", "vocab_size", &gpt.vocabulary}};
    for (const auto& [option, name, size] : sizes) {
        const auto found = theirs.find(name);
        if (options.gave(option) || found == theirs.end() || found->second < 1) continue;
        *size = found->second;
        options.given.insert(option);  // as if it had been
    }
    return options;
}

Result<void> begin_with_weights(Prepared& prepared) {
    const auto& from = prepared.options.init_from;
    if (!from) return {};
    Settings& training = prepared.options.training;
    const std::string name = fmt::format("--init-from {}", from->string());
    const auto open = [from = *from, shape = prepared.options.shape.gpt](const ParameterSet& parameters) {
        return Gpt2Weights::open(from, shape, parameters).map_error([](const Error& error) {
            return Error{error.fault, "--init-from " + error.message};
        });
    };
    training.begin_with =
        GivenValues{name, [=](const ParameterSet& parameters, Device& device) -> Result<std::uint64_t> {
                        const auto weights = DP_TRY(open(parameters));
                        return weights.load(parameters, device);
                    }};
    const auto& saved = training.checkpoints.directory;
    if (!saved.empty() && !checkpoints_in(saved).empty()) return {};
    const auto weights = DP_TRY(open(prepared.model->parameters()));
    const GptShape& gpt = prepared.options.shape.gpt;
    if (!weights.has_config())
        training.begin_with->name += fmt::format(
            " (no {} beside them: {} attention heads, of {} numbers each, are assumed; give "
            "--num-attention-heads if it has others)",
            kModelConfig, gpt.heads, gpt.hidden / gpt.heads);
    return {};
}

Result<OpenedDevice> open_device_of(const Options& options, const LaunchContext& here, OperationLog* log) {
    auto opened = DP_TRY(open_device(options.device.choice, here.gpu, threads_for(here), log));
    if (options.device.memory_limit) opened.device->memory().set_limit(*options.device.memory_limit);
    opened.device->set_deterministic(options.device.deterministic);
    if (auto* steps = dynamic_cast<StepCapture*>(opened.device.get()))
        steps->set_capture(options.device.cuda_graphs);
    return opened;
}

Result<Prepared> prepare_training(Options options, const ModelInfo& info, const LaunchContext& here,
                                  std::int64_t ranks, const Load& load, OperationLog* log) {
    const std::string given = options.data.directory.string();
    auto notes = DP_TRY(make_data_ready(options));
    const auto vocabulary = DP_TRY(vocabulary_for(options));
    DP_TRY(fit(options, vocabulary));
    DP_TRY(choose_documents(options));
    auto data = DP_TRY(load(options));
    if (!notes.empty() && !options.data.mix) data.source = given;
    DP_TRY(make_schedule(options.training, data.train.count, ranks));
    auto opened = DP_TRY(open_device_of(options, here, log));
    auto model = make_model(info, options.shape);
    if (model->parameters().learned_count() == 0)
        return fail(
            Fault::usage,
            "--freeze leaves a stage of the pipeline nothing to learn; freeze less, or give a smaller "
            "--pipeline-parallel, or another --pipeline-split");
    auto recomputing = recomputing_model(info, options.shape);
    return Prepared{&info,
                    std::move(options),
                    std::move(data),
                    std::move(opened),
                    std::move(model),
                    std::move(recomputing),
                    std::move(notes)};
}

}  // namespace dp::trainer
