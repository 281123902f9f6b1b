// SPDX-License-Identifier: Apache-2.0
//
// A data set as a cache entry: unpacked or composed data as raw numbers, to be read in one go. For text it
// records only that the files were checked: they are raw already. compile.cpp stores, compiled.cpp reads.
#pragma once

#include "trainer/compile/cache.hpp"
#include "trainer/data/load.hpp"

namespace dp::trainer {

// Identifies the files by their lengths, dates, beginnings and ends (of gzipped files, a checksum of all).
CacheKey data_key(const DataRequest& request, const std::string& build);

// Whether there is anything to gain: points on a line are made faster than read.
bool is_worth_storing(const DataRequest& request);

// Stores what load_all() made of the request, and as "seconds" the time that it took.
Result<void> store_data(const Cache& cache, const CacheKey& key, const DataRequest& request,
                        const Dataset& data, double seconds);

// Like load(), from the entry of the request's key. If the entry is to blame for a failure, the error is just
// the reason, such as "damaged"; for text the files are read, and the error is a whole message.
Result<Dataset> read_data(const Entry& entry, DataRequest request);

}  // namespace dp::trainer
