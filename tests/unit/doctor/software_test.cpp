// SPDX-License-Identifier: Apache-2.0
//
// The checks of Slurm, GPUs, libraries and PyTorch: each fault is found, and nothing else is.
#include <cstdlib>

#include "../tiles/fake_tree.hpp"
#include "doctor/apart.hpp"
#include "doctor/gpus.hpp"
#include "doctor/libraries.hpp"
#include "doctor/pytorch.hpp"
#include "doctor/slurm.hpp"
#include "found.hpp"

namespace dp::doctor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

SlurmFacts healthy_slurm() {
    SlurmFacts facts;
    facts.settings = {{"SLURM_VERSION", "26.05.0"},
                      {"PlugStackConfig", "/etc/slurm/plugstack.conf"},
                      {"MpiParams", "ports=12000-15000"},
                      {"ProctrackType", "proctrack/cgroup"},
                      {"TaskPlugin", "task/affinity,task/cgroup"},
                      {"KillWait", "30 sec"}};
    facts.lines = {"optional /usr/lib/slurm/spank_dp.so timeout=600"};
    return facts;
}

TEST(DoctorSlurm, FindsEachFaultAndNothingElse) {
    expect_found<SlurmFacts>(
        {
            {[](auto& f) { f.problem = "Unable to contact slurm controller (connect failure)"; }, "Slurm",
             Level::fault, "connect failure", "scontrol ping"},
            {[](auto& f) { f.lines->clear(); }, "plugstack.conf", Level::warning, "no line for slurm-dp",
             "include /usr/share/slurm-dp"},
            {[](auto& f) { f.lines.reset(); }, "plugstack.conf", Level::warning, "cannot be read",
             "srun --help"},
            {[](auto& f) { f.is_plugin_there = false; }, "plugstack.conf", Level::fault,
             "spank_dp.so is not there", "install slurm-dp"},
            {[](auto& f) { f.lines = {"required /usr/lib/slurm/spank_dp.so"}; }, "plugstack.conf",
             Level::warning, "required", "optional"},
            {[](auto& f) { f.settings["MpiParams"] = "ports=40000-41000"; }, "reserved ports", Level::warning,
             "ephemeral range 32768 to 60999", "12000-15000"},
            {[](auto& f) { f.settings["ProctrackType"] = "proctrack/linuxproc"; }, "process tracking",
             Level::warning, "linuxproc", "proctrack/cgroup"},
            {[](auto& f) { f.settings["TaskPlugin"] = "task/none"; }, "binding", Level::warning, "task/none",
             "task/affinity"},
            {[](auto& f) { f.settings["KillWait"] = "2 sec"; }, "time to end", Level::warning, "KillWait=2 s",
             "KillWait=30"},
        },
        healthy_slurm(), check_slurm);
}

TEST(DoctorSlurm, IsNotNeeded) {
    SlurmFacts facts;
    facts.is_here = false;
    facts.problem = "scontrol is not here";
    EXPECT_EQ(complaints(check_slurm(facts)), std::vector<std::string>());
    facts = healthy_slurm();
    facts.settings.clear();  // and of a version that calls everything otherwise
    EXPECT_EQ(complaints(check_slurm(facts)), std::vector<std::string>());
}

TEST(DoctorSlurm, ReadsItsConfigurationAndWhatThatIncludes) {
    const FakeTree tree;
    tree.file("/plugstack.conf", "# required /no/such/spank_dp.so\ninclude more.d/*.conf\n\n");
    tree.file("/more.d/10-dp.conf", "optional\t/no/such/spank_dp.so  timeout=5 # ours\n");
    tree.file("/scontrol",
              "#!/bin/sh\necho 'Configuration data'\necho 'KillWait                = 30 sec'\necho "
              "'MpiParams   = (null)'\n"
              "echo 'PlugStackConfig         = " +
                  tree.root() + "/plugstack.conf'\n");
    std::filesystem::permissions(tree.root() + "/scontrol", std::filesystem::perms::owner_all);
    const SlurmFacts facts = read_slurm(tree.root() + "/scontrol");
    EXPECT_EQ(facts.problem, "");
    EXPECT_EQ(facts.setting("KillWait"), "30 sec");
    EXPECT_EQ(facts.setting("MpiParams"), "");
    ASSERT_TRUE(facts.lines);
    EXPECT_THAT(*facts.lines, ElementsAre("optional /no/such/spank_dp.so timeout=5"));
    EXPECT_FALSE(facts.is_plugin_there);
}

