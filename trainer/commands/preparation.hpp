// SPDX-License-Identifier: Apache-2.0
//
// What run, measure-performance, compile and info do before they differ: from the options to a model, its
// data and a device. So they refuse the same in the same words.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "trainer/commands/options.hpp"
#include "trainer/memory/estimate.hpp"

namespace dp::trainer {

// Pure: which model, and the sentence that says why if the user did not. `data_there`: has_images().
// Whether --data-dir has images of classes: idx files, ImageFolder's directories, or what was made of them. Not looked for where the
// model that was given trains on something else.
bool has_images(const Options& options);
struct ModelChoice {
    const ModelInfo* info;
    std::optional<std::string> reason;
};
Result<ModelChoice> choose_model(const Options& options, bool data_there);

// Pure: with the defaults of the model where nothing was given. Its groups are what the training goes by.
Options completed(Options options, const ModelInfo& info);

// Pure, of completed(): refuses options of other models or optimizers, and shapes that cannot be.
// `vocabulary`: of the data, where it is known.
Result<void> fit(Options& options, std::optional<std::int64_t> vocabulary);
// Of the tokens in --data-dir or --data, if the model is trained on tokens and their tokenizer is there.
Result<std::optional<std::int64_t>> vocabulary_for(const Options& options);
// For --reset-attention-mask, after fit(): the token that begins a document, in the shape.
Result<void> choose_documents(Options& options);

// Pure, of completed(): the values that all ranks must have alike, in the order of --help.
std::vector<std::pair<std::string, std::string>> values_alike(Options options);
// Pure, of fit(): what a plan that `compile` makes depends on.
std::map<std::string, std::string> values_of_plan(Options options);

// Has the texts tokenized and the pictures converted that --data-dir or --data names, and puts the directories of what is made in
// their place. A line for each.
Result<std::vector<std::string>> make_data_ready(Options& options);

// Where the cache of `compile` is: as the options say, else where the environment has caches.
std::optional<std::filesystem::path> cache_directory(const CacheOptions& options);

// Pure: what the data is, for people, and to compare.
std::string text_of(const Dataset& data);

// Where --init-from gives weights, the sizes of gpt that no option gives are theirs; or those of the checkpoint that the training
// goes on from, as the weights may be gone by then. If a file cannot be read, the code that reads the
// weights reports it.
Options sized_by_weights(Options options);

// A training before its ranks are connected.
struct Prepared {
    const ModelInfo* info;
    Options options;  // completed and fit
    Dataset data;
    OpenedDevice opened;
    // Declared; the latter with --recompute, null where it is no choice.
    std::unique_ptr<Model> model, recomputing;
    std::vector<std::string> notes;  // for people: of texts and pictures that were made ready

    Device& device() const { return *opened.device; }
    MemoryCase memory_case(std::int64_t ranks, std::int64_t sharing) const;
};

// --init-from: checks the files and has the training begin with them. Not where it has a checkpoint to resume from: what it
// began with may be gone by then.
Result<void> begin_with_weights(Prepared& prepared);

// `log`: as open_device()'s.
Result<OpenedDevice> open_device_of(const Options& options, const LaunchContext& here,
                                    OperationLog* log = nullptr);

// `options`: completed(). `ranks`: with other samples each. `load` brings the data set that they ask for.
using Load = std::function<Result<Dataset>(const Options& options)>;
Result<Prepared> prepare_training(Options options, const ModelInfo& info, const LaunchContext& here,
                                  std::int64_t ranks, const Load& load, OperationLog* log = nullptr);

}  // namespace dp::trainer
