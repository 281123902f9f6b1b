// SPDX-License-Identifier: Apache-2.0
#include "stacks/thread_snapshot.hpp"

#include <elf.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <thread>

#include "base/errno_text.hpp"
#include "base/text.hpp"
#include "common/read_file.hpp"

namespace dp::stacks {
namespace {

using Clock = std::chrono::steady_clock;

// One that runs may have to wait for a CPU before it can stop.
constexpr std::chrono::milliseconds kStopPatience{10}, kStopPatienceOfRunning{100};
constexpr auto kStopPoll = std::chrono::microseconds(50);
constexpr size_t kStack = size_t{256} << 10;
constexpr const char* kWouldNotice = "its system call would notice a stop";

std::string task_file(pid_t process, pid_t thread, std::string_view name) {
    return "/proc/" + std::to_string(process) + "/task/" + std::to_string(thread) + "/" + std::string(name);
}

#if defined(__x86_64__)
void set_registers(ThreadSnapshot& snapshot, const user_regs_struct& r) {
    snapshot.instruction = r.rip;
    snapshot.stack_pointer = r.rsp;
    snapshot.registers = {r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp,
                          r.r8,  r.r9,  r.r10, r.r11, r.r12, r.r13, r.r14, r.r15};
}
#elif defined(__aarch64__)
void set_registers(ThreadSnapshot& snapshot, const user_regs_struct& r) {
    snapshot.instruction = r.pc;
    snapshot.stack_pointer = r.sp;
    snapshot.registers.assign(std::begin(r.regs), std::end(r.regs));
    snapshot.registers.push_back(r.sp);
}
#else
#error "which registers DWARF numbers how?"
#endif

void copy_stack(const Process& process, ThreadSnapshot& snapshot) {
    snapshot.stack.resize(kStack);
    snapshot.stack.resize(
        process.read_some(snapshot.stack_pointer, snapshot.stack.data(), snapshot.stack.size()));
}

// Those that the kernel restarts after a stop as if nothing had been.
bool is_restarted(pid_t process, const SystemCall& call) {
    switch (call.number) {
        case -1:
        case SYS_clock_nanosleep:
        case SYS_flock:
        case SYS_futex:
        case SYS_nanosleep:
        case SYS_openat:
#ifdef SYS_pause
        case SYS_pause:
#endif
#ifdef SYS_poll
        case SYS_poll:
#endif
        case SYS_ppoll:
        case SYS_pselect6:
        case SYS_restart_syscall:
        case SYS_rt_sigsuspend:
#ifdef SYS_select
        case SYS_select:
#endif
        case SYS_wait4:
        case SYS_waitid:
            return true;
        case SYS_read: {
            std::array<char, 8> target{};
            const std::string file =
                "/proc/" + std::to_string(process) + "/fd/" + std::to_string(call.arguments[0]);
            return readlink(file.c_str(), target.data(), target.size()) > 0 &&
                   !std::string_view(target.data(), target.size()).starts_with("socket:");
        }
        default:
            return false;
    }
}

bool would_notice(pid_t process, const std::optional<SystemCall>& call) {
    return call && !is_restarted(process, *call);
}

std::string tracer_of(pid_t process, pid_t thread) {
    const std::string status = read_file(task_file(process, thread, "status"));
    constexpr std::string_view kKey = "\nTracerPid:\t";
    const size_t at = status.find(kKey);
    if (at == std::string::npos) return "0";
    const size_t begin = at + kKey.size();
    return status.substr(begin, status.find('\n', begin) - begin);
}

Try<ThreadSnapshot> stop_and_copy(const Process& process, pid_t thread) {
    if (ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0) {
        const int error = errno;
        if (error == ESRCH) return fail("it has ended");
        if (const std::string tracer = tracer_of(process.pid(), thread); tracer != "0")
            return fail("process " + tracer + " traces it");
        return fail("it may not be stopped: " + errno_text(error));
    }
    ThreadSnapshot snapshot;
    snapshot.stack.resize(kStack);  // before the stop: its pages take time
    // It may have entered another call since, and nothing has stopped it yet.
    const auto call = system_call_of(process.pid(), thread);
    if (would_notice(process.pid(), call)) return fail(kWouldNotice);
    ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr);
    siginfo_t stop{};
    const auto deadline = Clock::now() + (call ? kStopPatience : kStopPatienceOfRunning);
    // Not WEXITED: a child of this process that ends stays for who waits for it.
    while (waitid(P_PID, static_cast<id_t>(thread), &stop, WSTOPPED | WNOHANG | __WALL) == 0 &&
           stop.si_pid == 0) {
        if (Clock::now() > deadline) return fail("it does not stop: it waits in the kernel, or for a CPU");
        std::this_thread::sleep_for(kStopPoll);
    }
    if (stop.si_pid == 0) return fail("it has ended");
    user_regs_struct registers{};
    iovec place{&registers, sizeof registers};
    const bool is_read =
        ptrace(PTRACE_GETREGSET, thread, reinterpret_cast<void*>(NT_PRSTATUS), &place) == 0 &&
        place.iov_len == sizeof registers;
    if (is_read) {
        set_registers(snapshot, registers);
        copy_stack(process, snapshot);
    }
    // A signal may have come before the interrupt: it is passed on.
    const int event = stop.si_status >> 8, signal = event == 0 ? stop.si_status : 0;
    ptrace(PTRACE_DETACH, thread, nullptr, long{signal});
    if (!is_read) return fail("it has ended");
    return snapshot;
}

}  // namespace

