// SPDX-License-Identifier: Apache-2.0
//
// --tensorboard: a training's progress as event files for TensorBoard. Tags are Megatron-LM's if it has one.
#pragma once

#include <fstream>
#include <memory>
#include <vector>

#include "trainer/training/observer.hpp"

namespace dp::trainer {

// CRC-32C, as in iSCSI and TensorFlow; zlib's is a different one.
std::uint32_t crc32c(std::string_view bytes);

class TensorBoard final : public Observer {
 public:
    // Creates the directory if needed. `flops`: per sample, forward and backward; `world`: number of ranks.
    static Result<std::unique_ptr<TensorBoard>> open(const std::filesystem::path& directory, double flops,
                                                     std::int64_t world);

    void on_log(const LogReport& report, const Schedule& schedule) override;
    void on_epoch(const EpochReport& report, const Schedule& schedule) override;
    void on_test(const TestReport& report, const Schedule& schedule) override;

 private:
    std::filesystem::path file_;
    std::ofstream out_;
    double flops_;
    std::int64_t world_;
    bool complained_ = false;

    TensorBoard(std::filesystem::path file, std::ofstream out, double flops, std::int64_t world)
        : file_(std::move(file)), out_(std::move(out)), flops_(flops), world_(world) {}
    struct Scalar {
        const char* tag;
        double value;
    };
    void write(std::int64_t step, const std::vector<Scalar>& scalars);
};

}  // namespace dp::trainer
