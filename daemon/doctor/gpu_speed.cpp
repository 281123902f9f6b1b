// SPDX-License-Identifier: Apache-2.0
#include "doctor/gpu_speed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <thread>

#include "base/text.hpp"
#include "doctor/apart.hpp"
#include "nvml/library.hpp"

namespace dp::doctor {
namespace {

using Clock = std::chrono::steady_clock;
using nvml::SharedObject;

constexpr auto kPatience = std::chrono::seconds(15);
// Clocks rise first; then so long is measured.
constexpr auto kWarmUp = std::chrono::milliseconds(500), kMeasured = std::chrono::milliseconds(500);
constexpr size_t kCopiedByGpu = size_t{256} << 20;  // bytes

// Of the kernel: a warp multiplies that many pairs of 16x16 and 16x8 matrices of ones, at once and again and again, and each
// thread adds up its part of the results: exact in fp32.
constexpr unsigned kProducts = 8, kPartOfProduct = 4;
constexpr unsigned kRounds = 20000, kWarps = 8, kWarp = 32, kBlocksPerProcessor = 4;
constexpr double kFlopOfProduct = 2.0 * 16 * 16 * 8;
constexpr float kExpected = 16.0F * kProducts * kPartOfProduct * kRounds;

// For compute capability 8.0 and later, in PTX 7.0: every driver since CUDA 11.0 compiles it.
std::string kernel() {
    const auto sums = [](unsigned product) {
        const unsigned first = product * kPartOfProduct;
        return fmt::format("{{%sum{}, %sum{}, %sum{}, %sum{}}}", first, first + 1, first + 2, first + 3);
    };
    const unsigned all = kProducts * kPartOfProduct;
    std::string text = fmt::format(
        ".version 7.0\n.target sm_80\n.address_size 64\n"
        ".visible .entry dp_multiply(.param .u64 results, .param .u32 rounds) {{\n"
        ".reg .pred %more;\n.reg .b32 %ones, %left, %block, %size, %thread;\n.reg .b64 %to, %offset;\n"
        ".reg .f32 %sum<{}>;\n"
        "ld.param.u32 %left, [rounds];\nmov.b32 %ones, 0x3F803F80;\n",
        all);
    for (unsigned i = 0; i < all; ++i) text += fmt::format("mov.f32 %sum{}, 0f00000000;\n", i);
    text += "next:\n";
    for (unsigned product = 0; product < kProducts; ++product)
        text += fmt::format(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {0}, {{%ones, %ones, %ones, %ones}}, "
            "{{%ones, %ones}}, {0};\n",
            sums(product));
    text += "sub.u32 %left, %left, 1;\nsetp.ne.u32 %more, %left, 0;\n@%more bra next;\n";
    for (unsigned i = 1; i < all; ++i) text += fmt::format("add.f32 %sum0, %sum0, %sum{};\n", i);
    return text +
           "ld.param.u64 %to, [results];\ncvta.to.global.u64 %to, %to;\n"
           "mov.u32 %block, %ctaid.x;\nmov.u32 %size, %ntid.x;\nmov.u32 %thread, %tid.x;\n"
           "mad.lo.u32 %thread, %block, %size, %thread;\nmul.wide.u32 %offset, %thread, 4;\n"
           "add.u64 %to, %to, %offset;\nst.global.f32 [%to], %sum0;\nret;\n}\n";
}

std::string error_in_words(const SharedObject& driver, const char* function, int result) {
    const char* words = nullptr;
    driver.call("cuGetErrorName", result, &words);
    return fmt::format("{}: {} ({})", function, printable(words ? words : "unknown", 60), result);
}

// libcuda's types and values are those of cuda.h of CUDA 13, written down again: this is built without CUDA.
using Pointer = unsigned long long;  // CUdeviceptr
constexpr int kProcessors = 16, kCapability = 75;
constexpr unsigned kBlockingSync = 4;  // a thread that waits leaves its CPU to the others
constexpr int kOutOfMemory = 2, kUnavailable = 46, kNoDevice = 100;

class GpuAtWork {
 public:
    GpuAtWork(const SharedObject& driver, unsigned number)
        : driver_(driver), number_(static_cast<int>(number)) {}

