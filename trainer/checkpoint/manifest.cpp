// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/manifest.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.hpp"

namespace dp::trainer {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "slurm-dp checkpoint";
// More than anybody has, and small enough that the product of two of them does not overflow.
constexpr std::int64_t kMostElements = std::int64_t{1} << 40, kMostRanks = std::int64_t{1} << 20;

template <typename... Args>
tl::unexpected<Error> wrong(fmt::format_string<Args...> what, Args&&... args) {
    return fail(Fault::usage, fmt::format(what, std::forward<Args>(args)...));
}

std::int64_t count_of(const Json& json, const char* key, std::int64_t most = kMostElements,
                      std::int64_t least = 0) {
    const Json& number = json.at(key);
    // A number with an exponent may not fit.
    if (number.is_number_float()) throw std::out_of_range(fmt::format("{} is {}", key, number.dump()));
    const auto value = number.get<std::int64_t>();
    if (value < least || value > most) throw std::out_of_range(fmt::format("{} is {}", key, value));
    return value;
}

// Compares the checkpoint's parameters or buffers with ours: names, shapes and sizes.
Result<void> check_places(const std::vector<Place>& then, const std::vector<Place>& now,
                          const std::string& model) {
    const auto shape_of = [](const Place& place) {
        return fmt::format("{} ({})", place.name, fmt::join(place.shape, " x "));
    };
    for (std::size_t i = 0; i < std::max(then.size(), now.size()); ++i) {
        const std::string old_one = i < then.size() ? shape_of(then[i]) : "nothing";
        const std::string new_one = i < now.size() ? shape_of(now[i]) : "nothing";
        if (old_one != new_one)
            return wrong(
                "has a {} of another size or make: {} where this one has {}; give the options of the model "
                "that it was made with",
                model, old_one, new_one);
    }
    return {};
}

// The places from "parameters" or "buffers", whose numbers are in the vector.
std::vector<Place> places_of(const Json& list, const std::vector<StoredVector>& vectors,
                             std::string_view vector) {
    const auto numbers =
        std::find_if(vectors.begin(), vectors.end(), [&](const auto& one) { return one.name == vector; });
    std::vector<Place> places;
    for (const auto& one : list) {
        Place place{one.at("name").get<std::string>(), one.at("shape").get<Shape>(), count_of(one, "first"),
                    one.value("frozen", false)};
        std::int64_t elements = 1;
        for (const std::int64_t size : place.shape)
            elements = size < 1 || elements > kMostElements / size ? kMostElements : elements * size;
        if (numbers == vectors.end() || elements > numbers->elements - place.first)
            throw std::out_of_range(fmt::format("{} is not within the {}", place.name, vector));
        places.push_back(std::move(place));
    }
    return places;
}

Json json_of(const std::vector<Place>& places) {
    Json list = Json::array();
    for (const auto& [name, shape, first, is_frozen] : places) {
        list.push_back({{"name", name}, {"shape", shape}, {"first", first}});
        if (is_frozen) list.back()["frozen"] = true;
    }
    return list;
}

Result<void> check_batch(std::int64_t then, const Continuation& now) {
    if (then == now.training.global_batch) return {};
    const std::string what = fmt::format(
        "was made with a global batch of {}, and this run has one of {} (ranks: {}, --batch-size: {}, "
        "--accumulate: {})",
        then, now.training.global_batch, now.world, now.batch, now.accumulate);
    if (then % now.world != 0) return wrong("{}; take a number of ranks that divides {}", what, then);
    const std::int64_t of_a_rank = then / now.world;
    // Keeps the user's own numbers if possible.
    const std::int64_t accumulate = of_a_rank % now.accumulate == 0 ? now.accumulate : 1;
    const auto advice = [](std::int64_t batch, std::int64_t batches) {
        return fmt::format("--batch-size {} --accumulate {}", batch, batches);
    };
    const std::string by_size = advice(of_a_rank / accumulate, accumulate);
    if (of_a_rank % now.batch != 0 || of_a_rank / now.batch == accumulate)
        return wrong("{}; give {}", what, by_size);
    return wrong("{}; give {}, or {}", what, by_size, advice(now.batch, of_a_rank / now.batch));
}

// Where in the training a step is. "epoch" and "samples_into_epoch" say it for people.
struct EpochPlace {
    std::int64_t epoch, samples;
};
EpochPlace place_of(std::int64_t step, const TrainingIdentity& training) {
    const std::int64_t steps_per_epoch = training.samples / training.global_batch;
    const std::int64_t epoch = (step - 1) / steps_per_epoch + 1;
    return {epoch, (step - (epoch - 1) * steps_per_epoch) * training.global_batch};
}

void check_place(const Json& json, std::int64_t step, const EpochPlace& place) {
    if (const auto said = count_of(json, "epoch"); said != place.epoch)
        throw std::out_of_range(
            fmt::format("epoch is {}, and step {} is in epoch {}", said, step, place.epoch));
    if (const auto said = count_of(json, "samples_into_epoch"); said != place.samples)
        throw std::out_of_range(fmt::format("samples_into_epoch is {}, and step {} is {} into epoch {}", said,
                                            step, place.samples, place.epoch));
}

BestTest best_test_of(const Json& json, std::int64_t step) {
    BestTest best;
    best.loss = json.at("loss").get<double>();
    best.last_step = count_of(json, "last_step", step, 1);
    best.step = count_of(json, "step", best.last_step, 1);
    best.worse = count_of(json, "tests_since", best.last_step - best.step);
    return best;
}

}  // namespace

