// SPDX-License-Identifier: Apache-2.0
//
// Sums of few numbers over all ranks, often, and while gradients are summed: batch norm's. Each rank adds up
// its neighbours' numbers itself, and tells the result its like on the other nodes: one wait and one message,
// for on CPUs that ranks share each wake-up costs more than the sum. node_communicator.cpp has one.
#ifndef TRAINER_PARALLEL_FEW_SUMS_HPP
#define TRAINER_PARALLEL_FEW_SUMS_HPP

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "trainer/base/result.hpp"
#include "trainer/base/tensor.hpp"
#include "trainer/parallel/between_nodes.hpp"
#include "trainer/parallel/node_barrier.hpp"
#include "trainer/parallel/node_memory.hpp"

namespace dp::trainer {

class FewSums {
 public:
    // Connects this rank with its like on the other nodes.
    using Connect = std::function<Result<SumBetween>()>;

    // Between the ranks that share the memory; `connect` is called with the first sum, and empty where there
    // is one node.
    FewSums(std::shared_ptr<NodeMemory> memory, std::int64_t ranks, std::chrono::milliseconds patience,
            Connect connect);

    static bool takes(const Tensor& tensor);
    // In place, of what it takes. Every rank calls, in the same order; all have the same bits then. From one
    // thread.
    Result<void> sum(const Tensor& numbers);
    // Ends the waits of all ranks of the node, for ever. From any thread.
    void break_off() { barrier_.break_off(); }

 private:
    std::shared_ptr<NodeMemory> memory_;
    NodeBarrier barrier_;
    std::chrono::milliseconds patience_;
    Connect connect_;
    SumBetween between_;  // empty until there was a sum
    // Each rank has its numbers in two places, in turns: who is ahead may write the next ones while others
    // read these.
    unsigned turn_ = 0;
};

}  // namespace dp::trainer

#endif
