// SPDX-License-Identifier: Apache-2.0
//
// Documents do not drift: manual pages, completion and guides know the options and settings that exist, and no
// others; links resolve; every manual page is packaged. The tables are runtime/common/options.cpp,
// spank/site.cpp and runtime/tiles/conf.cpp.
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

namespace fs = std::filesystem;

const fs::path kRoot = DP_TEST_CHECKOUT;
const fs::path kPackaging = DP_TEST_PACKAGING;

std::string read(const fs::path& path) {
    std::ifstream file(kPackaging / path);
    EXPECT_TRUE(file) << path;
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

TEST(Documents, TheAdministratorsGuideHasEverySiteSettingAndNoOptionThatDoesNotExist) {
    const std::string guide = read("ADMIN.md");
    EXPECT_EQ(all_of(guide, "\n\\| `([a-z-]+)="), setting_names());
    const auto options = option_names();
    for (const auto& name : all_of(guide, "--(dp-[a-z-]+)")) EXPECT_TRUE(options.contains(name)) << name;
}

TEST(Documents, TheUsersGuideHasEveryOptionAndEveryVariableOfATask) {
    const std::string guide = read("USER.md");
    const auto from = guide.find("## Options of srun");
    EXPECT_EQ(all_of(guide.substr(from, guide.find("\n## ", from) - from), "`--(dp-[a-z-]+)"),
              option_names());
    EXPECT_EQ(all_of(guide, "--(dp-[a-z-]+)"), option_names());
    const std::string page = manual_page();
    const auto section = page.find(".SH ENVIRONMENT OF A TASK");
    const auto told = all_of(guide, "\\b(DP_[A-Z_]+)");
    for (const auto& name : all_of(page.substr(section, page.find(".SH TILES") - section), "\\b(DP_[A-Z_]+)"))
        EXPECT_TRUE(told.contains(name)) << name;
}

// What a newcomer reads in one go; the guides have the rest.
TEST(Documents, TheReadmeIsShortAndItsOptionsExist) {
    const std::string readme = read(kRoot / "README.md");
    EXPECT_LE(std::count(readme.begin(), readme.end(), '\n'), 150);
    const auto options = option_names();
    for (const auto& name : all_of(readme, "--(dp-[a-z-]+)")) EXPECT_TRUE(options.contains(name)) << name;
}

// "## When a rank dies" is #when-a-rank-dies, as forges have it.
std::set<std::string> anchors(const fs::path& document) {
    std::set<std::string> found;
    for (std::string heading : all_of(read(document), "(?:^|\n)#+ ([^\n]+)")) {
        std::string anchor;
        for (const unsigned char c : heading)
            if (std::isalnum(c) || c == '-' || c == '_')
                anchor += static_cast<char>(std::tolower(c));
            else if (c == ' ')
                anchor += '-';
        found.insert(anchor);
    }
    return found;
}

std::set<fs::path> guides() {
    std::set<fs::path> found = {kRoot / "README.md"};
    for (const char* folder : {"daemon", "packaging", "proto", "runtime", "spank", "tests", "trainer"})
        for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder))
            if (entry.path().extension() == ".md") found.insert(entry.path());
    return found;
}

// Where it leads: a file and, after #, a heading there.
std::set<std::string> links(const fs::path& document) {
    std::set<std::string> found = all_of(read(document), "\\]\\(([^)\\s]+)\\)");
    std::erase_if(found, [](const std::string& link) { return link.find("://") != std::string::npos; });
    return found;
}

TEST(Documents, EveryLinkLeadsSomewhere) {
    size_t links_seen = 0;
    for (const fs::path& document : guides()) {
        for (const std::string& link : links(document)) {
            const auto hash = std::min(link.find('#'), link.size());
            const fs::path target =
                hash == 0 ? document : document.parent_path() / fs::path(link.substr(0, hash));
            EXPECT_TRUE(fs::exists(target)) << link << " in " << document;
            if (hash < link.size() && fs::exists(target)) {
                EXPECT_TRUE(anchors(target).contains(link.substr(hash + 1))) << link << " in " << document;
            }
            ++links_seen;
        }
    }
    EXPECT_GT(links_seen, 8u);
}

