// SPDX-License-Identifier: Apache-2.0
#include "trainer/profile/recorder.hpp"

#include <algorithm>

#include "trainer/base/statistics.hpp"

namespace dp::trainer {

StepRange steps_to_profile(const StepRange& wanted, std::int64_t steps) {
    if (wanted.first <= steps) return {wanted.first, std::min(wanted.last, steps)};
    const std::int64_t count = std::min(wanted.last - wanted.first + 1, (steps + 1) / 2);
    return {steps - count + 1, steps};
}

std::string layer_of(const std::string& parameter) {
    for (const std::string_view end : {".weight", ".bias"})
        if (parameter.ends_with(end)) return parameter.substr(0, parameter.size() - end.size());
    return parameter;
}

void ProfileRecorder::follow(const ParameterSet& parameters, const Communicator& communicator,
                             const MemoryAccount& memory, std::int64_t steps) {
    memory_ = &memory;
    parameters_ = &parameters;
    communicator_ = &communicator;
    now_.reset();
    // What is whole is kept. Else it begins anew: other tensors may be where those were that it knows.
    if (steps_.empty() || taken_ <= range_.last) {
        taken_ = 0;
        steps_.clear();
        before_.clear();
        log_.clear();
        is_settled_ = false;
        first_done_ = 0;
        problem_.clear();
    }
    log_.stop();
    total_ = steps;
    resumed(0);
}

void ProfileRecorder::resumed(std::int64_t step) {
    if (steps_.empty()) range_ = steps_to_profile(wanted_, total_ - step);
}

// Waits for the device.
std::int64_t ProfileRecorder::done() {
    log_.wait();
    return steady_nanoseconds();
}

void ProfileRecorder::on_step_begin() {
    ++taken_;
    if (works_behind() && taken_ == 2 && taken_ < range_.first) first_done_ = done();
    if (works_behind() && taken_ == range_.first) before_done_ = done();
    if (taken_ < range_.first || taken_ > range_.last) {
        began_ = steady_nanoseconds();
        return;
    }
    // The model has been placed, perhaps anew.
    for (const Parameter& one : parameters_->all()) {
        if (one.value.elements() == 0) continue;  // another stage has it
        const auto name = [&](const Tensor& tensor, Named what) {
            log_.name(one.with_spare_rows(tensor), what, layer_of(one.name));
        };
        name(one.value, Named::value);
        name(one.compute_copy, Named::value);
        name(one.gradient, Named::gradient);
    }
    now_ = RecordedStep{0, 0, log_.operations().size(), 0, communicator_->background_nanoseconds()};
    log_.start();
    now_->begin = steady_nanoseconds();
}

void ProfileRecorder::on_step() {
    const std::int64_t end = steady_nanoseconds();
    if (!now_) {
        if (!works_behind() && taken_ > 1 && taken_ < range_.first)
            before_.push_back(1e-9 * static_cast<double>(end - began_));
        return;
    }
    log_.stop();
    now_->end = end;
    now_->operations = log_.operations().size() - now_->first;
    if (now_->background)
        *now_->background = communicator_->background_nanoseconds().value_or(0) - *now_->background;
    held_ = memory_->held();
    steps_.push_back(*now_);
    now_.reset();
    if (taken_ == range_.last) settle();
}

void ProfileRecorder::settle() {
    if (steps_.empty() || !works_behind() || is_settled_) return;
    is_settled_ = true;
    all_done_ = done();
    if (const auto settled = log_.settle(); !settled) {
        problem_ = settled.error().message;
        steps_.clear();
        return;
    }
    const std::vector<LoggedOperation>& all = log_.operations();
    auto aside = log_.aside().begin();
    for (std::size_t i = 0; i < steps_.size(); ++i) {
        RecordedStep& step = steps_[i];
        if (step.operations == 0) continue;
        const std::size_t after = step.first + step.operations;
        // What the host did between two steps is of neither: an evaluation, a checkpoint.
        const bool is_last = i + 1 == steps_.size() || after == all.size();
        const std::int64_t between = is_last ? 0 : steps_[i + 1].begin - step.end;
        step.begin = all[step.first].begin;
        step.end = is_last ? all[after - 1].end : std::max(all[after - 1].end, all[after].begin - between);
        if (!log_.aside().empty()) step.background = 0;
        for (; aside != log_.aside().end() && aside->operation < after; ++aside)
            *step.background += aside->end - aside->begin;
    }
}

double ProfileRecorder::seconds_without() const {
    if (works_behind())
        return first_done_ == 0 ? 0
                                : 1e-9 * static_cast<double>(before_done_ - first_done_) /
                                      static_cast<double>(range_.first - 2);
    return before_.empty() ? 0 : spread_of(before_).median;
}

double ProfileRecorder::seconds() const {
    std::vector<double> all;
    for (const RecordedStep& step : steps_) all.push_back(1e-9 * static_cast<double>(step.end - step.begin));
    return all.empty() ? 0 : spread_of(all).median;
}

std::optional<double> ProfileRecorder::overhead() const {
    constexpr std::int64_t kTries = 2000;
    std::int64_t profiled = 0;
    std::size_t operations = 0;
    for (const RecordedStep& step : steps_) {
        profiled += step.end - step.begin;
        operations += step.operations;
    }
    if (profiled == 0) return 0;
    if (works_behind()) {
        if (seconds_without() == 0) return std::nullopt;
        const double with =
            1e-9 * static_cast<double>(all_done_ - before_done_) / static_cast<double>(steps_.size());
        return std::max(with / seconds_without() - 1, 0.0);
    }
    // With three tensors, as most have.
    OperationLog empty;
    std::array<float, 3> numbers{};
    std::array<Tensor, 3> tensors;
    for (std::size_t i = 0; i < tensors.size(); ++i)
        tensors[i] = Tensor(std::shared_ptr<void>(&numbers[i], [](void*) {}), Type::f32, {1});
    empty.start();
    const std::int64_t begin = steady_nanoseconds();
    for (std::int64_t i = 0; i < kTries; ++i)
        const auto timed = empty.time(
            Operation::add, 0,
            {{&tensors[0], Access::read}, {&tensors[1], Access::read}, {&tensors[2], Access::update}});
    const double one = static_cast<double>(steady_nanoseconds() - begin) / kTries;
    return one * static_cast<double>(operations) / static_cast<double>(profiled);
}

}  // namespace dp::trainer
