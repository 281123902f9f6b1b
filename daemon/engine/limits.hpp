// SPDX-License-Identifier: Apache-2.0
//
// The limits of what the engine accepts and reports.
#pragma once

#include <cstddef>

namespace dp {

// Bytes per rank; longer texts are cut.
inline constexpr size_t kMaxTilesText = 256;
inline constexpr size_t kMaxCommand = 64;
// GPUs of a node, by tile; the rest is cut.
inline constexpr int kMaxGpus = 1024;
// Beyond this many bytes, an answer has nodes without their ranks.
inline constexpr size_t kMaxUsage = size_t{2} << 20;
// How many may wait for a round of usage at once.
inline constexpr size_t kMaxUsageAskers = 256;
// The most collectives in progress that dpctl status reports.
inline constexpr size_t kMaxCollectivesTold = 16;
// A status of more bytes is reported without single ranks.
inline constexpr size_t kMaxStatus = size_t{2} << 20;

}  // namespace dp