TEST(DoctorSlurm, ThatIsInstalledAndNotConfiguredIsNoFault) {
    const FakeTree tree;
    tree.file("/scontrol",
              "#!/bin/sh\necho 'scontrol: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host' "
              ">&2\nexit 1\n");
    std::filesystem::permissions(tree.root() + "/scontrol", std::filesystem::perms::owner_all);
    EXPECT_EQ(complaints(check_slurm(read_slurm(tree.root() + "/scontrol"))), std::vector<std::string>());
    EXPECT_EQ(complaints(check_slurm(read_slurm(tree.root() + "/no-such-scontrol"))),
              std::vector<std::string>());
}

GpuFacts healthy_gpus() {
    GpuFacts facts;
    facts.has_device = true;
    facts.driver = "580.65.06";
    facts.cuda = 13000;
    Gpu gpu;
    gpu.name = "NVIDIA H100 80GB HBM3";
    gpu.lost_bits = 0;
    gpu.temperature = 41;
    gpu.pcie_width = gpu.pcie_most = 16;
    gpu.links_up = 18;
    gpu.is_persistent = true;
    gpu.slowed_by = 0x1 | 0x4;  // idle, and at its power limit
    facts.gpus = {gpu, gpu};
    facts.gpus[1].number = 1;
    facts.xids.emplace();
    return facts;
}

TEST(DoctorGpus, FindsEachFaultAndNothingElse) {
    expect_found<GpuFacts>(
        {
            {[](auto& f) { f.problem = "nvmlInit_v2: Driver Not Loaded (9)"; }, "GPU driver", Level::fault,
             "Driver Not Loaded", "modprobe nvidia"},
            {[](auto& f) { f.gpus[1].problem = "GPU is lost (15)"; }, "GPU 1", Level::fault, "GPU is lost",
             "reboot"},
            {[](auto& f) { f.gpus[1].lost_bits = 2; }, "GPU 1", Level::warning, "2 uncorrected memory errors",
             "--gpu-reset -i 1"},
            {[](auto& f) { f.gpus[0].is_remap_pending = true; }, "GPU 0", Level::fault, "at the next reset",
             "--gpu-reset -i 0"},
            {[](auto& f) { f.gpus[0].has_remap_failed = true; }, "GPU 0", Level::fault, "no spare rows",
             "replaced"},
            {[](auto& f) { f.gpus[0].slowed_by = 0x40; }, "GPU 0", Level::warning, "too hot", "fans"},
            {[](auto& f) { f.gpus[0].slowed_by = 0x80; }, "GPU 0", Level::warning, "power supply",
             "power supplies"},
            {[](auto& f) { f.gpus[0].pcie_width = 4; }, "GPU 0", Level::warning, "PCIe x4, 18 NVLinks of x16",
             "reseat"},
            {[](auto& f) { f.gpus[0].links_down = 2; }, "GPU 0", Level::warning, "2 more are down",
             "nvlink -s -i 0"},
            {[](auto& f) { f.gpus[0].is_fabric_down = true; }, "GPU 0", Level::fault,
             "fabric has not been set up", "fabricmanager"},
            {[](auto& f) { f.gpus[0].compute_mode = 2; }, "GPU 0", Level::fault, "PROHIBITED", "-c DEFAULT"},
            {[](auto& f) { f.gpus[0].compute_mode = 3; }, "GPU 0", Level::warning, "EXCLUSIVE_PROCESS",
             "-c DEFAULT"},
            {[](auto& f) { f.gpus[1].is_persistent = false; }, "persistence", Level::warning, "off for GPU 1",
             "nvidia-persistenced"},
            {[](auto& f) {
                 f.xids = {{"0000:17:00", 79, 1, "Xid (PCI:0000:17:00): 79, GPU has fallen off the bus."}};
             },
             "XID events", Level::warning, "1 event, one of hardware: Xid (PCI:0000:17:00): 79",
             "XID Errors"},
        },
        healthy_gpus(), check_gpus);
}

