// SPDX-License-Identifier: Apache-2.0
#include "trainer/models/gpt2_weights.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/text.hpp"
#include "trainer/models/gpt.hpp"
#include "trainer/models/gpt2_config.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

using Tensors = std::map<std::string, const FileTensor*>;

constexpr std::string_view kPrefix = "transformer.";
constexpr const char *kTable = "wte.weight", *kPositions = "wpe.weight", *kHead = "lm_head.weight";
constexpr std::int64_t kHeadSize = 64;              // GPT-2's, where nothing says it
constexpr std::int64_t kLargestVocabulary = 65536;  // --vocab-size's

// The number of the layer in "h.11.attn.c_attn.weight", and the rest of the name; nothing of other names.
struct NameInLayer {
    std::int64_t layer;
    std::string_view rest;
};
std::optional<NameInLayer> in_layer(std::string_view name) {
    if (!name.starts_with("h.")) return std::nullopt;
    name.remove_prefix(2);
    const auto dot = name.find('.');
    const auto number = parse_number<std::int64_t>(name.substr(0, dot));
    if (!number || dot == std::string_view::npos) return std::nullopt;
    return NameInLayer{*number, name.substr(dot + 1)};
}

// Masks, which older versions of transformers stored; no parameters.
bool is_mask(std::string_view name) {
    const auto place = in_layer(name);
    return place && (place->rest == "attn.bias" || place->rest == "attn.masked_bias");
}

std::string text_of(const Shape& shape) {
    return shape.empty() ? "a number" : fmt::format("{}", fmt::join(shape, " x "));
}

bool is_matrix(const Tensors& tensors, const char* name) {
    const auto found = tensors.find(name);
    return found != tensors.end() && found->second->shape.size() == 2;
}

// The shape of the model that the tensors are of, which have kTable and kPositions. Heads cannot be seen in tensors.
GptShape shape_in(const Tensors& tensors, const std::optional<Gpt2Config>& config, const GptShape& ours) {
    GptShape shape;
    shape.layers = 0;
    for (const auto& [name, tensor] : tensors)
        if (const auto place = in_layer(name); place && place->layer < 1024)
            shape.layers = std::max(shape.layers, place->layer + 1);
    shape.vocabulary = tensors.at(kTable)->shape[0];
    shape.hidden = tensors.at(kTable)->shape[1];
    shape.sequence = tensors.at(kPositions)->shape[0];
    shape.heads = config                        ? config->heads
                  : shape.hidden == ours.hidden ? ours.heads
                                                : std::max<std::int64_t>(shape.hidden / kHeadSize, 1);
    return shape;
}

// The options of the model that the tensors are of, as far as this one has others.
std::string advice(const GptShape& theirs, const GptShape& ours) {
    const std::tuple<const char*, std::int64_t, std::int64_t> options[] = {
        {"--num-layers", theirs.layers, ours.layers},
        {"--hidden-size", theirs.hidden, ours.hidden},
        {"--num-attention-heads", theirs.heads, ours.heads},
        {"--seq-length", theirs.sequence, ours.sequence},
        {"--vocab-size", theirs.vocabulary, ours.vocabulary}};
    std::string give;
    for (const auto& [name, there, here] : options)
        if (there != here) give += fmt::format("{}{}={}", give.empty() ? "give " : " ", name, there);
    return give.empty() ? "no option changes that" : give;
}

// That each name is there once, with or without the prefix.
Result<Tensors> by_name(const TensorFiles& files, const fs::path& from) {
    Tensors tensors;
    for (const auto& [name, tensor] : files.tensors) {
        const bool has_prefix = name.starts_with(kPrefix);
        const std::string bare = has_prefix ? name.substr(kPrefix.size()) : name;
        if (is_mask(bare)) continue;
        if (!tensors.emplace(bare, &tensor).second)
            return fail(Fault::usage, "{}: has {} twice, with and without {}", from.string(),
                        printable(bare, 60), kPrefix);
    }
    return tensors;
}

