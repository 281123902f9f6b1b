// SPDX-License-Identifier: Apache-2.0
//
// The parts around the engine that can be tested alone: the handshake's mathematics, frames, and finding a
// step's processes.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/processes.hpp"
#include "dp.pb.h"
#include "framing.hpp"
#include "loop/handshake.hpp"

namespace dp {
namespace {

std::string hex(std::string_view bytes) {
    std::string out;
    char digits[3];
    for (unsigned char byte : bytes) {
        snprintf(digits, sizeof digits, "%02x", byte);
        out += digits;
    }
    return out;
}

TEST(Handshake, IsHmacSha256OfLabelNoncesAndNode) {
    // Computed with another implementation (Python's hmac) over "slurm-dp relay 3|" + 32 × 'b' + 32 × 'r' +
    // 00000001 + 00000002 + 4e21 + "10.0.0.1".
    const std::string secret(32, '\x0b');
    EXPECT_EQ(hex(make_proof(secret, {Prover::relay, std::string(32, 'b'), std::string(32, 'r'), 1, 2, 20001,
                                      "10.0.0.1"})),
              "9d065c349d7cd2e5e825ed3ed5df59253fd7a2f66a90d934531e8eb946fba193");
    EXPECT_EQ(hex(make_proof(secret, {Prover::broker, std::string(32, 'b'), std::string(32, 'r'), 1, 2, 20001,
                                      "10.0.0.1"})),
              "305fba4032efffdfb88f0055ffa500f55076e37982d2fd6bbad3ef487d834c21");
}

TEST(Handshake, EveryPartCounts) {
    const std::string secret(32, 's');
    const std::string a(32, 'a');
    const std::string b(32, 'b');
    const std::string proof = make_proof(secret, {Prover::relay, a, b, 1, 2, 20001, "10.0.0.1"});
    EXPECT_TRUE(proof_equals(proof, make_proof(secret, {Prover::relay, a, b, 1, 2, 20001, "10.0.0.1"})));
    EXPECT_FALSE(proof_equals(proof, make_proof(secret, {Prover::broker, a, b, 1, 2, 20001, "10.0.0.1"})));
    EXPECT_FALSE(proof_equals(
        proof, make_proof(std::string(32, 't'), {Prover::relay, a, b, 1, 2, 20001, "10.0.0.1"})));
    EXPECT_FALSE(proof_equals(proof, make_proof(secret, {Prover::relay, b, a, 1, 2, 20001, "10.0.0.1"})));
    EXPECT_FALSE(proof_equals(proof, make_proof(secret, {Prover::relay, a, b, 2, 2, 20001, "10.0.0.1"})));
    EXPECT_FALSE(proof_equals(proof, make_proof(secret, {Prover::relay, a, b, 1, 3, 20001, "10.0.0.1"})));
    EXPECT_FALSE(proof_equals(proof, make_proof(secret, {Prover::relay, a, b, 1, 2, 20002, "10.0.0.1"})));
    EXPECT_FALSE(proof_equals(proof, make_proof(secret, {Prover::relay, a, b, 1, 2, 20001, "10.0.0.2"})));
    EXPECT_FALSE(proof_equals(proof, proof.substr(1)));
    EXPECT_FALSE(proof_equals("", ""));
}

TEST(Handshake, NoncesAreNew) {
    EXPECT_EQ(make_nonce().size(), kNonceBytes);
    EXPECT_NE(make_nonce(), make_nonce());
}

TEST(Handshake, TheSecretIsReadFromItsDigits) {
    EXPECT_EQ(hex(*secret_from_hex(std::string(62, '0') + "ff")), std::string(62, '0') + "ff");
    for (const std::string& bad :
         {std::string(), std::string(64, 'g'), std::string(62, '0'), std::string(65, '0') + "0"})
        EXPECT_FALSE(secret_from_hex(bad)) << bad;
}

TEST(Frames, CarryTheirLengthAndAreLimitedBeforeAnythingIsRead) {
    wire::Challenge challenge;
    challenge.set_nonce(std::string(32, 'n'));
    const std::string frame = to_frame(challenge);
    const auto* header = reinterpret_cast<const unsigned char*>(frame.data());
    EXPECT_EQ(frame_length(header, 256), frame.size() - kFrameHeader);
    EXPECT_EQ(frame_length(header, 10), std::nullopt);
    const unsigned char huge[4] = {0xff, 0xff, 0xff, 0xff};
    EXPECT_EQ(frame_length(huge, kMaxFrame), std::nullopt);
    EXPECT_EQ(parse_message<wire::Challenge>(std::string_view(frame).substr(kFrameHeader))->nonce(),
              challenge.nonce());
    EXPECT_FALSE(parse_message<wire::Challenge>("\xff\xff\xff"));
}

TEST(Frames, WhatFollowsIsReadAsPartOfTheMessage) {
    wire::ToNode own;
    own.mutable_reply()->add_targets()->set_rank(7);
    wire::ToNode common;
    common.mutable_reply()->mutable_reply()->set_value("for all");
    const std::string rest = common.SerializeAsString();
    const std::string frame = to_frame(own, rest.size()) + rest;
    const auto length = frame_length(reinterpret_cast<const unsigned char*>(frame.data()), kMaxFrame);
    ASSERT_EQ(frame.size(), kFrameHeader + length.value_or(0));
    const auto read = parse_message<wire::ToNode>(std::string_view(frame).substr(kFrameHeader));
    ASSERT_TRUE(read);
    ASSERT_EQ(read->reply().targets_size(), 1);
    EXPECT_EQ(read->reply().targets(0).rank(), 7u);
    EXPECT_EQ(read->reply().reply().value(), "for all");
}

// As each process tracker places a step's tasks, and with them the daemon; then a process of the step and one
// that is not.
TEST(Processes, AStepIsKnownByItsCgroups) {
    struct Case {
        std::string name, of_daemon, of_step, of_other;
    };
    const std::string v2 = "0::/system.slice/slurmstepd.scope/";
    const std::string v1 = "4:freezer:/slurm/uid_0/job_7/step_1";
    for (const auto& [name, of_daemon, of_step, of_other] : std::vector<Case>{
             {"v1", "11:memory:/slurm_n1/uid_1/job_7/step_1/task_3\n" + v1 + "\n0::/\n", "12:cpu:/\n" + v1,
              "12:cpu:/\n4:freezer:/slurm/uid_0/job_7/step_12"},
             {"v1, another job", v1, v1 + "/task_0", "4:freezer:/slurm/uid_0/job_17/step_1"},
             {"v1, another controller", v1, v1, "0::/slurm/uid_0/job_7/step_1"},
             {"v2", v2 + "job_7/step_1/user/task_0", v2 + "job_7/step_1/user/task_1",
              v2 + "job_7/step_1/slurm"},
             {"v2, from 26.05", v2 + "s6K7PYFJ2VFC00/step_0/user/task_0", v2 + "s6K7PYFJ2VFC00/step_0/user",
              v2 + "s6K7PYFJ2VFC01/step_0/user/task_0"},
             {"v2, a batch script", v2 + "job_7/step_1/user/task_0", v2 + "job_7/step_1",
              v2 + "job_7/step_batch/user/task_0"},
             {"no cgroups", "0::/user.slice/session-1.scope", "", "0::/user.slice/session-1.scope"}}) {
        const Cgroups step = cgroups_of_step(of_daemon + "\n");
        EXPECT_EQ(in_cgroups(of_step + "\n", step), !of_step.empty()) << name;
        EXPECT_FALSE(in_cgroups(of_other + "\n", step)) << name;
    }
}

TEST(Processes, ATasksDescendantsAreSignalledAndNobodyElse) {
    // A task that has a child of its own, and a bystander.
    auto start = [](const char* command) {
        pid_t pid = fork();
        if (pid == 0) {
            execl("/bin/sh", "sh", "-c", command, nullptr);
            _exit(127);
        }
        return pid;
    };
    const pid_t task = start("sleep 60 & wait");
    const pid_t bystander = start("exec sleep 60");
    size_t signalled = 0;
    for (int i = 0; i < 200 && signalled < 2; ++i) {
        usleep(10000);
        signalled = signal_step(SIGCONT, {}, {task});
    }
    EXPECT_EQ(signalled, 2u);
    EXPECT_EQ(signal_step(SIGKILL, {}, {task}), 2u);
    int status = 0;
    EXPECT_EQ(waitpid(task, &status, 0), task);
    EXPECT_EQ(waitpid(bystander, &status, WNOHANG), 0);
    kill(bystander, SIGKILL);
    waitpid(bystander, &status, 0);
}

}  // namespace
}  // namespace dp
