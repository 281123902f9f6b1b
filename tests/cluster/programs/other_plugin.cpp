// SPDX-License-Identifier: Apache-2.0
//
// Another site's SPANK plugin in the tests, before ours in plugstack.conf: what NVIDIA's pyxis does to a task
// with a container's image. Its words there: fails-on=NODE, or NAME=VALUE for the environment of each task.
extern "C" {
#include <slurm/spank.h>

extern const char plugin_name[];
extern const char plugin_type[];
extern const unsigned int plugin_version;
extern const unsigned int spank_plugin_version;
SPANK_PLUGIN(other, 1)
}

#include <unistd.h>

#include <string>

extern "C" int slurm_spank_task_init(spank_t spank, int argc, char* argv[]) {
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    for (int i = 0; i < argc; ++i) {
        const std::string word = argv[i];
        const size_t equals = word.find('=');
        if (word == std::string("fails-on=") + host) {
            slurm_error("other: there is no container here");
            return -1;
        }
        if (equals != std::string::npos)
            spank_setenv(spank, word.substr(0, equals).c_str(), word.substr(equals + 1).c_str(), 1);
    }
    return 0;
}
