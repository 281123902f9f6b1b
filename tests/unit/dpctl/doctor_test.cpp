// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "dpctl/commands.hpp"

namespace dp {
namespace {

using doctor::Examination;
using testing::HasSubstr;
using testing::Not;

Examination node(const char* host, const doctor::Finding& finding) {
    Examination one;
    one.host = host;
    one.topics = {{"kernel", {doctor::ok("clock", "synchronized"), finding}}, {"GPUs", {}}};
    return one;
}

const doctor::Finding kFew = doctor::warning("open files", "256", "too few", "ulimit -n 65536");

TEST(DoctorReport, OfOneMachine) {
    EXPECT_EQ(doctor_text(node("node01", kFew)),
              "kernel\n"
              "  ok       clock       synchronized\n"
              "  WARNING  open files  256\n"
              "           too few\n"
              "           → ulimit -n 65536\n"
              "node01: 2 checks, 0 faults, 1 warning\n");
    const auto json =
        nlohmann::json::parse(doctor_json(node("node01", doctor::fault("disk", "full", "no room", "rm"))));
    EXPECT_EQ(json["host"], "node01");
    EXPECT_EQ(json["faults"], 1);
    EXPECT_EQ(json["warnings"], 0);
    EXPECT_EQ(json["checks"][1], (nlohmann::json{{"topic", "kernel"},
                                                 {"check", "disk"},
                                                 {"level", "fault"},
                                                 {"seen", "full"},
                                                 {"why", "no room"},
                                                 {"remedy", "rm"}}));
}

TEST(DoctorReport, OfAStepFoldsWhatIsAlike) {
    StepExamination step;
    step.nodes = {node("node01", doctor::ok("open files", "1024")), node("node02", kFew),
                  node("node03", kFew), node("node04", doctor::ok("open files", "4096"))};
    step.between = {doctor::ok("MTU", "1500")};
    EXPECT_EQ(doctor_text(step),
              "kernel\n"
              "  ok       clock       synchronized\n"
              "  ok       open files  node[01,04]\n"
              "  WARNING  open files  node[02-03]: 256\n"
              "           too few\n"
              "           → ulimit -n 65536\n"
              "between the nodes\n"
              "  ok       MTU         1500\n"
              "node[01-04]: 9 checks, 0 faults, 2 warnings\n");
    step.nodes[3] = node("node04", doctor::ok("open files", "1024"));
    step.nodes[2] = node("node03", doctor::ok("open files", "4096"));
    EXPECT_THAT(doctor_text(step), HasSubstr("  ok       open files  node[01,03-04]\n"));
    for (auto& one : step.nodes) one = node(one.host.c_str(), kFew);
    EXPECT_THAT(doctor_text(step), HasSubstr("  WARNING  open files  all 4 nodes: 256\n"));
    step.nodes = {node("node01", doctor::ok("host name", "node01 is 10.0.0.1")),
                  node("node02", doctor::ok("host name", "node02 is 10.0.0.2"))};
    EXPECT_THAT(doctor_text(step), HasSubstr("  ok       host name  on all 2 nodes\n"));
}

TEST(DoctorReport, OfAStepForMachines) {
    StepExamination step;
    step.nodes = {node("node01", kFew)};
    step.between = {doctor::fault("links", "node01 with node02: no connection", "why", "do")};
    const auto json = nlohmann::json::parse(doctor_json(step));
    EXPECT_EQ(json["nodes"][0]["host"], "node01");
    EXPECT_EQ(json["between"][0]["check"], "links");
    EXPECT_EQ(json["between"][0]["level"], "fault");
}

}  // namespace
}  // namespace dp
