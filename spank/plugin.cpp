// SPDX-License-Identifier: Apache-2.0
//
// Every SPANK entry point of slurm-dp: C shims that select the context and forward. No exception passes them,
// and no error leaves a call-back of slurmstepd (one from user_init, say, would drain the node).
extern "C" {
#include <slurm/slurm.h>
#include <slurm/spank.h>

// In C++ the macro's const symbols would have internal linkage, and Slurm would see no plugin.
extern const char plugin_name[];
extern const char plugin_type[];
extern const unsigned int plugin_version;
extern const unsigned int spank_plugin_version;
SPANK_PLUGIN(dp, 1)
}

#include <algorithm>
#include <cstdlib>
#include <exception>

#include "slurm_versions.hpp"
#include "state.hpp"

#ifndef DP_DEFAULT_DAEMON
#error "the build says where dp-rendezvousd is installed"
#endif

namespace __gnu_cxx {
// libstdc++'s own (eh_alloc.cc), in no header.
void __freeres();  // NOLINT(bugprone-reserved-identifier)
}  // namespace __gnu_cxx

namespace dp::plugin {

// libstdc++ is linked statically, and its exception reserve (72 KB) would leak each time Slurm unloads the
// plugin. Runs after all other destructors, which may throw.
[[gnu::destructor(101)]] void free_exception_reserve() {
    __gnu_cxx::__freeres();
}

State& state() {
    static State the_state;
    return the_state;
}

namespace {

// Runs a call-back; an exception (no memory, say) becomes `on_throw`.
template <typename Body>
int guarded(const char* where, int on_throw, Body body) {
    try {
        return body();
    } catch (const std::exception& e) {
        slurm_error("slurm-dp: %s: %s", where, e.what());
    } catch (...) {
        slurm_error("slurm-dp: %s: an unknown exception", where);
    }
    return on_throw;
}

// Called for each --dp option, in srun with the user's words and (ignored) in slurmstepd with what srun sent.
int option_given(int index, const char* argument, int remote) {
    return guarded("options", -1, [&] {
        if (remote) return 0;
        const OptionSpec& spec = option_specs()[static_cast<size_t>(index)];
        auto set = set_option(state().command_line, spec.name, argument ? argument : "");
        if (set) return 0;
        slurm_error("slurm-dp: %s", set.error().message.c_str());
        return -1;
    });
}

// Slurm 22.05 passes the options of sbatch and salloc to the sruns inside as if they were given there. We
// pass them on ourselves (SLURM_DP_*), so that srun can tell an inherited --dp-world=N from its own.
void forget_inherited_options() {
    for (const OptionSpec& spec : option_specs()) {
        std::string name = std::string("SLURM_SPANK__SLURM_SPANK_OPTION_dp_") + spec.name;
        std::replace(name.begin(), name.end(), '-', '_');
        unsetenv(name.c_str());
    }
}

// If plugstack.conf has two lines of ours (an include, and one with settings), Slurm loads the plugin once
// and calls it for each, with the words of that line. The first line holds.
char** words_of_first_line = nullptr;
bool is_initialized = false;

// A call-back for the first line.
template <typename Body>
int on_first_line(char** words, const char* where, int on_throw, Body body) {
    if (is_initialized && words != words_of_first_line) return 0;
    return guarded(where, on_throw, [&] {
        body();
        return 0;
    });
}

void register_options(spank_t spank) {
    int index = 0;
    for (const OptionSpec& spec : option_specs()) {
        // Slurm copies the strings and wants them non-const.
        spank_option option{};
        option.name = const_cast<char*>(spec.name);
        option.arginfo = const_cast<char*>(spec.argument);
        option.usage = const_cast<char*>(spec.usage);
        option.has_arg = spec.argument ? 1 : 0;
        option.val = index++;
        option.cb = option_given;
        if (spank_option_register(spank, &option) != ESPANK_SUCCESS)
            return slurm_error("slurm-dp: cannot register --%s: does another plugin have it?", spec.name);
    }
}

}  // namespace
}  // namespace dp::plugin

using namespace dp::plugin;

extern "C" {

int slurm_spank_init(spank_t spank, int argc, char* argv[]) {
    return guarded("init", 0, [&] {
        const spank_context_t context = spank_context();
        if (is_initialized) {
            if (context == S_CTX_SLURMD)
                slurm_error(
                    "slurm-dp: plugstack.conf has the plugin twice; the first line holds, remove the other");
            return 0;
        }
        is_initialized = true;
        words_of_first_line = argv;
        state().site = read_site({argv, static_cast<size_t>(argc)}, DP_DEFAULT_DAEMON);
        // The mistake is the administrator's, who reads slurmd's log; users need not see it.
        if (context == S_CTX_SLURMD)
            for (const auto& mistake : state().site.mistakes) slurm_error("slurm-dp: %s", mistake.c_str());
        if (const auto remark = untested_slurm(SLURM_VERSION_NUMBER);
            context == S_CTX_SLURMD && !remark.empty())
            slurm_info("slurm-dp: %s", remark.c_str());
        if (context == S_CTX_LOCAL) forget_inherited_options();
        if (context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR || context == S_CTX_REMOTE)
            register_options(spank);
        return 0;
    });
}

int slurm_spank_init_post_opt(spank_t spank, int, char* argv[]) {
    return on_first_line(argv, "options", -1, [&] {
        const spank_context_t context = spank_context();
        if (context == S_CTX_ALLOCATOR) allocator_post_options();
        if (context == S_CTX_LOCAL) launcher_post_options();
        if (context == S_CTX_REMOTE) node_post_options(spank);
    });
}

int slurm_spank_local_user_init(spank_t spank, int, char* argv[]) {
    return on_first_line(argv, "step", -1, [&] { launcher_step_created(spank); });
}

int slurm_spank_user_init(spank_t spank, int, char* argv[]) {
    return on_first_line(argv, "user_init", 0, [&] { node_user_init(spank); });
}

int slurm_spank_task_post_fork(spank_t spank, int, char* argv[]) {
    return on_first_line(argv, "task_post_fork", 0, [&] { node_task_forked(spank); });
}

int slurm_spank_task_init(spank_t spank, int, char* argv[]) {
    const int done = on_first_line(argv, "task_init", -1, [&] { task_init(spank); });
    // With `optional` in plugstack.conf Slurm ignores the error: the program would run outside of any world.
    if (done != 0 && state().active) _exit(1);
    return done;
}

int slurm_spank_task_exit(spank_t spank, int, char* argv[]) {
    return on_first_line(argv, "task_exit", 0, [&] { node_task_exited(spank); });
}

int slurm_spank_exit(spank_t, int, char*[]) {
    is_initialized = false;
    return 0;
}

}  // extern "C"
