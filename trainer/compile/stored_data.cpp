// SPDX-License-Identifier: Apache-2.0
#include "trainer/compile/stored_data.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "trainer/base/files.hpp"

namespace dp::trainer {

// The bytes of a matrix are blocks of the entry; the rest is its description.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Affine, scale, shift)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Matrix, type, columns)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Split, count, features, targets, normalise)

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// In the order of DataSet.
constexpr std::array kSetNames{"images of 28x28", "line", "composed images", "tokens"};

// A name may be any bytes, JSON is UTF-8. Two directories that become equal by that differ in their files.
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

// As the model takes it, so that a copy would gain nothing.
bool lies_ready(const DataRequest& request) {
    return request.set == DataSet::tokens || reads_image_arrays(request);
}

Try<Dataset> stored_dataset(const Entry& entry) {
    const Json& content = entry.content;
    Dataset data{content.at("train").get<Split>(), content.at("test").get<Split>(), content.at("source")};
    std::size_t block = 0;
    for (Split* samples : {&data.train, &data.test}) {
        for (Matrix* matrix : {&samples->features, &samples->targets}) {
            auto bytes = DP_TRY(read_block(entry, block++));
            const std::int64_t row = matrix->columns * static_cast<std::int64_t>(size_of(matrix->type));
            if (static_cast<std::int64_t>(bytes.size()) != samples->count * row) return dp::fail("damaged");
            matrix->bytes = std::move(bytes);
        }
    }
    return data;
}

}  // namespace

CacheKey data_key(const DataRequest& request, const std::string& build) {
    std::error_code ignored;
    Facts what{{"set", kSetNames[static_cast<std::size_t>(request.set)]},
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
    return request.set != DataSet::linear_regression;
}

Result<void> store_data(const Cache& cache, const CacheKey& key, const DataRequest& request,
                        const Dataset& data, double seconds) {
    if (lies_ready(request)) return cache.put(key, {{"seconds", seconds}}, {});
    const std::array<Block, 4> blocks{data.train.features.bytes, data.train.targets.bytes,
                                      data.test.features.bytes, data.test.targets.bytes};
    const Json content{
        {"seconds", seconds}, {"source", utf8(data.source)}, {"train", data.train}, {"test", data.test}};
    return cache.put(key, content, blocks);
}

Result<Dataset> read_data(const Entry& entry, DataRequest request) {
    if (lies_ready(request)) {
        request.is_checked = true;
        return load(request);
    }
    if (entry.blocks.size() != 4) return fail(Fault::usage, "damaged");
    try {
        auto data = stored_dataset(entry);
        if (!data) return fail(Fault::usage, data.error().message);
        take_samples(*data, request);
        return std::move(*data);
    } catch (const Json::exception&) {
        return fail(Fault::usage, "damaged");
    }
}

}  // namespace dp::trainer