Try<bool> have_same_bytes(const FileTensor& one, const FileTensor& other) {
    constexpr std::uint64_t kPiece = std::uint64_t{1} << 20;
    std::vector<std::byte> some(kPiece), others(kPiece);
    for (std::uint64_t at = 0; at < one.bytes; at += kPiece) {
        const std::uint64_t count = std::min(kPiece, one.bytes - at);
        DP_TRY(read_bytes(one, at, std::span(some).first(count)));
        DP_TRY(read_bytes(other, at, std::span(others).first(count)));
        if (std::memcmp(some.data(), others.data(), count) != 0) return false;
    }
    return true;
}

// The head that a file may have besides the table.
Try<void> check_head(const Tensors& tensors) {
    const auto head = tensors.find(kHead);
    if (head == tensors.end()) return {};
    const FileTensor &mine = *head->second, &table = *tensors.at(kTable);
    const bool is_same =
        mine.dtype == table.dtype && mine.shape == table.shape && DP_TRY(have_same_bytes(mine, table));
    if (is_same) return {};
    return dp::fail(fmt::format(
        "has a {} that is not its {}, and in the trainer's gpt they are the same weights", kHead, kTable));
}

bool is_one_of(const std::vector<Gpt2Tensor>& tensors, std::string_view name) {
    return std::ranges::find(tensors, name, &Gpt2Tensor::name) != tensors.end();
}

// `expected`: in a file of this model.
Try<void> check_shapes(const Tensors& tensors, const std::vector<Gpt2Tensor>& expected, const GptShape& ours,
                       const std::string& what_fits) {
    for (const auto& [name, shape, is_transposed] : expected) {
        const auto found = tensors.find(name);
        if (found == tensors.end() || found->second->shape != shape)
            return dp::fail(fmt::format("{} is {}, and this model's is {}; {}", name,
                                        found == tensors.end() ? "missing" : text_of(found->second->shape),
                                        text_of(shape), what_fits));
        if (const std::string& type = found->second->dtype; type != "F32" && type != "F16" && type != "BF16")
            return dp::fail(
                fmt::format("{} is of type {}, and the trainer reads F32, F16 and BF16", name, type));
    }
    for (const auto& [name, tensor] : tensors) {
        if (is_one_of(expected, name) || name == kHead) continue;
        if (const auto place = in_layer(name); place && place->layer >= ours.layers)
            return dp::fail(fmt::format("{} is {}, and this model has none; {}", printable(name, 60),
                                        text_of(tensor->shape), what_fits));
        return dp::fail(fmt::format("has {}, which GPT-2 has not", printable(name, 60)));
    }
    return {};
}

Try<void> check_model(const Tensors& tensors, const std::optional<Gpt2Config>& config, const GptShape& ours,
                      const std::vector<Gpt2Tensor>& expected) {
    for (const char* name : {kTable, kPositions})
        if (!is_matrix(tensors, name))
            return dp::fail(fmt::format("has no matrix {}, so it is not of GPT-2", name));
    const GptShape theirs = shape_in(tensors, config, ours);
    if (theirs.vocabulary > kLargestVocabulary)
        return dp::fail(fmt::format("has {} tokens, and the trainer's gpt has at most {}", theirs.vocabulary,
                                    kLargestVocabulary));
    DP_TRY(check_shapes(tensors, expected, ours, advice(theirs, ours)));
    if (config && config->heads != ours.heads)
        return dp::fail(fmt::format("is of {} attention heads, and this model has {}; {}", config->heads,
                                    ours.heads, advice(theirs, ours)));
    return check_head(tensors);
}

}  // namespace

Gpt2Tensor gpt2_tensor(const std::string& parameter, const Shape& shape) {
    if (!parameter.ends_with(".weight") && !parameter.ends_with(".bias"))
        return {parameter + ".weight", shape, false};
    if (shape.size() != 2) return {parameter, shape, false};
    return {parameter, {shape[1], shape[0]}, true};
}

