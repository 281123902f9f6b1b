// SPDX-License-Identifier: Apache-2.0
//
// The step's store: keys and values of bytes, with calls that wait for a key. A pure state machine; the
// broker owns it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/answers.hpp"
#include "engine/time.hpp"

namespace dp {

inline constexpr size_t kMaxStoreKeys = size_t{128} << 10;
inline constexpr size_t kMaxStoreBytes = size_t{256} << 20;

class Store {
 public:
    // Handles a Set, Get, Wait, Add or CompareSet. Answers are those to this call and to calls it woke.
    std::vector<Answer> handle(Caller caller, const wire::Request& request, Time now);

    // Calls whose deadline has passed.
    std::vector<Answer> expire(Time now);
    // Not later than the next one.
    std::optional<Time> next_deadline() const { return next_.at(); }

    // Answers all that wait, with this.
    std::vector<Answer> end(wire::Status status, const std::string& why);

    // Forgets what the rank was waiting for.
    void drop(uint32_t rank);

 private:
    struct Waiter {
        std::set<std::string> missing;
        bool wants_value = false;  // a Get
        std::string key;           // of the Get
        Time deadline{};
        Time asked{};
    };

    std::unordered_map<std::string, std::string> values_;
    size_t bytes_ = 0;
    std::map<Caller, Waiter> waiters_;
    NextLook next_;
    std::unordered_map<std::string, std::set<Caller>> by_key_;

    std::vector<Answer> put(Caller caller, const std::string& key, std::string value, wire::Reply reply);
    void wait(Caller caller, Waiter waiter);
    void forget(std::map<Caller, Waiter>::iterator waiter);
};

}  // namespace dp
