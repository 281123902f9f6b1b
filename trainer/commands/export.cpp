// SPDX-License-Identifier: Apache-2.0
#include "trainer/commands/export.hpp"

#include <fmt/format.h>

#include <memory>
#include <random>

#include "trainer/base/durable.hpp"
#include "trainer/base/made_directories.hpp"
#include "trainer/checkpoint/shard.hpp"
#include "trainer/commands/saved_model.hpp"
#include "trainer/data/tokenizer.hpp"
#include "trainer/data/tokenizer_config.hpp"
#include "trainer/models/gpt.hpp"
#include "trainer/models/gpt2_config.hpp"
#include "trainer/models/gpt2_weights.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

// A directory beside `output`, with its name once it is whole.
class WholeDirectory {
 public:
    explicit WholeDirectory(const fs::path& output) : output_(output.lexically_normal()) {
        if (!output_.has_filename()) output_ = output_.parent_path();  // "DIR/"
    }
    WholeDirectory(const WholeDirectory&) = delete;
    ~WholeDirectory() {
        std::error_code ignored;
        if (!path_.empty()) fs::remove_all(path_, ignored);
    }

    Result<void> make() {
        std::error_code error;
        const fs::file_status there = fs::symlink_status(output_, error);
        if (output_.filename() == "." || output_.filename() == "..")
            return wrong("is made by this command; give the name of a new directory");
        if (fs::exists(there) && !fs::is_directory(there))
            return wrong("is a file or a link; give another --output");
        if (fs::exists(there) && !fs::is_empty(output_, error))
            return error ? wrong("cannot read it: " + error.message())
                         : wrong("is not empty; give another --output, or remove it");
        error.clear();
        if (!error && output_.has_parent_path()) error = made_.make(output_.parent_path());
        std::random_device random;
        path_ = output_.parent_path() /
                fmt::format(".{}.{:08x}.unfinished", output_.filename().string(), random());
        if (!error) fs::create_directory(path_, error);
        return error ? wrong("cannot make it: " + error.message()) : Result<void>();
    }
    Result<void> finish() {
        DP_TRY(make_durable(path_));
        std::error_code error;
        fs::rename(path_, output_, error);  // takes the place of an empty directory
        if (error) return wrong("cannot make it: " + error.message());
        path_.clear();
        made_.keep();
        return make_durable(output_.has_parent_path() ? output_.parent_path() : ".");
    }
    const fs::path& path() const { return path_; }

 private:
    fs::path output_, path_;
    MadeDirectories made_;

    Result<void> wrong(const std::string& what) const {
        return fail(Fault::usage, "--output {}: {}", output_.string(), what);
    }
};

// The values of a parameter, with what its adapter adds.
Result<std::vector<float>> values_of(const SavedModel& saved, const Parameter& one) {
    const auto read = [&](const Parameter& of) {
        return read_parameter(saved.path, saved.manifest, of.number, saved.averaged ? "ema" : "values");
    };
    auto values = DP_TRY(read(one));
    if (one.adapter == nullptr) return values;
    const auto a = DP_TRY(read(one.adapter->a())), b = DP_TRY(read(one.adapter->b()));
    return merged(values, a, b, saved.shape.gpt.lora_rank, one.adapter->scale());
}

Result<void> write_weights(const SavedModel& saved, const fs::path& file) {
    const auto model = make_language_model(saved.shape.gpt);
    DP_TRY(check_parameters(saved, *model));
    std::vector<const Parameter*> parameters;
    std::vector<NewTensor> written;
    for (const auto& one : model->parameters().all()) {
        if (one.is_adapter) continue;
        const Gpt2Tensor tensor = gpt2_tensor(one.name, one.shape);
        parameters.push_back(&one);
        written.push_back({"transformer." + tensor.name, tensor.shape});
    }
    const auto numbers = [&](std::size_t i) -> Result<std::vector<float>> {
        auto values = DP_TRY(values_of(saved, *parameters[i]));
        const Gpt2Tensor tensor = gpt2_tensor(parameters[i]->name, parameters[i]->shape);
        if (tensor.is_transposed) values = transposed(values, tensor.shape[1], tensor.shape[0]);
        return values;
    };
    return write_tensors(file, written, numbers, Fault::usage);
}

// That of the data, where it is given.
Result<std::unique_ptr<Tokenizer>> tokenizer_of(const ExportOptions& options, const GptShape& shape) {
    if (!options.data_directory) return nullptr;
    auto tokenizer = DP_TRY(open_tokenizer(*options.data_directory));
    DP_TRY(check_vocabulary(tokenizer->vocabulary(), *options.data_directory, shape));
    return tokenizer;
}

// Returns what there is of it, for people.
Result<std::string_view> write_tokenizer(const Tokenizer* tokenizer, const GptShape& shape,
                                         const fs::path& directory) {
    if (tokenizer == nullptr) return "without a tokenizer (--data-dir)";
    DP_TRY(write_durably(directory / kGenerationConfig, generation_config_text(tokenizer->end_of_text()),
                         Fault::usage));
    if (tokenizer->name() != "bytes")
        DP_TRY(write_durably(directory / kTokenizerConfig,
                             tokenizer_config_text(std::string(tokenizer->config()),
                                                   tokenizer->end_of_text_name(), shape.sequence),
                             Fault::usage));
    if (const TokenizerFile file = tokenizer->file(); file.name == kTokenizerFile) {
        DP_TRY(write_durably(directory / file.name, file.contents, Fault::usage));
        return "with its tokenizer (tokenizer.json)";
    }
    const std::string merges = tokenizer->merges();
    if (merges.empty()) return "without a tokenizer: its tokens are bytes, for which transformers has none";
    DP_TRY(write_durably(directory / "merges.txt", merges, Fault::usage));
    DP_TRY(write_durably(directory / "vocab.json", tokenizer->vocabulary_json(), Fault::usage));
    return tokenizer->name() == "gpt2" ? "with GPT-2's tokenizer (vocab.json, merges.txt)"
                                       : "with its tokenizer (vocab.json, merges.txt)";
}

}  // namespace

Result<void> export_model(const ExportOptions& options) {
    const auto saved = DP_TRY(
        open_saved_model("--checkpoint", options.checkpoint, {"gpt", "can be exported", options.averaged}));
    const auto tokenizer = DP_TRY(tokenizer_of(options, saved.shape.gpt));
    WholeDirectory output(options.output);
    DP_TRY(output.make());
    DP_TRY(write_weights(saved, output.path() / kTensorFile));
    const auto end_of_text = tokenizer ? std::optional<std::int64_t>(tokenizer->end_of_text()) : std::nullopt;
    DP_TRY(write_durably(output.path() / kModelConfig, gpt2_config_text(saved.shape.gpt, end_of_text),
                         Fault::usage));
    const auto with = DP_TRY(write_tokenizer(tokenizer.get(), saved.shape.gpt, output.path()));
    DP_TRY(output.finish());
    fmt::print("{}: {} and {} of step {}, {}\n", options.output.string(), kTensorFile, kModelConfig,
               saved.manifest.progress.step, with);
    return {};
}

}  // namespace dp::trainer
