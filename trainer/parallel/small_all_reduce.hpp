// SPDX-License-Identifier: Apache-2.0
//
// Small all-reduces, frequent and concurrent with the gradients': batch norm's. Each rank adds up its node's
// numbers itself and exchanges the result with the same local rank on the other nodes: one wait and one
// message, because on shared CPUs each wake-up costs more than the sum. Used by node_communicator.cpp.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "trainer/base/result.hpp"
#include "trainer/base/tensor.hpp"
#include "trainer/parallel/inter_node.hpp"
#include "trainer/parallel/node_barrier.hpp"
#include "trainer/parallel/node_memory.hpp"

namespace dp::trainer {

class SmallAllReduce {
 public:
    // Connects this rank with the same local rank on the other nodes.
    using Connect = std::function<Result<SumBetween>()>;

    // Between the ranks that share the memory. `connect` is called at the first sum; it is empty if there
    // is one node.
    SmallAllReduce(std::shared_ptr<NodeMemory> memory, std::int64_t ranks, std::chrono::milliseconds patience,
                   Connect connect);

    static bool takes(const Tensor& tensor);
    // In place, for tensors that it takes. Every rank calls, in the same order, from one thread; all then
    // have the same bits.
    Result<void> sum(const Tensor& numbers);
    // Ends the waits of all ranks of the node, permanently. From any thread.
    void break_off() { barrier_.break_off(); }

 private:
    std::shared_ptr<NodeMemory> memory_;
    NodeBarrier barrier_;
    std::chrono::milliseconds patience_;
    Connect connect_;
    SumBetween between_;  // empty until there was a sum
    // Each rank's numbers are double-buffered: a rank that is ahead may write the next ones while
    // others read these.
    unsigned turn_ = 0;
};

}  // namespace dp::trainer
