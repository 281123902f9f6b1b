// SPDX-License-Identifier: Apache-2.0
#include "trainer/reports/tensorboard.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/host_name.hpp"
#include "reports/tensorboard.pb.h"
#include "trainer/base/made_directories.hpp"
#include "trainer/base/standard_streams.hpp"
#include "trainer/reports/metrics_file.hpp"

namespace dp::trainer {
namespace {

// TFRecord masks its checksums: a checksum of bytes that contain checksums would be too regular.
std::uint32_t masked(std::uint32_t crc) {
    return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

// Little-endian on every machine.
template <typename Number>
std::string little_endian(Number number) {
    std::string bytes;
    for (std::size_t i = 0; i < sizeof number; ++i) bytes.push_back(static_cast<char>(number >> (8 * i)));
    return bytes;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
    std::uint32_t crc = 0xFFFFFFFFu;
    for (const char byte : bytes) {
        crc ^= static_cast<unsigned char>(byte);
        // The polynomial 0x1EDC6F41 with its bits reversed.
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0);
    }
    return ~crc;
}

// A record of TensorFlow's TFRecord files: length, its checksum, the bytes, their checksum.
static std::string tfrecord(std::string_view bytes) {
    const std::string length = little_endian(static_cast<std::uint64_t>(bytes.size()));
    return length + little_endian(masked(crc32c(length))) + std::string(bytes) +
           little_endian(masked(crc32c(bytes)));
}

Result<std::unique_ptr<TensorBoard>> TensorBoard::open(const std::filesystem::path& directory, double flops,
                                                       std::int64_t world) {
    MadeDirectories made;
    (void)made.make(directory);  // writing the file tells
    // TensorBoard reads files with "tfevents" in their name, in the order of their names.
    const double now = time_now();
    const auto file = directory / fmt::format("events.out.tfevents.{:010}.{}.{}",
                                              static_cast<std::int64_t>(now), host_name(), getpid());
    std::ofstream out(file, std::ios::binary | std::ios::app);
    tensorboard::Event first;
    first.set_wall_time(now);
    first.set_file_version("brain.Event:2");
    out << tfrecord(first.SerializeAsString()) << std::flush;
    if (!out) {
        const int why = errno;
        std::error_code ignored;
        std::filesystem::remove(file, ignored);
        return fail(Fault::usage, "--tensorboard: {} cannot be written: {}; give another directory",
                    file.string(), std::strerror(why));
    }
    made.keep();
    return std::unique_ptr<TensorBoard>(new TensorBoard(file, std::move(out), flops, world));
}

void TensorBoard::on_log(const LogReport& report, const Schedule& schedule) {
    const double rate = static_cast<double>(schedule.global_batch) / report.seconds_per_step;
    write(report.place.number, {{"lm loss", report.loss},
                                {"learning-rate", report.rate},
                                {"grad-norm", report.gradient_norm},
                                {"batch-size", static_cast<double>(schedule.global_batch)},
                                {"iteration-time", report.seconds_per_step},
                                // Megatron-LM's is in TFLOP/s per rank.
                                {"throughput", rate * flops_ / static_cast<double>(world_) / 1e12},
                                {"samples-per-second", rate},
                                {"skipped-iterations", static_cast<double>(report.skipped)}});
}

void TensorBoard::on_epoch(const EpochReport& report, const Schedule& schedule) {
    std::vector<Scalar> scalars{{"lm loss validation", report.test_loss}};
    if (report.test_accuracy) scalars.push_back({"accuracy validation", *report.test_accuracy});
    if (report.test_perplexity) scalars.push_back({"lm loss validation ppl", *report.test_perplexity});
    write(std::min(report.epoch * schedule.steps_per_epoch, schedule.total_steps), scalars);
}

void TensorBoard::on_test(const TestReport& report, const Schedule&) {
    std::vector<Scalar> scalars{{"lm loss validation", report.loss}};
    if (report.accuracy) scalars.push_back({"accuracy validation", *report.accuracy});
    if (report.perplexity) scalars.push_back({"lm loss validation ppl", *report.perplexity});
    write(report.place.number, scalars);
}

// As in MetricsFile, a full disk does not end a training.
void TensorBoard::write(std::int64_t step, const std::vector<Scalar>& scalars) {
    tensorboard::Event event;
    event.set_wall_time(time_now());
    event.set_step(step);
    for (const Scalar& scalar : scalars) {
        auto* value = event.mutable_summary()->add_value();
        value->set_tag(scalar.tag);
        value->set_simple_value(static_cast<float>(scalar.value));
    }
    out_ << tfrecord(event.SerializeAsString()) << std::flush;
    if (out_ || complained_) return;
    complained_ = true;
    print_if_possible(
        stderr, fmt::format("trainer: {}: cannot write: {}; TensorBoard will see nothing from here on\n",
                            file_.string(), std::strerror(errno)));
}

}  // namespace dp::trainer
