package cli

import (
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// timerSlack is how late a timer of a server may be. No wait of a server is for anything that a few milliseconds matter to.
const timerSlack = 4 * time.Millisecond

// timersSet tells the program that was started anew that it was. Nothing else of this process sees it.
const timersSet = "KICI_TIMERS_SET"

// CoarseTimers starts a server anew in its own place, as the same process, with timers that may be late by timerSlack. What
// keeps it from that costs processor time and nothing else.
//
// The Go runtime has a thread that looks after the others, every 20 microseconds at first, whenever the process begins to do
// something after a rest. A server whose database is elsewhere rests after every message to it, and a fifth of its processor
// time went into the waking of that thread. Linux gives a thread the slack of the one that starts it (prctl(2), PR_SET_TIMERSLACK),
// and the runtime's is there before any code of ours, so only a new program can have it. What a server starts has it, too: that
// is git and the tools of PostgreSQL, and no job of anybody.
func CoarseTimers(args []string) {
	_, done := os.LookupEnv(timersSet)
	_ = os.Unsetenv(timersSet)
	if done || len(args) < 2 || args[1] != "server" {
		return
	}
	runtime.LockOSThread() // the setting is one of the thread
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(timerSlack), 0, 0, 0); err == nil {
		_ = unix.Exec("/proc/self/exe", os.Args, append(os.Environ(), timersSet+"=1"))
	}
}
