// SPDX-License-Identifier: Apache-2.0
#include "schedule.hpp"

#include <algorithm>
#include <charconv>
#include <numeric>

namespace dp::cuda_emulator {

std::optional<Order> order_named(std::string_view name) {
    constexpr std::string_view kGreedy = "greedy:", kInterleaved = "interleaved:";
    if (name == "forward") return Order{};
    if (name == "backward") return Order{true, {}, false};
    Order order;
    order.interleaved = name.starts_with(kInterleaved);
    order.greedy = order.interleaved || name.starts_with(kGreedy);
    if (order.greedy) name.remove_prefix(order.interleaved ? kInterleaved.size() : kGreedy.size());
    std::uint64_t seed = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), seed);
    if (error != std::errc{} || end != name.data() + name.size()) return std::nullopt;
    order.seed = seed;
    return order;
}

std::vector<unsigned> turns(const Order& order, std::mt19937_64& random, unsigned count) {
    std::vector<unsigned> numbers(count);
    std::iota(numbers.begin(), numbers.end(), 0);
    if (order.backward) std::reverse(numbers.begin(), numbers.end());
    if (order.seed) std::shuffle(numbers.begin(), numbers.end(), random);
    return numbers;
}

}  // namespace dp::cuda_emulator
