#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What tests/mutants decides: whether a planted fault applies, which tests it means, and what their outcomes say of it."""
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from planted import building, faults, verdicts  # noqa: E402  # pylint: disable=wrong-import-position
from planted.verdicts import Outcome, Verdict  # noqa: E402  # pylint: disable=wrong-import-position

SOURCE = """void first() {
    for (int i = 0; i < count;
         i += stride()) add(i);
}
void second() {
    for (int i = 0; i < count; i += stride()) add(i);
}
"""


def fault(line):
    return faults.fault_of(line, 7, "dir/")


def with_edit(edit):
    return faults.applied(fault(f"a.cu | tail | S.T | {edit}"), SOURCE)


class Reading(unittest.TestCase):
    def test_a_line_has_all_fields(self):
        one = fault("* a.cuh@b.cu | tail | S.T:S.U @forward,greedy:1 | x | y => z !! it is too large")
        self.assertTrue(one.is_quick)
        self.assertEqual((one.file, one.unit, one.kind, one.reason), ("dir/a.cuh", "dir/b.cu", "tail", "it is too large"))
        self.assertEqual(one.killer, faults.Killer("Devices/S.T/cuda*:Devices/S.U/cuda*", "", ("forward", "greedy:1")))
        self.assertEqual(one.edits, (("", "x | y", "z"),))

    def test_killers_may_be_of_ctest_or_run_on_no_device(self):
        self.assertEqual(faults.killer_of("ctest:a.b"), faults.Killer(ctest="a.b"))
        self.assertEqual(faults.killer_of("=S.T:S.U/cuda").gtest, "S.T:Devices/S.U/cuda")

    def test_what_cannot_be_read_names_its_line(self):
        for line in ("a.cu | tail | S.T", "a.cu | tail | S.T | text", "a.cu | tail | S.T |  => new", "a.cu | tail |  | a => b",
                     "a.cu | tail | S.T @ | a => b"):
            with self.assertRaisesRegex(faults.BadFault, "^faults.txt:7: ", msg=line):
                fault(line)

    def test_folders_and_suites_hold_for_the_lines_below(self):
        listed, suites = faults.read("# no fault\n\n[one]\n& a.cu | S.*\na.cu | k | S.T | a => b\n"
                                     "[two/]\n* a.cu | l | S.T | a => b\n")
        self.assertEqual([one.file for one in listed], ["one/a.cu", "two/a.cu"])
        self.assertEqual([one.line for one in listed], [5, 7])
        self.assertEqual(dict(suites), {"one/a.cu": [faults.killer_of("S.*")]})
        self.assertEqual(faults.chosen(listed, quick=True), listed[1:])
        for text in ("two", "l", "7"):
            self.assertEqual(faults.chosen(listed, only=[text]), listed[1:], text)
        self.assertEqual(faults.chosen(listed, only=["nothing"]), [])


class Builds(unittest.TestCase):
    def test_the_checkout_of_a_build_folder_has_the_name_that_its_commands_have(self):
        with tempfile.TemporaryDirectory() as room:
            folder = pathlib.Path(room)
            self.assertIsNone(building.tree_of(folder))
            (folder / "CMakeCache.txt").write_text("CMAKE_BUILD_TYPE:STRING=Release\nCMAKE_HOME_DIRECTORY:INTERNAL=/a/link\n")
            self.assertEqual(building.tree_of(folder), pathlib.Path("/a/link"))


class Applying(unittest.TestCase):
    def test_the_only_place_is_replaced(self):
        self.assertEqual(with_edit("void first() => int first()"), SOURCE.replace("void first", "int first"))
        self.assertEqual(with_edit("void first() { =>"), SOURCE.replace("void first() {", ""))

    def test_lines_may_be_broken_in_another_way(self):
        self.assertIn("i < count; ++i", with_edit("first() ~> i < count; i += stride() => i < count; ++i"))

    def test_the_first_after_an_anchor_is_replaced(self):
        self.assertEqual(with_edit("second() ~> i < count => i <= count").count("i <= count"), 1)
        self.assertTrue(with_edit("second() ~> i < count => i <= count").endswith("i <= count; i += stride()) add(i);\n}\n"))

    def test_several_edits_are_one_fault(self):
        both = with_edit("second() => third() ;; first() => zeroth()")
        self.assertIn("third()", both)
        self.assertIn("zeroth()", both)

    def test_what_does_not_apply_once_is_refused_by_name(self):
        for edit, why in (("nothing => x", "occurs 0 times"), ("i < count => x", "occurs 2 times"),
                          ("void ~> i < count => x", "anchor occurs 2 times"),
                          ("second() ~> first => x", "occurs 0 times after the anchor"),
                          ("void first() => x ;; first() { => y", "overlap")):
            with self.assertRaisesRegex(faults.BadFault, f"^faults.txt:7: tail, dir/a.cu: .*{why}", msg=edit):
                with_edit(edit)