std::optional<SystemCall> parse_system_call(std::string_view text) {
    if (text.ends_with('\n')) text.remove_suffix(1);
    const auto words = split(text, ' ');
    SystemCall call;
    if (words.size() != 3 && words.size() != 9) return std::nullopt;
    const auto number = parse_number<int64_t>(words[0]);
    if (!number || (*number == -1) != (words.size() == 3)) return std::nullopt;
    call.number = *number;
    const auto hex = [](std::string_view word, uint64_t& value) {
        if (!word.starts_with("0x")) return false;
        const auto [end, error] = std::from_chars(word.data() + 2, word.data() + word.size(), value, 16);
        return error == std::errc{} && end == word.data() + word.size();
    };
    for (size_t i = 1; i + 2 < words.size(); ++i)
        if (!hex(words[i], call.arguments[i - 1])) return std::nullopt;
    if (!hex(words[words.size() - 2], call.stack_pointer) || !hex(words.back(), call.instruction))
        return std::nullopt;
    return call;
}

std::optional<SystemCall> system_call_of(pid_t process, pid_t thread) {
    return parse_system_call(read_file(task_file(process, thread, "syscall")));
}

bool waits_for_child(const SystemCall& call) {
    return call.number == SYS_wait4 || call.number == SYS_waitid;
}

std::vector<uint64_t> remaining_times(const SystemCall& call) {
    const auto& arguments = call.arguments;
    switch (call.number) {
        case SYS_nanosleep:
            return {arguments[1]};
        case SYS_clock_nanosleep:
            return {arguments[3]};
        case SYS_restart_syscall:  // of one of these
            return {arguments[1], arguments[3]};
        case SYS_ppoll:
            return {arguments[2]};
#ifdef SYS_select
        case SYS_select:
#endif
        case SYS_pselect6:
            return {arguments[4]};
        default:
            return {};
    }
}

std::optional<ThreadSnapshot> snapshot_of_waiting(const Process& process, pid_t thread) {
    const std::string before = read_file(task_file(process.pid(), thread, "syscall"));
    const auto call = parse_system_call(before);
    if (!call || call->instruction == 0)
        return std::nullopt;  // 0: it has ended, others of the process have not
    ThreadSnapshot snapshot{call->instruction, call->stack_pointer, {}, {}};
    copy_stack(process, snapshot);
    if (read_file(task_file(process.pid(), thread, "syscall")) != before) return std::nullopt;
    return snapshot;
}

// In a thread of its own: what has not stopped cannot be detached from (ptrace(2)), but is when its tracer ends.
Try<ThreadSnapshot> snapshot_of_stopped(const Process& process, pid_t thread) {
    if (would_notice(process.pid(), system_call_of(process.pid(), thread))) return fail(kWouldNotice);
    Try<ThreadSnapshot> snapshot = fail("");
    try {
        std::thread([&] { snapshot = stop_and_copy(process, thread); }).join();
    } catch (const std::system_error& error) {
        return fail(std::string("no thread to stop it: ") + error.what());
    }
    return snapshot;
}

}  // namespace dp::stacks
