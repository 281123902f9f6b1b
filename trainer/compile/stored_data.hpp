// SPDX-License-Identifier: Apache-2.0
//
// A data set as an entry of the cache: what has been unpacked or composed, as raw numbers, to be read in one
// go. Of text only that its files have been checked is kept: they are raw numbers already, and may be large.
// compile.cpp stores, compiled.cpp reads.
#ifndef TRAINER_COMPILE_STORED_DATA_HPP
#define TRAINER_COMPILE_STORED_DATA_HPP

#include <string>

#include "trainer/compile/cache.hpp"
#include "trainer/data/load.hpp"

namespace dp::trainer {

// Looks at the files: their lengths, dates, beginnings and ends stand for what is in them. (The end of a
// gzipped file is a checksum of all of it.)
CacheKey data_key(const DataRequest& request, const std::string& build);

// Whether there is anything to gain: points on a line are made faster than read.
bool is_worth_storing(const DataRequest& request);

// What load_all() made of the request, in so many seconds.
Result<void> store_data(const Cache& cache, const CacheKey& key, const DataRequest& request,
                        const Dataset& data, double seconds);

// As load(), by the entry of the request's key. Where the entry is the reason that this fails, the error is
// that alone, such as "damaged"; of text the files are read, and the error is a whole line.
Result<Dataset> read_data(const Entry& entry, DataRequest request);

// The seconds that were stored; 0 where there is no such number.
double seconds_to_load(const Entry& entry);

}  // namespace dp::trainer

#endif