class Choosing(unittest.TestCase):
    def test_filters_are_those_of_gtest(self):
        names = ["Devices/A.X/cuda", "Devices/A.X/cpu", "Devices/A.Y/cuda_bf16", "B.Z"]
        self.assertEqual(faults.matching(faults.killer_of("A.*").gtest, names), [names[0], names[2]])
        self.assertEqual(faults.matching("B.*:Devices/A.Y/*", names), names[2:])
        self.assertEqual(faults.matching("C.*", names), [])


class Judging(unittest.TestCase):
    def test_outcomes(self):
        for arguments, outcome in (((0, False), Outcome.PASSED), ((1, False), Outcome.FAILED), ((-6, False), Outcome.CRASHED),
                                   ((134, False), Outcome.CRASHED), ((-9, True), Outcome.TIMED_OUT),
                                   ((1, False, "it\nsays so", "it.says? so"), Outcome.PASSED),
                                   ((0, False, "no", "yes"), Outcome.FAILED),
                                   ((-11, False, "it says so", "so"), Outcome.CRASHED)):
            self.assertEqual(verdicts.outcome_of(*arguments), outcome, arguments)

    def summary(self, *found):
        return verdicts.summary_of(found)

    def test_all_killed_is_good(self):
        summary = self.summary(Verdict(fault("a.cu | tail | S.T | a => b"), "S.T", Outcome.FAILED),
                               Verdict(fault("a.cu | mask | S.T | a => b"), "S.T", Outcome.CRASHED))
        self.assertEqual((summary.killed, summary.total, summary.is_good, summary.lines), (2, 2, True, []))
        self.assertEqual(summary.by_class, {"mask": (1, 1), "tail": (1, 1)})

    def test_a_survivor_is_named_and_fails(self):
        summary = self.summary(Verdict(fault("a.cu | tail | S.T | a => b")))
        self.assertEqual((summary.killed, summary.is_good), (0, False))
        self.assertEqual(summary.lines, ["SURVIVOR: faults.txt:7: tail, dir/a.cu: a => b"])

    def test_an_accepted_survivor_is_named_with_its_reason_and_does_not_fail(self):
        summary = self.summary(Verdict(fault("a.cu | tail | S.T | a => b !! too large")))
        self.assertEqual((summary.killed, summary.total, summary.is_good), (0, 1, True))
        self.assertRegex(summary.lines[0], "^accepted survivor: .*: too large$")

    def test_an_accepted_survivor_that_is_killed_fails(self):
        summary = self.summary(Verdict(fault("a.cu | tail | S.T | a => b !! too large"), "S.T", Outcome.FAILED))
        self.assertEqual((summary.killed, summary.is_good), (1, False))
        self.assertRegex(summary.lines[0], "^KILLED")

    def test_a_time_out_kills_and_is_said(self):
        summary = self.summary(Verdict(fault("a.cu | tail | S.T | a => b"), "S.T", Outcome.TIMED_OUT))
        self.assertEqual((summary.killed, summary.is_good), (1, True))
        self.assertRegex(summary.lines[0], "time-out")

    def test_what_does_not_compile_is_an_error_of_the_list(self):
        summary = self.summary(Verdict(fault("a.cu | tail | S.T | a => b"), error="does not compile: x"))
        self.assertEqual((summary.killed, summary.is_good), (0, False))
        self.assertRegex(summary.lines[0], "^ERROR of the list: .*does not compile: x")

    def test_another_test_than_expected_is_said(self):
        summary = self.summary(Verdict(fault("a.cu | tail | S.T | a => b"), "S.U", Outcome.FAILED, was_expected=False))
        self.assertEqual((summary.killed, summary.is_good), (1, True))
        self.assertRegex(summary.lines[0], "another test")


if __name__ == "__main__":
    unittest.main()
