// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/load.hpp"

#include <algorithm>
#include <functional>
#include <future>
#include <set>

#include "trainer/data/image_arrays.hpp"
#include "trainer/data/prepared.hpp"
#include "trainer/data/token_files.hpp"

namespace dp::trainer {
namespace {

std::vector<std::filesystem::path> directories_of(const DataRequest& request) {
    if (!request.mix) return {request.directory};
    std::vector<std::filesystem::path> all;
    for (const auto& part : request.mix->parts) all.push_back(part.where);
    return all;
}

std::vector<std::filesystem::path> files_read(const DataRequest& request) {
    if (reads_image_arrays(request)) return image_array_files(request.directory);
    if (request.set != DataSet::tokens) return fashion_mnist_files(request.directory);
    std::vector<std::filesystem::path> files;
    for (const auto& directory : directories_of(request))
        for (auto& file : token_files(directory)) files.push_back(std::move(file));
    return files;
}

// Checks the files against what is known about them; nothing if somebody else made them.
Result<void> check(const DataRequest& request) {
    for (const auto& directory : directories_of(request)) DP_TRY(check_prepared(directory));
    return check_packaged(files_read(request), request.packaged);
}

Result<Dataset> read(const DataRequest& request) {
    if (request.set == DataSet::tokens)
        return request.mix
                   ? mix_tokens(*request.mix, request.sequence, request.vocabulary, request.seed,
                                request.split)
                   : load_tokens(request.directory, request.sequence, request.vocabulary, request.split);
    if (request.split)
        return fail(
            Fault::usage,
            "--data-split is for tokens and images without files to test with, and {} has such; leave it out",
            request.directory.string());
    if (reads_image_arrays(request))
        return load_image_arrays(request.directory, request.set,
                                 request.set == DataSet::segmentation ? request.image_size : kImageSide);
    if (request.set == DataSet::fashion_mnist) return load_fashion_mnist(request.directory);
    return compose_segmentation(request.directory, request.image_size,
                                request.samples.value_or(default_image_count(request.image_size)),
                                request.seed);
}

}  // namespace

bool reads_image_arrays(const DataRequest& request) {
    return (request.set == DataSet::fashion_mnist || request.set == DataSet::segmentation) &&
           has_image_arrays(request.directory);
}

Result<Dataset> load_all(const DataRequest& request) {
    if (request.split && request.set != DataSet::tokens)
        return fail(
            Fault::usage,
            "--data-split is for tokens and for directories of images without any to test with, and this "
            "set has a test of its own; leave it out");
    if (request.set == DataSet::linear_regression) return make_linear_regression();
    if (request.is_checked) return read(request);
    // On another CPU (Fashion-MNIST is hashed in 0.03 s and unpacked in 0.3 s), or later if no thread starts.
    auto checking = std::async(std::launch::async | std::launch::deferred, check, std::cref(request));
    auto data = read(request);
    DP_TRY(checking.get());
    return data;
}

void take_samples(Dataset& data, const DataRequest& request) {
    if (request.samples) data.train.count = std::min(data.train.count, *request.samples);
}

Result<Dataset> load(const DataRequest& request) {
    auto data = load_all(request);
    if (data) take_samples(*data, request);
    return data;
}

std::vector<std::filesystem::path> files_of(const DataRequest& request) {
    if (request.set == DataSet::linear_regression) return {};
    const auto read = files_read(request);
    std::set<std::filesystem::path> files(read.begin(), read.end());
    for (const auto& directory : directories_of(request)) {
        files.insert(directory / kPreparedFile);
        if (const auto prepared = read_prepared(directory); prepared && *prepared)
            for (const auto& [name, hash] : (*prepared)->files) files.insert(directory / name);
    }
    return {files.begin(), files.end()};
}

}  // namespace dp::trainer