std::vector<float> transposed(std::span<const float> numbers, std::int64_t rows, std::int64_t columns) {
    constexpr std::int64_t kBlock = 32;  // so that what is read and what is written stay in the CPU's cache
    std::vector<float> result(numbers.size());
    for (std::int64_t top = 0; top < rows; top += kBlock)
        for (std::int64_t left = 0; left < columns; left += kBlock)
            for (std::int64_t row = top; row < std::min(top + kBlock, rows); ++row)
                for (std::int64_t column = left; column < std::min(left + kBlock, columns); ++column)
                    result[static_cast<std::size_t>(column * rows + row)] =
                        numbers[static_cast<std::size_t>(row * columns + column)];
    return result;
}

Result<GptShape> gpt2_shape_of(const fs::path& from, const GptShape& ours) {
    const TensorFiles files = DP_TRY(open_tensor_files(from));
    const Tensors tensors = DP_TRY(by_name(files, from));
    for (const char* name : {kTable, kPositions})
        if (!is_matrix(tensors, name))
            return fail(Fault::usage, "{}: has no matrix {}, so it is not of GPT-2", from.string(), name);
    std::optional<Gpt2Config> config;
    if (files.config)
        if (const auto read = read_gpt2_config(*files.config)) config = *read;
    return shape_in(tensors, config, ours);
}

Result<Gpt2Weights> Gpt2Weights::open(const fs::path& from, const GptShape& shape,
                                      const ParameterSet& declared) {
    Gpt2Weights weights;
    weights.from_ = from;
    weights.files_ = DP_TRY(open_tensor_files(from));
    const auto refuse = [&](const std::string& why) {
        return fail(Fault::usage, "{}: {}", from.string(), why);
    };
    std::optional<Gpt2Config> config;
    if (weights.files_.config) {
        auto read = read_gpt2_config(*weights.files_.config);
        if (!read) return refuse(fmt::format("its {} {}", kModelConfig, read.error().message));
        config = *read;
    }
    weights.tensors_ = DP_TRY(by_name(weights.files_, from));
    std::vector<Gpt2Tensor> expected;
    for (const auto& one : declared.all())
        if (!one.is_adapter) expected.push_back(gpt2_tensor(one.name, one.part.whole));
    if (const auto fits = check_model(weights.tensors_, config, shape, expected); !fits)
        return refuse(fits.error().message);
    return weights;
}

Result<std::uint64_t> Gpt2Weights::load(const ParameterSet& parameters, Device& device) const {
    std::uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a of 32 bits at a time
    for (const auto& one : parameters.all()) {
        if (one.is_adapter) continue;
        const Gpt2Tensor in_file = gpt2_tensor(one.name, one.part.whole);
        const FileTensor& tensor = *tensors_.at(in_file.name);
        std::vector<float> numbers(static_cast<std::size_t>(tensor.elements()));
        if (const auto read = read_numbers(tensor, numbers); !read)
            return fail(Fault::usage, "{}: {} {}", from_.string(), in_file.name, read.error().message);
        if (!std::ranges::all_of(numbers, [](float number) { return std::isfinite(number); }))
            return fail(Fault::usage, "{}: {} holds numbers that are NaN or infinite", from_.string(),
                        in_file.name);
        if (in_file.is_transposed) numbers = transposed(numbers, in_file.shape[0], in_file.shape[1]);
        for (const float number : numbers)
            hash = (hash ^ std::bit_cast<std::uint32_t>(number)) * 0x100000001B3u;
        device.upload(taken_from(numbers, one.part).data(), one.value);
        device.synchronize();  // the numbers go
    }
    parameters.refresh_compute_copy(device);
    DP_TRY(device.status());
    return hash;
}

}  // namespace dp::trainer
