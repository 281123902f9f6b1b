// SPDX-License-Identifier: Apache-2.0
//
// The data set that a model trains on: from its files, generated, or composed. run.cpp calls it on each rank;
// what cannot be trained on is refused here, in one line.
//
// Each rank loads for itself, all at the same time; whether the files are what they should be the first rank
// of a node sees for the others. Handing the work of one rank of a node to the others was measured and left
// out: Fashion-MNIST is unpacked in 0.3 s, the default images are composed in 0.6 s, tokens of 10 MB are read
// in 0.01 s, and the others would have to wait just as long before they could map a copy.
#ifndef TRAINER_DATA_LOAD_HPP
#define TRAINER_DATA_LOAD_HPP

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "trainer/base/result.hpp"
#include "trainer/data/dataset.hpp"
#include "trainer/data/packaged.hpp"

namespace dp::trainer {

struct DataRequest {
    DataSet set;
    std::filesystem::path directory = {};  // looked at where the set has files
    // No more than so many to train on; of images that are composed, so many are made.
    std::optional<std::int64_t> samples = {};
    std::uint64_t seed = 1;         // of composed images
    std::int64_t image_size = 256;  // of composed images
    std::int64_t sequence = 1;      // of tokens
    std::int64_t vocabulary = 1;    // that tokens must fit
    // The files are those that have been checked before, or that another rank of the node checks now, so
    // their hashes need not be worked out.
    bool is_checked = false;
    KnownDirectory packaged = {kFashionMnistDirectory, kFashionMnistFiles};  // a test has one of its own
};

Result<Dataset> load(const DataRequest& request);

// Its two halves, for whoever keeps what the first of them makes: all that the files hold or that is
// composed, and of that no more than was asked for.
Result<Dataset> load_all(const DataRequest& request);
void take_samples(Dataset& data, const DataRequest& request);

// What load() reads or checks, in order; they need not be there.
std::vector<std::filesystem::path> files_of(const DataRequest& request);

}  // namespace dp::trainer

#endif