std::string text_of(const Manifest& manifest) {
    const auto& training = manifest.training;
    const auto& progress = manifest.progress;
    const EpochPlace place = place_of(progress.step, training);
    Json json{
        {"format", kFormat},
        {"version", std::ranges::any_of(training.parameters, &Place::is_frozen) ? kCheckpointVersion : 1},
        {"model", training.model},
        {"shape", training.shape},
        {"optimizer", training.optimizer},
        {"precision", manifest.precision},
        {"seed", training.seed},
        {"samples", training.samples},
        {"data_fingerprint", training.data_fingerprint},
        {"data_source", manifest.data_source},
        {"global_batch_size", training.global_batch},
        {"world_size", manifest.world()},
        {"step", progress.step},
        {"epoch", place.epoch},
        {"samples_into_epoch", place.samples},
        {"skipped_steps", progress.skipped},
        {"skipped_in_epoch", progress.skipped_in_epoch},
        {"bad_in_a_row", progress.bad_in_a_row},
    };
    if (const auto& best = progress.best_test)
        json["best_test"] = {{"loss", best->loss},
                             {"step", best->step},
                             {"tests_since", best->worse},
                             {"last_step", best->last_step}};
    if (manifest.samples_at_once != 0) json["samples_at_once"] = manifest.samples_at_once;
    if (!manifest.stopped_by.empty()) json["stopped_by"] = manifest.stopped_by;
    json["parameters"] = json_of(training.parameters);
    json["buffers"] = json_of(training.buffers);
    for (const auto& one : manifest.vectors)
        json["vectors"].push_back({{"name", one.name}, {"elements", one.elements}});
    for (const auto& one : manifest.shards)
        json["shards"].push_back(
            {{"sha256", one.sha256}, {"epoch_loss", one.loss}, {"epoch_correct", one.correct}});
    // data_source is a path: any bytes.
    return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Manifest> manifest_of(std::string_view text) {
    try {
        const Json json = Json::parse(text);
        if (json.at("format") != kFormat) return wrong("is not a manifest of slurm-dp's trainer");
        if (const auto version = json.at("version").get<std::int64_t>();
            version < 1 || version > kCheckpointVersion)
            return wrong(
                "has version {} of the format, and this trainer reads versions 1 to {}; take the trainer "
                "that "
                "wrote it, or {} one",
                version, kCheckpointVersion, version > kCheckpointVersion ? "a newer" : "an older");
        Manifest manifest;
        auto& training = manifest.training;
        training.model = json.at("model").get<std::string>();
        training.shape = json.at("shape").get<std::map<std::string, std::int64_t>>();
        training.optimizer = json.at("optimizer").get<std::string>();
        manifest.precision = json.value("precision", "fp32");  // older ones do not say it
        manifest.samples_at_once = json.value("samples_at_once", std::int64_t{0});
        manifest.stopped_by = json.value("stopped_by", "");
        training.seed = json.at("seed").get<std::uint64_t>();
        training.samples = count_of(json, "samples", kMostElements, 1);
        training.data_fingerprint = json.at("data_fingerprint").get<std::string>();
        training.global_batch = count_of(json, "global_batch_size", training.samples, 1);
        manifest.data_source = json.at("data_source").get<std::string>();
        auto& progress = manifest.progress;
        progress.step = count_of(json, "step", kMostElements, 1);
        check_place(json, progress.step, place_of(progress.step, training));
        progress.skipped = count_of(json, "skipped_steps", progress.step);
        progress.skipped_in_epoch = count_of(json, "skipped_in_epoch", progress.skipped);
        progress.bad_in_a_row = count_of(json, "bad_in_a_row", progress.skipped);
        if (json.contains("best_test")) progress.best_test = best_test_of(json["best_test"], progress.step);
        for (const auto& one : json.at("vectors"))
            manifest.vectors.push_back({one.at("name").get<std::string>(), count_of(one, "elements")});
        for (const auto& one : json.at("shards"))
            manifest.shards.push_back({one.at("sha256").get<std::string>(),
                                       one.at("epoch_loss").get<double>(),
                                       one.at("epoch_correct").get<double>()});
        if (count_of(json, "world_size", kMostRanks) != manifest.world() || manifest.shards.empty())
            throw std::out_of_range(fmt::format("world_size is {}, and there are {} shards",
                                                json.at("world_size").dump(), manifest.world()));
        training.parameters = places_of(json.at("parameters"), manifest.vectors, "values");
        training.buffers = places_of(json.at("buffers"), manifest.vectors, "buffers");
        return manifest;
    } catch (const std::exception& error) {  // the JSON library's, or count_of's
        return fail(Fault::checkpoint, "is damaged: {}", error.what());
    }
}

Result<void> check_fits(const Manifest& manifest, const Continuation& now) {
    const auto& then = manifest.training;
    if (then.model != now.training.model)
        return wrong("is of the model {}; give --model={}", then.model, then.model);
    if (const auto rank = then.shape.find("lora_rank");
        rank != then.shape.end() && !now.training.shape.contains("lora_rank"))
        return wrong("has adapters; give --lora-rank={}, with the --lora-alpha that it was made with",
                     rank->second);
    const auto documents = [](const std::map<std::string, std::int64_t>& shape) {
        const auto found = shape.find("document_begins");
        return found == shape.end() ? std::nullopt : std::optional(found->second);
    };
    if (const auto here = documents(now.training.shape); documents(then.shape) != here) {
        if (!here) return wrong("was trained with --reset-attention-mask; give it");
        if (!documents(then.shape))
            return wrong(
                "was trained without --reset-attention-mask; leave it out, or begin with its weights "
                "in another directory");
        return wrong(
            "is of documents that begin with token {}, and the data's begin with {}; give data of "
            "the same tokenizer",
            *documents(then.shape), *here);
    }
    for (const auto& [name, value] : then.shape)
        if (const auto here = now.training.shape.find(name);
            here == now.training.shape.end() || here->second != value)
            return wrong("is of {} with {} {}; give --{}={}", then.model, name, value,
                         join(split(name, '_'), "-"), value);
    DP_TRY(check_places(then.parameters, now.training.parameters, then.model));
    DP_TRY(check_places(then.buffers, now.training.buffers, then.model));
    for (std::size_t i = 0; i < then.parameters.size(); ++i)
        if (then.parameters[i].is_frozen && !now.training.parameters[i].is_frozen)
            return wrong(
                "was made with {} frozen, so it has no state of the optimizer for it; give the same "
                "--freeze, "
                "or one that freezes more",
                then.parameters[i].name);
    if (then.optimizer != now.training.optimizer)
        return wrong("was made with {}; give --optimizer={}", then.optimizer, then.optimizer);
    if (then.seed != now.training.seed)
        return wrong("was made with the seed {}; give --seed={}", then.seed, then.seed);
    if (then.samples != now.training.samples || then.data_fingerprint != now.training.data_fingerprint)
        return wrong(
            "was made with other data: {} training samples from {}, or the same with another normalisation; "
            "give that data again",
            then.samples, manifest.data_source);
    DP_TRY(check_batch(then.global_batch, now));
    if (manifest.progress.step < 1 || manifest.progress.step > now.total_steps)
        return wrong("is of step {}, and this run ends at step {}; give more --epochs or --steps",
                     manifest.progress.step, now.total_steps);
    for (const auto& name : now.vectors)
        if (std::none_of(manifest.vectors.begin(), manifest.vectors.end(),
                         [&](const StoredVector& one) { return one.name == name; }))
            return name == "ema"
                       ? wrong("has no average of the parameters to go on with; leave out --ema-decay")
                       : wrong("lacks {}; it was written by another version of the trainer", name);
    const bool averages = std::ranges::find(now.vectors, "ema") != now.vectors.end();
    if (!averages &&
        std::ranges::find(manifest.vectors, "ema", &StoredVector::name) != manifest.vectors.end())
        return wrong("has an average of the parameters, which would end here; give --ema-decay, too");
    for (std::size_t i = 0; averages && i < then.parameters.size(); ++i)
        if (now.training.parameters[i].is_frozen && !then.parameters[i].is_frozen)
            return wrong("has an average of {}, which --freeze would end; freeze no more than it has",
                         then.parameters[i].name);
    return {};
}

}  // namespace dp::trainer
