// SPDX-License-Identifier: Apache-2.0
//
// The environment that Slurm keeps, with a Slurm of our own: it moves its list whenever a name comes new, as
// realloc may, and nobody may look at the old one.
#include "environment.hpp"

#include <gtest/gtest.h>

#include <cstdarg>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "fake_spank.hpp"

namespace {

// What a pointer to it leads to once it has been moved away from.
char nowhere[] = "MOVED=away";

class FakeSlurm {
 public:
    explicit FakeSlurm(const std::vector<std::string>& texts) {
        for (const auto& text : texts) texts_.push_back(copy(text));
        move();
    }
    char** list() { return lists_.back()->data(); }
    void set(const std::string& name, const std::string& value) {
        unset(name);
        texts_.push_back(copy(name + "=" + value));
        move();
    }
    void unset(const std::string& name) {
        std::erase_if(texts_,
                      [&](const auto& text) { return std::string(text.get()).starts_with(name + "="); });
        move();
    }
    std::vector<std::string> variables() const {
        std::vector<std::string> out;
        for (const auto& text : texts_) out.emplace_back(text.get());
        return out;
    }

 private:
    std::vector<std::unique_ptr<char[]>> texts_;
    std::vector<std::unique_ptr<std::vector<char*>>> lists_;

    static std::unique_ptr<char[]> copy(const std::string& text) {
        auto out = std::make_unique<char[]>(text.size() + 1);
        std::memcpy(out.get(), text.c_str(), text.size() + 1);
        return out;
    }
    void move() {
        if (!lists_.empty())
            for (char*& old : *lists_.back()) old = nowhere;
        lists_.push_back(std::make_unique<std::vector<char*>>());
        for (const auto& text : texts_) lists_.back()->push_back(text.get());
        lists_.back()->push_back(nullptr);
    }
};
FakeSlurm* slurm = nullptr;

}  // namespace

// Slurm's own declaration: the last named parameter is an enum, of which clang warns.
#pragma GCC diagnostic ignored "-Wvarargs"
extern "C" {
spank_err_t spank_get_item(spank_t, spank_item_t item, ...) {
    const dp::plugin::SpankItems& told = dp::plugin::spank_items;
    va_list more;
    va_start(more, item);
    const uint32_t local = item == S_JOB_LOCAL_TO_GLOBAL_ID ? va_arg(more, uint32_t) : 0;
    void* const out = va_arg(more, void*);
    va_end(more);
    const auto number = told.numbers.find(item);
    if (item == S_JOB_LOCAL_TO_GLOBAL_ID && local < told.ranks.size())
        *static_cast<uint32_t*>(out) = told.ranks[local];
    else if (number == told.numbers.end())
        return static_cast<spank_err_t>(ESPANK_ERROR);
    else if (item == S_JOB_NCPUS)
        *static_cast<uint16_t*>(out) = static_cast<uint16_t>(number->second);
    else
        *static_cast<uint32_t*>(out) = number->second;
    return static_cast<spank_err_t>(ESPANK_SUCCESS);
}
spank_err_t spank_setenv(spank_t, const char* name, const char* value, int) {
    slurm->set(name, value);
    return static_cast<spank_err_t>(ESPANK_SUCCESS);
}
spank_err_t spank_unsetenv(spank_t, const char* name) {
    slurm->unset(name);
    return static_cast<spank_err_t>(ESPANK_SUCCESS);
}
}

namespace dp::plugin {
namespace {

TEST(ChangeEnvironment, HoldsOnToNothingThatSlurmMoves) {
    FakeSlurm fake({"PATH=/bin", "RANK=  ", "GONE=x", "WORLD_SIZE=128", "SLURM_DP_SLOT_0=                "});
    slurm = &fake;
    change_environment(nullptr, EnvironmentList(fake.list()),
                       {{"GONE", std::nullopt},
                        {"NEW", "too long for what is left of the slots"},
                        {"RANK", "7"},
                        {"NEWER", "also much too long for the only slot"},
                        {"WORLD_SIZE", "16"},
                        {"LOCAL_RANK", "3"},
                        {"DP_INJECTED", "longer than all that there was before"}});
    const std::vector<std::string> expected = {"PATH=/bin",
                                               "RANK=7",
                                               "WORLD_SIZE=16",
                                               "LOCAL_RANK=3",
                                               "NEW=too long for what is left of the slots",
                                               "NEWER=also much too long for the only slot",
                                               "DP_INJECTED=longer than all that there was before"};
    EXPECT_EQ(fake.variables(), expected);
    EXPECT_STREQ(nowhere, "MOVED=away");
}

}  // namespace
}  // namespace dp::plugin
