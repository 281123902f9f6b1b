// SPDX-License-Identifier: Apache-2.0
//
// Event files: see tensorboard.hpp; tensorboard.proto has the messages.
#include "trainer/reports/tensorboard.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "reports/tensorboard.pb.h"
#include "trainer/base/made_directories.hpp"
#include "trainer/base/standard_streams.hpp"
#include "trainer/reports/metrics_file.hpp"

namespace dp::trainer {
namespace {

// The effect of each byte on the checksum: the polynomial 0x1EDC6F41 with its bits reversed.
constexpr std::array<std::uint32_t, 256> make_table() {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t rest = byte;
        for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? 0x82F63B78u : 0);
        table[byte] = rest;
    }
    return table;
}

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
    static constexpr auto kTable = make_table();
    std::uint32_t crc = 0xFFFFFFFFu;
    for (const char byte : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xFF];
    return ~crc;
}

std::string tfrecord(std::string_view bytes) {
    const std::string length = little_endian(static_cast<std::uint64_t>(bytes.size()));
    return length + little_endian(masked(crc32c(length))) + std::string(bytes) +
           little_endian(masked(crc32c(bytes)));
}

std::vector<Scalar> step_scalars(const LogReport& report, const Schedule& schedule, double flops,
                                 std::int64_t world) {
    const double rate = static_cast<double>(schedule.global_batch) / report.seconds_per_step;
    return {{"lm loss", report.loss},
            {"learning-rate", report.rate},
            {"grad-norm", report.gradient_norm},
            {"batch-size", static_cast<double>(schedule.global_batch)},
            {"iteration-time", report.seconds_per_step},
            // Megatron-LM's is in TFLOP/s per rank.
            {"throughput", rate * flops / static_cast<double>(world) / 1e12},
            {"samples-per-second", rate},
            {"skipped-iterations", static_cast<double>(report.skipped)}};
}

std::vector<Scalar> epoch_scalars(const EpochReport& report) {
    std::vector<Scalar> scalars{{"lm loss validation", report.test_loss}};
    if (report.test_accuracy) scalars.push_back({"accuracy validation", *report.test_accuracy});
    return scalars;
}

Result<std::unique_ptr<TensorBoard>> TensorBoard::open(const std::filesystem::path& directory, double flops,
                                                       std::int64_t world) {
    MadeDirectories made;
    (void)made.make(directory);  // writing the file tells
    std::array<char, 256> host{};
    gethostname(host.data(), host.size() - 1);
    // TensorBoard reads files with "tfevents" in their name, in the order of their names.
    const double now = time_now();
    const auto file = directory / fmt::format("events.out.tfevents.{:010}.{}.{}",
                                              static_cast<std::int64_t>(now), host.data(), getpid());
    std::ofstream out(file, std::ios::binary | std::ios::app);
    tensorboard::Event first;
    first.set_wall_time(now);
    first.set_file_version("brain.Event:2");
    out << tfrecord(first.SerializeAsString()) << std::flush;
    if (!out) {
        const int why = errno;
        std::error_code ignored;
        std::filesystem::remove(file, ignored);
        return fail(Fault::usage,
                    fmt::format("--tensorboard: {} cannot be written: {}; give another directory",
                                file.string(), std::strerror(why)));
    }
    made.keep();
    return std::unique_ptr<TensorBoard>(new TensorBoard(file, std::move(out), flops, world));
}

void TensorBoard::on_log(const LogReport& report, const Schedule& schedule) {
    write(report.place.number, step_scalars(report, schedule, flops_, world_));
}

void TensorBoard::on_epoch(const EpochReport& report, const Schedule& schedule) {
    write(std::min(report.epoch * schedule.steps_per_epoch, schedule.total_steps), epoch_scalars(report));
}

// As in MetricsFile, a full disk does not end a training.
void TensorBoard::write(std::int64_t step, const std::vector<Scalar>& scalars) {
    tensorboard::Event event;
    event.set_wall_time(time_now());
    event.set_step(step);
    for (const Scalar& scalar : scalars) {
        auto* value = event.mutable_summary()->add_value();
        value->set_tag(std::string(scalar.tag));
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
