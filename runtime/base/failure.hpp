// SPDX-License-Identifier: Apache-2.0
//
// Results as values. Inside slurm-dp a failure is one line for the user: what was tried, where, and what to
// do. At the two borders it is an Error, which adds a dp_status (dp/dp.hpp) or an exit code (the trainer's).
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <type_traits>
#include <utility>

namespace dp {

struct Failure {
    std::string message;
};

template <typename T>
using Try = tl::expected<T, Failure>;

inline tl::unexpected<Failure> fail(std::string message) {
    return tl::unexpected(Failure{std::move(message)});
}

template <typename T, typename E>
T value_of(tl::expected<T, E> result) {
    if constexpr (!std::is_void_v<T>) return *std::move(result);
}

}  // namespace dp

// The value of a result; where the result is a failure, the enclosing function returns that failure:
// `const auto hosts = DP_TRY(expand_hostlist(list));`. A statement expression, which GCC, clang and nvcc's
// host compiler have. Write it as a statement, as a whole initializer or as all that is assigned: GCC 12 does
// not destroy what the rest of a larger expression has made so far.
#define DP_TRY(...)                                                          \
    __extension__({                                                          \
        auto dp_result = (__VA_ARGS__);                                      \
        if (!dp_result) return tl::unexpected(std::move(dp_result).error()); \
        ::dp::value_of(std::move(dp_result));                                \
    })
