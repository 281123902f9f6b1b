// SPDX-License-Identifier: Apache-2.0
//
// Loads the data set of a model: from files, generated, or composed. All ranks load at the same time,
// because to map a copy of another rank's they would wait just as long (Fashion-MNIST is unpacked in 0.3 s,
// the default images are composed in 0.6 s); the first rank of a node checks the files for the others.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "trainer/data/dataset.hpp"
#include "trainer/data/packaged.hpp"

namespace dp::trainer {

// What happens if a text has documents that cannot be read.
enum class BadSamples { refuse, skip };

struct DataRequest {
    DataSet set;
    std::filesystem::path directory = {};  // looked at where the set has files
    // The maximum number of training samples; for composed images, their number.
    std::optional<std::int64_t> samples = {};
    std::uint64_t seed = 1;                               // of composed images
    std::int64_t image_size = 256;                        // of composed images
    std::int64_t sequence = 1;                            // of tokens
    std::int64_t vocabulary = 1;                          // that tokens must fit
    std::optional<TrainTestRest> split = {};              // of tokens without files to test with
    std::optional<DataMix> mix = {};                      // of tokens, instead of the directory
    std::optional<std::filesystem::path> tokenizer = {};  // of texts and tokens, if not the one beside them
    BadSamples bad_samples = BadSamples::refuse;
    // The files were checked before, or another rank of the node checks them now: no hashes are needed.
    bool is_checked = false;
    KnownDirectory packaged = {kFashionMnistDirectory, kFashionMnistFiles};  // a test has one of its own
};

// Images that another run of this trainer has brought to the model's size (image_arrays.hpp).
bool reads_image_arrays(const DataRequest& request);

Result<Dataset> load(const DataRequest& request);

// The two halves of load(), for callers that keep the result of the first: load all that the files hold or
// compose all, then limit it to what was requested.
Result<Dataset> load_all(const DataRequest& request);
void take_samples(Dataset& data, const DataRequest& request);

// The files that load() reads or checks, in order; they need not exist.
std::vector<std::filesystem::path> files_of(const DataRequest& request);

}  // namespace dp::trainer