TEST(Documents, EveryFileOfTheTreeThatIsNamedIsThere) {
    size_t files = 0;
    for (const fs::path& document : guides())
        for (const std::string& file :
             all_of(read(document),
                    "\\b((?:daemon|packaging|proto|runtime|spank|tests|trainer)/[\\w/.-]+"
                    "\\.(?:c|cpp|hpp|h|cu|cuh|proto|py|md))\\b")) {
            EXPECT_TRUE(fs::exists(kRoot / file)) << file << " in " << document;
            ++files;
        }
    EXPECT_GT(files, 30u);
}

// They are installed side by side, without the tree around them.
TEST(Documents, GuidesThatAreInstalledLinkToEachOtherOnly) {
    const auto installed = all_of(read("CMakeLists.txt"), "\\b([A-Z]+\\.md)\\b");
    EXPECT_EQ(installed, (std::set<std::string>{"ADMIN.md", "TRAINER.md", "USER.md"}));
    for (const std::string& guide : installed)
        for (const std::string& link : links(kPackaging / guide)) {
            const std::string target = link.substr(0, link.find('#'));
            EXPECT_TRUE(target.empty() || target.starts_with("examples/") || installed.contains(target))
                << link << " in " << guide;
        }
}

TEST(Documents, EveryManualPageIsInstalledByCmakeAndInOnePackageOfEachKind) {
    const std::string listed = *all_of(read("CMakeLists.txt"), "foreach\\(page ([^)]*)\\)").begin() + " ";
    const std::string spec = read("rpm/slurm-dp.spec.in");
    std::string debian;
    for (const auto& entry : fs::directory_iterator(kPackaging / "debian"))
        if (entry.path().extension() == ".install") debian += read(entry.path());
    const auto times = [](const std::string& text, const std::string& word) {
        size_t count = 0;
        for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
        return count;
    };
    for (const auto& entry : fs::directory_iterator(kPackaging / "man")) {
        const std::string page = entry.path().stem().string();
        const std::string installed = "/man" + page.substr(page.size() - 1) + "/" + page;
        EXPECT_EQ(times(listed, page + " "), 1u) << page;
        EXPECT_EQ(times(debian, "usr/share/man" + installed + "\n"), 1u) << page;
        EXPECT_EQ(times(spec, "\n%{_mandir}" + installed + "*\n"), 1u) << page;
    }
}

// The words that are slurm-dp's own, or that it must tell apart; each with an example and the field's word.
TEST(Documents, TheGlossaryHasEveryWordWithANeighbourAndAnExample) {
    const std::string page = manual_page("slurm-dp-glossary.7");
    const std::set<std::string> words = {"broker", "device",     "generation", "group", "hello",  "inventory",
                                         "ledger", "local rank", "node rank",  "rank",  "record", "relay",
                                         "spare",  "step",       "tile",       "world"};
    EXPECT_EQ(all_of(page, "\n\\.TP\n\\.B ([a-z ]+)\n"), words);
    const std::regex neighbour("(Slurm|PyTorch|torchrun|SambaNova)(: |'s )");
    for (const std::string& word : words) {
        const auto from = page.find("\n.B " + word + "\n");
        const std::string entry =
            page.substr(from, std::min(page.find("\n.TP", from), page.find("\n.SH", from)) - from);
        EXPECT_NE(entry.find("\nExample:"), std::string::npos) << entry;
        EXPECT_TRUE(std::regex_search(entry, neighbour)) << entry;
    }
    EXPECT_NE(manual_page().find("slurm-dp-glossary (7)"), std::string::npos);
}

// Also that their values are good. tests/unit/trainer/examples_test.cpp looks at the trainer's.
TEST(Documents, TheExamplesHaveOptionsThatThereAre) {
    const std::regex option("--(dp-[a-z-]+)(?:=([A-Za-z0-9]+))?");
    const auto names = option_names();
    for (const auto& name : all_of(read("examples/README.md"), "--(dp-[a-z-]+)"))
        EXPECT_TRUE(names.contains(name)) << name;
    size_t scripts = 0;
    for (const auto& entry : fs::directory_iterator(kPackaging / "examples")) {
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
