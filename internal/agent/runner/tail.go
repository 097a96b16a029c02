package runner

import "sync"

// stderrLines and stderrLine bound what is kept of a process' stderr for the report of a crash.
const (
	stderrLines = 20
	stderrLine  = 4 << 10
)

// tail keeps the last lines of a stream.
type tail struct {
	mu    sync.Mutex
	lines []string
}

func (t *tail) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lines) == stderrLines {
		t.lines = t.lines[:copy(t.lines, t.lines[1:])]
	}
	t.lines = append(t.lines, line)
}

// all gives a copy, oldest line first.
func (t *tail) all() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string{}, t.lines...)
}
