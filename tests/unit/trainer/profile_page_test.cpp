// SPDX-License-Identifier: Apache-2.0
//
// The page of a profile: its sections, what it keeps out, and its size. tests/clients/test_profile_page.py opens it in a browser.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "trainer/profile/profile_charts.hpp"
#include "trainer/profile/views.hpp"

namespace dp::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

ProfileRow row(const std::string& name, Part part, double seconds, double flops, double bytes) {
    ProfileRow row{name, 1};
    row.seconds[static_cast<std::size_t>(part)] = seconds;
    row.flops = flops;
    row.bytes = bytes;
    row.least = std::max(flops / 100e9, bytes / 10e9);
    return row;
}

// As much of one kind as of the others, and twice as much at the peak.
MemoryProfile memory(std::size_t operations, std::size_t peak) {
    MemoryProfile memory;
    memory.curve.assign(operations, {1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20});
    memory.curve[peak] = {2 << 20, 2 << 20, 2 << 20, 2 << 20, 2 << 20};
    memory.peak = peak;
    memory.peak_operation = "linear";
    memory.peak_layer = "ffn.1";
    memory.held = 12 << 20;
    memory.largest = {{2 << 20, MemoryKind::activations, "ffn.1", 0, 3}};
    return memory;
}

Profile profile() {
    Profile profile;
    profile.what = "ffn on cpu, 2 threads; 2 ranks x batch 64";
    profile.version = "1.2.3";
    profile.seconds = 0.1;
    profile.parts = {0.01, 0.02, 0.04, 0.01, 0.015};
    profile.other = 0.005;
    profile.hidden = 0.0125;
    profile.peaks = Peaks{100e9, 10e9};
    profile.operations = {row("linear_backward_input", Part::backward, 0.04, 2e9, 1e8),
                          row("linear", Part::forward, 0.02, 1e9, 5e7),
                          row("adam", Part::optimizer, 0.01, 0, 5e7)};
    profile.layers = {row("ffn.1", Part::backward, 0.04, 2e9, 1e8), row("", Part::load, 0.01, 0, 1e6)};
    profile.memory = memory(8, 2);
    profile.ranks = {{0.1, 0.015, 0.01}, {0.1, 0.03, 0.01}};
    profile.advice = {{"threads: 2 instead of 1: about 1.8x as fast", {"OMP_NUM_THREADS=2"}, 1.8}};
    return profile;
}

// The first tag that closes another one than the last that is open; "" where there is none.
std::string unbalanced(const std::string& page) {
    static const std::regex kTag("<(/?)([A-Za-z1-6]+)([^<>]*?)(/?)>");
    std::vector<std::string> open;
    for (std::sregex_iterator tag(page.begin(), page.end(), kTag), end; tag != end; ++tag) {
        const std::string name = (*tag)[2];
        if ((*tag)[4].length() > 0) continue;
        if ((*tag)[1].length() == 0) {
            open.push_back(name);
            continue;
        }
        if (open.empty() || open.back() != name) return tag->str();
        open.pop_back();
    }
    return open.empty() ? "" : open.back();
}

std::size_t count(const std::string& page, const std::string& text) {
    std::size_t found = 0;
    for (std::size_t at = page.find(text); at != std::string::npos; at = page.find(text, at + 1)) ++found;
    return found;
}

std::vector<std::string> sections(const std::string& page) {
    static const std::regex kSection("<section id=\"([a-z]+)\"");
    return {std::sregex_token_iterator(page.begin(), page.end(), kSection, 1), {}};
}

