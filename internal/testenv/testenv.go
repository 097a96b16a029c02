// Package testenv tells tests what the machine has, and fails instead of skipping where that is demanded.
package testenv

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Need skips the test when the program is not on PATH. When KICI_TEST_REQUIRE (a comma list) names it, the test
// fails instead, so that a build machine cannot pass by lacking something.
func Need(t testing.TB, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		Missing(t, program, err.Error())
	}
}

// Missing skips the test for want of the named thing, or fails it when KICI_TEST_REQUIRE names it.
func Missing(t testing.TB, thing, why string) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv("KICI_TEST_REQUIRE"), ","), thing) {
		t.Fatalf("%s is required here and missing: %s", thing, why)
	}
	t.Skipf("%s is missing: %s", thing, why)
}
