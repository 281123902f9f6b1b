// SPDX-License-Identifier: Apache-2.0
#include "trainer/reports/log_style.hpp"

#include <fmt/format.h>

namespace dp::trainer {

bool tells_steps(LogStyle style) {
    return style == LogStyle::pytorch || style == LogStyle::megatron;
}

std::string pytorch_line(const LogReport& report, const Schedule& schedule, std::int64_t samples,
                         std::int64_t batch) {
    const std::int64_t before = report.place.step - 1;
    return fmt::format(
        "Train Epoch: {} [{}/{} ({:.0f}%)]\tLoss: {:.6f}", report.place.epoch, before * batch, samples,
        100 * static_cast<double>(before) / static_cast<double>(schedule.steps_per_epoch), report.loss);
}

std::string megatron_line(const LogReport& report, const Schedule& schedule) {
    return fmt::format(
        " iteration {:8}/{:8} | consumed samples: {:12} | elapsed time per iteration (ms): {:.1f} | learning "
        "rate: {:.3E} | global batch size: {:5} | lm loss: {:.6E} | loss scale: 1.0 | grad norm: {:.3f} | "
        "number of skipped iterations: {:3} | number of nan iterations: {:3} |",
        report.place.number, schedule.total_steps, report.place.number * schedule.global_batch,
        report.seconds_per_step * 1e3, report.rate, schedule.global_batch, report.loss, report.gradient_norm,
        report.skipped, report.skipped);
}

std::string megatron_test_line(std::int64_t step, double loss, const std::optional<double>& perplexity) {
    return fmt::format(" validation loss at iteration {} | lm loss value: {:.6E} | ", step, loss) +
           (perplexity ? fmt::format("lm loss PPL: {:.6E} | ", *perplexity) : "");
}

std::string samba_line(const Outcome& outcome) {
    return fmt::format(
        "inner train loop time : {} for {} epochs, number of global steps: {}, e2e samples_per_sec: {}",
        outcome.train_seconds, outcome.schedule.epochs, outcome.schedule.total_steps - outcome.resumed,
        outcome.samples_per_second);
}

std::string samba_summary(const Outcome& outcome) {
    return fmt::format("{{'e2e_train_time': {}, 'training_sequences_per_second': {}, 'final_loss': {}}}",
                       outcome.train_seconds, outcome.samples_per_second, outcome.last.loss);
}

}  // namespace dp::trainer