TEST(DoctorGpus, AreNotNeeded) {
    EXPECT_EQ(complaints(check_gpus({})), std::vector<std::string>());
    GpuFacts facts = healthy_gpus();
    facts.xids = {
        {"0000:17:00", 13, 1, "Xid (PCI:0000:17:00): 13, Graphics Exception"}};  // a program's own mistake
    facts.without_peer_access = {"0-1"};
    EXPECT_EQ(complaints(check_gpus(facts)), std::vector<std::string>());
    facts.xids.reset();
    EXPECT_EQ(complaints(check_gpus(facts)), std::vector<std::string>());
}

// Against fake_nvml.c.
TEST(DoctorGpus, AsksNvidiasLibrary) {
    const GpuFacts facts = read_gpus("", DP_TEST_NVML);
    EXPECT_EQ(facts.problem, "");
    EXPECT_EQ(facts.driver, "580.65.06");
    EXPECT_EQ(facts.cuda, 13000);
    ASSERT_EQ(facts.gpus.size(), 2U) << "the third may not be used";
    EXPECT_EQ(facts.gpus[0].name, "NVIDIA H200");
    EXPECT_EQ(facts.gpus[0].lost_bits, 0U);
    EXPECT_EQ(facts.gpus[0].links_up, 17U);
    EXPECT_EQ(facts.gpus[0].links_down, 1U);
    EXPECT_FALSE(facts.gpus[0].is_fabric_down);
    EXPECT_EQ(facts.gpus[0].temperature, 41U);
    EXPECT_EQ(facts.gpus[0].pcie_width, 16U);
    EXPECT_TRUE(facts.gpus[1].is_remap_pending);
    EXPECT_EQ(facts.gpus[1].slowed_by, 0x40U);
    EXPECT_EQ(facts.gpus[1].is_persistent, false);
    EXPECT_TRUE(facts.gpus[1].is_mig);
    EXPECT_THAT(facts.without_peer_access, ElementsAre("0-1"));
    EXPECT_THAT(complaints(check_gpus(facts)), ElementsAre("GPU 0", "GPU 1", "persistence"));
}

TEST(DoctorGpus, SaysWhyTheLibraryIsOfNoUse) {
    GpuFacts facts = read_gpus("", DP_TEST_NVML_WITHOUT_DRIVER);
    EXPECT_THAT(facts.problem, HasSubstr("Driver Not Loaded"));
    facts.has_device = true;
    EXPECT_THAT(complaints(check_gpus(facts)), ElementsAre("GPU driver"));
    EXPECT_THAT(read_gpus("", "libno-such-nvml.so").problem, HasSubstr("is not installed"));
}

TEST(DoctorLibraries, FindsEachFaultAndNothingElse) {
    LibraryFacts healthy;
    healthy.program = "/home/alice/train";
    healthy.found = {{"CUDA runtime", "12.8, /usr/lib/libcudart.so.12"},
                     {"cuDNN", "9.5.0, /usr/lib/libcudnn.so.9"}};
    healthy.cuda_runtime = 12080;
    healthy.cudnn_cuda = 12040;
    expect_found<LibraryFacts>(
        {
            {[](auto& f) {
                 f.missing = {"libnccl.so.2", "libfoo.so"};
             },
             "program", Level::fault, "needs libnccl.so.2, libfoo.so", "LD_LIBRARY_PATH"},
            {[](auto& f) { f.problem = "does not exist"; }, "program", Level::fault,
             "/home/alice/train does not exist", "path"},
            {[](auto& f) { f.cuda_runtime = 13000, f.cudnn_cuda = 13000; }, "CUDA runtime", Level::fault,
             "the driver runs CUDA 12.4 and older", "built with CUDA 12"},
            {[](auto& f) { f.cudnn_cuda = 11080; }, "cuDNN", Level::warning,
             "built with CUDA 11.8; the CUDA runtime is 12.8", "cuDNN's package"},
        },
        healthy, [](const LibraryFacts& facts) { return check_libraries(facts, 12040); });
    healthy.cuda_runtime = healthy.cudnn_cuda = 13000;
    EXPECT_EQ(complaints(check_libraries(healthy, 0)), std::vector<std::string>())
        << "there is no driver to compare with";
}

