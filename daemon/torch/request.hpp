// SPDX-License-Identifier: Apache-2.0
//
// Parses the requests of PyTorch's TCPStore clients. Pure; torch/store.hpp answers.
//
// Little-endian: one byte of operation, then its operands; a key or a value is a u64 length and that many
// bytes, a list a u64 count and its elements. Two kinds of client, told apart by their first bytes (read in
// torch/csrc/distributed/c10d: TCPStore.cpp of 1.13 and 2.0, TCPStoreBackend.hpp of later versions):
//
//   1.x, 2.0   no greeting; SET is 0; WATCH_KEY is 7. Each store opens a second connection for watched keys,
//              which is silent where none is watched. APPEND, MULTI_* and CANCEL_WAIT came with 2.0.
//   later      a greeting first: 0 (VALIDATE) and the u32 kTorchMagic. SET is 1; there is no WATCH_KEY. PING
//              and the queues came later still, LIST_KEYS and BARRIER with 2.14.
//
// An old client that begins with a SET sends 0 and a key's length, far below the magic number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dp {

inline constexpr uint32_t kTorchMagic = 0x3C85F7CE;

// PyTorch's own limits (TCPStoreLibUvBackend.cpp).
inline constexpr size_t kMaxTorchKey = size_t{8} << 10;
inline constexpr size_t kMaxTorchValue = size_t{8} << 20;
inline constexpr size_t kMaxTorchKeys = size_t{128} << 10;  // of one request
// All keys and values of a request.
inline constexpr size_t kMaxTorchRequest = size_t{64} << 20;

// In the order of an old client's numbers, from 0; then what recent ones have beside.
enum class TorchOperation {
    set,
    compare_set,
    get,
    add,
    check,
    wait,
    count_keys,
    watch_key,
    delete_key,
    append,
    multi_get,
    multi_set,
    cancel_wait,
    ping,
    queue_push,
    queue_pop,
    queue_length,
    list_keys,
    barrier
};

struct TorchRequest {
    TorchOperation operation{};
    std::vector<std::string> keys;
    std::vector<std::string> values;
    int64_t number = 0;  // what to add; the number of a ping; a barrier's size
    bool operator==(const TorchRequest&) const = default;
};

// Reads one connection, in portions of any size.
class TorchReader {
 public:
    // Takes bytes up to the end of the request, none once it is complete or broken, and returns how many.
    size_t take(std::string_view bytes);

    bool complete() const { return complete_; }
    // Returns the complete request and begins the next one.
    TorchRequest request();
    // Why this is not a client of PyTorch, or asks too much; empty while all is well.
    const std::string& broken() const { return broken_; }
    // The bytes of the current request that are held here.
    size_t held() const { return token_.size() + operands_; }

 private:
    enum class Kind { unknown, old, recent };
    Kind kind_ = Kind::unknown;
    std::string token_;                  // the part that is being read
    size_t need_ = 1;                    // its length
    std::string_view operands_to_come_;  // as in kOperands
    std::string_view repeated_;
    uint64_t repeats_ = 0;
    bool in_body_ = false;  // a key's or value's length has been read
    size_t operands_ = 0;
    TorchRequest request_;
    bool complete_ = false;
    std::string broken_;

    void on_token();
    void first_byte(unsigned char code);
    void first_word();
    void operation(unsigned char code);
    void operand();
    void body(std::string bytes);
    void next_operand();
    uint64_t number() const;
    void expect(size_t bytes);
    void fail(std::string why);
};

}  // namespace dp
