// SPDX-License-Identifier: Apache-2.0
//
// The manual page, the completion and the administrators' guide know the options and settings that there are,
// and no others. The tables are runtime/common/options.cpp and spank/site.cpp, and of tiles.conf
// runtime/tiles/conf.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "base/text.hpp"
#include "common/options.hpp"
#include "site.hpp"
#include "tiles/conf.hpp"
#include "tiles/vendor.hpp"

namespace dp {
namespace {

std::string read(const std::string& name) {
    std::ifstream file(std::string(DP_TEST_PACKAGING) + "/" + name);
    EXPECT_TRUE(file) << name;
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

// The page as words: without roff's backslashes (\- is a hyphen) and fonts.
std::string manual_page(const std::string& name = "slurm-dp.8") {
    std::string page = std::regex_replace(read("man/" + name + ".in"), std::regex("\\\\f[BIR]"), "");
    page.erase(std::remove(page.begin(), page.end(), '\\'), page.end());
    return page;
}

std::set<std::string> all_of(const std::string& text, const std::string& pattern) {
    std::set<std::string> found;
    const std::regex expression(pattern);
    for (std::sregex_iterator at(text.begin(), text.end(), expression), end; at != end; ++at)
        found.insert((*at)[1]);
    return found;
}

// "auto" of "auto|N": what is spelled small is typed as it stands.
std::string known_words(const OptionSpec& spec) {
    std::string words;
    for (std::string_view word : split(spec.argument, '|'))
        if (std::islower(static_cast<unsigned char>(word[0])))
            words += (words.empty() ? "" : ",") + std::string(word);
    return words;
}

std::set<std::string> option_names() {
    std::set<std::string> names;
    for (const auto& spec : option_specs()) names.insert(spec.name);
    return names;
}

// Of the line that slurmd logs for a wrong word: it names all the right ones.
std::set<std::string> setting_names() {
    char wrong[] = "nonsense";
    char* words[] = {wrong};
    const auto mistakes = plugin::read_site(words, "").mistakes;
    EXPECT_EQ(mistakes.size(), 1u);
    return all_of(mistakes.at(0), "([a-z-]+)=");
}

TEST(Documents, TheManualPageHasEveryOptionAndVariableAndNoOther) {
    const std::string page = manual_page();
    const auto from = page.find(".SH OPTIONS");
    EXPECT_EQ(all_of(page.substr(from, page.find(".SH ENVIRONMENT") - from), "--(dp-[a-z-]+)"),
              option_names());
    EXPECT_EQ(all_of(page, "--(dp-[a-z-]+)"), option_names());
    std::set<std::string> variables;
    for (const auto& spec : option_specs()) variables.insert(spec.variable);
    EXPECT_EQ(all_of(page, "(SLURM_DP_[A-Z_]+)"), variables);
}

TEST(Documents, TheManualPageHasEverySiteSettingAndNoOther) {
    const std::string page = manual_page();
    const auto from = page.find(".SH SITE SETTINGS");
    const std::string section = page.substr(from, page.find(".SH PORTS") - from);
    EXPECT_EQ(all_of(section, "\n\\.BR ([a-z-]+) ?="), setting_names());
}

TEST(Documents, TheCompletionHasEveryOptionWithItsWordsAndNoOther) {
    std::set<std::string> expected;
    for (const auto& spec : option_specs())
        expected.insert("--" + std::string(spec.name) + (spec.argument ? "=" + known_words(spec) : ""));
    const std::string file = read("completion/slurm-dp.bash");
    const auto from = file.find("_slurm_dp_options='");
    EXPECT_EQ(all_of(file.substr(from, file.find('\'', from + 20) - from), "(--[a-z=,-]+)"), expected);
}

TEST(Documents, TheGuideHasEverySiteSettingAndNoOptionThatThereIsNot) {
    const std::string guide = read("ADMIN.md");
    EXPECT_EQ(all_of(guide, "\n\\| `([a-z-]+)="), setting_names());
    const auto options = option_names();
    for (const auto& name : all_of(guide, "--(dp-[a-z-]+)")) EXPECT_TRUE(options.contains(name)) << name;
}

// Also that their values are good. tests/unit/trainer/examples_test.cpp looks at the trainer's.
TEST(Documents, TheExamplesHaveOptionsThatThereAre) {
    const std::regex option("--(dp-[a-z-]+)(?:=([A-Za-z0-9]+))?");
    const auto names = option_names();
    for (const auto& name : all_of(read("examples/README.md"), "--(dp-[a-z-]+)"))
        EXPECT_TRUE(names.contains(name)) << name;
    size_t scripts = 0;
    for (const auto& entry : std::filesystem::directory_iterator(DP_TEST_PACKAGING "/examples")) {
        if (entry.path().extension() != ".sbatch") continue;
        ++scripts;
        const std::string text = read("examples/" + entry.path().filename().string());
        size_t options = 0;
        for (std::sregex_iterator at(text.begin(), text.end(), option), end; at != end; ++at, ++options) {
            Settings settings;
            EXPECT_TRUE(set_option(settings, (*at)[1].str(), (*at)[2].str())) << entry << ": " << at->str();
        }
        EXPECT_GT(options, 0u) << entry << " does not turn the plugin on";
        EXPECT_EQ(std::system(("bash -n '" + entry.path().string() + "'").c_str()), 0);
    }
    EXPECT_GT(scripts, 0u);
}

// The line for a wrong word names all the right ones here, too.
TEST(Documents, ThePageOfTilesConfHasEveryWordAndNoOther) {
    const std::string page = manual_page("tiles.conf.5");
    const auto wrong = read_tiles_conf("nonsense", "", "");
    ASSERT_FALSE(wrong);
    EXPECT_EQ(all_of(page, "\n\\.BR ([a-z-]+) ?="), all_of(wrong.error().message, "([a-z-]+)="));
    for (const Vendor* vendor : kVendors)
        EXPECT_NE(page.find(vendor->name), std::string::npos) << vendor->name;
    EXPECT_NE(page.find(std::to_string(kMaxTiles)), std::string::npos);
    EXPECT_NE(page.find(kTilesConf), std::string::npos);
}

// What it shows is taken as it stands.
TEST(Documents, TheExamplesOfTilesConfAreGood) {
    const std::string page = manual_page("tiles.conf.5");
    const auto from = page.find(".nf\n") + 4;
    const std::string examples = page.substr(from, page.find(".fi", from) - from);
    for (const char* node : {"sn30-02", "dawn-256", "gpu01"}) {
        const auto read = read_tiles_conf(examples, "tiles.conf", node);
        ASSERT_TRUE(read) << read.error().message;
        EXPECT_TRUE(*read) << node;
    }
}

}  // namespace
}  // namespace dp