TEST(ProfilePage, HasItsSectionsInOrder) {
    const std::string page = profile_page(profile());
    EXPECT_THAT(sections(page), testing::ElementsAre("advice", "time", "operations", "layers", "roofline",
                                                     "memory", "ranks"));
    EXPECT_EQ(unbalanced(page), "");
    EXPECT_THAT(page, AllOf(HasSubstr("ffn on cpu, 2 threads; 2 ranks x batch 64"), HasSubstr("100 ms"),
                            HasSubstr("Another 12.50 ms of communication"), HasSubstr("Version 1.2.3.")));
    EXPECT_THAT(page, HasSubstr("<strong>1.8x</strong> threads: 2 instead of 1: about 1.8x as fast "
                                "<code>OMP_NUM_THREADS=2</code>"));
    EXPECT_THAT(page, HasSubstr("peak: 10.0 MiB at operation 2, linear of ffn.1</text>"));
}

TEST(ProfilePage, TablesHaveEachRowsFigures) {
    const std::string page = profile_page(profile());
    const auto cells = [](const std::vector<std::string>& numbers) {
        std::string html;
        for (const std::string& number : numbers) html += "<td class=\"number\">" + number + "</td>";
        return html;
    };
    EXPECT_THAT(page, HasSubstr("communication</th>" + cells({"15.00", "15.0"})));
    EXPECT_THAT(page, HasSubstr("<th scope=\"row\">linear</th>" +
                                cells({"1", "20.00", "20.0", "50.0", "2.5", "50"}) + "<td>arithmetic</td>"));
    EXPECT_THAT(page, HasSubstr(cells({"5.0", "50"}) + "<td>memory</td>"));  // adam's
}

TEST(ProfilePage, AnEmptyProfileIsAPageToo) {
    const std::string page = profile_page(Profile{});
    EXPECT_THAT(sections(page), testing::ElementsAre("advice"));
    EXPECT_EQ(unbalanced(page), "");
    EXPECT_THAT(page, AllOf(HasSubstr("None: nothing that was tried is a tenth faster."),
                            HasSubstr("No step was profiled.")));
}

TEST(ProfilePage, ARooflineNeedsPeaksAndArithmetic) {
    Profile without_peaks = profile();
    without_peaks.peaks.reset();
    for (ProfileRow& one : without_peaks.operations) one.least = 0;
    Profile without_arithmetic = profile();
    for (ProfileRow& one : without_arithmetic.operations) one.flops = 0;
    EXPECT_THAT(sections(profile_page(without_peaks)), Not(testing::Contains("roofline")));
    EXPECT_THAT(sections(profile_page(without_arithmetic)), Not(testing::Contains("roofline")));
    // Of three operations, adam multiplies nothing.
    EXPECT_EQ(count(roofline_chart(profile()), "<circle"), 2u);
}

TEST(ProfilePage, LabelsOfEqualPointsDoNotOverlap) {
    Profile one = profile();
    one.operations.assign(10, row("linear", Part::forward, 0.01, 1e9, 1e8));
    const std::string chart = roofline_chart(one);
    static const std::regex kLabel("y=\"([0-9.]+)\" text-anchor=\"start\">linear<");
    std::vector<double> heights;
    for (std::sregex_iterator label(chart.begin(), chart.end(), kLabel), end; label != end; ++label)
        heights.push_back(std::stod((*label)[1]));
    ASSERT_EQ(heights.size(), 10u);
    for (std::size_t i = 1; i < heights.size(); ++i) EXPECT_GE(heights[i] - heights[i - 1], 12);
}

TEST(ProfilePage, OneRankHasNoTableOfRanks) {
    Profile alone = profile();
    alone.ranks.resize(1);
    EXPECT_THAT(sections(profile_page(alone)), Not(testing::Contains("ranks")));
}

TEST(ProfilePage, OfManyRanksItHasTheLongestAndTheShortest) {
    Profile many = profile();
    many.ranks.clear();
    for (int rank = 0; rank < 200; ++rank) many.ranks.push_back({0.1, 0.0001 * rank, 0.01});
    const std::string page = profile_page(many);
    const auto has = [&](int rank) {
        return page.find(fmt::format("<th scope=\"row\">{}</th>", rank)) != std::string::npos;
    };
    EXPECT_THAT(page, HasSubstr("Of 200 ranks, these are the 32 with the longest communication"));
    for (const int rank : {0, 31, 168, 199}) EXPECT_TRUE(has(rank)) << rank;
    for (const int rank : {32, 100, 167}) EXPECT_FALSE(has(rank)) << rank;
}

