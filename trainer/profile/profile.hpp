// SPDX-License-Identifier: Apache-2.0
//
// A profile: where the time and the memory of some steps went, as `trainer --profile` tells it. Pure, from what recorder.hpp has
// recorded; the text, the page, the JSON and the trace (views.hpp) are views of it.
//
// Times are of one step, the mean over the profiled ones, in seconds of this rank.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/compile/peaks.hpp"
#include "trainer/profile/advice.hpp"
#include "trainer/profile/recorder.hpp"

namespace dp::trainer {

// What an operation is for. The loss with its gradient belongs to the forward pass; what is recomputed, too.
enum class Part : std::uint8_t { load, forward, backward, optimizer, communication };
inline constexpr std::array kParts{Part::load, Part::forward, Part::backward, Part::optimizer,
                                   Part::communication};
std::string_view name_of(Part part);
std::vector<Part> parts_of(std::span<const LoggedOperation> step);

// What a step's allocations hold. `data`: samples and batches. `activations` with their gradients.
enum class MemoryKind : std::uint8_t { parameters, gradients, optimizer, activations, data };
inline constexpr std::array kMemoryKinds{MemoryKind::parameters, MemoryKind::gradients, MemoryKind::optimizer,
                                         MemoryKind::activations, MemoryKind::data};
std::string_view name_of(MemoryKind kind);

// An operation, or a layer, with all its calls.
struct ProfileRow {
    std::string name;
    double calls = 0;
    std::array<double, kParts.size()> seconds{};  // by Part
    double flops = 0, bytes = 0;
    double least = 0;  // seconds that the peaks allow; 0: they are not known

    double total() const;
    // Of the peak, 0..1; nullopt where the peaks are not known. Data in caches can come faster than the peak: that is 1.
    std::optional<double> share_of_peak() const;
};

// An allocation that the step uses from `first` to `last`, of its operations; all of it where that is kept from step to step.
struct ProfiledMemory {
    std::int64_t bytes = 0;
    MemoryKind kind = MemoryKind::activations;
    std::string layer;  // that wrote it; "": none
    std::uint32_t first = 0, last = 0;
};

struct MemoryProfile {
    std::int64_t held = 0;                                  // by the device, for the training
    std::array<std::int64_t, kMemoryKinds.size()> kinds{};  // bytes that a step uses
    std::vector<std::array<std::int64_t, kMemoryKinds.size()>>
        curve;             // bytes in use at each operation of the step
    std::size_t peak = 0;  // operation at which most are in use
    std::string peak_operation, peak_layer;
    std::vector<ProfiledMemory> largest;  // at the peak, the largest first

    std::int64_t peak_bytes() const;
};

// A rank's seconds of a step, as those above, means: the longest waits for nobody. All 0: it has no profile.
struct RankTimes {
    double step = 0, communication = 0, load = 0;
};

struct Profile {
    // What ran, for people: "ffn on cpu, 2 threads; 2 ranks x batch 64", and the program's version.
    std::string what, version;
    StepRange steps;     // of those that the process took
    double seconds = 0;  // of a step
    // The medians of these steps, and of those before, without the profile; 0: there was none.
    double median = 0, median_without = 0;
    std::array<double, kParts.size()> parts{};
    double other = 0;  // between operations
    // Seconds of communication beside computation, at least: what is in no collective of this thread.
    std::optional<double> hidden;
    std::vector<ProfileRow> operations, layers;  // the longest first; a layer "" has what is no layer's
    std::optional<Peaks> peaks;
    MemoryProfile memory;
    std::optional<double> overhead;  // 0..1, of the profile itself; nullopt: it is not known
    std::vector<RankTimes> ranks;
    std::vector<Advice> advice;
    std::string untried;  // why not all that may be faster was tried; "": it was
};

// Without what, version, ranks and advice.
Profile profile_of(const ProfileRecorder& recorder, const std::optional<Peaks>& peaks);

}  // namespace dp::trainer
