// SPDX-License-Identifier: Apache-2.0
//
// Which data set: see load.hpp.
#include "trainer/data/load.hpp"

#include <algorithm>

#include "trainer/data/prepared.hpp"
#include "trainer/data/segmentation.hpp"
#include "trainer/data/tokens.hpp"

namespace dp::trainer {
namespace {

Result<Dataset> load_all(const DataRequest& request) {
    if (request.set == DataSet::line) return make_line();
    if (auto sound = check_prepared(request.directory); !sound) return tl::make_unexpected(sound.error());
    switch (request.set) {
        case DataSet::tokens:
            return load_tokens(request.directory, request.sequence, request.vocabulary);
        case DataSet::segmentation:
            return compose_segmentation(request.directory, request.image_size,
                                        request.samples.value_or(default_image_count(request.image_size)),
                                        request.seed);
        default:
            return load_fashion_mnist(request.directory);
    }
}

}  // namespace

Result<Dataset> load(const DataRequest& request) {
    auto data = load_all(request);
    if (data && request.samples) data->train.count = std::min(data->train.count, *request.samples);
    return data;
}

}  // namespace dp::trainer
