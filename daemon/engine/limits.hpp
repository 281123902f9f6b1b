// SPDX-License-Identifier: Apache-2.0
//
// How much the engine takes and tells at most.
#pragma once

#include <cstddef>

namespace dp {

// Of a rank, in bytes; what is longer is cut.
inline constexpr size_t kMaxTilesText = 256;
inline constexpr size_t kMaxCommand = 64;
// Of a node's GPUs, by tile; what is beyond is cut.
inline constexpr int kMaxGpus = 1024;
// Nodes beyond this many bytes of an answer are told without their ranks.
inline constexpr size_t kMaxUsage = size_t{2} << 20;
// Who may wait for the end of a round of usage at once.
inline constexpr size_t kMaxUsageAskers = 256;
// What dpctl status is told of the collectives that somebody waits in.
inline constexpr size_t kMaxCollectivesTold = 16;
// A status over this many bytes is told without the single ranks.
inline constexpr size_t kMaxStatus = size_t{2} << 20;

}  // namespace dp
