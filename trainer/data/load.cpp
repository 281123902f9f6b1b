// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/load.hpp"

#include <algorithm>
#include <functional>
#include <future>
#include <set>

#include "trainer/data/prepared.hpp"

namespace dp::trainer {
namespace {

std::vector<std::filesystem::path> files_read(const DataRequest& request) {
    return request.set == DataSet::tokens ? token_files(request.directory)
                                          : fashion_mnist_files(request.directory);
}

// Checks the files against what is known about them; nothing if somebody else made them.
Result<void> check(const DataRequest& request) {
    DP_TRY(check_prepared(request.directory));
    return check_packaged(files_read(request), request.packaged);
}

Result<Dataset> read(const DataRequest& request) {
    if (request.set == DataSet::tokens)
        return load_tokens(request.directory, request.sequence, request.vocabulary);
    if (request.set == DataSet::fashion_mnist) return load_fashion_mnist(request.directory);
    return compose_segmentation(request.directory, request.image_size,
                                request.samples.value_or(default_image_count(request.image_size)),
                                request.seed);
}

}  // namespace

Result<Dataset> load_all(const DataRequest& request) {
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
    const auto& directory = request.directory;
    const auto read = files_read(request);
    std::set<std::filesystem::path> files(read.begin(), read.end());
    files.insert(directory / kPreparedFile);
    if (const auto prepared = read_prepared(directory); prepared && *prepared)
        for (const auto& [name, hash] : (*prepared)->files) files.insert(directory / name);
    return {files.begin(), files.end()};
}

}  // namespace dp::trainer