TEST(ProfilePage, HostileTextsStayTexts) {
    const std::string hostile = "</script><script>alert(1)</script>\"'&\x01<img src=x onerror=alert(1)>";
    Profile one = profile();
    one.what = one.version = one.memory.peak_operation = one.memory.peak_layer = hostile;
    one.advice = {{hostile, {hostile}, 2, hostile}};
    for (ProfileRow& each : one.operations) each.name = hostile;
    one.layers[0].name = one.memory.largest[0].layer = hostile;
    const std::string page = profile_page(one);
    EXPECT_EQ(unbalanced(page), "");
    EXPECT_THAT(page, AllOf(Not(HasSubstr("<script")), Not(HasSubstr("<img")), Not(HasSubstr("\x01"))));
    EXPECT_EQ(count(page, "&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;&quot;'&amp;\ufffd&lt;img"),
              count(page, "alert(1)&gt;"));
    EXPECT_GE(count(page, "alert(1)&gt;"), 12u);
}

TEST(ProfilePage, NeedsNothingElse) {
    const std::string page = profile_page(profile());
    EXPECT_THAT(page, HasSubstr("content=\"default-src 'none'; style-src 'unsafe-inline'\""));
    for (const char* outside : {"http:", "https:", "<script", "<link", "<img", "@import", "src=", "href="})
        EXPECT_THAT(page, Not(HasSubstr(outside)));
}

TEST(ProfilePage, APageOfALargeModelIsSmall) {
    Profile large = profile();
    large.layers.assign(300, row("blocks.23.attention.projection", Part::forward, 0.001, 1e8, 1e6));
    large.memory = memory(100000, 77777);
    for (std::size_t i = 0; i < large.memory.curve.size(); ++i)
        large.memory.curve[i][3] += static_cast<std::int64_t>(i * 977 % 4096);
    EXPECT_LT(profile_page(large).size(), 1'000'000u);
}

TEST(ProfilePage, AThinnedCurveKeepsItsPeak) {
    const MemoryProfile long_one = memory(100000, 77777);
    const auto points = thinned(long_one, 400);
    EXPECT_LE(points.size(), 400u);
    EXPECT_EQ(points.back().end, 100000u);
    EXPECT_EQ(std::ranges::count(points, 77777u, &CurvePoint::operation), 1);
}

TEST(ProfilePage, AShortCurveIsDrawnAsItIs) {
    std::vector<std::size_t> drawn;
    for (const CurvePoint& point : thinned(memory(400, 3), 400)) drawn.push_back(point.operation);
    ASSERT_EQ(drawn.size(), 400u);
    for (std::size_t i = 0; i < drawn.size(); ++i) EXPECT_EQ(drawn[i], i);
}

TEST(ProfilePage, MemoryIsDrawnByKind) {
    const std::string chart = memory_chart(memory(8, 2));
    for (const MemoryKind kind : kMemoryKinds)
        EXPECT_EQ(count(chart, fmt::format("<path class=\"{}\"", look_of(kind))), 1u) << name_of(kind);
    EXPECT_THAT(chart,
                AllOf(HasSubstr("role=\"img\"><title>"), HasSubstr("<desc>8 operations; peak: 10.0 MiB"),
                      HasSubstr("held: 12.0 MiB</text>")));
}

TEST(ProfilePage, ALongLayersNameIsInTheTableAlone) {
    Profile one = profile();
    one.memory.peak_layer = std::string(200, 'x');
    const std::string page = profile_page(one);
    EXPECT_THAT(page, AllOf(HasSubstr(">peak: 10.0 MiB</text>"),
                            HasSubstr("at the peak: 10.0 MiB at operation 2, linear of " +
                                      one.memory.peak_layer + "</caption>")));
}

}  // namespace
}  // namespace dp::trainer
