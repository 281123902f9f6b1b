// SPDX-License-Identifier: Apache-2.0
//
// A file of a record (--dp-record): whatever is in it, each task's time is somewhere, once, and so is each phase.
#include <google/protobuf/stubs/logging.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <numeric>
#include <string>

#include "base/fd.hpp"
#include "common/phase_page.hpp"
#include "record/details.hpp"
#include "record/entries.hpp"
#include "record/packing.hpp"
#include "record/run.hpp"
#include "record/timeline.hpp"
#include "target.hpp"

// However few are read: the phases of a task follow one another, and nobody waits for itself.
static void must_be_whole(const dp::RecordedRun& run) {
    using namespace dp;
    for (const size_t most : {kMostDetails, size_t{3}}) {
        const auto details = read_details(run, most);
        fuzz::must(details.has_value(), "what was read twice is read again");
        fuzz::must(details->phases.size() <= most, "there are no more than that");
        const RankPhase* before = nullptr;
        for (const RankPhase& one : details->phases) {
            fuzz::must(one.time.until > one.time.from, "a phase takes time");
            if (before && before->node == one.node && before->task == one.task)
                fuzz::must(one.time.from >= before->time.until, "no phase overlaps the one before");
            before = &one;
        }
        for (const Wait& wait : waits_in(run, details->phases))
            fuzz::must(wait.who != wait.for_whom, "nobody waits for itself");
    }
}

// Returns how many of its entries can be read.
static size_t check(std::string_view bytes) {
    using namespace dp;
    const Fd file(memfd_create("record", MFD_CLOEXEC));
    if (!file || write(file.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
        return 0;
    const auto records = read_records({"/proc/self/fd/" + std::to_string(file.get())});
    if (!records) return 0;
    size_t entries = 0;
    for (const RecordedRun& run : records->runs) {
        for (const NodeRecord& node : run.nodes) entries += node.entries;
        fuzz::must(run.environment.ranks.size() <= run.task_count(), "a task has one environment");
        for (const RunEvent& event : run.events)
            for (const RecordedCalls& calls : event.calls.stacks)
                fuzz::must(!calls.ranks.empty() && calls.frames.size() <= kMostFrames, "calls are a rank's");
        const auto timeline = read_timeline(run);
        fuzz::must(timeline.has_value(), "what was read once is read again");
        fuzz::must(timeline->scalars.series.size() <= kMostScalarNames, "there are no more names");
        for (const ScalarSeries& series : timeline->scalars.series) {
            fuzz::must(is_scalar_name(series.name) && !series.courses.empty(),
                       "a scalar has a name and a value");
            size_t points = 0;
            for (const auto& course : series.courses) points += course.points.size();
            fuzz::must(points > 0 && points <= kMostPoints, "no more can be shown");
        }
        double sum = 0;
        for (const double one : timeline->ledger) {
            fuzz::must(one >= 0, "no time is negative");
            sum += one;
        }
        fuzz::must(std::abs(sum - timeline->allocated) <= 1e-6 * timeline->allocated + 0.01,
                   "the ledger sums to the allocated time");
        must_be_whole(run);
    }
    return entries;
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace dp;
    google::protobuf::SetLogHandler(nullptr);
    const std::string_view bytes = fuzz::text_of(data, size);
    const size_t entries = check(bytes);
    if (!bytes.starts_with(kPlainRecordMagic)) return 0;
    RecordPacker packer;
    std::string packed(kRecordMagic);
    packed += packer.pack(bytes.substr(kPlainRecordMagic.size()));
    packed += packer.finish();
    fuzz::must(check(packed) == entries, "a packed record says the same");
    return 0;
}