    // In any thread.
    void set_up() {
        int processors = 0, capability = 0;
        std::array<char, 32> bus{};
        const std::string text = kernel();
        if (!works("cuDeviceGet", &device_, number_) ||
            !works("cuDeviceGetPCIBusId", bus.data(), static_cast<int>(bus.size() - 1), device_))
            return;
        speed_.name = printable(bus.data());
        if (!works("cuDevicePrimaryCtxSetFlags_v2", device_, kBlockingSync) ||
            !works("cuDevicePrimaryCtxRetain", &context_, device_) || !works("cuCtxSetCurrent", context_) ||
            !works("cuDeviceGetAttribute", &processors, kProcessors, device_) ||
            !works("cuDeviceGetAttribute", &capability, kCapability, device_) ||
            !works("cuMemAlloc_v2", &from_, kCopiedByGpu) || !works("cuMemAlloc_v2", &to_, kCopiedByGpu) ||
            capability < 8)
            return;
        blocks_ = static_cast<unsigned>(processors) * kBlocksPerProcessor;
        works("cuModuleLoadData", &module_, text.c_str()) &&
            works("cuModuleGetFunction", &function_, module_, "dp_multiply") &&
            works("cuMemAlloc_v2", &results_, threads() * sizeof(float));
    }
    GpuSpeed measure() {
        if (speed_.problem.empty() && works("cuCtxSetCurrent", context_)) {
            if (blocks_ > 0) multiply();
            if (speed_.problem.empty()) copy();
        }
        return speed_;
    }

 private:
    const SharedObject& driver_;
    int number_;
    GpuSpeed speed_;
    int device_ = 0;  // CUdevice
    void *context_ = nullptr, *module_ = nullptr, *function_ = nullptr;
    Pointer from_ = 0, to_ = 0, results_ = 0;
    unsigned blocks_ = 0;  // 0: it cannot multiply bf16

    size_t threads() const { return size_t{blocks_} * kWarps * kWarp; }

    template <typename... Arguments>
    bool works(const char* function, Arguments... arguments) {
        const int result = driver_.call(function, arguments...);
        if (result == 0) return true;
        speed_.problem = error_in_words(driver_, function, result);
        speed_.is_broken = result != kOutOfMemory && result != kUnavailable;
        return false;
    }

    // How often a second; 0: it failed. So many at once are waited for, until the time is over.
    template <typename Work>
    double rate(unsigned at_once, const Work& work) {
        const auto repeat = [&](Clock::duration time) {
            const auto begin = Clock::now();
            for (unsigned times = at_once;; times += at_once) {
                for (unsigned i = 0; i < at_once; ++i)
                    if (!work()) return 0.0;
                if (!works("cuCtxSynchronize")) return 0.0;
                if (const auto took = Clock::now() - begin; took >= time)
                    return times / std::chrono::duration<double>(took).count();
            }
        };
        return repeat(kWarmUp) > 0 ? repeat(kMeasured) : 0;
    }

    void multiply() {
        unsigned rounds = kRounds;
        void* parameters[] = {&results_, &rounds};
        void* const none = nullptr;
        const double a_second = rate(4, [&] {
            return works("cuLaunchKernel", function_, blocks_, 1u, 1u, kWarps * kWarp, 1u, 1u, 0u, none,
                         static_cast<void**>(parameters), none);
        });
        std::vector<float> said(threads());
        if (a_second == 0 ||
            !works("cuMemcpyDtoH_v2", static_cast<void*>(said.data()), results_, said.size() * sizeof(float)))
            return;
        speed_.multiplies = a_second * blocks_ * kWarps * kRounds * kProducts * kFlopOfProduct;
        const auto wrong = std::ranges::count_if(said, [](float one) { return one != kExpected; });
        if (wrong == 0) return;
        speed_.problem = fmt::format("{} of {} results of a multiplication are wrong", wrong, said.size());
        speed_.is_broken = true;
    }

