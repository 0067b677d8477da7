//! Counting tests in what the test programs print.

use super::Tally;

/// Adds up the summaries of cargo test, cargo nextest, wasm-bindgen-test-runner and Node.
#[derive(Debug, Default)]
pub(super) struct Counter {
    passed: usize,
    failed: usize,
}

impl Counter {
    pub(super) fn read(&mut self, line: &str) {
        // cargo test, wasm-bindgen-test-runner:  test result: ok. 12 passed; 0 failed; 1 ignored; …
        // From the first column only: nextest repeats, indented, what a failed test's program said.
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.add(counts.split([';', '.']));
        // cargo nextest:  Summary [   1.234s] 12 tests run: 11 passed (1 slow), 1 failed, 3 skipped
        } else if let (true, Some((_, counts))) = (
            line.trim_start().starts_with("Summary ["),
            line.split_once(" run: "),
        ) {
            self.add(counts.split(','));
        // wasm-bindgen-test-runner, which ends well when a file is not meant for where it runs
        } else if line.trim() == "no tests to run!" {
            self.failed += 1;
        // Node:  ℹ pass 12
        } else if let Some(counts) = line.strip_prefix("ℹ ").or_else(|| line.strip_prefix("# ")) {
            let Some((word, number)) = counts.split_once(' ') else {
                return;
            };
            let Ok(number) = number.trim().parse::<usize>() else {
                return;
            };
            match word {
                "pass" => self.passed += number,
                "fail" | "cancelled" => self.failed += number,
                _ => {}
            }
        }
    }

    pub(super) fn tally(self) -> Tally {
        Tally {
            passed: self.passed,
            failed: self.failed,
            ..Tally::default()
        }
    }

    fn add<'a>(&mut self, counts: impl Iterator<Item = &'a str>) {
        for count in counts {
            let mut words = count.split_whitespace();
            let (Some(number), Some(word)) = (words.next(), words.next()) else {
                continue;
            };
            let Ok(number) = number.parse::<usize>() else {
                continue;
            };
            match word {
                "passed" => self.passed += number,
                // nextest: `timed out`, `exec failed`
                "failed" | "timed" | "exec" => self.failed += number,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Counter;

    fn count(lines: &[&str]) -> (usize, usize) {
        let mut counter = Counter::default();
        for line in lines {
            counter.read(line);
        }
        (counter.passed, counter.failed)
    }

    #[test]
    fn cargo_test_is_added_up_over_binaries() {
        let lines = [
            "running 2 tests",
            "test a ... ok",
            "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 1.00s",
        ];
        assert_eq!(count(&lines), (5, 1));
    }

    #[test]
    fn nextest_is_read_with_all_its_words() {
        assert_eq!(
            count(&["     Summary [   0.013s] 31 tests run: 31 passed, 3 skipped"]),
            (31, 0)
        );
        let line = "     Summary [   9.013s] 31 tests run: 27 passed (2 slow), 2 failed, 1 timed out, 1 exec failed, 3 skipped";
        assert_eq!(count(&[line]), (27, 4));
    }

    #[test]
    fn a_failed_test_counts_once() {
        let lines = [
            "    test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 20 filtered out; finished in 1.00s",
            "     Summary [   1.000s] 3 tests run: 2 passed, 1 failed, 0 skipped",
        ];
        assert_eq!(count(&lines), (2, 1));
    }

    #[test]
    fn node_is_read_in_both_of_its_formats() {
        assert_eq!(
            count(&[
                "ℹ tests 5",
                "ℹ pass 3",
                "ℹ fail 1",
                "ℹ cancelled 1",
                "ℹ duration_ms 12.5"
            ]),
            (3, 2)
        );
        assert_eq!(count(&["# tests 5", "# pass 4", "# fail 1"]), (4, 1));
    }

    #[test]
    fn a_program_that_skips_itself_counts_as_failed() {
        assert_eq!(count(&["no tests to run!"]), (0, 1));
    }

    #[test]
    fn other_lines_count_nothing() {
        assert_eq!(
            count(&[
                "7 passed the exam",
                "Summary of 3 failed",
                "ℹ pass",
                "# 12 pass"
            ]),
            (0, 0)
        );
    }
}