TEST(DoctorLibraries, ReadsWhatLddSays) {
    const auto found = parse_ldd(
        "\tlinux-vdso.so.1 (0x00007ffd)\n"
        "\tlibnccl.so.2 => /opt/nccl 2/libnccl.so.2 (0x00007f01)\n"
        "\tlibcudart.so.12 => not found\n"
        "\t/lib64/ld-linux-x86-64.so.2 (0x00007f02)\n");
    EXPECT_EQ(found, (std::map<std::string, std::string>{{"libnccl.so.2", "/opt/nccl 2/libnccl.so.2"},
                                                         {"libcudart.so.12", ""}}));
    EXPECT_TRUE(parse_ldd("\tnot a dynamic executable\n").empty());
}

TEST(DoctorLibraries, ReadsWhichVersionsAreMissing) {
    const auto found = parse_ldd(
        "./train: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by ./train)\n"
        "\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f01)\n");
    EXPECT_EQ(found.at("GLIBC_2.38"), "");
    EXPECT_EQ(found.at("libc.so.6"), "/lib/x86_64-linux-gnu/libc.so.6");
}

TEST(DoctorLibraries, LookAtAProgram) {
    const FakeTree tree;
    EXPECT_EQ(complaints(check_libraries(read_libraries("ls"), 0)), std::vector<std::string>());
    EXPECT_EQ(read_libraries("no-such-program").problem, "is not in PATH");
    EXPECT_EQ(read_libraries(tree.root() + "/train").problem, "does not exist");
    const auto problem_of = [&](const std::string& text) {
        tree.file("/train", text);
        std::filesystem::permissions(tree.root() + "/train", std::filesystem::perms::owner_all);
        return read_libraries(tree.root() + "/train").problem;
    };
    EXPECT_EQ(problem_of("#!/usr/bin/env python3\nprint(1)\n"), "");
    EXPECT_EQ(read_libraries(tree.root() + "/train").interpreter, "python3");
    EXPECT_EQ(problem_of("#! /bin/sh -e\ntrue\n"), "");
    EXPECT_EQ(read_libraries(tree.root() + "/train").interpreter, "/bin/sh");
    EXPECT_THAT(problem_of("#!/no/such/python\n"),
                HasSubstr("is a script of /no/such/python, which is not here"));
    EXPECT_THAT(problem_of("#!/bin/sh\r\ntrue\r\n"), HasSubstr("dos2unix"));
    EXPECT_THAT(problem_of("print(1)\n"), HasSubstr("is neither a program nor a script"));
    EXPECT_THAT(problem_of(""), HasSubstr("is neither a program nor a script"));
    std::string other_processor(64, '\0');
    other_processor.replace(0, 5, "\177ELF\1");
    EXPECT_EQ(problem_of(other_processor), "is built for another kind of processor");
    std::filesystem::permissions(tree.root() + "/train", std::filesystem::perms::owner_read);
    EXPECT_EQ(read_libraries(tree.root() + "/train").problem, "is not executable for this user");
}

TEST(DoctorPyTorch, FindsEachFaultAndNothingElse) {
    PyTorchFacts healthy;
    healthy.version = "2.9.1";
    healthy.cuda = "13.0";
    healthy.nccl = "2.28.9";
    healthy.devices = 8;
    healthy.import_seconds = 3;
    expect_found<PyTorchFacts>(
        {
            {[](auto& f) { f.problem = "ImportError: libcudart.so.13", f.state = PyTorchFacts::broken; },
             "PyTorch", Level::fault, "libcudart", "pip"},
            {[](auto& f) { f.cuda.clear(), f.devices = 0; }, "PyTorch", Level::fault,
             "for the CPU; this node has 8 GPUs", "pip install torch"},
            {[](auto& f) { f.devices = 0, f.cuda_problem = "driver too old"; }, "PyTorch", Level::fault,
             "none of the GPUs: driver too old", "nvidia-smi"},
            {[](auto& f) { f.unsupported = {"NVIDIA B200 (sm_100)"}; }, "PyTorch", Level::fault,
             "no code for NVIDIA B200", "newer PyTorch"},
            {[](auto& f) { f.nccl.clear(); }, "PyTorch", Level::warning, "NCCL missing", "built with NCCL"},
            {[](auto& f) { f.import_seconds = 40; }, "PyTorch", Level::warning, "importing it took 40 s",
             "local disk"},
        },
        healthy, [](const PyTorchFacts& facts) { return check_pytorch(facts, 8); });
    PyTorchFacts none;
    none.state = PyTorchFacts::missing;
    none.problem = "No module named 'torch'";
    EXPECT_EQ(complaints(check_pytorch(none, 8)), std::vector<std::string>());
    healthy.cuda.clear();
    healthy.devices = 0;
    EXPECT_EQ(complaints(check_pytorch(healthy, 0)), std::vector<std::string>())
        << "for the CPU, on a machine without GPUs";
}

