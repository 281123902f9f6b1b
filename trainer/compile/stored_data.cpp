// SPDX-License-Identifier: Apache-2.0
//
// See stored_data.hpp.
#include "trainer/compile/stored_data.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "trainer/base/files.hpp"
#include "trainer/data/segmentation.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const char* name_of(DataSet set) {
    switch (set) {
        case DataSet::fashion_mnist:
            return "images of 28x28";
        case DataSet::line:
            return "line";
        case DataSet::segmentation:
            return "composed images";
        case DataSet::tokens:
            break;
    }
    return "tokens";
}

// A name may be any bytes, while JSON's text is UTF-8. Two directories that become equal by that differ
// in their files.
std::string utf8(const std::string& name) {
    return Json::parse(Json(name).dump(-1, ' ', false, Json::error_handler_t::replace));
}

// Null if it does not exist.
Json stamp_of(const fs::path& file) {
    const auto in = open_regular(file);
    struct stat facts {};
    if (!in || ::fstat(in->get(), &facts) != 0) return nullptr;
    std::array<char, 4096> piece{};
    std::string ends;
    for (const off_t at : {off_t{0}, std::max<off_t>(facts.st_size - static_cast<off_t>(piece.size()), 0)}) {
        const ssize_t got = ::pread(in->get(), piece.data(), piece.size(), at);
        if (got > 0) ends.append(piece.data(), static_cast<std::size_t>(got));
    }
    return {{"file", utf8(file.filename().string())},
            {"bytes", facts.st_size},
            {"modified", std::array<std::int64_t, 2>{facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec}},
            {"ends", sha256(ends)}};
}

Json description_of(const Samples& samples) {
    const auto matrix = [](const Matrix& m) {
        return Json{{"type", static_cast<int>(m.type)}, {"columns", m.columns}};
    };
    return {{"count", samples.count},
            {"features", matrix(samples.features)},
            {"targets", matrix(samples.targets)},
            {"scale", samples.normalise.scale},
            {"shift", samples.normalise.shift}};
}

Result<Matrix> read_matrix(const Entry& entry, std::size_t block, const Json& json, std::int64_t rows) {
    auto bytes = DP_TRY(entry.read(block));
    Matrix matrix{static_cast<Type>(json.at("type").get<int>()), json.at("columns"), std::move(bytes)};
    const std::int64_t expected = rows * matrix.columns * static_cast<std::int64_t>(size_of(matrix.type));
    if (static_cast<std::int64_t>(matrix.bytes.size()) != expected) return fail(Fault::usage, "damaged");
    return matrix;
}

// Reads two blocks, from that one on.
Result<Samples> read_samples(const Entry& entry, std::size_t block, const Json& json) {
    Samples samples;
    samples.count = json.at("count");
    auto features = DP_TRY(read_matrix(entry, block, json.at("features"), samples.count));
    auto targets = DP_TRY(read_matrix(entry, block + 1, json.at("targets"), samples.count));
    samples.features = std::move(features);
    samples.targets = std::move(targets);
    samples.normalise = {json.at("scale"), json.at("shift")};
    return samples;
}

}  // namespace

CacheKey data_key(const DataRequest& request, const std::string& build) {
    std::error_code ignored;
    Facts what{{"set", name_of(request.set)},
               {"directory", utf8(fs::weakly_canonical(request.directory, ignored).string())}};
    if (request.set == DataSet::segmentation) {
        what["image_size"] = std::to_string(request.image_size);
        what["samples"] = std::to_string(request.samples.value_or(default_image_count(request.image_size)));
        what["seed"] = std::to_string(request.seed);
    }
    Json files = Json::array();
    for (const fs::path& file : files_of(request)) files.push_back(stamp_of(file));
    return {"data", std::move(what), {{"build", build}, {"files", files.dump()}}};
}

bool is_worth_storing(const DataRequest& request) {
    return request.set != DataSet::line;
}

Result<void> store_data(const Cache& cache, const CacheKey& key, const DataRequest& request,
                        const Dataset& data, double seconds) {
    if (request.set == DataSet::tokens) return cache.put(key, {{"seconds", seconds}}, {});
    const std::array<Block, 4> blocks{data.train.features.bytes, data.train.targets.bytes,
                                      data.test.features.bytes, data.test.targets.bytes};
    return cache.put(key,
                     {{"seconds", seconds},
                      {"source", utf8(data.source)},
                      {"train", description_of(data.train)},
                      {"test", description_of(data.test)}},
                     blocks);
}

Result<Dataset> read_data(const Entry& entry, DataRequest request) {
    if (request.set == DataSet::tokens) {
        request.is_checked = true;
        return load(request);
    }
    if (entry.block_count() != 4) return fail(Fault::usage, "damaged");
    try {
        const Json& content = entry.content();
        auto train = DP_TRY(read_samples(entry, 0, content.at("train")));
        auto test = DP_TRY(read_samples(entry, 2, content.at("test")));
        Dataset data{std::move(train), std::move(test), content.at("source")};
        take_samples(data, request);
        return data;
    } catch (const Json::exception&) {
        return fail(Fault::usage, "damaged");
    }
}

double seconds_to_load(const Entry& entry) {
    const auto found = entry.content().find("seconds");
    return found != entry.content().end() && found->is_number() ? found->get<double>() : 0;
}

}  // namespace dp::trainer
