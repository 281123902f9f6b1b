// SPDX-License-Identifier: Apache-2.0
#include "trainer/commands/profiling.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "trainer/base/output_file.hpp"
#include "trainer/devices/cpu/cpu.hpp"
#include "trainer/profile/choices.hpp"
#include "trainer/profile/views.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

struct Form {
    std::string_view file, ending;
    std::string (*of)(const Profile& profile, const ProfileRecorder& recorder, std::int64_t rank);
};

// The longest ending first.
constexpr std::array kForms{
    Form{"profile.trace.json", ".trace.json",
         [](const Profile&, const ProfileRecorder& recorder, std::int64_t rank) {
             return profile_trace(recorder, rank);
         }},
    Form{"profile.json", ".json",
         [](const Profile& profile, const ProfileRecorder&, std::int64_t) {
             return profile_json(profile).dump(1, ' ', false, nlohmann::json::error_handler_t::replace) +
                    "\n";
         }},
    Form{"profile.txt", ".txt",
         [](const Profile& profile, const ProfileRecorder&, std::int64_t) {
             return profile_text(profile) + "\n";
         }},
    Form{"profile.html", ".html",
         [](const Profile& profile, const ProfileRecorder&, std::int64_t) { return profile_page(profile); }}};

// Null: it is a directory.
const Form* form_of(const fs::path& where) {
    const auto form =
        std::ranges::find_if(kForms, [&](const Form& one) { return where.string().ends_with(one.ending); });
    return form == kForms.end() ? nullptr : &*form;
}

// Every rank's times, by rank. This rank's alone where others are lost: they have nothing left to do.
std::vector<RankTimes> times_of_ranks(const Profile& mine, Device& device, Communicator& ranks) {
    constexpr std::size_t kNumbers = 3;
    std::vector<double> numbers(static_cast<std::size_t>(ranks.size()) * kNumbers);
    const auto at = static_cast<std::size_t>(ranks.rank()) * kNumbers;
    const RankTimes own{mine.seconds, mine.parts[static_cast<std::size_t>(Part::communication)],
                        mine.parts[static_cast<std::size_t>(Part::load)]};
    numbers[at] = own.step;
    numbers[at + 1] = own.communication;
    numbers[at + 2] = own.load;
    const auto count = static_cast<std::int64_t>(numbers.size());
    const Tensor tensor = device.copy_of<double>(Type::f64, {count}, numbers);
    if (device.failed() || !ranks.all_reduce(tensor, Reduction::sum) || !ranks.confirm()) return {own};
    numbers = device.values_of<double>(tensor);
    std::vector<RankTimes> times;
    for (std::size_t i = 0; i < numbers.size(); i += kNumbers)
        times.push_back({numbers[i], numbers[i + 1], numbers[i + 2]});
    return times;
}

AdviceCase case_of(const Profile& profile, const ProfiledRun& run) {
    const Settings& training = run.prepared.options.training;
    AdviceCase now;
    now.step = profile.median;
    // Of the usual step: a part is a mean, as its step's `seconds` are.
    const auto of_step = [&](double part, double step) { return step > 0 ? part / step * now.step : 0; };
    // What the rank with the least has is not for a slower one.
    now.communication = now.step;
    for (const RankTimes& one : profile.ranks)
        if (one.step > 0)
            now.communication = std::min(now.communication, of_step(one.communication, one.step));
    now.load = of_step(profile.parts[static_cast<std::size_t>(Part::load)], profile.seconds);
    now.batch = training.batch;
    now.accumulate = training.accumulate;
    // Else each micro-batch has sums of its own.
    if (run.ranks.data.size() > 1 && !run.ranks.divide_model() &&
        !run.prepared.options.device.deterministic && !run.prepared.model->looks_at_whole_batch())
        now.most_accumulate = run.prepared.data.train.count / (training.batch * run.ranks.data.size());
    return now;
}

}  // namespace

Result<void> profile_can_be_written(const std::optional<fs::path>& where) {
    return where && form_of(*where) != nullptr ? can_be_written("--profile", where)
                                               : can_hold_files("--profile", where);
}

std::optional<Peaks> peaks_here(Device& device, const Options& options, const LaunchContext& here) {
    const bool is_cpu = device.name() == "cpu";
    // A CPU's threads are those of the training; another device of a GPU would not fit beside it.
    const auto cpu = is_cpu ? open_cpu(threads_of(device.choices(), threads_for(here))) : nullptr;
    return measure_peaks(is_cpu ? *cpu : device, type_of(options.training.precision), here.local_size);
}

Profile make_profile(const ProfileRecorder& recorder, const ProfiledRun& run) {
    Device& device = run.prepared.device();
    const Options& options = run.prepared.options;
    const int threads = threads_of(device.choices(), threads_for(run.here));
    auto peaks = run.peaks;
    // Before anything that can fail on one rank alone.
    const auto ranks = times_of_ranks(profile_of(recorder, std::nullopt), device, run.ranks.world);
    const bool is_cpu = device.name() == "cpu";
    if (!peaks && !recorder.steps().empty()) peaks = peaks_here(device, options, run.here);
    Profile profile = profile_of(recorder, peaks);
    profile.ranks = ranks;
    profile.what = run.what;
    profile.version = DP_TRAINER_VERSION;
    if (recorder.steps().empty()) return profile;
    const LaunchContext& here = run.here;
    AdviceCase now = case_of(profile, run);
    if (!is_cpu || run.ranks.divide_model()) {
        now.untried = is_cpu ? "where ranks divide the model, other batches and threads are not"
                             : "on a GPU, other batches and threads are not";
        profile.advice = advice_for(now);
        profile.untried = now.untried;
        return profile;
    }
    now.threads = threads;
    const int cpus = std::max(std::min(here.affinity_cpus, here.node_cpus / std::max(here.local_size, 1)), 1);
    try_choices({{*run.prepared.info, options.shape, run.prepared.data, options.training},
                 run.prepared.memory_case(run.ranks.data.size(), 1),
                 threads,
                 cpus,
                 device.available_memory(here.local_size).value_or(0),
                 options.device.deterministic},
                now);
    device.adopt(device.choices());
    profile.advice = advice_for(now);
    profile.untried = now.untried;
    return profile;
}

Result<fs::path> write_profile(const fs::path& where, const Profile& profile, const ProfileRecorder& recorder,
                               std::int64_t rank) {
    if (const Form* form = form_of(where)) {
        DP_TRY(write_output(where, form->of(profile, recorder, rank)));
        return where;
    }
    std::error_code ignored;
    fs::create_directories(where, ignored);  // the first file says why not
    for (const Form& form : kForms) DP_TRY(write_output(where / form.file, form.of(profile, recorder, rank)));
    return where / "profile.html";
}

}  // namespace dp::trainer
