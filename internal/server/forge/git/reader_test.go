package git

import (
	"errors"
	"os/exec"
	"testing"
	"time"
)

// An unused process ends by itself, and the next read starts another.
func TestUnusedProcessEnds(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("git", "init", "-q", "--bare", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r := NewReader(Options{IdleTime: time.Nanosecond})
	defer r.Close()
	var used *process
	for range 2 {
		err := r.with(t.Context(), dir, func(p *process) error { used = p; return nil })
		if err != nil {
			t.Fatal(err)
		}
		<-used.ended
	}
}

// A process that died while nobody used it costs the next reader nothing but the start of another.
func TestDeadProcessIsReplaced(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("git", "init", "-q", "--bare", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r := NewReader(Options{})
	defer r.Close()
	if _, err := r.Show(t.Context(), dir, "main", "f", 10); !errors.Is(err, ErrNoCommit) {
		t.Fatal(err)
	}
	if err := r.idle[0].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Show(t.Context(), dir, "main", "f", 10); !errors.Is(err, ErrNoCommit) {
		t.Errorf("got %v", err)
	}
}

func TestOldestUnusedProcessMakesRoom(t *testing.T) {
	r := NewReader(Options{MaxIdle: 1})
	defer r.Close()
	var first *process
	for i := range 2 {
		dir := t.TempDir()
		if out, err := exec.Command("git", "init", "-q", "--bare", dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		err := r.with(t.Context(), dir, func(p *process) error {
			if i == 0 {
				first = p
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	<-first.ended
	if len(r.idle) != 1 {
		t.Errorf("%d processes are kept, want 1", len(r.idle))
	}
}
