// SPDX-License-Identifier: Apache-2.0
//
// daemon/SECURITY.md names tests and limits: each is there.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace dp {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = DP_TEST_CHECKOUT;

std::string read(const fs::path& path) {
    std::ifstream file(path);
    EXPECT_TRUE(file) << path;
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

// Every test's name -> the files that have one of that name.
std::map<std::string, std::set<fs::path>> tests_below(const fs::path& folder, const std::string& extension,
                                                      const std::regex& definition) {
    std::map<std::string, std::set<fs::path>> found;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
        if (entry.path().extension() != extension) continue;
        const std::string text = read(entry.path());
        for (std::sregex_iterator at(text.begin(), text.end(), definition), end; at != end; ++at)
            found[at->size() > 2 ? (*at)[1].str() + "." + (*at)[2].str() : (*at)[1].str()].insert(
                entry.path());
    }
    return found;
}

// From its first section on: before it stands how tests are written.
std::string threat_model() {
    const std::string text = read(kRoot / "daemon/SECURITY.md");
    return text.substr(std::min(text.find("\n## 1."), text.size()));
}

TEST(ThreatModel, EveryTestThatItNamesIsThere) {
    const std::string text = threat_model();
    auto tests =
        tests_below(kRoot / "tests/unit", ".cpp", std::regex("TEST(?:_F|_P)?\\((\\w+),\\s*(\\w+)\\)"));
    for (const char* folder : {"tests/cluster", "tests/clients"})
        tests.merge(tests_below(kRoot / folder, ".py", std::regex("\ndef (test_\\w+)\\(")));
    // `file: name`, or the name alone where the file has been said.
    const std::regex mention("`(?:([\\w/]+\\.(?:cpp|py)): )?([A-Z]\\w+\\.[A-Z]\\w+|test_\\w+)`");
    size_t mentions = 0;
    for (std::sregex_iterator at(text.begin(), text.end(), mention), end; at != end; ++at, ++mentions) {
        const std::string file = (*at)[1].str();
        const std::string name = (*at)[2].str();
        bool there = tests.contains(name) && file.empty();
        for (const fs::path& path : tests[name])
            there = there || (!file.empty() && path.string().ends_with("/" + file));
        EXPECT_TRUE(there) << at->str();
    }
    EXPECT_GT(mentions, 50u);
}

TEST(ThreatModel, EveryLimitThatItNamesIsWhereItSays) {
    const std::string text = threat_model();
    const std::regex row("\n\\| ((?:`\\w+`(?:, )?)+) \\| ([\\w/]+\\.(?:hpp|cpp|h)) \\|");
    size_t limits = 0;
    for (std::sregex_iterator at(text.begin(), text.end(), row), end; at != end; ++at) {
        const std::string source = read(kRoot / (*at)[2].str());
        const std::string names = (*at)[1].str();
        const std::regex word("\\w+");
        for (std::sregex_iterator name(names.begin(), names.end(), word); name != end; ++name, ++limits)
            EXPECT_TRUE(std::regex_search(source, std::regex("\\b" + name->str() + "\\b")))
                << name->str() << " in " << (*at)[2];
    }
    EXPECT_GT(limits, 40u);
}

}  // namespace
}  // namespace dp
