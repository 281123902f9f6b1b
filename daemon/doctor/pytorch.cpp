// SPDX-License-Identifier: Apache-2.0
#include "doctor/pytorch.hpp"

#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "doctor/apart.hpp"

namespace dp::doctor {
namespace {

constexpr std::chrono::seconds kImportPatience{60};
constexpr double kSlowImport = 15;
constexpr std::string_view kMark = "slurm-dp:";  // torch, and what it imports, may write something, too

// Its last line is kMark and JSON.
constexpr const char* kScript = R"python(
import json, time
begin = time.monotonic()
said = {}
try:
    import torch
    import torch.distributed
    said = {"version": torch.__version__, "cuda": torch.version.cuda or "", "import_seconds": time.monotonic() - begin}
    if torch.version.cuda:
        said["nccl"] = ".".join(map(str, torch.cuda.nccl.version())) if torch.distributed.is_nccl_available() else ""
        try:
            torch.cuda.init()
            said["devices"] = torch.cuda.device_count()
            known = torch.cuda.get_arch_list()
            names = {"%s (sm_%d%d)" % (p.name, p.major, p.minor) for p in map(torch.cuda.get_device_properties, range(said["devices"]))
                     if not any(a.split("_")[1].rstrip("af").isdigit() and int(a.split("_")[1].rstrip("af")) // 10 == p.major for a in known)}
            said["unsupported"] = sorted(names)
        except Exception as error:
            said["cuda_problem"] = str(error)
except ModuleNotFoundError as error:
    said = {"problem": str(error), "is_broken": error.name != "torch"}
except Exception as error:
    said = {"problem": "%s: %s" % (type(error).__name__, error), "is_broken": True}
print("\nslurm-dp:" + json.dumps(said))
)python";

}  // namespace

PyTorchFacts parse_pytorch(std::string_view text) {
    PyTorchFacts facts;
    const size_t at = text.rfind(kMark);
    const auto line = at == text.npos ? "" : text.substr(at + kMark.size());
    const auto said = nlohmann::json::parse(line.substr(0, line.find('\n')), nullptr, false);
    if (!said.is_object()) {
        facts.state = PyTorchFacts::broken;
        facts.problem = "importing torch ended Python: " + printable(text.substr(0, text.find('\n')));
        return facts;
    }
    const auto at_key = [&](const char* key) { return said.contains(key) ? said[key] : nlohmann::json(); };
    const auto word = [&](const char* key) {
        const auto found = at_key(key);
        return found.is_string() ? printable(found.get<std::string>()) : std::string();
    };
    facts.problem = word("problem");
    facts.state = facts.problem.empty()         ? PyTorchFacts::works
                  : at_key("is_broken") == true ? PyTorchFacts::broken
                                                : PyTorchFacts::missing;
    facts.version = word("version");
    facts.cuda = word("cuda");
    facts.nccl = word("nccl");
    facts.cuda_problem = word("cuda_problem");
    if (const auto devices = at_key("devices"); devices.is_number_unsigned())
        facts.devices = devices.get<unsigned>();
    if (const auto seconds = at_key("import_seconds"); seconds.is_number())
        facts.import_seconds = seconds.get<double>();
    for (const auto& one : at_key("unsupported"))
        if (one.is_string()) facts.unsupported.push_back(printable(one.get<std::string>(), 80));
    if (facts.problem.empty() && facts.version.empty()) {
        facts.state = PyTorchFacts::broken;
        facts.problem = "unexpected output";
    }
    return facts;
}

PyTorchFacts read_pytorch(const std::string& python) {
    const auto said = output_of({python, "-c", kScript}, kImportPatience);
    PyTorchFacts facts;
    if (said && said->exit_code > 128) {
        facts.state = PyTorchFacts::broken;
        facts.problem = fmt::format("importing torch ended Python with signal {}", said->exit_code - 128);
        return facts;
    }
    if (said) return parse_pytorch(said->text);
    facts.problem = said.error().message;
    facts.state =
        facts.problem == python + " is not here" ? PyTorchFacts::missing : PyTorchFacts::does_not_answer;
    return facts;
}

Findings check_pytorch(const PyTorchFacts& facts, size_t gpus) {
    if (facts.state == PyTorchFacts::missing) return {ok("PyTorch", facts.problem)};
    if (facts.state == PyTorchFacts::broken)
        return {fault("PyTorch", facts.problem, "no rank can import torch",
                      "python3 -c 'import torch' shows all of it; pip check")};
    if (facts.state == PyTorchFacts::does_not_answer)
        return {fault("PyTorch", "importing torch: " + facts.problem,
                      "every rank of every start waits for it",
                      "python3 -X importtime -c 'import torch' shows what takes so long: as a rule a file "
                      "server")};
    const std::string seen = facts.version +
                             (facts.cuda.empty() ? ", for the CPU"
                                                 : fmt::format(", CUDA {}, NCCL {}", facts.cuda,
                                                               facts.nccl.empty() ? "missing" : facts.nccl)) +
                             (facts.devices > 0 ? ", sees " + plural(facts.devices, "GPU") : "");
    if (gpus > 0 && facts.cuda.empty())
        return {fault(
            "PyTorch", seen + fmt::format("; this node has {}", plural(gpus, "GPU")),
            "it trains on the CPU, or fails at .cuda()",
            "PyTorch's own index has builds for CUDA: pip install torch --index-url, as on pytorch.org")};
    if (gpus > 0 && facts.devices == 0)
        return {fault("PyTorch", seen + "; it can use none of the GPUs: " + facts.cuda_problem,
                      "it trains on the CPU, or fails at .cuda()",
                      "nvidia-smi; CUDA_VISIBLE_DEVICES; a PyTorch for a CUDA that the driver runs")};
    if (!facts.unsupported.empty())
        return {fault("PyTorch",
                      fmt::format("{}; it has no code for {}", seen, join(facts.unsupported, ", ")),
                      "\"no kernel image is available for execution on the device\"",
                      "a newer PyTorch, built with a newer CUDA")};
    if (gpus > 1 && facts.nccl.empty())
        return {warning("PyTorch", seen, "torch.distributed has only Gloo: gradients go through the CPU",
                        "a PyTorch that is built with NCCL")};
    if (facts.import_seconds > kSlowImport)
        return {warning("PyTorch", fmt::format("{}; importing it took {:.0f} s", seen, facts.import_seconds),
                        "every rank of every start waits for that, and a file server for all of them",
                        "the environment on a local disk, or in one file (a container's image, squashfs)")};
    return {ok("PyTorch", seen)};
}

}  // namespace dp::doctor
