// SPDX-License-Identifier: Apache-2.0
//
// --tensorboard: how a training goes, as event files that TensorBoard shows. Tags are Megatron-LM's where it
// has one. run.cpp opens it where this process speaks for its world.
#ifndef TRAINER_REPORTS_TENSORBOARD_HPP
#define TRAINER_REPORTS_TENSORBOARD_HPP

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/base/result.hpp"
#include "trainer/training/observer.hpp"

namespace dp::trainer {

// CRC-32C, as iSCSI and TensorFlow use it. zlib's is another.
std::uint32_t crc32c(std::string_view bytes);

// Pure: one record of TensorFlow's TFRecord files: length, its checksum, the bytes, their checksum.
std::string tfrecord(std::string_view bytes);

struct Scalar {
    std::string_view tag;
    double value;
};

// Pure. `flops`: of a sample, forward and backward; `world`: its ranks.
std::vector<Scalar> step_scalars(const LogReport& report, const Schedule& schedule, double flops,
                                 std::int64_t world);
std::vector<Scalar> epoch_scalars(const EpochReport& report);

class TensorBoard final : public Observer {
 public:
    // Makes the directory where it is not there, and a file of this run's own in it. What cannot be written
    // is the user's to mend.
    static Result<std::unique_ptr<TensorBoard>> open(const std::filesystem::path& directory, double flops,
                                                     std::int64_t world);

    void on_step(std::int64_t, std::int64_t, const Schedule&) override {}
    void on_log(const LogReport& report, const Schedule& schedule) override;
    void on_epoch(const EpochReport& report, const Schedule& schedule) override;

 private:
    std::filesystem::path file_;
    std::ofstream out_;
    double flops_;
    std::int64_t world_;
    bool complained_ = false;

    TensorBoard(std::filesystem::path file, std::ofstream out, double flops, std::int64_t world)
        : file_(std::move(file)), out_(std::move(out)), flops_(flops), world_(world) {}
    void write(std::int64_t step, const std::vector<Scalar>& scalars);
};

}  // namespace dp::trainer

#endif
