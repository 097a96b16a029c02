package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kici/internal/cli"
)

// timersOf is the variable with which the test starts itself, as a command line with that verb.
const timersOf = "TEST_TIMERS_OF"

func TestOnlyAServerIsStartedAnewWithCoarseTimers(t *testing.T) {
	if verb, ok := os.LookupEnv(timersOf); ok {
		cli.CoarseTimers([]string{"kici", verb})
		slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
		_, told := os.LookupEnv("KICI_TIMERS_SET")
		fmt.Println("slack", slack, "error", err, "process", os.Getpid(), "told", told)
		return
	}
	for verb, slack := range map[string]int{"server": 4_000_000, "agent": 50_000} {
		cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), timersOf+"="+verb)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintln("slack", slack, "error", nil, "process", cmd.Process.Pid, "told", false)
		if !strings.Contains(string(out), want) {
			t.Errorf("%s: %s, want %s", verb, out, want)
		}
	}
}
