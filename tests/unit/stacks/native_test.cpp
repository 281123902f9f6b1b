// SPDX-License-Identifier: Apache-2.0
//
// Forks of this program are read.
#include "stacks/native.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <memory>
#include <thread>

#include "stacks/busy_wait.hpp"
#include "stacks/read_stacks.hpp"
#include "stacks/thread_snapshot.hpp"

// Found by these names, at whatever level of optimization.
extern "C" {
__attribute__((noinline, used)) long native_test_call(long (*function)()) {
    const long result = function();
    asm volatile("");  // no tail call
    return result;
}
// A name of MPI's: it spins until the number is another one.
__attribute__((noinline, used)) void MPI_Native_test(const std::atomic<uint64_t>* number, uint64_t from) {
    while (*number == from) {
    }
}
__attribute__((noinline, used)) void native_test_spin(std::atomic<uint64_t>* turns) {
    for (;;) ++*turns;
}
}

namespace dp::stacks {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

struct Child {
    pid_t pid = 0;
    template <typename Function>
    explicit Child(Function function) : pid(fork()) {
        if (pid == 0) {
            function();
            _exit(0);
        }
    }
    ~Child() {
        if (pid > 0) kill(pid, SIGKILL);
        if (pid > 0) waitpid(pid, nullptr, 0);
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    // Its exit code, or -1.
    int wait() {
        int status = 0;
        const bool is_ended = waitpid(pid, &status, 0) == pid;
        pid = 0;
        return is_ended && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    char state() const {
        std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
        const std::string text((std::istreambuf_iterator<char>(file)), {});
        return text.at(text.rfind(')') + 2);
    }
};

// Shared with the children.
template <typename T>
T* shared() {
    void* const page = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return new (page) T{};
}

template <typename Condition>
bool until(Condition condition) {
    for (int waited = 0; waited < 5000; ++waited) {
        if (condition()) return true;
        usleep(1000);
    }
    return false;
}

// Of the main thread, with all its calls: on a busy machine a thread may get no CPU to stop on in time, which the reader says.
ProcessStacks read_all_calls(pid_t process) {
    ProcessStacks found;
    until([&] {
        found = read_stacks(process, {Threads::main});
        return !found.threads.empty() && found.threads[0].incomplete.empty();
    });
    return found;
}

std::vector<std::string> functions(const ThreadStack& thread) {
    std::vector<std::string> names;
    for (const Frame& frame : thread.frames) names.push_back(frame.function);
    return names;
}

std::vector<std::string> functions(const ProcessStacks& process) {
    return process.threads.empty() ? std::vector<std::string>{} : functions(process.threads.front());
}

TEST(StacksNative, ASystemCallIsReadFromProc) {
    const auto call = parse_system_call("34 0x1 0x2 0x3 0x4 0x5 0x6 0x7ffd0f5e1000 0x7f12d1c00000\n");
    ASSERT_TRUE(call);
    EXPECT_EQ(call->number, 34);
    EXPECT_EQ(call->arguments[5], 6U);
    EXPECT_EQ(call->stack_pointer, 0x7ffd0f5e1000U);
    EXPECT_EQ(call->instruction, 0x7f12d1c00000U);
    EXPECT_EQ(parse_system_call("-1 0x10 0x20")->instruction, 0x20U);
    for (const char* const text : {"", "running\n", "-1 0x1", "34 0x1 0x2",
                                   "34 0x1 0x2 0x3 0x4 0x5 0x6 0x7 8", "x 0x1 0x2 0x3 0x4 0x5 0x6 0x7 0x8"})
        EXPECT_FALSE(parse_system_call(text)) << text;
}

NativeFrame named(const std::string& function, const std::string& module) {
    return {{function, module, 0}, module, true};
}

NativeFrame unnamed(const std::string& module) {
    return {{"0x10", module, 0}, module, false};
}

TEST(StacksNative, WhatTellsNothingIsNotShown) {
    const std::string libc = "/lib/libc.so.6";
    EXPECT_THAT(
        shown_frames({unnamed(libc), named("pthread_cond_wait", libc), unnamed("/a"), named("f", "/b"),
                      unnamed(libc), named("clone3", libc)}),
        ElementsAre(Frame{"pthread_cond_wait", libc, 0}, Frame{"0x10", "/a", 0}, Frame{"f", "/b", 0}));
    EXPECT_THAT(shown_frames({unnamed("/a"), unnamed(libc), named("__libc_start_main", libc)}),
                ElementsAre(Frame{"0x10", "/a", 0}));
    EXPECT_THAT(shown_frames({named("clone3", libc)}), ElementsAre(Frame{"clone3", libc, 0}));
    EXPECT_TRUE(shown_frames({}).empty());
}

TEST(StacksNative, BelowPythonIsWhatTheInterpreterHasCalled) {
    const std::string python = "/usr/bin/python3.11";
    const auto nanosleep = named("clock_nanosleep", "/lib/libc.so.6");
    for (const char* const interpreter :
         {"_PyEval_EvalFrameDefault", "_PyEval_EvalFrameDefault.cold", "_TAIL_CALL_CALL"})
        EXPECT_THAT(
            below_python({nanosleep, named("time_sleep", python), named("cfunction_vectorcall_O", python),
                          unnamed(python), named(interpreter, python), named("main", python)},
                         python),
            ElementsAre(nanosleep, named("time_sleep", python)));
    // Without symbols.
    EXPECT_THAT(below_python({nanosleep, unnamed(python), unnamed(python)}, python), ElementsAre(nanosleep));
    EXPECT_THAT(below_python({nanosleep}, python), ElementsAre(nanosleep));
    EXPECT_TRUE(below_python({}, python).empty());
}

long pauses() {
    return pause();
}

TEST(StacksNative, AProgramThatWaits) {
    const Child child([] { native_test_call(pauses); });
    ASSERT_TRUE(until([&] { return child.state() == 'S'; }));
    const ProcessStacks found = read_all_calls(child.pid);
    ASSERT_EQ(found.unknown, "");
    ASSERT_EQ(found.threads.size(), 1U);
    EXPECT_EQ(found.threads[0].thread, child.pid);
    EXPECT_EQ(found.threads[0].incomplete, "");
    EXPECT_THAT(functions(found), AllOf(Contains("native_test_call"), Contains(HasSubstr("pause"))));
    EXPECT_EQ(found.threads[0].frames.back().function, "main");
    EXPECT_TRUE(until([&] { return child.state() == 'S'; }));
}

TEST(StacksNative, AProgramThatRunsGoesOnRunning) {
    auto* const turns = shared<std::atomic<uint64_t>>();
    const Child child([&] { native_test_spin(turns); });
    ASSERT_TRUE(until([&] { return *turns > 0; }));
    for (int i = 0; i < 50; ++i) {
        const uint64_t before = *turns;
        const ProcessStacks found = read_all_calls(child.pid);
        ASSERT_EQ(found.unknown, "");
        EXPECT_EQ(found.threads[0].incomplete, "");
        EXPECT_THAT(functions(found), Contains("native_test_spin"));
        EXPECT_TRUE(until([&] { return *turns > before; }));
    }
}

// Of the child's main thread, once it is in one.
std::optional<BusyWait> look_at(const Child& child) {
    std::optional<BusyWait> wait;
    until([&] {
        const auto process = Process::open(child.pid);
        NativeReader reader(*process, "", NativeClock::time_point::max());
        return (wait = busy_wait_of(*process, reader.read(child.pid).frames)).has_value();
    });
    return wait;
}

// The same call at two looks looks the same; the next one of a loop does not.
TEST(StacksNative, ABusyWaitIsKnownAgainAndTheNextOneIsAnother) {
    auto* const number = shared<std::atomic<uint64_t>>();
    const Child child([&] {
        for (uint64_t step = 0;; ++step) MPI_Native_test(number, step);
    });
    const auto first = look_at(child), again = look_at(child);
    ASSERT_TRUE(first && again);
    EXPECT_TRUE(may_be_the_same(*first, *again));
    EXPECT_TRUE(may_still_be_in(*Process::open(child.pid), *first));
    ++*number;
    EXPECT_TRUE(until([&] { return !may_still_be_in(*Process::open(child.pid), *first); }));
    const auto next = look_at(child);
    ASSERT_TRUE(next);
    EXPECT_FALSE(may_be_the_same(*first, *next));
    EXPECT_FALSE(may_wait_busily(*Process::open(child.pid)));
}

// The child does one busy wait, and then, once the number has grown, the next one.
void expect_two_busy_waits(const Child& child, std::atomic<uint64_t>& number) {
    const auto first = look_at(child);
    ASSERT_TRUE(first);
    ++number;
    EXPECT_TRUE(until([&] { return !may_still_be_in(*Process::open(child.pid), *first); }));
    const auto next = look_at(child);
    ASSERT_TRUE(next);
    EXPECT_FALSE(may_be_the_same(*first, *next));
}

#ifdef __has_feature
constexpr bool kHasAddressSanitizer = __has_feature(address_sanitizer);
#else
constexpr bool kHasAddressSanitizer = false;
#endif
// As programs are built; these tests are not.
#ifdef __clang__
#define OPTIMIZED __attribute__((noinline))
#else
#define OPTIMIZED __attribute__((noinline, optimize("O2")))
#endif

// Where the counter is neither on the stack nor in a register.
TEST(StacksNative, ACounterInAnObjectTellsBusyWaitsApart) {
    struct Solver {
        uint64_t step = 0;
        OPTIMIZED void run(const std::atomic<uint64_t>* number) {
            for (;; ++step) MPI_Native_test(number, step);
        }
    };
    if (kHasAddressSanitizer)
        GTEST_SKIP() << "built with AddressSanitizer: the object's address is in no register";
    auto* const number = shared<std::atomic<uint64_t>>();
    const auto solver = std::make_unique<Solver>();
    expect_two_busy_waits(Child([&] { solver->run(number); }), *number);
}

TEST(StacksNative, AGlobalCounterTellsBusyWaitsApart) {
    if (kHasAddressSanitizer)
        GTEST_SKIP() << "built with AddressSanitizer: this program's global variables take 27 MB, and the "
                        "first 256 KiB are compared";
    static uint64_t global_step = 0;
    auto* const number = shared<std::atomic<uint64_t>>();
    expect_two_busy_waits(Child([&] {
                              for (;; ++global_step) MPI_Native_test(number, global_step);
                          }),
                          *number);
}

// Whom a SIGSTOP has stopped stays so, and has not noticed a SIGCONT.
TEST(StacksNative, AStoppedProgramStaysStopped) {
    auto* const turns = shared<std::atomic<uint64_t>>();
    static auto* const continued = shared<std::atomic<int>>();
    const Child child([&] {
        signal(SIGCONT, [](int) { ++*continued; });
        native_test_spin(turns);
    });
    ASSERT_TRUE(until([&] { return *turns > 0; }));
    kill(child.pid, SIGSTOP);
    ASSERT_TRUE(until([&] { return child.state() == 'T'; }));
    const uint64_t before = *turns;
    for (int i = 0; i < 20; ++i) {
        const ProcessStacks found = read_stacks(child.pid, {Threads::main});
        ASSERT_EQ(found.unknown, "");
        EXPECT_THAT(functions(found), Contains("native_test_spin"));
        EXPECT_TRUE(until([&] { return child.state() == 'T'; }));
    }
    usleep(50'000);
    EXPECT_EQ(child.state(), 'T');
    EXPECT_EQ(*turns, before);
    EXPECT_EQ(*continued, 0);
    kill(child.pid, SIGCONT);
    EXPECT_TRUE(until([&] { return *turns > before && *continued == 1; }));
}

TEST(StacksNative, WhereTheRestOfATimeoutIsLeft) {
    const auto left = [](int64_t number) {
        return remaining_times({number, {10, 11, 12, 13, 14, 15}, 0, 0});
    };
    EXPECT_THAT(left(SYS_nanosleep), ElementsAre(11));
    EXPECT_THAT(left(SYS_clock_nanosleep), ElementsAre(13));
    EXPECT_THAT(left(SYS_restart_syscall), ElementsAre(11, 13));
    EXPECT_THAT(left(SYS_ppoll), ElementsAre(12));
    EXPECT_THAT(left(SYS_pselect6), ElementsAre(14));
    EXPECT_THAT(left(SYS_futex), ElementsAre());
}

// Each takes 600 ms, or returns what tells of an interruption. (See thread_snapshot.hpp for those that a stop would end.)
constexpr timespec kPatience{0, 600'000'000};

int pipe_that_is_empty() {
    int ends[2];
    return pipe(ends) == 0 ? ends[0] : -1;
}

int silent_socket() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return -1;
    const timeval patience{0, 600'000};
    setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return ends[0];
}

const struct {
    const char* name;
    long (*function)();
    int error;  // at its end
} kCalls[] = {
    {"clock_nanosleep", [] { return long{clock_nanosleep(CLOCK_MONOTONIC, 0, &kPatience, nullptr)}; }, 0},
    {"nanosleep", [] { return syscall(SYS_nanosleep, &kPatience, nullptr); }, 0},
    {"poll",
     [] {
         pollfd one{pipe_that_is_empty(), POLLIN, 0};
         return long{poll(&one, 1, 600)};
     },
     0},
    {"ppoll",
     [] {
         pollfd one{pipe_that_is_empty(), POLLIN, 0};
         return long{ppoll(&one, 1, &kPatience, nullptr)};
     },
     0},
    {"select",
     [] {
         timeval patience{0, 600'000};
         return long{select(0, nullptr, nullptr, nullptr, &patience)};
     },
     0},
    {"pselect", [] { return long{pselect(0, nullptr, nullptr, nullptr, &kPatience, nullptr)}; }, 0},
    {"futex",
     [] {
         int word = 0;
         return syscall(SYS_futex, &word, FUTEX_WAIT, 0, &kPatience, nullptr, 0);
     },
     ETIMEDOUT},
    {"read",
     [] {
         int ends[2];
         if (pipe(ends) != 0) return -1L;
         if (fork() == 0) {
             usleep(600'000);
             _exit(write(ends[1], "x", 1) != 1);
         }
         char c = 0;
         return long{read(ends[0], &c, 1)} - 1;
     },
     0},
    {"wait4",
     [] {
         const pid_t child = fork();
         if (child == 0) {
             usleep(600'000);
             _exit(0);
         }
         return long{waitpid(child, nullptr, 0)} - child;
     },
     0},
    {"epoll_wait",
     [] {
         epoll_event event;
         return long{epoll_wait(epoll_create1(0), &event, 1, 600)};
     },
     0},
    {"sigtimedwait",
     [] {
         sigset_t none;
         sigemptyset(&none);
         return long{sigtimedwait(&none, nullptr, &kPatience)};
     },
     EAGAIN},
    {"recv",
     [] {
         char c = 0;
         return long{recv(silent_socket(), &c, 1, 0)};
     },
     EAGAIN},
    {"read of a socket",
     [] {
         char c = 0;
         return long{read(silent_socket(), &c, 1)};
     },
     EAGAIN},
    {"semtimedop",
     [] {
         const int set = semget(IPC_PRIVATE, 1, 0600);
         sembuf down{0, -1, 0};
         const long result = semtimedop(set, &down, 1, &kPatience);
         const int error = errno;
         semctl(set, 0, IPC_RMID);
         errno = error;
         return result;
     },
     EAGAIN},
};

TEST(StacksNative, NoSystemCallNotices) {
    using Clock = std::chrono::steady_clock;
    for (const auto& call : kCalls) {
        size_t in_call = 0;
        // A thread whose call has just ended, and which waits for a CPU, is stopped as one that runs, and some calls tell that.
        // So nobody looks while one may end; and where this machine takes too long for that, another child calls.
        for (int round = 0; in_call == 0 && round < 20; ++round) {
            const auto made = Clock::now();
            Child child([&] {
                const auto begin = Clock::now();
                const long result = native_test_call(call.function);
                const int error = result == 0 ? 0 : errno;
                const auto took = Clock::now() - begin;
                _exit(error != call.error ? 1 : took < 595ms ? 2 : took > 5s ? 3 : 0);
            });
            // In that call at last: to sleep for a moment on its way there is not enough.
            ASSERT_TRUE(until([&] {
                const auto before = system_call_of(child.pid, child.pid);
                usleep(20'000);
                const auto after = system_call_of(child.pid, child.pid);
                const bool is_in_call = before && after && before->number == after->number &&
                                        before->instruction == after->instruction && child.state() == 'S';
                return is_in_call || child.state() == 'Z';
            }));
            while (Clock::now() - made < 250ms) {
                const ProcessStacks found = read_stacks(child.pid, {Threads::main});
                const auto names = functions(found);
                in_call += std::ranges::count(names, "native_test_call") > 0 ||
                           (!found.threads.empty() && !found.threads[0].incomplete.empty());
                usleep(5000);
            }
            EXPECT_EQ(child.wait(), 0) << call.name;
        }
        EXPECT_GT(in_call, 0U) << call.name;
    }
}

TEST(StacksNative, SignalsComeThrough) {
    static auto* const signals = shared<std::atomic<int>>();
    auto* const turns = shared<std::atomic<uint64_t>>();
    const Child child([&] {
        signal(SIGUSR1, [](int) { ++*signals; });
        native_test_spin(turns);
    });
    ASSERT_TRUE(until([&] { return *turns > 0; }));
    std::atomic<bool> is_done = false;
    std::thread reader([&] {
        while (!is_done) read_stacks(child.pid, {Threads::main});
    });
    for (int sent = 1; sent <= 200; ++sent) {
        kill(child.pid, SIGUSR1);
        ASSERT_TRUE(until([&] { return *signals == sent; }));
    }
    is_done = true;
    reader.join();
}

TEST(StacksNative, WhoTracesItIsSaid) {
    auto* const turns = shared<std::atomic<uint64_t>>();
    auto* const is_traced = shared<std::atomic<bool>>();
    const Child child([&] { native_test_spin(turns); });
    const Child tracer([&] {
        *is_traced = ptrace(PTRACE_SEIZE, child.pid, nullptr, nullptr) == 0;
        for (;;) pause();
    });
    ASSERT_TRUE(until([&] { return is_traced->load(); }));
    const ProcessStacks found = read_stacks(child.pid, {Threads::main});
    EXPECT_THAT(found.unknown, HasSubstr("process " + std::to_string(tracer.pid) + " traces it"));
}

TEST(StacksNative, AProgramMayEndAtAnyTime) {
    for (int i = 0; i < 200; ++i) {
        auto* const turns = shared<std::atomic<uint64_t>>();
        Child child([&] { native_test_spin(turns); });
        ASSERT_TRUE(until([&] { return *turns > 0; }));
        std::thread killer([&] {
            usleep(static_cast<useconds_t>(i) * 50);
            kill(child.pid, SIGKILL);
        });
        for (int reads = 0; reads < 3; ++reads) {
            const ProcessStacks found = read_stacks(child.pid, {Threads::all});
            EXPECT_NE(found.unknown.empty(), found.threads.empty());
        }
        killer.join();
        int status = 0;
        ASSERT_EQ(waitpid(child.pid, &status, 0), child.pid);  // nobody else has taken it
        EXPECT_TRUE(WIFSIGNALED(status));
        child.pid = 0;
        munmap(turns, sizeof *turns);
    }
}

TEST(StacksNative, AReaderMayEndAtAnyTime) {
    auto* const turns = shared<std::atomic<uint64_t>>();
    const Child child([&] { native_test_spin(turns); });
    ASSERT_TRUE(until([&] { return *turns > 0; }));
    for (int i = 0; i < 50; ++i) {
        const Child reader([&] {
            for (;;) read_stacks(child.pid, {Threads::main});
        });
        usleep(2000 + static_cast<useconds_t>(i) * 200);
    }
    const uint64_t before = *turns;
    EXPECT_TRUE(until([&] { return *turns > before + 1000; }));
    EXPECT_EQ(child.state(), 'R');
}

TEST(StacksNative, AllThreadsOrTheMainOne) {
    auto* const begun = shared<std::atomic<int>>();
    const Child child([&] {
        for (int i = 0; i < 300; ++i)
            std::thread([&] {
                ++*begun;
                native_test_call(pauses);
            }).detach();
        native_test_call(pauses);
    });
    ASSERT_TRUE(until([&] { return *begun == 300; }));
    usleep(50'000);
    EXPECT_EQ(read_stacks(child.pid, {Threads::main}).threads.size(), 1U);
    const auto threads = read_stacks(child.pid, {Threads::all}).threads;
    ASSERT_EQ(threads.size(), 200U);
    EXPECT_EQ(threads.front().thread, child.pid);
    EXPECT_THAT(functions(threads[1]), Contains("native_test_call"));
}

TEST(StacksNative, ThreadsThatOutliveTheMainOne) {
    const Child child([] {
        std::thread([] { native_test_call(pauses); }).detach();
        syscall(SYS_exit, 0);  // this thread's alone
    });
    ASSERT_TRUE(until([&] { return child.state() == 'Z'; }));
    for (const Threads threads : {Threads::main, Threads::all}) {
        const ProcessStacks found = read_stacks(child.pid, {threads});
        ASSERT_EQ(found.unknown, "");
        EXPECT_EQ(found.threads.size(), 1U);
        EXPECT_THAT(functions(found), Contains("native_test_call"));
    }
}

TEST(StacksNative, AProgramWithoutSymbols) {
    const std::string program = testing::TempDir() + "slurm-dp-stripped-" + std::to_string(getpid());
    const std::string compile =
        "echo '#include <unistd.h>\n"
        "__attribute__((noinline)) void f(void) { for (;;) pause(); }\n"
        "int main(void) { f(); }' | gcc -s -O1 -o " +
        program + " -x c -";
    if (system(compile.c_str()) != 0) GTEST_SKIP() << "needs gcc";
    const Child child([&] { execl(program.c_str(), "stripped", nullptr); });
    ProcessStacks found;
    EXPECT_TRUE(until([&] {
        found = read_stacks(child.pid, {Threads::main});
        const auto names = functions(found);
        return names.size() == 3 && names[0].find("pause") != std::string::npos;
    }));
    unlink(program.c_str());
    ASSERT_EQ(found.threads.size(), 1U);
    ASSERT_EQ(found.threads[0].frames.size(), 3U);
    EXPECT_THAT(found.threads[0].frames[0].file, HasSubstr("libc.so.6"));
    for (size_t i = 1; i < 3; ++i) {
        EXPECT_THAT(found.threads[0].frames[i].function, testing::StartsWith("0x"));
        EXPECT_EQ(found.threads[0].frames[i].file, program);
    }
    EXPECT_EQ(found.threads[0].incomplete, "");
}

TEST(StacksNative, ATaskIsWhatItsShellWaitsFor) {
    const Child shell([] { execl("/bin/sh", "sh", "-c", "(sleep 1000; true); true", nullptr); });
    ProcessStacks found;
    ASSERT_TRUE(until([&] {
        found = read_stacks_of_task(shell.pid, {Threads::main});
        const auto names = functions(found);
        return !names.empty() && names.front().find("nanosleep") != std::string::npos;
    })) << found.unknown;
    EXPECT_NE(found.pid, shell.pid);
    kill(found.pid, SIGKILL);
}

}  // namespace
}  // namespace dp::stacks
