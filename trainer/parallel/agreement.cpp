// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/agreement.hpp"

#include <algorithm>
#include <array>

namespace dp::trainer {

Result<std::vector<std::int64_t>> gather_of_all_ranks(std::span<const std::int64_t> mine, Device& device,
                                                      Communicator& communicator) {
    // A sum in which all but one rank brought zeros.
    std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(communicator.size()), 0);
    const auto from = static_cast<std::ptrdiff_t>(mine.size()) * communicator.rank();
    std::copy(mine.begin(), mine.end(), all.begin() + from);
    const auto count = static_cast<std::int64_t>(all.size());
    const Tensor tensor = device.copy_of<std::int64_t>(Type::i64, {count}, all);
    if (auto done = communicator.all_reduce(tensor, Reduction::sum); !done)
        return tl::make_unexpected(done.error());
    all = device.values_of<std::int64_t>(tensor);
    if (auto sound = device.status(); !sound) return tl::make_unexpected(sound.error());
    return all;
}

Result<void> all_or_none(const Result<void>& mine, Device& device, Communicator& communicator) {
    const std::array<std::int64_t, 1> fault{mine ? 0 : static_cast<std::int64_t>(mine.error().fault)};
    const auto faults = gather_of_all_ranks(fault, device, communicator);
    if (!faults) return tl::make_unexpected(faults.error());
    const auto first = std::find_if(faults->begin(), faults->end(), [](auto number) { return number != 0; });
    if (first == faults->end()) return {};
    if (first - faults->begin() == communicator.rank()) return mine;
    return fail(static_cast<Fault>(*first), "");
}

}  // namespace dp::trainer