TEST(DoctorPyTorch, ReadsWhatItSays) {
    const PyTorchFacts facts = parse_pytorch(
        "a warning of torch\nslurm-dp:{\"version\": \"2.9.1\", \"cuda\": \"13.0\", \"nccl\": \"2.28.9\", "
        "\"devices\": 2, "
        "\"unsupported\": [\"NVIDIA B200 (sm_100)\"], \"import_seconds\": 2.5}\na library says goodbye\n");
    EXPECT_EQ(facts.problem, "");
    EXPECT_EQ(facts.version, "2.9.1");
    EXPECT_EQ(facts.devices, 2U);
    EXPECT_THAT(facts.unsupported, ElementsAre("NVIDIA B200 (sm_100)"));
    EXPECT_EQ(parse_pytorch("Segmentation fault\n").state, PyTorchFacts::broken);
    EXPECT_EQ(parse_pytorch("slurm-dp:{\"devices\": \"x\"}").state, PyTorchFacts::broken);
    EXPECT_EQ(parse_pytorch("").state, PyTorchFacts::broken);
}

TEST(DoctorPyTorch, ThatIsMissingIsNoFault) {
    EXPECT_EQ(read_pytorch("/no/such/python3").state, PyTorchFacts::missing);
    const FakeTree tree;
    tree.file("/torch.py", "raise OSError('libtorch.so: file too short')\n");
    ASSERT_EQ(setenv("PYTHONPATH", tree.root().c_str(), 1), 0);
    const PyTorchFacts broken = read_pytorch("/usr/bin/python3");
    unsetenv("PYTHONPATH");
    EXPECT_EQ(broken.state, PyTorchFacts::broken);
    EXPECT_EQ(broken.problem, "OSError: libtorch.so: file too short");
}

TEST(DoctorApart, WhatHangsEnds) {
    const auto begin = std::chrono::steady_clock::now();
    const auto none = apart([] { return sleep(100), std::string("late"); }, std::chrono::milliseconds(100));
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().message, "no answer within 100 ms");
    // Its child holds the output open, and ends with it.
    const auto command =
        output_of({"sh", "-c", "sleep 100 & echo begun; wait"}, std::chrono::milliseconds(100));
    EXPECT_FALSE(command);
    // It closes its output and lives on.
    EXPECT_FALSE(output_of({"sh", "-c", "exec >&- 2>&-; sleep 100"}, std::chrono::milliseconds(100)));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(DoctorApart, WhatThrowsSaysNothing) {
    const auto none = apart([]() -> std::string { throw std::bad_alloc(); }, std::chrono::seconds(10));
    ASSERT_TRUE(none);
    EXPECT_EQ(*none, "");
}

TEST(DoctorApart, TellsWhatWasSaid) {
    const auto long_text = apart([] { return std::string(300000, 'x'); }, std::chrono::seconds(10));
    ASSERT_TRUE(long_text);
    EXPECT_EQ(long_text->size(), 300000U);
    const auto failed =
        output_of({"sh", "-c", "echo out; echo err >&2; cat; exit 3"}, std::chrono::seconds(10));
    ASSERT_TRUE(failed);
    EXPECT_EQ(failed->exit_code, 3);
    EXPECT_EQ(failed->text, "out\nerr\n");
    EXPECT_EQ(output_of({"sh", "-c", "kill -9 $$"}, std::chrono::seconds(10))->exit_code, 137);
    EXPECT_EQ(output_of({"/no/such/program"}, std::chrono::seconds(10)).error().message,
              "/no/such/program is not here");
}

}  // namespace
}  // namespace dp::doctor
