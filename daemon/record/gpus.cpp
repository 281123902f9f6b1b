// SPDX-License-Identifier: Apache-2.0
#include "record/gpus.hpp"

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "record/clock_reasons.hpp"

namespace dp {
namespace {

constexpr uint64_t kMib = uint64_t{1} << 20;

using List = google::protobuf::RepeatedField<int32_t>;

std::array<List*, kGpuValues> lists_of(record::Sample& sample) {
    return {sample.mutable_gpu_busy_percent(), sample.mutable_gpu_memory_mib(),
            sample.mutable_gpu_watts(),        sample.mutable_gpu_celsius(),
            sample.mutable_gpu_sm_mhz(),       sample.mutable_gpu_slowed_by()};
}

std::array<const List*, kGpuValues> lists_of(const record::Sample& sample) {
    return {&sample.gpu_busy_percent(), &sample.gpu_memory_mib(), &sample.gpu_watts(),
            &sample.gpu_celsius(),      &sample.gpu_sm_mhz(),     &sample.gpu_slowed_by()};
}

// Whatever a helper or a file says, sums and differences stay within an int32.
int32_t bounded(int64_t value) {
    return static_cast<int32_t>(std::clamp<int64_t>(value, -1, 1 << 30));
}

GpuState state_of(const wire::NodeUsage::Gpu& gpu) {
    const auto or_unknown = [](bool is_known, uint64_t value) {
        return is_known ? bounded(static_cast<int64_t>(std::min<uint64_t>(value, 1 << 30))) : -1;
    };
    return {gpu.tile(),
            static_cast<uint32_t>(or_unknown(true, gpu.memory_total() / kMib)),
            {or_unknown(gpu.has_busy_percent(), gpu.busy_percent()),
             or_unknown(true, gpu.memory_used() / kMib), or_unknown(gpu.has_watts(), gpu.watts()),
             or_unknown(gpu.has_celsius(), gpu.celsius()), or_unknown(gpu.has_sm_mhz(), gpu.sm_mhz()),
             or_unknown(gpu.has_clock_reasons(), gpu.clock_reasons() & nvml::kSlowed)}};
}

bool are_the_same(const std::vector<GpuState>& some, const std::vector<GpuState>& others) {
    return std::ranges::equal(some, others, [](const GpuState& one, const GpuState& other) {
        return one.tile == other.tile && one.memory_mib == other.memory_mib;
    });
}

}  // namespace

void GpuChanges::add_to(record::Sample& sample, const wire::NodeUsage& found,
                        const std::set<uint32_t>& tiles) {
    std::vector<GpuState> now;
    std::set<uint32_t> devices;
    for (const auto& gpu : found.gpus()) {
        const bool is_theirs = tiles.empty() || tiles.contains(gpu.tile());
        if (is_theirs && devices.insert(gpu.device()).second && now.size() < size_t{kMostGpus})
            now.push_back(state_of(gpu));
    }
    if (now.empty()) return;
    if (!are_the_same(now, told_)) {
        told_ = now;
        for (GpuState& one : told_) {
            auto& named = *sample.add_gpus();
            named.set_tile(one.tile);
            named.set_memory_mib(one.memory_mib);
            one.values.fill(0);
        }
    }
    const auto lists = lists_of(sample);
    for (size_t value = 0; value < kGpuValues; ++value) {
        bool has_changed = value == static_cast<size_t>(GpuValue::busy);
        for (size_t i = 0; i < now.size(); ++i) {
            const int32_t change = now[i].values[value] - told_[i].values[value];
            lists[value]->Add(change);
            has_changed |= change != 0;
        }
        if (!has_changed) lists[value]->Clear();
    }
    told_ = std::move(now);
}

std::vector<GpuState> GpuReader::take(const record::Sample& sample) {
    if (sample.gpus_size() > 0) {
        now_.clear();
        for (const auto& gpu : sample.gpus())
            if (now_.size() < size_t{kMostGpus}) now_.push_back({gpu.tile(), gpu.memory_mib(), {}});
    }
    if (sample.gpu_busy_percent_size() == 0) return {};
    const auto lists = lists_of(sample);
    const auto told = std::min(now_.size(), static_cast<size_t>(sample.gpu_busy_percent_size()));
    for (size_t i = 0; i < told; ++i)
        for (size_t value = 0; value < kGpuValues; ++value)
            if (i < static_cast<size_t>(lists[value]->size()))
                now_[i].values[value] =
                    bounded(int64_t{now_[i].values[value]} + lists[value]->Get(static_cast<int>(i)));
    return {now_.begin(), now_.begin() + static_cast<ptrdiff_t>(told)};
}

void add_to(std::vector<GpuSummary>& all, const std::vector<GpuState>& now, double seconds) {
    for (const GpuState& state : now) {
        auto gpu = std::ranges::find(all, state.tile, &GpuSummary::tile);
        if (gpu == all.end()) {
            if (all.size() == size_t{kMostGpus}) continue;
            gpu = all.insert(all.end(), {state.tile, state.memory_mib});
        }
        for (size_t course = 0; course < kGpuCourses; ++course) {
            const int32_t value = state.values[course];
            if (value < 0) continue;
            auto& of_it = gpu->courses[course];
            of_it.sum += value * seconds;
            of_it.seconds += seconds;
            of_it.lowest = std::min(of_it.lowest, value);
            of_it.highest = std::max(of_it.highest, value);
        }
        const int32_t reasons = state.of(GpuValue::slowed_by);
        if (reasons <= 0) continue;
        gpu->slowed_seconds += seconds;
        gpu->slowed_reasons |= static_cast<uint64_t>(reasons);
    }
}

std::string slowed_in_words(uint64_t reasons) {
    constexpr std::pair<uint64_t, const char*> kWords[] = {
        {nvml::kTooHot | nvml::kTooHotForSoftware, "too hot"},
        {nvml::kPowerBrake, "power brake"},
        {nvml::kSlowedByHardware, "hardware"}};
    std::vector<std::string> words;
    for (const auto& [bits, word] : kWords)
        if (reasons & bits) words.emplace_back(word);
    return join(words, ", ");
}

void GpuWindow::add(const std::vector<GpuState>& now) {
    for (size_t course = 0; course < kGpuCourses; ++course) {
        const OverGpus over = kGpuCourseNames[course].over;
        double sum = 0;
        int32_t lowest = std::numeric_limits<int32_t>::max(), highest = -1;
        uint32_t known = 0;
        for (const GpuState& state : now) {
            const int32_t value = state.values[course];
            if (value < 0) continue;
            sum += value;
            lowest = std::min(lowest, value);
            highest = std::max(highest, value);
            ++known;
        }
        if (known == 0) continue;
        Course& of_it = courses_[course];
        const bool is_first = of_it.looks++ == 0;
        switch (over) {
            case OverGpus::mean:
                of_it.value += sum / known;
                break;
            case OverGpus::sum:
                of_it.value += sum;
                break;
            case OverGpus::highest:
                of_it.value = std::max(of_it.value, static_cast<double>(highest));
                break;
            case OverGpus::lowest:
                of_it.value = is_first ? lowest : std::min(of_it.value, static_cast<double>(lowest));
                break;
        }
    }
}

std::optional<double> GpuWindow::of(size_t course) const {
    const Course& of_it = courses_[course];
    if (of_it.looks == 0) return std::nullopt;
    const OverGpus over = kGpuCourseNames[course].over;
    return over == OverGpus::mean || over == OverGpus::sum ? of_it.value / of_it.looks : of_it.value;
}

}  // namespace dp
