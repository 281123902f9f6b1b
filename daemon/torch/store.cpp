// SPDX-License-Identifier: Apache-2.0
#include "torch/store.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/text.hpp"

namespace dp {
namespace {

// The key in which every process counts itself when it opens the store (TCPStore.cpp, waitForWorkers).
constexpr std::string_view kWorkers = "init/";

constexpr char kReady = 0;
constexpr char kNotReady = 1;
constexpr char kStopWaiting = 0;
constexpr char kWaitCancelled = 1;

template <typename Number>
std::string little_endian(Number number) {
    std::string out;
    auto rest = static_cast<std::make_unsigned_t<Number>>(number);
    for (size_t i = 0; i < sizeof number; ++i, rest = static_cast<decltype(rest)>(rest >> 8))
        out += static_cast<char>(rest & 0xff);
    return out;
}

// A length or a count.
std::string as_u64(size_t size) {
    return little_endian(static_cast<uint64_t>(size));
}

// Like std::stoll, which PyTorch's server uses: blanks, a sign, digits, and anything after them.
std::optional<int64_t> leading_number(const std::string& text) {
    char* end = nullptr;
    errno = 0;
    const long long value = std::strtoll(text.c_str(), &end, 10);
    if (end == text.c_str() || errno == ERANGE) return std::nullopt;
    return value;
}

size_t cost_of(const std::string& key, size_t value = 0) {
    return key.size() + value + kTorchEntryBytes;
}

std::string too_much(size_t bytes) {
    return "it asked for " + std::to_string(bytes) + " bytes at once; the limit is " +
           std::to_string(kMaxTorchReply >> 20) + " MiB";
}

std::string quoted(const std::string& key) {
    return "\"" + printable(key, 80) + "\"";
}

}  // namespace

void TorchStore::connect(TorchClient client) {
    clients_.try_emplace(client);
}

void TorchStore::disconnect(TorchClient id) {
    auto found = clients_.find(id);
    if (found == clients_.end()) return;
    Client& client = found->second;
    stop_waiting(id, client);
    for (const auto& key : client.watched) leave(watching_, key, id);
    bytes_ -= client.reader.held();
    clients_.erase(found);
}

void TorchStore::close(TorchClient id, std::string why) {
    out_.closed.emplace_back(id, std::move(why));
    disconnect(id);
}

TorchActions TorchStore::receive(TorchClient id, std::string_view bytes) {
    const auto found = clients_.find(id);
    if (found == clients_.end()) return {};
    TorchReader& reader = found->second.reader;
    bytes_ -= reader.held();
    out_.taken = reader.take(bytes);
    bytes_ += reader.held();
    if (!reader.broken().empty()) {
        close(id, reader.broken());
    } else if (bytes_ > kMaxTorchBytes) {
        take_room(id, 0);
    } else if (reader.complete()) {
        bytes_ -= reader.held();
        handle(id, found->second, reader.request());
    }
    return std::exchange(out_, {});
}

bool TorchStore::take_room(TorchClient id, size_t bytes) {
    if (bytes_ + bytes <= kMaxTorchBytes) {
        bytes_ += bytes;
        return true;
    }
    close(id, "the step's store for PyTorch is full (" + std::to_string(kMaxTorchBytes >> 20) +
                  " MiB); delete keys that are no longer needed");
    return false;
}

void TorchStore::handle(TorchClient id, Client& client, TorchRequest request) {
    stop_waiting(id, client);
    auto key = [&]() -> const std::string& { return request.keys[0]; };
    switch (request.operation) {
        case TorchOperation::set:
            return void(put(id, key(), std::move(request.values[0])));
        case TorchOperation::compare_set:
            return compare_set(id, request);
        case TorchOperation::get:
            return reply_value(id, value_of(key()));
        case TorchOperation::add:
            return add(id, request);
        case TorchOperation::check: {
            const auto is_here = [this](const auto& one) { return available(one); };
            return reply(id, {std::ranges::all_of(request.keys, is_here) ? kReady : kNotReady});
        }
        case TorchOperation::wait:
            return wait(id, client, std::move(request.keys));
        case TorchOperation::count_keys:
            return reply(id, as_u64(values_.size()));
        case TorchOperation::watch_key:
            return watch(id, client, key());
        case TorchOperation::delete_key:
            return remove(id, key());
        case TorchOperation::append:
            return append(id, key(), request.values[0]);
        case TorchOperation::multi_get:
            return get_all(id, request.keys);
        case TorchOperation::multi_set:
            for (size_t i = 0; i < request.keys.size(); ++i)
                if (!put(id, request.keys[i], std::move(request.values[i]))) return;
            return;
        case TorchOperation::cancel_wait:
            return reply(id, {kWaitCancelled});
        case TorchOperation::ping:
            return reply(id, little_endian(static_cast<uint32_t>(request.number)));
        case TorchOperation::queue_push:
            return push(id, key(), std::move(request.values[0]));
        case TorchOperation::queue_pop:
            return pop(id, key());
        case TorchOperation::queue_length:
            return reply(id, as_u64(queues_.contains(key()) ? queues_.at(key()).size() : 0));
        case TorchOperation::list_keys:
            return list_keys(id);
        case TorchOperation::barrier:
            return barrier(id, client, request);
    }
}

// ---- replies ----

void TorchStore::reply(TorchClient id, std::string head, Value value) {
    out_.sends.push_back({id, std::move(head), std::move(value)});
}

void TorchStore::reply_value(TorchClient id, const Value& value) {
    reply(id, as_u64(value ? value->size() : 0), value);
}

void TorchStore::get_all(TorchClient id, const std::vector<std::string>& keys) {
    size_t size = 0;
    for (const auto& key : keys)
        if (const Value value = value_of(key)) size += value->size();
    if (size > kMaxTorchReply) return close(id, too_much(size));
    for (const auto& key : keys) reply_value(id, value_of(key));
}

// The keys that have values, in no order.
void TorchStore::list_keys(TorchClient id) {
    std::string all = as_u64(values_.size());
    for (const auto& [key, value] : values_) all += as_u64(key.size()) + key;
    if (all.size() > kMaxTorchReply) return close(id, too_much(all.size()));
    reply(id, std::move(all));
}

// ---- values ----

TorchStore::Value TorchStore::value_of(const std::string& key) const {
    auto found = values_.find(key);
    return found == values_.end() ? nullptr : found->second;
}

bool TorchStore::available(const std::string& key) const {
    return values_.contains(key) || queues_.contains(key);
}

bool TorchStore::replace(TorchClient id, const std::string& key, std::string value) {
    const Value before = value_of(key);
    const size_t freed = before ? cost_of(key, before->size()) : 0;
    bytes_ -= freed;
    if (!take_room(id, cost_of(key, value.size()))) {
        bytes_ += freed;
        return false;
    }
    values_[key] = std::make_shared<const std::string>(std::move(value));
    return true;
}

bool TorchStore::put(TorchClient id, const std::string& key, std::string value) {
    const Value before = value_of(key);
    if (!replace(id, key, std::move(value))) return false;
    wake(key, false);
    tell_watchers(key, before ? Change::updated : Change::created, before, value_of(key));
    return true;
}

void TorchStore::append(TorchClient id, const std::string& key, const std::string& more) {
    const Value before = value_of(key);
    if (!before) return void(put(id, key, more));
    if (before->size() + more.size() > kMaxTorchValue)
        return close(id, "key " + quoted(key) + " would hold more than " +
                             std::to_string(kMaxTorchValue >> 20) + " MiB");
    if (!take_room(id, more.size())) return;
    values_[key] = std::make_shared<const std::string>(*before + more);
    wake(key, false);
    tell_watchers(key, Change::appended, nullptr, std::make_shared<const std::string>(more));
}

// A missing key equals an empty value; expecting another value returns that value, as in PyTorch.
void TorchStore::compare_set(TorchClient id, const TorchRequest& request) {
    const std::string& key = request.keys[0];
    const std::string& expected = request.values[0];
    const Value before = value_of(key);
    if (before ? *before == expected : expected.empty()) {
        if (put(id, key, request.values[1])) reply_value(id, value_of(key));
    } else {
        reply_value(id, before ? before : std::make_shared<const std::string>(expected));
    }
}

std::optional<int64_t> TorchStore::counted(TorchClient id, const std::string& key, int64_t amount) {
    const Value before = value_of(key);
    auto sum = before ? leading_number(*before) : 0;
    if (!sum)
        close(id, "it added to key " + quoted(key) + ", which holds no number");
    else if (__builtin_add_overflow(*sum, amount, &*sum))
        close(id, "key " + quoted(key) + " would overflow 64 bits");
    else
        return sum;
    return std::nullopt;
}

void TorchStore::add(TorchClient id, const TorchRequest& request) {
    const std::string& key = request.keys[0];
    const auto sum = counted(id, key, request.number);
    if (!sum || !put(id, key, std::to_string(*sum))) return;
    reply(id, little_endian(*sum));
    if (key == kWorkers) out_.arrived = !std::exchange(clients_.at(id).arrived, true);
}

void TorchStore::remove(TorchClient id, const std::string& key) {
    const Value before = value_of(key);
    if (before) {
        bytes_ -= cost_of(key, before->size());
        values_.erase(key);
        tell_watchers(key, Change::removed, before, nullptr);
    }
    reply(id, as_u64(before ? 1 : 0));
}

// ---- waiting ----

void TorchStore::wait(TorchClient id, Client& client, std::vector<std::string> keys) {
    std::set<std::string> missing;
    for (auto& key : keys)
        if (!available(key)) missing.insert(std::move(key));
    if (missing.empty()) return reply(id, {kStopWaiting});
    wait_for(id, client, std::move(missing));
}

void TorchStore::wait_for(TorchClient id, Client& client, std::set<std::string> keys) {
    size_t size = 0;
    for (const auto& key : keys) size += cost_of(key);
    if (!take_room(id, size)) return;
    for (const auto& key : keys) waiting_[key].insert(id);
    client.awaited = std::move(keys);
}

// The key counts who has come. Whoever comes late passes at once, and a change of the key by another
// operation wakes all, as in PyTorch.
void TorchStore::barrier(TorchClient id, Client& client, const TorchRequest& request) {
    const std::string& key = request.keys[0];
    const auto count = counted(id, key, 1);
    if (!count || !replace(id, key, std::to_string(*count))) return;
    if (*count < request.number) return wait_for(id, client, {key});
    wake(key, false);
    reply(id, {kStopWaiting});
}

void TorchStore::stop_waiting(TorchClient id, Client& client) {
    for (const auto& key : client.awaited) leave(waiting_, key, id);
    client.awaited.clear();
}

void TorchStore::leave(ClientsByKey& clients, const std::string& key, TorchClient id) {
    const auto entry = clients.find(key);
    entry->second.erase(id);
    if (entry->second.empty()) clients.erase(entry);
    bytes_ -= cost_of(key);
}

// The key exists now: wakes who waits for it; for an element of a queue, the first that needs nothing else.
void TorchStore::wake(const std::string& key, bool only_one) {
    auto entry = waiting_.find(key);
    if (entry == waiting_.end()) return;
    for (TorchClient id : std::set<TorchClient>(entry->second)) {
        Client& client = clients_.at(id);
        client.awaited.erase(key);
        leave(waiting_, key, id);
        if (!client.awaited.empty()) continue;
        reply(id, {kStopWaiting});
        if (only_one) return;
    }
}

// ---- watching ----

void TorchStore::watch(TorchClient id, Client& client, const std::string& key) {
    if (!client.watched.contains(key)) {
        if (!take_room(id, cost_of(key))) return;
        client.watched.insert(key);
        watching_[key].insert(id);
    }
    reply(id, {static_cast<char>(Change::registered)});
}

void TorchStore::tell_watchers(const std::string& key, Change change, const Value& before, const Value& now) {
    auto entry = watching_.find(key);
    if (entry == watching_.end()) return;
    for (TorchClient id : entry->second) {
        reply(id, static_cast<char>(change) + as_u64(key.size()) + key);
        reply_value(id, before);
        reply_value(id, now);
    }
}

// ---- queues ----

void TorchStore::push(TorchClient id, const std::string& key, std::string value) {
    if (!take_room(id, cost_of(key, value.size()))) return;
    queues_[key].push_back(std::make_shared<const std::string>(std::move(value)));
    wake(key, true);
}

void TorchStore::pop(TorchClient id, const std::string& key) {
    const auto queue = queues_.find(key);
    reply(id, as_u64(queue == queues_.end() ? 0 : queue->second.size()));
    if (queue == queues_.end()) return;
    const Value value = std::move(queue->second.front());
    queue->second.pop_front();
    if (queue->second.empty()) queues_.erase(queue);
    bytes_ -= cost_of(key, value->size());
    reply_value(id, value);
}

}  // namespace dp
