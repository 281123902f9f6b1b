// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/agreement.hpp"

#include <algorithm>
#include <array>
#include <functional>

namespace dp::trainer {

Result<std::vector<std::int64_t>> gather_of_all_ranks(std::span<const std::int64_t> mine, Device& device,
                                                      Communicator& communicator) {
    // A sum in which each number comes from one rank, and zeros from the others.
    std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(communicator.size()), 0);
    const auto from = static_cast<std::ptrdiff_t>(mine.size()) * communicator.rank();
    std::copy(mine.begin(), mine.end(), all.begin() + from);
    const auto count = static_cast<std::int64_t>(all.size());
    const Tensor tensor = device.copy_of<std::int64_t>(Type::i64, {count}, all);
    DP_TRY(communicator.all_reduce(tensor, Reduction::sum));
    DP_TRY(communicator.confirm());
    all = device.values_of<std::int64_t>(tensor);
    DP_TRY(device.status());
    return all;
}

Result<void> all_or_none(const Result<void>& mine, Device& device, Communicator& communicator) {
    const std::array<std::int64_t, 1> fault{mine ? 0 : static_cast<std::int64_t>(mine.error().fault)};
    const auto faults = DP_TRY(gather_of_all_ranks(fault, device, communicator));
    const auto first = std::find_if(faults.begin(), faults.end(), [](auto number) { return number != 0; });
    if (first == faults.end()) return {};
    if (first - faults.begin() == communicator.rank()) return mine;
    return fail(static_cast<Fault>(*first), "");
}

Result<double> largest_of_all_ranks(double number, Device& device, Communicator& communicator) {
    const Tensor tensor = device.copy_of<double>(Type::f64, {1}, std::array{number});
    DP_TRY(communicator.all_reduce(tensor, Reduction::max));
    DP_TRY(communicator.confirm());
    const double largest = device.values_of<double>(tensor)[0];
    DP_TRY(device.status());
    return largest;
}

Result<bool> equal_on_all_ranks(std::uint64_t number, Device& device, Communicator& communicator) {
    const std::array mine{static_cast<std::int64_t>(number)};
    const auto all = DP_TRY(gather_of_all_ranks(mine, device, communicator));
    return std::adjacent_find(all.begin(), all.end(), std::not_equal_to<>()) == all.end();
}

}  // namespace dp::trainer