    void copy() {
        speed_.copies =
            2.0 * kCopiedByGpu * rate(32, [&] { return works("cuMemcpyDtoD_v2", to_, from_, kCopiedByGpu); });
    }
};

std::string line_of(const GpuSpeed& one) {
    return fmt::format("{}\t{}\t{}\t{}\t{}\n", one.name, one.multiplies, one.copies, one.is_broken ? 1 : 0,
                       one.problem);
}

// A line a GPU, and one that ends them.
std::string measure(const std::string& devices, const std::string& library) {
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);  // as Slurm counts
    if (devices != "all") setenv("CUDA_VISIBLE_DEVICES", devices.c_str(), 1);
    const auto& driver = *new SharedObject(library);  // it has threads: stays until this process ends
    const std::string end = "end\n";
    if (!driver.is_there()) return end;
    int count = 0;
    const char* function = "cuInit";
    int result = driver.call(function, 0u);
    if (result == 0) result = driver.call(function = "cuDeviceGetCount", &count);
    const auto wanted = devices == "all" ? 0 : std::ranges::count(devices, ',') + 1;
    if (result == kNoDevice && wanted == 0) return end;
    std::string lines;
    if (result != 0)
        lines = line_of({"CUDA", true, error_in_words(driver, function, result)});
    else if (count < wanted)
        lines = line_of({"CUDA", true,
                         fmt::format("it finds {} of the {} in CUDA_VISIBLE_DEVICES={}", count, wanted,
                                     printable(devices, 100))});
    std::deque<GpuAtWork> gpus;
    for (unsigned i = 0; result == 0 && i < static_cast<unsigned>(std::max(count, 0)); ++i)
        gpus.emplace_back(driver, i);
    const auto at_once = [&](const std::function<void(size_t)>& work) {
        std::vector<std::jthread> threads;
        for (size_t i = 0; i < gpus.size(); ++i) threads.emplace_back([&, i] { work(i); });
    };
    at_once([&](size_t i) { gpus[i].set_up(); });
    std::vector<GpuSpeed> speeds(gpus.size());
    at_once([&](size_t i) { speeds[i] = gpus[i].measure(); });
    for (const GpuSpeed& one : speeds) lines += line_of(one);
    return lines + end;
}

double median_of(const std::vector<GpuSpeed>& gpus, double GpuSpeed::*what) {
    std::vector<double> values;
    for (const GpuSpeed& one : gpus)
        if (one.*what > 0) values.push_back(one.*what);
    if (values.empty()) return 0;
    std::ranges::sort(values);
    return values[values.size() / 2];
}

}  // namespace

std::vector<GpuSpeed> measure_gpus(const std::string& devices, const std::string& library) {
    if (devices.empty()) return {};
    const auto said = apart([&] { return measure(devices, library); }, kPatience);
    if (!said) return {{"CUDA", false, said.error().message}};
    if (!said->ends_with("end\n")) return {{"CUDA", true, "it crashes"}};
    std::vector<GpuSpeed> gpus;
    for (const std::string_view line : split(*said, '\n')) {
        const auto fields = split(line, '\t');
        if (fields.size() != 5) continue;
        const auto number = [](std::string_view text) {
            return std::strtod(std::string(text).c_str(), nullptr);
        };
        gpus.push_back({std::string(fields[0]), fields[3] == "1", printable(fields[4]), number(fields[1]),
                        number(fields[2])});
    }
    return gpus;
}

Findings check_gpu_speeds(const std::vector<GpuSpeed>& gpus) {
    constexpr double kSlow = 0.75;
    const double multiplies = median_of(gpus, &GpuSpeed::multiplies);
    const double copies = median_of(gpus, &GpuSpeed::copies);
    Findings found;
    for (const GpuSpeed& one : gpus) {
        const std::string check = one.name + " at work";
        const std::string seen = fmt::format("{:.0f} Tflop/s in bf16, memory {:.0f} GB/s",
                                             one.multiplies / 1e12, one.copies / 1e9);
        const auto is_slow = [](double own, double usual) { return own > 0 && own < kSlow * usual; };
        if (!one.problem.empty() && one.is_broken)
            found.push_back(
                fault(check, one.problem, "a training on it fails, or learns from wrong numbers",
                      "nvidia-smi -q -d ECC; dmesg | grep -i xid; dcgmi diag -r 3; drain the node"));
        else if (!one.problem.empty())
            found.push_back(warning(check, "not measured: " + one.problem,
                                    "nobody knows whether it is as fast as the others",
                                    "nvidia-smi: does another program use it?"));
        else if (is_slow(one.multiplies, multiplies) || is_slow(one.copies, copies))
            found.push_back(warning(
                check,
                fmt::format("{}; the median here is {:.0f} and {:.0f}", seen, multiplies / 1e12,
                            copies / 1e9),
                "all ranks wait for the slowest GPU in each step",
                "nvidia-smi -q -d PERFORMANCE,CLOCK,POWER,TEMPERATURE; does another program use it?"));
        else
            found.push_back(ok(check, seen));
    }
    return found;
}

}  // namespace dp::doctor
